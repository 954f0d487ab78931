/* The system-call filter of a job that does not run as its node's own user: it refuses the calls in filter_calls.h and
 * allows all others. The job's first process installs it after no_new_privs and before its program; nothing removes it.
 * Calls that are allowed whatever their arguments cost nothing, since the kernel keeps them in a bitmap (Linux 5.11).
 * The other numbers are found by binary search. Jobs that share files and user with the node have no filter: such a job
 * may do what its owner may do in a terminal, so a filter would protect nobody and would break debuggers, profilers and
 * containers.
 *
 * A Landlock domain is added (Linux 6.12). Abstract sockets of other users have no owner and no mode that could refuse
 * a connection, and without a pid namespace signals would reach processes outside the job. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox/filter.h"
#include "sandbox/sandbox.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#elif defined(__riscv)
#define ARCH AUDIT_ARCH_RISCV64
#else
#define ARCH 0
#endif
#define X32_BIT 0x40000000u
#define LONGEST 1024

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define LANDLOCK_SCOPES 3 /* abstract unix sockets and signals */

struct program {
    struct sock_filter code[LONGEST];
    unsigned short length;
};
static struct program plain, nested; /* nested: for jobs that may create namespaces */

static void put_instruction(struct program *p, unsigned short code, unsigned char if_true, unsigned char if_false,
                            uint32_t value)
{
    if (p->length < LONGEST)
        p->code[p->length++] = (struct sock_filter){code, if_true, if_false, value};
}

static void put_answer(struct program *p, uint32_t value) { put_instruction(p, BPF_RET | BPF_K, 0, 0, value); }
static void put_refusal(struct program *p, int err) { put_answer(p, SECCOMP_RET_ERRNO | (uint32_t)err); }
static void put_load(struct program *p, size_t offset)
{
    put_instruction(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

/* Loads the low half of the first argument, on machines of either byte order. */
static void load_argument(struct program *p)
{
    const uint16_t one = 1;
    put_load(p, offsetof(struct seccomp_data, args) + (*(const uint8_t *)&one ? 0 : 4));
}

/* Refuses if the argument has a bit (with `turned`: lacks it), or equals a value. */
static void by_argument(struct program *p, unsigned short test, uint32_t value, bool turned, int err)
{
    load_argument(p);
    put_instruction(p, BPF_JMP | test | BPF_K, turned, !turned, value);
    put_refusal(p, err);
    put_answer(p, SECCOMP_RET_ALLOW);
}

static void judge(struct program *p, enum verdict verdict)
{
    switch (verdict) {
    case ABSENT:
    case ABSENT_UNLESS_NESTED:
        put_refusal(p, ENOSYS);
        break;
    case FAULTS_OF_USERS:
        by_argument(p, BPF_JSET, UFFD_USER_MODE_ONLY, true, EPERM);
        break;
    case NO_USER_NAMESPACE:
        by_argument(p, BPF_JSET, CLONE_NEWUSER, false, EPERM);
        break;
    case NO_VSOCK:
        by_argument(p, BPF_JEQ, AF_VSOCK, false, EAFNOSUPPORT);
        break;
    default:
        put_refusal(p, EPERM);
    }
}

struct range { /* of numbers with the same verdict */
    int from, to;
    enum verdict verdict;
};

/* A binary search. The number of instructions for each number counts: the kernel runs the program once for every system
 * call number, to make its bitmap, whenever a job installs the filter. */
static void put_search(struct program *p, const struct range *ranges, size_t count)
{
    if (count == 1) {
        if (ranges->from == ranges->to) {
            put_instruction(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, (uint32_t)ranges->from);
        } else {
            put_instruction(p, BPF_JMP | BPF_JGE | BPF_K, 0, 1, (uint32_t)ranges->from);
            put_instruction(p, BPF_JMP | BPF_JGT | BPF_K, 0, 1, (uint32_t)ranges->to);
        }
        put_answer(p, SECCOMP_RET_ALLOW);
        judge(p, ranges->verdict);
        return;
    }
    size_t half = count / 2, at = p->length;
    put_instruction(p, BPF_JMP | BPF_JGE | BPF_K, 0, 1, (uint32_t)ranges[half].from);
    put_instruction(p, BPF_JMP | BPF_JA, 0, 0, 0); /* used if the conditional jump does not reach far enough */
    put_search(p, ranges, half);
    size_t far = p->length - at - 1;
    if (p->length == LONGEST)
        return;
    if (far <= 255)
        p->code[at].jt = (unsigned char)far;
    else
        p->code[at + 1].k = (uint32_t)(far - 1);
    put_search(p, ranges + half, count - half);
}

static int by_number(const void *one, const void *other)
{
    return ((const struct call *)one)->number - ((const struct call *)other)->number;
}

static bool applies(const struct call *c, bool is_nested)
{
    if (c->number < 0 || (c->verdict == OTHERS && settings.able & ABLE_PID))
        return false;
    return !is_nested ||
           (c->verdict != NESTED && c->verdict != ABSENT_UNLESS_NESTED && c->verdict != NO_USER_NAMESPACE);
}

static void add_table(struct program *p, const struct call *all, size_t count, bool is_nested)
{
    struct call chosen[128];
    struct range ranges[128];
    size_t n = 0, r = 0;
    for (size_t i = 0; i < count && n < sizeof chosen / sizeof *chosen; i++)
        if (applies(all + i, is_nested))
            chosen[n++] = all[i];
    qsort(chosen, n, sizeof *chosen, by_number);
    for (size_t i = 0; i < n; i++) {
        enum verdict verdict = chosen[i].verdict == NESTED || chosen[i].verdict == OTHERS ? REFUSED : chosen[i].verdict;
        if (r && ranges[r - 1].to + 1 == chosen[i].number && ranges[r - 1].verdict == verdict)
            ranges[r - 1].to++;
        else
            ranges[r++] = (struct range){chosen[i].number, chosen[i].number, verdict};
    }
    put_load(p, offsetof(struct seccomp_data, nr));
    put_search(p, ranges, r);
}

static void build_program(struct program *p, bool is_nested)
{
    put_load(p, offsetof(struct seccomp_data, arch));
    put_instruction(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCH);
    size_t jump = p->length;
    put_instruction(p, BPF_JMP | BPF_JA, 0, 0, 0);
#ifdef __x86_64__
    put_load(p, offsetof(struct seccomp_data, nr)); /* the x32 calls, which no program uses */
    put_instruction(p, BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
    put_refusal(p, ENOSYS);
#endif
    add_table(p, calls_native, calls_native_count, is_nested);
    p->code[jump].k = (uint32_t)(p->length - jump - 1);
#ifdef __x86_64__
    put_instruction(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, AUDIT_ARCH_I386);
    put_refusal(p, ENOSYS);
    add_table(p, calls_32, calls_32_count, is_nested);
#else
    put_refusal(p, ENOSYS);
#endif
}

void filter_build(void)
{
    plain.length = nested.length = 0;
    build_program(&plain, false);
    build_program(&nested, true);
}

static int install(struct program *p)
{
    struct sock_fprog program = {.len = p->length, .filter = p->code};
    return ARCH && p->length < LONGEST ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) : -1;
}

int filter_try(void) { return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -1 : install(&plain); }

/* Without an error if the kernel is too old for Landlock, or has it switched off: file permissions do not depend on
 * it. */
static void scope(void)
{
    const struct {
        uint64_t file_system, network, scoped;
    } rules = {.scoped = LANDLOCK_SCOPES};
    int fd = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
    if (fd < 0)
        return;
    if (syscall(SYS_landlock_restrict_self, fd, 0) == 0)
        errno = 0;
    close(fd);
}

/* Called once, by the process from which all processes of a restored job are forked, before it makes a socket for them.
 * A domain is shared only by inheritance: processes that each enter a domain of their own can neither signal each other
 * nor connect to each other's abstract sockets. */
int filter_enter_domain(const struct job *job, struct failure *f)
{
    if (!(job->start->flags & FLAG_FILTER) || !(settings.able & ABLE_FILTER))
        return 0;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return set_failure(f, "prctl", "no_new_privs");
    scope();
    return 0;
}

/* The system-call filter of a restored job, which its threads install themselves; NULL if it has none. */
const void *filter_code(const struct job *job, size_t *instructions)
{
    const struct program *p = job->start->flags & FLAG_NESTED ? &nested : &plain;
    *instructions = p->length;
    return job->start->flags & FLAG_FILTER && settings.able & ABLE_FILTER ? p->code : NULL;
}

int filter_install(const struct job *job, struct failure *f)
{
    if (!(job->start->flags & FLAG_FILTER) || !(settings.able & ABLE_FILTER))
        return 0;
    scope();
    return install(job->start->flags & FLAG_NESTED ? &nested : &plain) < 0 ? set_failure(f, "seccomp", "") : 0;
}

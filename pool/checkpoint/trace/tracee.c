/* Stops threads with ptrace and injects system calls into them. Each trap of ptrace that we met has a function or a
 * comment here. A stopped thread dies with its tracer (EXITKILL): between two injected calls its registers are not its
 * own, and half a job is worse than none. A thread that was only asked to stop does not die: it is unchanged. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <elf.h>

#include "trace/trace.h"

static long trace(int request, pid_t tid, void *address, uintptr_t data)
{
    return syscall(SYS_ptrace, request, tid, address, data);
}

#define PLAIN (PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD)

static int regs_get(struct tracee *h, struct user_regs_struct *r)
{
    struct iovec part = {r, sizeof *r};
    return trace(PTRACE_GETREGSET, h->tid, (void *)NT_PRSTATUS, (uintptr_t)&part) < 0 ? -1 : 0;
}

static int regs_set(struct tracee *h, struct user_regs_struct *r)
{
    struct iovec part = {r, sizeof *r};
    return trace(PTRACE_SETREGSET, h->tid, (void *)NT_PRSTATUS, (uintptr_t)&part) < 0 ? -1 : 0;
}

/* Tracer and tracees are pinned to one CPU, because an injected system call costs four context switches. On one CPU
 * each takes a microsecond or two. Between two CPUs each wakes the other CPU, which takes ten times as long, and more
 * in a virtual machine. */
static struct {
    bool now;
    long all; /* number of CPUs; 0: none chosen yet */
    cpu_set_t before, one;
} pinning;

void pin_cpu(void)
{
    int here = sched_getcpu();
    if (pinning.now || here < 0 || sched_getaffinity(0, sizeof pinning.before, &pinning.before) < 0)
        return;
    if (!pinning.all) {
        pinning.all = sysconf(_SC_NPROCESSORS_ONLN);
        CPU_ZERO(&pinning.one);
        CPU_SET(here, &pinning.one);
    }
    pinning.now = sched_setaffinity(0, sizeof pinning.one, &pinning.one) == 0;
}

/* A thread that may run on all present CPUs gets an affinity to all possible ones: more CPUs may be added. */
static void set_affinity(pid_t tid, cpu_set_t *to)
{
    if (CPU_COUNT(to) >= pinning.all)
        memset(to, 0xff, sizeof *to);
    sched_setaffinity(tid, sizeof *to, to);
}

bool unpin_cpu(void)
{
    bool was = pinning.now;
    if (was)
        set_affinity(0, &pinning.before);
    pinning.now = false;
    return was;
}

static void pin_tracee(struct tracee *h)
{
    if (pinning.now && !h->pinned)
        h->pinned = sched_getaffinity(h->tid, sizeof h->processors, &h->processors) == 0 &&
                    sched_setaffinity(h->tid, sizeof pinning.one, &pinning.one) == 0;
}

int tracee_seize(struct tracee *h, pid_t tid)
{
    memset(h, 0, sizeof *h);
    h->tid = tid;
    if (trace(PTRACE_SEIZE, tid, NULL, 0) < 0)
        return -1;
    return trace(PTRACE_INTERRUPT, tid, NULL, 0) < 0 ? -1 : 0;
}

static int wait_one(struct tracee *h, int *status)
{
    while (waitpid(h->tid, status, __WALL) < 0)
        if (errno != EINTR) {
            h->lost = true;
            return -1;
        }
    if (WIFSTOPPED(*status))
        return 0;
    h->lost = true;
    errno = ESRCH;
    return -1;
}

/* Another signal may stop the thread before the stop that we asked for. We deliver it: the kernel sets up the handler's
 * frame, no instruction of the handler runs, and our stop follows at once. */
int tracee_poll(struct tracee *h)
{
    int status;
    for (;;) {
        pid_t pid = waitpid(h->tid, &status, __WALL | WNOHANG);
        if (pid == 0 || (pid < 0 && errno == EINTR))
            return 0;
        if (pid < 0 || !WIFSTOPPED(status)) {
            h->lost = true;
            errno = ESRCH;
            return -1;
        }
        if (status >> 16 == PTRACE_EVENT_STOP) {
            h->stopped = WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status) : 0;
            return 1;
        }
        int signal = status >> 16 ? 0 : WSTOPSIG(status);
        if (trace(PTRACE_CONT, h->tid, NULL, (uintptr_t)signal) < 0)
            return -1;
    }
}

int tracee_await(struct tracee *h)
{
    int done;
    while ((done = tracee_poll(h)) == 0)
        usleep(20);
    return done < 0 ? -1 : 0;
}

int tracee_bind(struct tracee *h)
{
    h->bound = h->bound || trace(PTRACE_SETOPTIONS, h->tid, NULL, PLAIN) == 0;
    if (h->bound)
        pin_tracee(h);
    return h->bound ? 0 : -1;
}

/* Blocks all signals before the first injected call: a handler that ran in between would see registers that are not the
 * thread's own. Uses ptrace instead of a system call, for the same reason. */
int tracee_open(struct tracee *h, uint64_t call_at)
{
    uint64_t all = ~0ull;
    h->call_at = call_at;
    if (tracee_bind(h) < 0 || regs_get(h, &h->saved) < 0 ||
        trace(PTRACE_GETSIGMASK, h->tid, (void *)8, (uintptr_t)&h->mask) < 0 ||
        trace(PTRACE_SETSIGMASK, h->tid, (void *)8, (uintptr_t)&all) < 0)
        return -1;
    h->now = h->saved;
    return 0;
}

void tracee_close(struct tracee *h)
{
    if (h->lost)
        return;
    regs_set(h, &h->saved);
    trace(PTRACE_SETSIGMASK, h->tid, (void *)8, (uintptr_t)&h->mask);
}

void tracee_release(struct tracee *h)
{
    if (h->lost)
        return;
    if (h->pinned)
        set_affinity(h->tid, &h->processors);
    trace(PTRACE_DETACH, h->tid, NULL, 0);
}

/* Single-steps with all signals blocked: the memory in the range may hold other code when the thread continues. */
int tracee_leave(struct tracee *h, uint64_t start, uint64_t end)
{
    struct user_regs_struct r;
    uint64_t all = ~0ull, mask;
    int status, done = -1;
    if (regs_get(h, &r) < 0)
        return -1;
    if (regs_place(&r) < start || regs_place(&r) >= end)
        return 0;
    if (trace(PTRACE_GETSIGMASK, h->tid, (void *)8, (uintptr_t)&mask) < 0 ||
        trace(PTRACE_SETSIGMASK, h->tid, (void *)8, (uintptr_t)&all) < 0)
        return -1;
    for (int steps = 0; steps < 20000 && done; steps++) {
        if (trace(PTRACE_SINGLESTEP, h->tid, NULL, 0) < 0 || wait_one(h, &status) < 0 || regs_get(h, &r) < 0)
            return -1;
        if (!(status >> 16) && WSTOPSIG(status) == SIGSTOP)
            h->stopped = SIGSTOP;
        done = regs_place(&r) >= start && regs_place(&r) < end ? -1 : 0;
    }
    trace(PTRACE_SETSIGMASK, h->tid, (void *)8, (uintptr_t)&mask);
    return done;
}

/* Runs the tracee to its next system call entry or exit. Other stops on the way are passed over. SIGSTOP cannot be
 * blocked; it is recorded, and sent again when the thread is released. */
static int to_call_stop(struct tracee *h)
{
    int status;
    for (;;) {
        if (trace(PTRACE_SYSCALL, h->tid, NULL, 0) < 0 || wait_one(h, &status) < 0)
            return -1;
        if (WSTOPSIG(status) == (SIGTRAP | 0x80))
            return 0;
        if (status >> 16)
            continue;
        if (WSTOPSIG(status) == SIGSTOP)
            h->stopped = SIGSTOP;
    }
}

long tracee_call(struct tracee *h, long number, ...)
{
    unsigned long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, unsigned long);
    va_end(list);
    if (h->lost)
        return -ESRCH;
    struct user_regs_struct r = h->now;
    regs_call(&r, h->call_at, number, a);
    if (regs_set(h, &r) < 0 || to_call_stop(h) < 0 || to_call_stop(h) < 0 || regs_get(h, &r) < 0) {
        h->lost = true;
        return -ESRCH;
    }
    return regs_result(&r);
}

/* The interrupt that is requested at the call's entry arrives when the call would block, and once more after its exit.
 * The next operation on the tracee passes over the second one. */
long tracee_begin(struct tracee *h, long number, const unsigned long a[6])
{
    struct user_regs_struct r = h->now;
    regs_call(&r, h->call_at, number, a);
    if (h->lost || regs_set(h, &r) < 0 || to_call_stop(h) < 0 || trace(PTRACE_INTERRUPT, h->tid, NULL, 0) < 0 ||
        to_call_stop(h) < 0 || regs_get(h, &r) < 0) {
        h->lost = true;
        return -ESRCH;
    }
    return regs_result(&r);
}

int tracee_run(struct tracee *h, struct user_regs_struct *r) { return regs_set(h, r) < 0 ? -1 : tracee_on(h); }

int tracee_on(struct tracee *h) { return trace(PTRACE_CONT, h->tid, NULL, 0) < 0 ? -1 : 0; }

static int await_child(struct tracee *h, struct tracee *child)
{
    int status;
    memset(child, 0, sizeof *child);
    for (;;) {
        if (wait_one(h, &status) < 0)
            return -1;
        if (status >> 16 == PTRACE_EVENT_CLONE || status >> 16 == PTRACE_EVENT_FORK ||
            status >> 16 == PTRACE_EVENT_VFORK) {
            unsigned long tid;
            if (trace(PTRACE_GETEVENTMSG, h->tid, NULL, (uintptr_t)&tid) < 0)
                return -1;
            child->tid = (pid_t)tid;
        } else if (WSTOPSIG(status) == (SIGTRAP | 0x80) && !(status >> 16)) {
            return 0;
        }
        if (trace(PTRACE_SYSCALL, h->tid, NULL, 0) < 0)
            return -1;
    }
}

static pid_t clone_by(struct tracee *h, struct tracee *child, long number, const unsigned long a[6])
{
    struct user_regs_struct r = h->now;
    int status;
    regs_call(&r, h->call_at, number, a);
    if (trace(PTRACE_SETOPTIONS, h->tid, NULL, PLAIN | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK) < 0 ||
        regs_set(h, &r) < 0 || to_call_stop(h) < 0 || trace(PTRACE_SYSCALL, h->tid, NULL, 0) < 0 ||
        await_child(h, child) < 0 || regs_get(h, &r) < 0) {
        h->lost = true;
        return -ESRCH;
    }
    trace(PTRACE_SETOPTIONS, h->tid, NULL, PLAIN);
    if (regs_result(&r) < 0)
        return (pid_t)regs_result(&r);
    /* The child stops by itself before its first instruction, since it inherits the tracer. */
    if (!child->tid || wait_one(child, &status) < 0)
        return -ESRCH;
    tracee_bind(child);
    child->call_at = h->call_at;
    if (regs_get(child, &child->now) < 0)
        return -ESRCH;
    child->saved = child->now;
    child->mask = h->mask;
    child->pinned = h->pinned;
    child->processors = h->processors;
    return child->tid;
}

pid_t tracee_clone(struct tracee *h, struct tracee *child, unsigned long flags)
{
    const unsigned long a[6] = {flags, 0, 0, 0, 0, 0};
    return clone_by(h, child, SYS_clone, a);
}

pid_t tracee_clone3(struct tracee *h, struct tracee *child, uint64_t arguments, size_t size)
{
    const unsigned long a[6] = {arguments, size, 0, 0, 0, 0};
    return clone_by(h, child, SYS_clone3, a);
}

int tracee_read(pid_t pid, uint64_t at, void *to, size_t size)
{
    struct iovec here = {to, size}, there = {(void *)(uintptr_t)at, size};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)size ? 0 : -1;
}

int tracee_write(pid_t pid, uint64_t at, const void *from, size_t size)
{
    struct iovec here = {(void *)(uintptr_t)from, size}, there = {(void *)(uintptr_t)at, size};
    return process_vm_writev(pid, &here, 1, &there, 1, 0) == (ssize_t)size ? 0 : -1;
}

int tracee_state(struct tracee *h, struct user_regs_struct *r, void *xstate, size_t *size)
{
    struct iovec part = {xstate, *size};
    if (regs_get(h, r) < 0 || trace(PTRACE_GETREGSET, h->tid, (void *)NT_X86_XSTATE, (uintptr_t)&part) < 0)
        return -1;
    *size = part.iov_len;
    return 0;
}

int tracee_become(struct tracee *h, const struct user_regs_struct *r, const void *xstate, size_t size, uint64_t mask)
{
    struct iovec part = {(void *)(uintptr_t)xstate, size};
    h->saved = *r;
    if (trace(PTRACE_SETREGSET, h->tid, (void *)NT_X86_XSTATE, (uintptr_t)&part) < 0)
        return -1;
    h->mask = mask;
    return regs_set(h, &h->saved) < 0 || trace(PTRACE_SETSIGMASK, h->tid, (void *)8, (uintptr_t)&h->mask) < 0 ? -1 : 0;
}

int tracee_rseq(struct tracee *h, struct rseq_place *place)
{
    memset(place, 0, sizeof *place);
    return trace(0x420f /* PTRACE_GET_RSEQ_CONFIGURATION, Linux 5.13 */, h->tid, (void *)sizeof *place,
                 (uintptr_t)place) < 0
               ? -1
               : 0;
}

/* Reads one pending signal; 1 if there is one at this index. */
int tracee_pending(struct tracee *h, bool shared, uint64_t place, void *info)
{
    struct __ptrace_peeksiginfo_args wanted = {.off = place, .flags = shared ? PTRACE_PEEKSIGINFO_SHARED : 0, .nr = 1};
    return (int)trace(PTRACE_PEEKSIGINFO, h->tid, &wanted, (uintptr_t)info);
}

/* Everything that depends on the processor: registers, the system call instruction, restart codes, CPU features. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "trace/trace.h"

#ifndef __x86_64__
#error "only x86-64 so far: another processor needs its own of this file"
#endif

const unsigned char call_code[CALL_SIZE] = {0x0f, 0x05};

void regs_call(struct user_regs_struct *r, uint64_t call_at, long number, const unsigned long a[6])
{
    r->rip = call_at;
    r->rax = (unsigned long)number;
    r->orig_rax = ~0ul; /* no system call in progress: else the kernel would restart one when the thread continues */
    r->rdi = a[0], r->rsi = a[1], r->rdx = a[2], r->r10 = a[3], r->r8 = a[4], r->r9 = a[5];
}

/* Sets the registers for a call of a function with one argument. */
void regs_enter(struct user_regs_struct *r, uint64_t code, uint64_t stack, uint64_t argument)
{
    r->rip = code;
    r->rsp = stack - 8; /* as after a call instruction */
    r->rdi = argument;
    r->rax = 0;
    r->orig_rax = ~0ul;
    r->eflags &= ~0x500ul; /* clears the trap flag and the direction flag */
}

long regs_result(const struct user_regs_struct *r) { return (long)r->rax; }

long regs_asked(const struct user_regs_struct *r, unsigned long a[6])
{
    a[0] = r->rdi, a[1] = r->rsi, a[2] = r->rdx, a[3] = r->r10, a[4] = r->r8, a[5] = r->r9;
    return (long)((long)r->orig_rax >= 0 ? r->orig_rax : r->rax);
}

void regs_ask(struct user_regs_struct *r, long number)
{
    *((long)r->orig_rax >= 0 ? &r->orig_rax : &r->rax) = (unsigned long)number;
}

void regs_give(struct user_regs_struct *r, const unsigned long a[6])
{
    r->rdi = a[0], r->rsi = a[1], r->rdx = a[2], r->r10 = a[3], r->r8 = a[4], r->r9 = a[5];
}

void regs_answer(struct user_regs_struct *r, long result)
{
    r->rax = (unsigned long)result;
    r->rip += CALL_SIZE;
}

/* Calls that fail with EINTR when the thread is stopped, even if no handler ran (signal(7)): the program would notice
 * the stop. */
static bool fails_when_stopped(unsigned long number)
{
    switch (number) {
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case 441 /* epoll_pwait2 */:
    case SYS_rt_sigtimedwait:
    case SYS_semop:
    case SYS_semtimedop:
    case SYS_msgrcv:
    case SYS_msgsnd:
    /* On sockets with a timeout (SO_RCVTIMEO, SO_SNDTIMEO). */
    case SYS_read:
    case SYS_readv:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_accept:
    case SYS_accept4:
    case SYS_write:
    case SYS_writev:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
    case SYS_connect:
        return true;
    }
    return false;
}

/* The codes are internal to the kernel (include/linux/errno.h). ERESTARTSYS, ERESTARTNOINTR and ERESTARTNOHAND restart
 * the call with the same arguments. ERESTART_RESTARTBLOCK continues with the remaining time: the kernel keeps it, and
 * loses it with the process. For an image state/timeouts.c records it. */
void regs_settle(struct user_regs_struct *r, bool for_image)
{
    long code = (long)r->rax;
    unsigned long number = r->orig_rax;
    if ((long)number < 0)
        return;
    r->orig_rax = ~0ul;
    if (code == -516 && !for_image) {
        r->rax = SYS_restart_syscall;
    } else if (code == -516 || (code <= -512 && code >= -514) || (code == -EINTR && fails_when_stopped(number))) {
        r->rax = number;
    } else {
        return;
    }
    r->rip -= CALL_SIZE;
}

bool regs_partial(const struct user_regs_struct *r, long *number, uint64_t arguments[3], uint64_t *moved)
{
    *number = (long)r->orig_rax;
    *moved = r->rax;
    arguments[0] = r->rdi, arguments[1] = r->rsi, arguments[2] = r->rdx;
    return (*number == SYS_read || *number == SYS_readv || *number == SYS_write || *number == SYS_writev) &&
           (long)r->rax > 0;
}

static size_t put_bytes(unsigned char *code, size_t at, const void *bytes, size_t size)
{
    memcpy(code + at, bytes, size);
    return at + size;
}

/* syscall; test %rax, %rax; js 1f; add $moved, %rax; jmp 2f; 1: mov $moved, %rax; 2: restore the arguments; jump back.
 * One call moves at most 2 GiB. */
void regs_rest(struct user_regs_struct *r, unsigned char code[REST_SIZE], uint64_t code_at, uint64_t from,
               uint64_t count)
{
    int32_t moved = (int32_t)r->rax;
    uint64_t second = r->rsi, third = r->rdx, back = r->rip;
    size_t at = put_bytes(code, 0, "\x0f\x05\x48\x85\xc0\x78\x08\x48\x05", 9);
    at = put_bytes(code, at, &moved, sizeof moved);
    at = put_bytes(code, at, "\xeb\x07\x48\xc7\xc0", 5);
    at = put_bytes(code, at, &moved, sizeof moved);
    at = put_bytes(code, at, "\x48\xbe", 2);
    at = put_bytes(code, at, &second, sizeof second);
    at = put_bytes(code, at, "\x48\xba", 2);
    at = put_bytes(code, at, &third, sizeof third);
    at = put_bytes(code, at, "\xff\x25\0\0\0\0", 6);
    put_bytes(code, at, &back, sizeof back);
    r->rax = r->orig_rax;
    r->orig_rax = ~0ul;
    r->rsi = from, r->rdx = count, r->rip = code_at;
}

uint64_t regs_place(const struct user_regs_struct *r) { return r->rip; }

/* movabs $to, %rax; jmp *%rax: a function does not expect a value in that register at its entry. */
void jump_to(unsigned char *code, uint64_t to)
{
    code[0] = 0x48, code[1] = 0xb8, code[10] = 0xff, code[11] = 0xe0;
    memcpy(code + 2, &to, sizeof to);
}

bool regs_foreign(const struct user_regs_struct *r) { return r->cs != 0x33; }

static void leaf(uint32_t number, uint32_t sub, uint32_t out[4])
{
    memset(out, 0, 16);
    if (number <= (uint32_t)__get_cpuid_max(number & 0x80000000u, NULL))
        __cpuid_count(number, sub, out[0], out[1], out[2], out[3]);
}

void features(uint64_t into[8])
{
    uint32_t r[4], low, high;
    memset(into, 0, 8 * sizeof *into);
    leaf(1, 0, r);
    /* OSXSAVE is kept: it does not depend on the core or the state of the system */
    into[0] = (uint64_t)r[2] << 32 | r[3];
    bool saves = r[2] & 1u << 27;
    leaf(7, 0, r);
    into[1] = (uint64_t)r[1] << 32 | r[2];
    into[2] = r[3];
    leaf(7, 1, r);
    into[3] = (uint64_t)r[0] << 32 | r[3];
    leaf(0x80000001u, 0, r);
    into[4] = (uint64_t)r[2] << 32 | r[3];
    if (saves) {
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        into[5] = (uint64_t)high << 32 | low;
    }
}

static const struct {
    uint8_t word, bit;
    const char *name;
} known[] = {
    {0, 32, "SSE3"},         {0, 41, "SSSE3"},
    {0, 44, "FMA"},          {0, 51, "SSE4.1"},
    {0, 52, "SSE4.2"},       {0, 54, "MOVBE"},
    {0, 55, "POPCNT"},       {0, 57, "AES"},
    {0, 60, "AVX"},          {0, 61, "F16C"},
    {0, 62, "RDRAND"},       {1, 35, "BMI1"},
    {1, 37, "AVX2"},         {1, 40, "BMI2"},
    {1, 41, "ERMS"},         {1, 43, "RTM"},
    {1, 48, "AVX512F"},      {1, 49, "AVX512DQ"},
    {1, 50, "RDSEED"},       {1, 51, "ADX"},
    {1, 61, "SHA"},          {1, 62, "AVX512BW"},
    {1, 63, "AVX512VL"},     {1, 1, "AVX512VBMI"},
    {1, 6, "AVX512VBMI2"},   {1, 8, "GFNI"},
    {1, 9, "VAES"},          {1, 11, "AVX512VNNI"},
    {2, 4, "FSRM"},          {2, 22, "AMX-BF16"},
    {2, 23, "AVX512FP16"},   {2, 24, "AMX-TILE"},
    {2, 25, "AMX-INT8"},     {3, 36, "AVX-VNNI"},
    {4, 37, "LZCNT"},        {5, 2, "AVX state"},
    {5, 5, "AVX-512 state"}, {5, 9, "protection keys"},
};

/* Lists only features by which programs select code: a library tests them once when it starts, and not again. */
const char *features_missing(const uint64_t had[8])
{
    static char text[256];
    uint64_t have[8];
    features(have);
    text[0] = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint64_t bit = 1ull << known[i].bit;
        size_t used = strlen(text);
        if (had[known[i].word] & bit && !(have[known[i].word] & bit))
            snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : "", known[i].name);
    }
    return *text ? text : NULL;
}

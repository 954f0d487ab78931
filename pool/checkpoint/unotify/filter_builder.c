/* Builds the seccomp filters that ask a supervisor about system calls, by number alone or by the number and a file
 * descriptor argument. Both supervisors use it when a job starts. The kernel keeps the verdict of calls that are
 * allowed by number alone in a bitmap, so those cost nothing. io_uring would bypass the filter, so its calls fail with
 * ENOSYS. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "unotify/filter_builder.h"

#define X32_BIT 0x40000000u
#define LONGEST 768

static struct sock_filter code[LONGEST];
static unsigned short length;

static void put_instruction(unsigned short what, unsigned char if_true, unsigned char if_false, uint32_t value)
{
    if (length < LONGEST)
        code[length++] = (struct sock_filter){what, if_true, if_false, value};
}

static void put_answer(uint32_t value) { put_instruction(BPF_RET | BPF_K, 0, 0, value); }

static void load_argument(int number)
{
    const uint16_t one = 1;
    size_t low = *(const uint8_t *)&one ? 0 : 4;
    put_instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0,
                    (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (size_t)number + low));
}

static void always(long call, uint32_t what)
{
    put_instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (uint32_t)call);
    put_answer(what);
}

void trap_always(long call) { always(call, SECCOMP_RET_USER_NOTIF); }

void trap_number(long call, int argument, int first)
{
    put_instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 5, (uint32_t)call);
    load_argument(argument);
    put_instruction(BPF_JMP | BPF_JGE | BPF_K, 0, 2, (uint32_t)first);
    put_instruction(BPF_JMP | BPF_JGE | BPF_K, 1, 0, (uint32_t)first + TRAPPED_NUMBERS);
    put_answer(SECCOMP_RET_USER_NOTIF);
    put_answer(SECCOMP_RET_ALLOW);
}

void trap_either(long call, int flags, int first)
{
    put_instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 8, (uint32_t)call);
    load_argument(flags);
    put_instruction(BPF_JMP | BPF_JSET | BPF_K, 0, 4, 0x1000);
    load_argument(0);
    put_instruction(BPF_JMP | BPF_JGE | BPF_K, 2, 0, 0x80000000u);
    put_instruction(BPF_JMP | BPF_JGE | BPF_K, 0, 2, (uint32_t)first);
    put_instruction(BPF_JMP | BPF_JGE | BPF_K, 1, 0, (uint32_t)first + TRAPPED_NUMBERS);
    put_answer(SECCOMP_RET_USER_NOTIF);
    put_answer(SECCOMP_RET_ALLOW);
}

void trap_value(long call, int argument, uint32_t value, uint32_t what)
{
    put_instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, (uint32_t)call);
    load_argument(argument);
    put_instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, value);
    put_answer(what);
    put_instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
}

/* mmap of a file that is shared, or whose descriptor is one of the high numbers. */
void trap_map(int first)
{
    put_instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 8, SYS_mmap);
    load_argument(3);
    put_instruction(BPF_JMP | BPF_JSET | BPF_K, 5, 0, MAP_ANONYMOUS);
    put_instruction(BPF_JMP | BPF_JSET | BPF_K, 3, 0, MAP_SHARED);
    load_argument(4);
    put_instruction(BPF_JMP | BPF_JGE | BPF_K, 0, 2, (uint32_t)first);
    put_instruction(BPF_JMP | BPF_JGE | BPF_K, 1, 0, (uint32_t)first + TRAPPED_NUMBERS);
    put_answer(SECCOMP_RET_USER_NOTIF);
    put_answer(SECCOMP_RET_ALLOW);
}

void traps_begin(uint32_t foreign)
{
    length = 0;
    put_instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, arch));
    put_instruction(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, OWN_ARCH);
    put_answer(foreign);
    put_instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
    put_instruction(BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
    put_answer(SECCOMP_RET_ERRNO | ENOSYS);
#endif
}

const void *traps_code(size_t *instructions)
{
    static const long around[] = {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register};
    for (size_t i = 0; i < sizeof around / sizeof *around; i++)
        always(around[i], SECCOMP_RET_ERRNO | ENOSYS);
    put_answer(SECCOMP_RET_ALLOW);
    *instructions = length;
    return OWN_ARCH && length < LONGEST ? code : NULL;
}

int traps_install(void)
{
    size_t count;
    struct sock_fprog program = {.filter = (struct sock_filter *)(uintptr_t)traps_code(&count)};
    program.len = (unsigned short)count;
    errno = ENOSYS;
    return program.filter ? (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, TRAPS_FLAGS, &program) : -1;
}

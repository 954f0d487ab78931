/* The filter of a process with a mapped file: which calls the supervisor is asked about.
 *
 * Calls by name always; calls by descriptor only on the numbers that mapped files have. Whatever is decided by the call's
 * number alone, read and write before all, is in the kernel's bitmap and costs nothing. io_uring would go round the
 * filter and is not there; programs for another instruction set are asked about at their first call, and named. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mapping.h"

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
#define LONGEST 512

static struct sock_filter code[LONGEST];
static unsigned short length;

static void put(unsigned short what, unsigned char if_true, unsigned char if_false, uint32_t value)
{
    if (length < LONGEST)
        code[length++] = (struct sock_filter){what, if_true, if_false, value};
}

static void answer(uint32_t value) { put(BPF_RET | BPF_K, 0, 0, value); }

static void load_argument(int number)
{
    const uint16_t one = 1;
    size_t low = *(const uint8_t *)&one ? 0 : 4;
    put(BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (size_t)number + low));
}

static void always(long call, uint32_t what)
{
    put(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (uint32_t)call);
    answer(what);
}

/* When that argument is one of the high numbers. */
static void at_number(long call, int argument, int first)
{
    put(BPF_JMP | BPF_JEQ | BPF_K, 0, 5, (uint32_t)call);
    load_argument(argument);
    put(BPF_JMP | BPF_JGE | BPF_K, 0, 2, (uint32_t)first);
    put(BPF_JMP | BPF_JGE | BPF_K, 1, 0, (uint32_t)first + SLOTS);
    answer(SECCOMP_RET_USER_NOTIF);
    answer(SECCOMP_RET_ALLOW);
}

/* A call that takes a name, or with AT_EMPTY_PATH in `flags` a descriptor: that one by its number. */
static void at_either(long call, int flags, int first)
{
    put(BPF_JMP | BPF_JEQ | BPF_K, 0, 8, (uint32_t)call);
    load_argument(flags);
    put(BPF_JMP | BPF_JSET | BPF_K, 0, 4, 0x1000);
    load_argument(0);
    put(BPF_JMP | BPF_JGE | BPF_K, 2, 0, 0x80000000u);
    put(BPF_JMP | BPF_JGE | BPF_K, 0, 2, (uint32_t)first);
    put(BPF_JMP | BPF_JGE | BPF_K, 1, 0, (uint32_t)first + SLOTS);
    answer(SECCOMP_RET_USER_NOTIF);
    answer(SECCOMP_RET_ALLOW);
}

static const struct {
    long call;
    int argument;
} by_number[] = {
    {SYS_close, 0}, {SYS_lseek, 0}, {SYS_fstat, 0}, {SYS_mmap, 4}, {SYS_fcntl, 0}, {SYS_dup, 0}, {SYS_pread64, 0},
    {SYS_pwrite64, 0}, {SYS_preadv, 0}, {SYS_pwritev, 0}, {SYS_preadv2, 0}, {SYS_pwritev2, 0}, {SYS_fsync, 0},
    {SYS_fdatasync, 0}, {SYS_ftruncate, 0}, {SYS_flock, 0}, {SYS_fallocate, 0}, {SYS_fadvise64, 0}, {SYS_readahead, 0},
    {SYS_fchmod, 0}, {SYS_fchown, 0}, {SYS_sync_file_range, 0}, {SYS_fgetxattr, 0}, {SYS_flistxattr, 0}, {SYS_fsetxattr, 0},
};

static const long by_name[] = {
    SYS_openat, SYS_openat2, SYS_faccessat, SYS_faccessat2, SYS_unlinkat, SYS_renameat2, SYS_linkat, SYS_truncate,
    SYS_fchmodat, SYS_fchownat, SYS_utimensat, SYS_readlinkat, SYS_getxattr, SYS_lgetxattr, SYS_listxattr, SYS_llistxattr,
    SYS_setxattr, SYS_lsetxattr,
#ifdef SYS_renameat
    SYS_renameat,
#endif
#ifdef SYS_open
    SYS_open, SYS_creat, SYS_access, SYS_unlink, SYS_rename, SYS_link, SYS_chmod, SYS_chown, SYS_lchown, SYS_readlink,
    SYS_utime, SYS_utimes, SYS_futimesat, SYS_stat, SYS_lstat,
#endif
};

static void build(int first)
{
    length = 0;
    put(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, arch));
    put(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCH);
    answer(SECCOMP_RET_USER_NOTIF);
    put(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
    put(BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
    answer(SECCOMP_RET_ERRNO | ENOSYS);
#endif
    for (size_t i = 0; i < sizeof by_number / sizeof *by_number; i++)
        at_number(by_number[i].call, by_number[i].argument, first);
    at_either(SYS_newfstatat, 3, first);
    at_either(SYS_statx, 2, first);
    for (size_t i = 0; i < sizeof by_name / sizeof *by_name; i++)
        always(by_name[i], SECCOMP_RET_USER_NOTIF);
    always(SYS_io_uring_setup, SECCOMP_RET_ERRNO | ENOSYS);
    always(SYS_io_uring_enter, SECCOMP_RET_ERRNO | ENOSYS);
    always(SYS_io_uring_register, SECCOMP_RET_ERRNO | ENOSYS);
    answer(SECCOMP_RET_ALLOW);
}

const void *mapping_code(int first, size_t *instructions)
{
    build(first);
    *instructions = length;
    return ARCH && length < LONGEST ? code : NULL;
}

int mapping_filter(int first, struct failure *f)
{
    size_t count;
    const void *built = mapping_code(first, &count);
    struct sock_fprog program = {.filter = code, .len = (unsigned short)count};
    errno = ENOSYS;
    int fd = built ? (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, MAPPING_FLAGS, &program) : -1;
    return fd < 0 ? fail(f, "seccomp", "mapping of file names needs user notification (Linux 5.19)") : fd;
}

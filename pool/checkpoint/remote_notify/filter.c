/* The filter of a job with remote files, without FUSE: it asks the supervisor about all calls with names, since names
 * may lead anywhere; about calls with file descriptors for which the submit side has the answer, not the stand-in; and
 * about calls that close or pass on descriptors. It does not ask about read, write and seek, except on the high numbers
 * of large files that are fetched on demand. Programs for another instruction set cannot run. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unotify/path_syscalls.h"
#include "remote_notify/parts.h"

/* In addition to those with names. */
static const long asked[] = {
    SYS_fstat,      SYS_fchmod,      SYS_fchown,    SYS_ftruncate,   SYS_fstatfs,   SYS_fsync,
    SYS_fdatasync,  SYS_getdents64,  SYS_fgetxattr, SYS_flistxattr,  SYS_fsetxattr, SYS_fremovexattr,
    SYS_close,      SYS_close_range, SYS_dup3,      SYS_msync,       SYS_sync,      SYS_syncfs,
    SYS_exit_group, SYS_sendmsg,     SYS_sendmmsg,  SYS_pidfd_getfd,
#ifdef SYS_open
    SYS_getdents,   SYS_dup2,
#endif
};

/* For a file that is fetched on demand: its bytes must be here before the kernel reads them. */
static const struct {
    long call;
    int argument;
} of_high[] = {
    {SYS_read, 0}, {SYS_pread64, 0}, {SYS_readv, 0},    {SYS_preadv, 0}, {SYS_preadv2, 0},         {SYS_lseek, 0},
    {SYS_dup, 0},  {SYS_fcntl, 0},   {SYS_sendfile, 1}, {SYS_splice, 0}, {SYS_copy_file_range, 0},
};

int notify_filter(int first, struct failure *f)
{
    traps_begin(SECCOMP_RET_ERRNO | ENOSYS);
    for (size_t i = 0; i < sizeof of_high / sizeof *of_high; i++)
        trap_number(of_high[i].call, of_high[i].argument, first);
    trap_map(first);
    trap_value(SYS_ioctl, 1, FICLONE, SECCOMP_RET_ERRNO | EOPNOTSUPP); /* it would share blocks that are not there */
    trap_value(SYS_ioctl, 1, FICLONERANGE, SECCOMP_RET_ERRNO | EOPNOTSUPP);
    trap_value(SYS_ioctl, 1, FS_IOC_FIEMAP, SECCOMP_RET_ERRNO | EOPNOTSUPP);
    trap_value(SYS_sendmmsg, 3, UNASKED, SECCOMP_RET_ALLOW);
    for (size_t i = 0; i < path_syscalls_count; i++)
        trap_always(path_syscalls[i].call);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        trap_always(asked[i]);
    int fd = traps_install();
    return fd < 0 ? set_failure(f, "seccomp", "remote files without FUSE need user notification (Linux 5.19)") : fd;
}

static _Noreturn void ask_something(int report)
{
    int fd = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
                 ? -1
                 : (traps_begin(SECCOMP_RET_ALLOW), trap_always(SYS_sync), traps_install());
    int said = fd < 0 ? -errno : fd;
    if (write(report, &said, sizeof said) != sizeof said || fd < 0)
        _exit(1);
    syscall(SYS_sync);
    _exit(0);
}

static int answer_once(pid_t pid, int number)
{
    struct notification q;
    int listener = take_from(pid, number), err = listener < 0 ? errno : EIO;
    if (listener >= 0 && notification_receive(&q, listener, 0)) {
        notification_answer(&q);
        err = 0;
    }
    if (listener >= 0)
        close(listener);
    return err;
}

/* Whether this process can answer a call of another process. */
int notify_try(void)
{
    int ends[2], said = -EIO, status = 1;
    if (pipe(ends) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0)
        ask_something(ends[1]);
    close(ends[1]);
    if (pid < 0 || read(ends[0], &said, sizeof said) != sizeof said)
        said = -EIO;
    close(ends[0]);
    int err = said < 0 ? -said : answer_once(pid, said);
    if (err && pid > 0)
        kill(pid, SIGKILL);
    if (pid > 0)
        waitpid(pid, &status, 0);
    errno = err ? err : status ? EIO : 0;
    return errno ? -1 : 0;
}

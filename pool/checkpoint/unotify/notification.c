/* One system call notification of seccomp_unotify(2), and its answer. Used by both supervisors: of mapped files
 * (mapped_files/supervisor.c), and of remote files without FUSE (remote_notify/supervisor.c). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/common.h"
#include "unotify/notification.h"

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, uint64_t)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP 1UL
#endif

/* Switches between caller and supervisor on one CPU without other threads in between (Linux 6.6). */
void notification_listen(int listener)
{
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
}

bool notification_receive(struct notification *q, int listener, uint32_t member)
{
    static union {
        struct seccomp_notif notif;
        char room[512];
    } in;
    static union {
        struct seccomp_notif_resp resp;
        char room[512];
    } out;
    memset(&in, 0, sizeof in);
    memset(&out, 0, sizeof out);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &in.notif) < 0)
        return false;
    out.resp.id = in.notif.id;
    *q = (struct notification){
        .listener = listener, .member = member, .tid = (pid_t)in.notif.pid, .notif = &in.notif, .answer = &out.resp};
    return true;
}

void notification_answer(struct notification *q)
{
    if (!q->answered)
        ioctl(q->listener, SECCOMP_IOCTL_NOTIF_SEND, q->answer);
}

int notification_add_fd(struct notification *q, int fd, int number, uint32_t how, bool on_exec_closed)
{
    struct seccomp_notif_addfd a = {.id = q->notif->id,
                                    .flags = how,
                                    .srcfd = (uint32_t)fd,
                                    .newfd = (uint32_t)(number < 0 ? 0 : number),
                                    .newfd_flags = on_exec_closed ? O_CLOEXEC : 0};
    if (number >= 0)
        a.flags |= SECCOMP_ADDFD_FLAG_SETFD;
    return ioctl(q->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &a);
}

bool notification_valid(const struct notification *q)
{
    return ioctl(q->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &q->notif->id) == 0;
}

/* Reads the thread group's id. It costs half as much as an answer, so it is called only where it is needed. */
void know_process(struct notification *q) { q->tgid = (pid_t)proc_field(q->tid, "status", "Tgid", 10); }

void answer_value(struct notification *q, int64_t value) { q->answer->val = value; }

void answer_error(struct notification *q, int err) { q->answer->error = -err; }

void answer_pass(struct notification *q) { q->answer->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE; }

/* Reads page by page, since the page after the text may not be mapped. */
bool text_of(const struct notification *q, uint64_t address, char *text, size_t size)
{
    for (size_t got = 0; got < size;) {
        size_t part = PAGE - (address + got) % PAGE;
        struct iovec here = {text + got, part < size - got ? part : size - got};
        struct iovec there = {(void *)(uintptr_t)(address + got), here.iov_len};
        ssize_t n = process_vm_readv(q->tid, &here, 1, &there, 1, 0);
        if (n <= 0)
            return false;
        if (memchr(text + got, 0, (size_t)n))
            return true;
        got += (size_t)n;
    }
    return false;
}

bool bytes_of(const struct notification *q, uint64_t address, void *to, size_t size)
{
    struct iovec here = {to, size}, there = {(void *)(uintptr_t)address, size};
    return process_vm_readv(q->tid, &here, 1, &there, 1, 0) == (ssize_t)size;
}

bool bytes_to(const struct notification *q, uint64_t address, const void *from, size_t size)
{
    struct iovec here = {(void *)(uintptr_t)from, size}, there = {(void *)(uintptr_t)address, size};
    return process_vm_writev(q->tid, &here, 1, &there, 1, 0) == (ssize_t)size;
}

/* A copy of another process's file descriptor, or -1. */
int take_from(pid_t pid, int number)
{
    int of = (int)syscall(SYS_pidfd_open, pid, 0), fd = of < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, of, number, 0);
    if (of >= 0)
        close(of);
    return fd;
}

/* Takes the job's rights over files, and no others. The capabilities to inspect the job's processes remain. */
void rights_of_job(const struct job *job)
{
    const struct start *s = job->start;
    if (s->flags & FLAG_GROUPS && setgroups(s->groups, job->groups) < 0)
        _exit(1);
    setfsgid(s->gid);
    setfsuid(s->uid);
}

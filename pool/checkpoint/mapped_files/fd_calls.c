/* Table 4.1 of the paper, the calls with file descriptors: the effect of each call on a mapped file. Read and write
 * need no supervisor. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/stat.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "mapped_files/parts.h"

ino_t inode_at(pid_t pid, int number)
{
    char path[64], text[64];
    unsigned long inode = 0;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, number);
    ssize_t n = readlink(path, text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    if (sscanf(text, "socket:[%lu]", &inode) != 1 && sscanf(text, "pipe:[%lu]", &inode) != 1)
        return 0;
    return inode;
}

/* Whether a descriptor whose inode is the end's is that end: both ends of a pipe have the same inode. */
static bool is_way_of(const struct end *e, pid_t pid, int number)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, number);
    return !e->pipe || (lstat(path, &st) == 0 && st.st_mode & (e->way == READS ? S_IRUSR : S_IWUSR));
}

struct end *end_at(pid_t pid, int number)
{
    ino_t inode = inode_at(pid, number);
    for (uint32_t i = 0; inode && i < over->end_count; i++)
        if (over->ends[i].inode == inode && is_way_of(&over->ends[i], pid, number))
            return &over->ends[i];
    return NULL;
}

int number_in(pid_t pid, const struct end *end, int but)
{
    char path[64];
    int found = NOT_HELD;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *all = opendir(path);
    if (!all && errno == EACCES)
        return UNSEEN;
    for (struct dirent *e; all && found < 0 && (e = readdir(all));)
        if (e->d_name[0] != '.' && atoi(e->d_name) != but && inode_at(pid, atoi(e->d_name)) == end->inode &&
            is_way_of(end, pid, atoi(e->d_name)))
            found = atoi(e->d_name);
    if (all)
        closedir(all);
    return found;
}

static bool of_job(pid_t pid)
{
    struct stat_line line;
    uint32_t member;
    return stat_read(pid, &line) && line.state != 'Z' && line.state != 'X' && member_of(over, line.session, &member);
}

int holder_of(const struct end *e, pid_t not_pid, int not_number, pid_t *pid)
{
    int found = NOT_HELD;
    bool unseen = false;
    DIR *proc = e->inode ? opendir("/proc") : NULL;
    for (struct dirent *d; proc && found < 0 && (d = readdir(proc));) {
        *pid = (pid_t)atoi(d->d_name);
        if (*pid <= 0 || *pid == getpid())
            continue;
        found = number_in(*pid, e, *pid == not_pid ? not_number : -1);
        unseen |= found == UNSEEN && of_job(*pid);
    }
    if (proc)
        closedir(proc);
    return found >= 0 ? found : unseen ? UNSEEN : NOT_HELD;
}

/* A copy of the end's file descriptor, from the process that has it. */
static int borrow(const struct end *e)
{
    struct end *hint = (struct end *)(uintptr_t)e;
    pid_t pid = e->holder;
    int number = e->number;
    if (!e->inode)
        return -1;
    if (e->fd >= 0 || e->guard >= 0)
        return fcntl(e->fd >= 0 ? e->fd : e->guard, F_DUPFD_CLOEXEC, 0);
    int kept = displaced_kept(e);
    if (kept >= 0)
        return fcntl(kept, F_DUPFD_CLOEXEC, 0);
    if (number < 0 || !pid || inode_at(pid, number) != e->inode)
        number = holder_of(e, 0, -1, &pid);
    hint->holder = pid;
    hint->number = number;
    return number < 0 ? -1 : take_from(pid, number);
}

static uint64_t waiting_in(int fd)
{
    int n = 0;
    return ioctl(fd, FIONREAD, &n) < 0 ? 0 : (uint64_t)n;
}

/* The number of bytes read: each byte read lowers the peek offset, from INT_MAX to 0, where it stays. */
static bool read_so_far(int fd, uint64_t *at)
{
    int left = 0;
    socklen_t size = sizeof left;
    if (getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &left, &size) < 0 || left == 0)
        return false;
    *at = (uint64_t)(INT_MAX - left);
    return true;
}

bool position(const struct end *e, uint64_t *at)
{
    const struct end *reader = e->way == READS ? e : e->peer;
    bool known = false;
    if (e->log && e->way == WRITES) {
        *at = e->log->end + (e->log->fd < 0 ? 0 : waiting_in(e->log->fd));
        return true;
    }
    if (!e->log && reader->pipe) /* a kernel pipe counts no bytes */
        return false;
    int fd = borrow(reader);
    if (fd < 0)
        return false;
    if (e->log) {
        for (uint32_t i = 0; i < e->log->count; i++)
            if (e->log->outlets[i].end == e)
                *at = e->log->outlets[i].sent - waiting_in(fd);
        known = true;
    } else if (read_so_far(fd, at)) {
        *at += e->way == WRITES ? waiting_in(fd) : 0;
        known = true;
    }
    close(fd);
    return known;
}

/* The length of a file that is read, once all its writers have closed it. */
static bool whole_size(const struct end *e, uint64_t *size)
{
    int fd = borrow(e);
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    bool ended = fd >= 0 && poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP) && position(e, size);
    if (ended)
        *size += waiting_in(fd);
    if (fd >= 0)
        close(fd);
    return ended;
}

/* Describes the end as a regular file; as a pipe, if its reader accepts short reads. */
void describe_end(const struct notification *q, struct end *e, bool extended, void *into)
{
    uint64_t size = 0;
    const uint32_t mode = (shows_pipe(e) ? S_IFIFO : S_IFREG) | 0644;
    if (shows_pipe(e))
        size = 0;
    else if (e->way == READS ? !whole_size(e, &size) : !position(e, &size))
        size = unread_length(q, e);
    if (extended) {
        struct statx *x = into;
        *x = (struct statx){.stx_mask = STATX_BASIC_STATS,
                            .stx_blksize = 65536,
                            .stx_nlink = 1,
                            .stx_uid = over->job->start->uid,
                            .stx_gid = over->job->start->gid,
                            .stx_mode = (uint16_t)mode,
                            .stx_ino = e->shown,
                            .stx_size = size,
                            .stx_blocks = (size + 511) / 512,
                            .stx_dev_major = major(e->device),
                            .stx_dev_minor = minor(e->device)};
        x->stx_atime.tv_sec = x->stx_mtime.tv_sec = x->stx_ctime.tv_sec = over->started;
        return;
    }
    struct stat *st = into;
    *st = (struct stat){.st_dev = e->device,
                        .st_ino = e->shown,
                        .st_mode = mode,
                        .st_nlink = 1,
                        .st_uid = over->job->start->uid,
                        .st_gid = over->job->start->gid,
                        .st_size = (off_t)size,
                        .st_blksize = 65536,
                        .st_blocks = (blkcnt_t)((size + 511) / 512)};
    st->st_atim.tv_sec = st->st_mtim.tv_sec = st->st_ctim.tv_sec = over->started;
}

static void seek_end(struct notification *q, struct end *e, struct displaced *d, int number)
{
    int64_t by = (int64_t)q->notif->data.args[1], to;
    int whence = (int)q->notif->data.args[2];
    static const char *const from[] = {"SEEK_SET", "SEEK_CUR", "SEEK_END"};
    uint64_t now, size;
    char call[80];
    if (e->pipe || whence > SEEK_END || whence < 0)
        return answer_error(q, whence > SEEK_END || whence < 0 ? EINVAL : ESPIPE);
    snprintf(call, sizeof call, "lseek by %lld from %s", (long long)by, from[whence]);
    if (!position(e, &now))
        return misuse(q, e,
                      "%s: the position in a pipe is unknown after 2 GiB, or when the other end is closed; let the "
                      "program not seek",
                      call);
    to = by + (whence == SEEK_CUR ? (int64_t)(d ? d->at : now) : 0);
    if (whence == SEEK_END) {
        if (e->way == READS && !whole_size(e, &size))
            return misuse(q, e, "%s: its length is unknown while it is still written; let the program read to the end",
                          call);
        to = by + (int64_t)(e->way == READS ? size : now);
    }
    ahead_again(q, &to);
    if (to < 0)
        return answer_error(q, EINVAL);
    bool forward = e->way == READS && (uint64_t)to > now;
    if (!d && (uint64_t)to != now && !forward)
        return displaced_begin(q, e, number, to, call);
    if (d && ((uint64_t)to == now || forward)) {
        displaced_back(q, d);
    } else if (d) {
        d->at = (uint64_t)to;
    }
    if (forward)
        return ahead_begin(q, take_from(q->tgid, number), (uint64_t)to - now, to);
    answer_value(q, to);
}

static void duplicate(struct notification *q, int number, int at_least, bool on_exec_closed)
{
    int fd = take_from(q->tgid, number);
    if (fd < 0)
        return answer_pass(q);
    if (!answer_descriptor(q, fd, at_least ? at_least : over->first, on_exec_closed))
        answer_error(q, EMFILE);
    close(fd);
}

static void control(struct notification *q, struct end *e, int number)
{
    switch ((int)q->notif->data.args[1]) {
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
        return duplicate(q, number, (int)q->notif->data.args[2], q->notif->data.args[1] == F_DUPFD_CLOEXEC);
    case F_SETFL: /* O_NONBLOCK has no effect on files */
        if (shows_pipe(e))
            answer_pass(q);
        return;
    case F_GETFL:
        return shows_pipe(e) ? answer_pass(q) : answer_value(q, e->way == READS ? O_RDONLY : O_WRONLY);
    case F_SETLK:
    case F_SETLKW:
    case F_GETLK:
    case F_OFD_SETLK:
    case F_OFD_SETLKW:
    case F_OFD_GETLK:
        return misuse(
            q, e, "fcntl lock: a pipe has one reader and one writer, and no locks; switch the program's locking off");
    default:
        answer_pass(q);
    }
}

static void truncated(struct notification *q, struct end *e)
{
    uint64_t now;
    if (e->way == READS || !position(e, &now) || q->notif->data.args[1] != now)
        misuse(q, e, "ftruncate to %llu: data in a pipe cannot be removed; let the program write to an ordinary file",
               (unsigned long long)q->notif->data.args[1]);
}

static void stat_number(struct notification *q, struct end *e)
{
    struct stat st;
    struct statx stx;
    long call = q->notif->data.nr;
    bool extended = call == SYS_statx, done;
    describe_end(q, e, extended, extended ? (void *)&stx : (void *)&st);
    if (extended)
        done = bytes_to(q, q->notif->data.args[4], &stx, sizeof stx);
    else
        done = bytes_to(q, q->notif->data.args[call == SYS_fstat ? 1 : 2], &st, sizeof st);
    if (!done)
        answer_error(q, EFAULT);
}

bool handle_number(struct notification *q, int number)
{
    struct displaced *d = displaced_at(q->tgid, number);
    struct end *e = d ? d->end : end_at(q->tgid, number);
    if (!e)
        return false;
    switch (q->notif->data.nr) {
    case SYS_close:
        answer_pass(q);
        if (d)
            displaced_forget(d);
        else
            closing(q, e, number);
        return true;
    case SYS_lseek:
        seek_end(q, e, d, number);
        return true;
    case SYS_fstat:
    case SYS_newfstatat:
    case SYS_statx:
        stat_number(q, e);
        return true;
    case SYS_fcntl:
        control(q, e, number);
        return true;
    case SYS_dup:
        duplicate(q, number, 0, false);
        return true;
    case SYS_ftruncate:
        truncated(q, e);
        return true;
    case SYS_mmap:
        misuse(q, e, "mmap: a pipe cannot be mapped; let the program read");
        return true;
    case SYS_flock:
        misuse(q, e, "flock: a pipe has one reader and one writer, and no locks; switch the program's locking off");
        return true;
    case SYS_fgetxattr:
        answer_error(q, ENODATA);
        return true;
    case SYS_fallocate:
    case SYS_fsetxattr:
        answer_error(q, EOPNOTSUPP);
        return true;
    case SYS_pread64:
    case SYS_preadv:
    case SYS_preadv2:
        misuse(q, e, "pread: a pipe can only be read from its beginning to its end; let the program read in order");
        return true;
    case SYS_pwrite64:
    case SYS_pwritev:
    case SYS_pwritev2:
        misuse(q, e,
               "pwrite: a pipe can only be written from its beginning to its end; let the program write in order");
        return true;
    default: /* permissions, owners, times, syncing, advice: success, without effect */
        return true;
    }
}

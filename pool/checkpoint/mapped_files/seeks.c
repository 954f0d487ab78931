/* File descriptors whose position differs from the pipe's. Many programs seek back over unused bytes and then close, or
 * exit; only a read or write there is impossible. In the meantime the number stands for a socket on which both would
 * wait. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mapped_files/parts.h"

struct displaced displaced[SLOTS];
uint32_t displaced_count;

void displaced_forget(struct displaced *d)
{
    close(d->kept);
    close(d->other);
    *d = displaced[--displaced_count];
}

/* The end that belongs at the number; -1: it is not displaced. */
int displaced_kept(const struct end *e)
{
    for (uint32_t i = 0; i < displaced_count; i++)
        if (displaced[i].end == e)
            return displaced[i].kept;
    return -1;
}

struct displaced *displaced_at(pid_t pid, int number)
{
    ino_t inode = displaced_count ? inode_at(pid, number) : 0;
    for (uint32_t i = 0; i < displaced_count; i++)
        if (displaced[i].pid == pid && displaced[i].number == number && displaced[i].inode == inode)
            return &displaced[i];
    return NULL;
}

static bool waits_at(pid_t pid, int number, long *call)
{
    char path[64], text[128];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *all = opendir(path);
    for (struct dirent *e; all && !found && (e = readdir(all));) {
        unsigned long first;
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/syscall", pid, e->d_name);
        int fd = e->d_name[0] == '.' ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (fd >= 0)
            close(fd);
        text[n < 0 ? 0 : n] = 0;
        found = sscanf(text, "%ld %lx", call, &first) == 2 && (int)first == number &&
                (*call == SYS_read || *call == SYS_readv || *call == SYS_write || *call == SYS_writev);
    }
    if (all)
        closedir(all);
    return found;
}

void displaced_look(void)
{
    for (uint32_t i = displaced_count; i-- > 0;) {
        struct displaced *d = &displaced[i];
        long call;
        if (inode_at(d->pid, d->number) != d->inode)
            displaced_forget(d);
        else if (waits_at(d->pid, d->number, &call))
            misuse(NULL, d->end, "%s and then %s: a pipe can only be %s", d->call,
                   call == SYS_read || call == SYS_readv ? "read" : "write",
                   d->end->way == READS ? "read from its beginning to its end; let the program read in order"
                                        : "written from its beginning to its end; for Fortran programs set "
                                          "GFORTRAN_UNFORMATTED_BUFFER_SIZE to twice the longest record");
    }
}

/* Fills the socket, so that writers wait too. */
void displaced_fill(int fd)
{
    static const char filling[4096];
    while (send(fd, filling, sizeof filling, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
}

void displaced_begin(struct notification *q, struct end *e, int number, int64_t to, const char *call)
{
    int ends[2], kept = take_from(q->tgid, number);
    if (kept < 0 || displaced_count == SLOTS || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return answer_error(q, ENFILE);
    displaced_fill(ends[0]);
    struct displaced *d = &displaced[displaced_count];
    *d = (struct displaced){.pid = q->tgid,
                            .number = number,
                            .kept = kept,
                            .other = ends[1],
                            .end = e,
                            .inode = inode_of(ends[0]),
                            .at = (uint64_t)to};
    copy_text(d->call, sizeof d->call, call);
    if (replace_descriptor(q, ends[0], number))
        displaced_count++;
    close(ends[0]);
    answer_value(q, to);
}

/* The position is the pipe's again: the end returns to its number. */
void displaced_back(struct notification *q, struct displaced *d)
{
    replace_descriptor(q, d->kept, d->number);
    displaced_forget(d);
}

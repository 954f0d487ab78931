/* Opening and closing of mapped files. The program gets the pipe's only end. A reader sees the end of file when the
 * writing program has closed all its copies, since the supervisor keeps none; of a reading end the supervisor keeps a
 * copy (readers.c). A file can be opened again only while no bytes have gone through it (some programs examine a file,
 * close it, and open it again), or for appending. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "mapped_files/parts.h"

static struct end *choose_end(const struct found *found, uint64_t flags)
{
    struct end *writer = found->way[WRITES], *reader = found->way[READS];
    if (!writer || !reader)
        return writer ? writer : reader;
    uint64_t how = flags & O_ACCMODE;
    return how == O_WRONLY || flags & O_TRUNC || (how == O_RDWR && !writer->opened) ? writer : reader;
}

/* False: the call is already answered. */
static bool may_open(struct notification *q, struct end *e, uint64_t flags)
{
    uint64_t how = flags & O_ACCMODE;
    if (flags & O_DIRECTORY) {
        answer_error(q, ENOTDIR);
    } else if (flags & O_EXCL && flags & O_CREAT && (e->opened || e->way == READS)) {
        answer_error(q, EEXIST);
    } else if (e->way == WRITES && how == O_RDONLY && !e->opened && !(flags & O_CREAT)) {
        answer_error(q, ENOENT); /* the program checks whether an old file exists */
    } else if (e->way == WRITES && how == O_RDONLY) {
        misuse(q, e, "open: this process writes the pipe and cannot read it; let it read a file with another name");
    } else if (e->way == READS && (how == O_WRONLY || flags & O_TRUNC)) {
        misuse(q, e, "open: this process reads the pipe and cannot write it; let it write a file with another name");
    } else {
        return true;
    }
    return false;
}

static void give_end(struct notification *q, struct end *e, int fd, uint64_t flags)
{
    if (shows_pipe(e) && flags & O_NONBLOCK)
        fcntl(fd, F_SETFL, O_NONBLOCK);
    if (!answer_descriptor(q, fd, 0, flags & O_CLOEXEC)) {
        answer_error(q, EMFILE);
        return;
    }
    e->opened = true;
    e->holder = q->tgid;
    e->number = (int)q->answer->val;
}

/* A process has the file open, or had it open. */
static void open_again(struct notification *q, struct end *e, uint64_t flags)
{
    uint64_t so_far = 1;
    pid_t pid;
    int number = holder_of(e, 0, -1, &pid);
    bool fresh = position(e, &so_far) && so_far == 0;
    if (shows_pipe(e)) {
        misuse(q, e, "open: it was open before, and with short_reads a file can be opened once; keep it open");
        return;
    }
    if (number < 0) {
        misuse(q, e,
               e->way == READS ? "open: it was read and closed before, and a pipe can be read only once; keep it open"
                               : "open: it was written and closed before, which ended it for the reader; keep it open");
        return;
    }
    if (!fresh && !(e->way == WRITES && flags & O_APPEND)) {
        misuse(q, e, "open: it is already open, and a pipe has only one position; open it once");
        return;
    }
    int fd = take_from(pid, number);
    if (fd < 0)
        return answer_error(q, ENFILE);
    give_end(q, e, fd, flags);
    close(fd);
}

void open_named(struct notification *q, const struct found *found, uint64_t flags)
{
    struct end *e = choose_end(found, flags);
    if (!may_open(q, e, flags))
        return;
    if (e->fd < 0)
        return open_again(q, e, flags);
    unread_forget(e);
    give_end(q, e, e->fd, flags);
    if (q->answered)
        readers_keep(e, e->holder, e->number);
}

/* Called before the process closes the file. While no bytes have gone through it, the end is kept, so that it can be
 * opened again. */
void closing(struct notification *q, struct end *e, int number)
{
    uint64_t so_far;
    pid_t pid;
    if (e->mapped && e->fd < 0 && position(e, &so_far) && so_far == 0 && holder_of(e, q->tgid, number, &pid) < 0)
        e->fd = take_from(q->tgid, number);
    readers_stir(e);
}

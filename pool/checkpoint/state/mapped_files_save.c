/* Saves mapped files: the supervisor pauses (mapped_files/quiesce.c), its state becomes rows of the image, and its file
 * descriptors become open files like those of the job's processes. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "mapped_files/mapped_files.h"
#include "mapped_files/parts.h"
#include "state/state.h"

#define PATIENCE_S 10

static struct { /* the connection with the supervisor */
    int talk;
    const struct settled *state; /* followed by its rows */
    size_t size;
} with = {.talk = -1};

static int silent(struct dump *d)
{
    if (!errno || errno == EAGAIN)
        errno = ETIMEDOUT;
    return set_failure(&d->failure, "checkpoint", "the supervisor of mapped files does not answer");
}

/* The supervisor continues to serve; the state that it sent is kept. */
void mapping_run(void)
{
    if (with.talk >= 0)
        close(with.talk);
    with.talk = -1;
}

void mapping_go(void)
{
    mapping_run();
    if (with.state)
        munmap((void *)(uintptr_t)with.state, with.size);
    with.state = NULL;
}

static size_t rows_size(const struct settled *s)
{
    return sizeof *s + s->ends * sizeof(struct mapped_end) + s->logs * sizeof(struct mapped_log) +
           s->outlets * sizeof(struct mapped_outlet) + s->strays * sizeof(struct mapped_stray) +
           s->seeks * sizeof(struct mapped_seek);
}

static bool take_state(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || (size_t)st.st_size < sizeof *with.state)
        return false;
    void *all = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (all == MAP_FAILED)
        return false;
    with.state = all;
    with.size = (size_t)st.st_size;
    return rows_size(with.state) <= with.size;
}

/* The supervisor is ending or has ended the job, because of a call that cannot be served. */
static int over_with(struct dump *d)
{
    errno = ECANCELED;
    return set_failure(&d->failure, "checkpoint", "the job is being ended");
}

int mapping_settle(struct dump *d)
{
    struct timeval patience = {PATIENCE_S, 0};
    struct hello hello;
    int ends[2], fd = -1;
    ssize_t n;
    if (mapping_supervisor() <= 0 || with.talk >= 0)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return set_failure(&d->failure, "socketpair", "");
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    int sent = hello_send(mapping_way(), &(struct hello){.what = HELLO_DUMPER, .pid = getpid()}, ends[1]);
    close(ends[1]);
    with.talk = ends[0];
    if (sent)
        return over_with(d);
    errno = 0;
    while ((n = recv(with.talk, &hello, sizeof hello, MSG_PEEK)) < 0 && errno == EINTR) {
    }
    if (n == 0)
        return over_with(d);
    if (n < 0 || !hello_take(with.talk, &hello, &fd) || fd < 0 || !take_state(fd))
        return silent(d);
    close(fd);
    return 0;
}

static int say_to_supervisor(struct dump *d, uint32_t what)
{
    uint32_t answer = 0;
    ssize_t n = 0;
    if (with.talk < 0)
        return 0;
    if (send(with.talk, &what, sizeof what, MSG_NOSIGNAL) == sizeof what)
        while ((n = recv(with.talk, &answer, sizeof answer, 0)) < 0 && errno == EINTR) {
        }
    return n == sizeof answer && answer == what ? 0 : silent(d);
}

int mapping_give_back(struct dump *d) { return say_to_supervisor(d, SAY_GIVE_BACK); }

int mapping_held(struct dump *d) { return say_to_supervisor(d, SAY_HELD); }

static const struct mapped_end *ends_told(void) { return (const struct mapped_end *)(with.state + 1); }

bool mapping_is(uint64_t inode)
{
    for (uint32_t i = 0; with.state && i < with.state->ends; i++)
        if (ends_told()[i].inode == inode)
            return true;
    return false;
}

/* Asks by a system call that the process's filter passes to the supervisor; without a filter it fails. */
uint32_t mapping_member(struct tracee *h)
{
    long member = with.state ? CALL(h, SYS_fcntl, with.state->first, ASK_MEMBER, 0) : 0;
    return member > 0 && member <= MEMBERS_MOST ? (uint32_t)member : 0;
}

/* Replaces a file descriptor of the supervisor by the row of its open file. */
static int row_of(struct dump *d, uint32_t *place)
{
    struct met met;
    if (*place == NOBODY)
        return 0;
    if (file_met(d, mapping_supervisor(), (int)*place, &met))
        return -1;
    *place = met.row;
    return 0;
}

static uint32_t row_with(const struct dump *d, uint64_t inode)
{
    EACH(&d->image, files, file, f)
        if ((f->kind == FILE_PAIR || f->kind == FILE_PIPE) && f->number == inode)
            return (uint32_t)(f - (struct file *)d->image.files.rows);
    return NOBODY;
}

static int save_logs(struct dump *d, const struct mapped_log *told, const struct mapped_outlet *outlets)
{
    const struct settled *s = with.state;
    const char *rings = (const char *)s + rows_size(s), *end = (const char *)s + with.size;
    for (uint32_t i = 0; i < s->logs; i++) {
        struct mapped_log row = told[i];
        if (row.ring.size > (size_t)(end - rings) || row_of(d, &row.file) || row_of(d, &row.spool))
            return *d->failure.call ? -1 : silent(d);
        if (row.spool != NOBODY)
            ((struct file *)d->image.files.rows)[row.spool].number = 1;
        row.ring = image_put(&d->image, rings, row.ring.size);
        rings += row.ring.size;
        *(struct mapped_log *)table_add(&d->image.logs) = row;
    }
    for (uint32_t i = 0; i < s->outlets; i++) {
        struct mapped_outlet row = outlets[i];
        if (row_of(d, &row.file))
            return -1;
        *(struct mapped_outlet *)table_add(&d->image.outlets) = row;
    }
    return 0;
}

int mapping_save(struct dump *d)
{
    const struct settled *s = with.state;
    if (!s)
        return 0;
    const struct mapped_log *logs = (const void *)(ends_told() + s->ends);
    const struct mapped_outlet *outlets = (const void *)(logs + s->logs);
    const struct mapped_stray *strays = (const void *)(outlets + s->outlets);
    const struct mapped_seek *seeks = (const void *)(strays + s->strays);
    d->image.machine.first = s->first;
    d->image.machine.roots = s->roots;
    d->image.machine.mapped_since = s->since;
    if (save_logs(d, logs, outlets))
        return -1;
    for (uint32_t i = 0; i < s->ends; i++) {
        struct mapped_end row = ends_told()[i];
        if (row_of(d, &row.held))
            return -1;
        *(struct mapped_end *)table_add(&d->image.ends) = row;
    }
    for (uint32_t i = 0; i < s->strays; i++) {
        struct mapped_stray row = strays[i];
        if (row_of(d, &row.kept) || row_of(d, &row.other))
            return -1;
        row.file = row_with(d, row.inode);
        if (row.file != NOBODY) /* otherwise it was closed in the meantime */
            *(struct mapped_stray *)table_add(&d->image.strays) = row;
    }
    EACH(&d->image, ends, mapped_end, e) /* when all open files are known */
        e->file = e->inode ? row_with(d, e->inode) : NOBODY;
    for (uint32_t i = 0; i < s->seeks; i++)
        *(struct mapped_seek *)table_add(&d->image.seeks) = seeks[i];
    return 0;
}

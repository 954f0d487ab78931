/* Joins the two ends of a mapped file: directly if that can never block for good, else through a log. Pipes that form
 * no cycle, whatever their directions, cannot block each other: every process waits for another that is farther from
 * it. There the kernel's buffer is enough, and nothing is between the programs. A cycle, several readers, and a process
 * that writes to itself need a log (spool.c).
 *
 * A reader that accepts short reads is joined by a kernel pipe, which costs no buffer for each write, and sees one. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mapped_files/parts.h"

#define ROOM (256 << 10) /* bytes on their way between two programs */

static bool is_mapped(const char *file, int standard) { return end_descriptor(file, standard) < 0; }

/* Whether the processes at the pipe's ends are also connected without it. All other machines count as one process. */
static bool in_circle(const struct job *job, uint32_t which)
{
    bool all[MEMBERS_MOST + 1] = {false}, *reached = all + 1;
    const struct pipe_head *h = job->pipes[which].head;
    reached[h->writer] = true;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < job->pipe_count; i++) {
            const struct pipe_head *p = job->pipes[i].head;
            if (i == which || reached[p->writer] == reached[p->reader])
                continue;
            more = reached[p->writer] = reached[p->reader] = true;
        }
    }
    return reached[h->reader];
}

const char *partner(const struct end *e, char *text, size_t size)
{
    const char *name = "";
    if (e->log && e->way == WRITES && e->log->count > 1) {
        snprintf(text, size, "pipe to %u processes", e->log->count);
        return text;
    }
    const struct end *other = !e->log ? e->peer : e->way == READS ? e->log->writer : e->log->outlets[0].end;
    if (other)
        name = over->job->members[other->member].name;
    snprintf(text, size, "pipe %s %.200s", e->way == WRITES ? "to" : "from", name);
    return text;
}

/* The directory of a mapped file as its process finds it at its start. It may lie in a tree of the submit machine. The
 * keeper, which hands the file server its stream, must never wait for it, so the process does this itself. */
int links_directory(const struct job *job, uint32_t member, const char *name, struct stat *st, struct failure *f)
{
    char path[8192];
    const char *cwd = job->members[member].cwd;
    if (*name == '/')
        snprintf(path, sizeof path, "%.4090s", name);
    else
        snprintf(path, sizeof path, "%.4000s/%.4000s", *cwd ? cwd : "/", name);
    strrchr(path, '/')[1] = 0;
    if (stat(path, st) < 0 || (!S_ISDIR(st->st_mode) && (errno = ENOTDIR)))
        return set_failure(f, "map", name);
    return 0;
}

static int name_last(struct end *e, struct failure *f)
{
    const char *slash = strrchr(e->name, '/'), *last = slash ? slash + 1 : e->name;
    if (!*last || strlen(last) >= sizeof e->last) {
        errno = EINVAL;
        return set_failure(f, "map", e->name);
    }
    strcpy(e->last, last);
    return 0;
}

static int refuse_plan(struct failure *f, const char *file, const char *why)
{
    char text[TEXT];
    snprintf(text, sizeof text, "%.300s\n%s", file, why);
    errno = EINVAL;
    return set_failure(f, "map", text);
}

static struct end *add_end(struct supervisor *s, uint32_t member, enum way way, const char *name, uint32_t pipe,
                           struct failure *f)
{
    struct end *e = &s->ends[s->end_count++];
    *e = (struct end){.member = member,
                      .way = way,
                      .name = name,
                      .fd = -1,
                      .guard = -1,
                      .mapped = is_mapped(name, way),
                      .conduit = pipe};
    e->pipe = !e->mapped;
    return e->mapped && name_last(e, f) ? NULL : e;
}

static struct end *add_reader(struct supervisor *s, uint32_t pipe, struct failure *f)
{
    const struct conduit *c = &s->job->pipes[pipe];
    return add_end(s, (uint32_t)c->head->reader, READS, c->reader_file, pipe, f);
}

static int add_direct(struct supervisor *s, uint32_t pipe, struct end *writer, struct failure *f)
{
    struct end *reader = add_reader(s, pipe, f);
    if (!reader)
        return -1;
    writer->peer = reader;
    reader->peer = writer;
    reader->pipe |= s->job->pipes[pipe].head->short_reads != 0;
    writer->pipe = reader->pipe;
    return 0;
}

static int add_outlet(struct supervisor *s, struct log *l, uint32_t pipe, struct failure *f)
{
    const struct pipe_head *head = s->job->pipes[pipe].head;
    struct end *reader = add_reader(s, pipe, f);
    struct outlet *more = realloc(l->outlets, (l->count + 1) * sizeof *more);
    if (!reader || !more)
        return -1;
    l->outlets = more;
    more[l->count++] = (struct outlet){.end = reader, .fd = -1};
    reader->log = l;
    if (head->buffer > l->bound)
        l->bound = head->buffer;
    return 0;
}

static int add_log(struct supervisor *s, uint32_t first, struct end *writer, struct failure *f)
{
    const struct job *job = s->job;
    struct log *l = &s->logs[s->log_count++];
    *l = (struct log){.writer = writer, .fd = -1, .spool = -1, .limit = RING, .bound = RING, .ring = malloc(RING)};
    if (!l->ring)
        return set_failure(f, "malloc", "mapped files");
    writer->log = l;
    for (uint32_t i = first; i < job->pipe_count; i++)
        if (job->pipes[i].head->writer == (int32_t)writer->member &&
            strcmp(job->pipes[i].writer_file, writer->name) == 0 && add_outlet(s, l, i, f))
            return -1;
    return 0;
}

static bool same_writer(const struct conduit *a, const struct conduit *b)
{
    return a->head->writer == b->head->writer && strcmp(a->writer_file, b->writer_file) == 0;
}

static bool same_reader(const struct conduit *a, const struct conduit *b)
{
    return a->head->reader == b->head->reader && strcmp(a->reader_file, b->reader_file) == 0;
}

static int check_pipe(const struct job *job, uint32_t at, struct failure *f)
{
    const struct conduit *c = &job->pipes[at];
    if (c->head->writer < 0 || c->head->reader < 0)
        return refuse_plan(f, c->head->writer < 0 ? c->reader_file : c->writer_file,
                           "a pipe to another machine has no file at its ends");
    for (uint32_t i = 0; i < at; i++)
        if (same_reader(c, &job->pipes[i]))
            return refuse_plan(
                f, *c->reader_file ? c->reader_file : "stdin",
                "several processes write to it, and their order would be random; give each a file of its own");
    return 0;
}

/* Plans which ends are joined, as the job description says; nothing is opened yet. */
int links_plan(struct supervisor *s, struct failure *f)
{
    const struct job *job = s->job;
    for (uint32_t i = 0; i < job->pipe_count; i++) {
        const struct conduit *c = &job->pipes[i];
        bool writer_mapped = is_mapped(c->writer_file, 1), fans = false, first = true;
        bool plain = !writer_mapped && !c->head->short_reads; /* its pipe cannot be the reader's file */
        if (!writer_mapped && !is_mapped(c->reader_file, 0))
            continue;
        if (check_pipe(job, i, f))
            return -1;
        for (uint32_t j = 0; j < job->pipe_count; j++) {
            fans |= j != i && same_writer(c, &job->pipes[j]);
            first &= j >= i || !same_writer(c, &job->pipes[j]);
        }
        if (!first)
            continue;
        struct end *writer = add_end(s, (uint32_t)c->head->writer, WRITES, c->writer_file, i, f);
        if (!writer || (fans || plain || in_circle(job, i) ? add_log(s, i, writer, f) : add_direct(s, i, writer, f)))
            return -1;
    }
    return 0;
}

static int set_option(int fd, int option, int value)
{
    return setsockopt(fd, SOL_SOCKET, option, &value, sizeof value);
}

/* ends[0] reads, ends[1] writes. A read of the first is never short (SO_RCVLOWAT); its peek offset counts the bytes
 * read down from INT_MAX. */
static int make_connection(const struct job *job, bool pipe, int ends[2], struct failure *f)
{
    if (pipe) {
        if (members_make_pipe(job, ends, f))
            return -1;
        fcntl(ends[1], F_SETPIPE_SZ, ROOM); /* fails where the user has many large pipes: any size works */
        return 0;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0 || shutdown(ends[0], SHUT_WR) < 0 ||
        set_option(ends[0], SO_RCVLOWAT, INT_MAX) < 0 || set_option(ends[0], SO_PEEK_OFF, INT_MAX) < 0)
        return set_failure(f, "socketpair", "");
    set_option(ends[1], SO_SNDBUF, ROOM); /* a smaller buffer blocks the writer more often, with a larger one the
                                                  bytes leave the CPU cache */
    return 0;
}

ino_t inode_of(int fd)
{
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/* Hands an end to its process: keeps it until the process opens it, or stores it as an inherited file descriptor. */
static int hand_to_process(struct job *job, struct end *e, int fd, struct failure *f)
{
    struct conduit *c = &job->pipes[e->conduit];
    e->inode = e->shown = inode_of(fd);
    if (e->mapped) {
        e->fd = fd;
        return 0;
    }
    c->ends[e->way == WRITES] = fcntl(fd, F_DUPFD_CLOEXEC, 256);
    close(fd);
    return c->ends[e->way == WRITES] < 0 ? set_failure(f, "pipe", e->name) : 0;
}

static int join_log(struct job *job, struct log *l, struct failure *f)
{
    int ends[2];
    if (make_connection(job, l->writer->pipe, ends, f))
        return -1;
    l->fd = ends[0];
    if (fcntl(l->fd, F_SETFL, O_NONBLOCK) < 0 || hand_to_process(job, l->writer, ends[1], f))
        return -1;
    for (struct outlet *o = l->outlets; o < l->outlets + l->count; o++) {
        if (make_connection(job, o->end->pipe, ends, f))
            return -1;
        o->fd = ends[1];
        if (fcntl(o->fd, F_SETFL, O_NONBLOCK) < 0 || hand_to_process(job, o->end, ends[0], f))
            return -1;
    }
    return 0;
}

/* Makes all connections between mapped files. Inherited ends are stored in the pipe's `ends`. */
int links_join(struct job *job, struct supervisor *s, struct failure *f)
{
    int ends[2];
    for (struct end *e = s->ends; e < s->ends + s->end_count; e++)
        if (e->way == WRITES && !e->log &&
            (make_connection(job, e->pipe, ends, f) || hand_to_process(job, e->peer, ends[0], f) ||
             hand_to_process(job, e, ends[1], f)))
            return -1;
    for (uint32_t i = 0; i < s->log_count; i++)
        if (join_log(job, &s->logs[i], f))
            return -1;
    return 0;
}

/* Closes a member's unopened ends when all its processes are gone. */
void links_member_gone(struct supervisor *s, uint32_t member)
{
    for (uint32_t i = 0; i < s->end_count; i++) {
        struct end *e = &s->ends[i];
        if (e->member != member || !e->mapped)
            continue;
        if (e->way == READS && e->peer) {
            readers_gone(e);
        } else if (e->fd >= 0 && !unread_stays(e, e->fd)) {
            close(e->fd);
            e->fd = -1;
        }
    }
}

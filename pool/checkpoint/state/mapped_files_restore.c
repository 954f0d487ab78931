/* Restores mapped files: a supervisor with the state of the old one, and for each process a filter that asks it. A
 * process gets a filter of its own instead of its member's: filters are inherited by fork, and these processes exist
 * already. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mapped_files/mapped_files.h"
#include "mapped_files/parts.h"
#include "sandbox/sandbox.h"
#include "state/state.h"

#ifndef SECCOMP_FILTER_FLAG_TSYNC_ESRCH
#define SECCOMP_FILTER_FLAG_TSYNC_ESRCH (1ul << 4)
#endif

static int unlike(struct failure *f)
{
    errno = ENOEXEC;
    return set_failure(f, "restore", "checkpoint\nit belongs to a job with other pipes");
}

/* The supervisor's own copy of a file descriptor, above all temporary ones. */
static int own(const struct restoring *r, uint32_t row, int above)
{
    return row == NOBODY ? -1 : fcntl(r->opened[row], F_DUPFD_CLOEXEC, above);
}

static void put_logs(const struct restoring *r, struct supervisor *s, int above)
{
    const struct mapped_log *logs = r->image->logs.rows;
    uint32_t next = 0;
    for (uint32_t i = 0; i < s->log_count; i++) {
        struct log *l = &s->logs[i];
        const char *ring = image_bytes(r->image, logs[i].ring);
        size_t at = logs[i].kept % RING, part = RING - at < logs[i].ring.size ? RING - at : logs[i].ring.size;
        memcpy(l->ring + at, ring, part);
        memcpy(l->ring, ring + part, logs[i].ring.size - part);
        l->end = logs[i].end;
        l->kept = logs[i].kept;
        l->punched = logs[i].punched;
        l->limit = logs[i].limit;
        l->full_disk = logs[i].full;
        l->fd = own(r, logs[i].file, above);
        l->spool = own(r, logs[i].spool, above);
        for (uint32_t j = 0; j < l->count; j++, next++) {
            const struct mapped_outlet *o = (struct mapped_outlet *)r->image->outlets.rows + next;
            l->outlets[j].fd = own(r, o->file, above);
            l->outlets[j].sent = o->sent;
        }
    }
}

static void put_ends(const struct restoring *r, struct supervisor *s, int above)
{
    const struct mapped_end *ends = r->image->ends.rows;
    for (uint32_t i = 0; i < s->end_count; i++) {
        struct end *e = &s->ends[i];
        e->fd = own(r, ends[i].held, above);
        e->opened = ends[i].opened;
        e->told_empty = ends[i].told_empty;
        e->shown = ends[i].shown;
        e->inode = ends[i].file == NOBODY ? 0 : inode_of(r->opened[ends[i].file]);
        if (e->inode) /* the description may say otherwise by now */
            e->pipe = ((const struct file *)r->image->files.rows)[ends[i].file].kind == FILE_PIPE;
        if (reads_directly(e) && e->fd < 0)
            e->guard = own(r, ends[i].file, above);
    }
    EACH(r->image, strays, mapped_stray, row) {
        if (displaced_count == SLOTS)
            break;
        struct displaced *d = &displaced[displaced_count++];
        *d = (struct displaced){.pid = row->pid,
                                .number = row->number,
                                .kept = own(r, row->kept, above),
                                .other = own(r, row->other, above),
                                .end = &s->ends[row->end],
                                .inode = inode_of(r->opened[row->file]),
                                .at = row->at};
        copy_text(d->call, sizeof d->call, row->call);
        displaced_fill(r->opened[row->file]);
    }
    EACH(r->image, seeks, mapped_seek, row)
        if (again_count < SLOTS)
            again[again_count++] = (struct again){row->tid, row->number, row->by, row->to};
}

/* Whether the image has the same numbers of ends, logs and outlets as the job description. */
static bool alike(const struct image *image, const struct supervisor *s)
{
    const struct mapped_log *logs = image->logs.rows;
    const struct mapped_outlet *outlets = image->outlets.rows;
    uint32_t next = 0;
    if (image->ends.count != s->end_count || image->logs.count != s->log_count)
        return false;
    for (uint32_t i = 0; i < s->log_count; i++) {
        if (logs[i].ring.size > RING)
            return false;
        for (uint32_t j = 0; j < s->logs[i].count; j++, next++)
            if (next >= image->outlets.count || outlets[next].log != i)
                return false;
    }
    return next == image->outlets.count;
}

static _Noreturn void become_supervisor(struct restoring *r, struct supervisor *s, int told, int members, int gate)
{
    int above = r->base;
    for (uint32_t i = 0; i < r->image->files.count; i++)
        if (r->opened[i] >= above)
            above = r->opened[i] + 1;
    put_logs(r, s, above);
    put_ends(r, s, above);
    s->started = r->image->machine.mapped_since;
    s->roots = r->image->machine.roots;
    for (uint32_t i = 0; i < s->job->count; i++)
        s->pids[i] = s->job->members[i].pid;
    s->keeper = fcntl(told, F_DUPFD_CLOEXEC, above);
    members = fcntl(members, F_DUPFD_CLOEXEC, above);
    gate = fcntl(gate, F_DUPFD_CLOEXEC, above);
    syscall(SYS_close_range, UP, above - 1, 0);
    image_free(r->image);
    mapping_serve(s, members, gate);
}

/* Forks the supervisor, as a child of the keeper, with all its rights, when the files are open. It begins to serve when
 * the restoring process has exited. */
int mapping_restore(struct restoring *r, struct failure *f)
{
    int told, members, gate[2];
    if (!has_mapped_files(r->job))
        return r->image->ends.count ? unlike(f) : 0;
    struct supervisor *s = calloc(1, sizeof *s);
    if (!s)
        return set_failure(f, "malloc", "mapped files");
    s->job = r->job;
    s->first = (int)r->image->machine.first;
    if (links_plan(s, f))
        return -1;
    for (struct end *e = s->ends; e < s->ends + s->end_count; e++) {
        struct stat st;
        if (e->mapped && links_directory(r->job, e->member, e->name, &st, f))
            return -1;
        e->device = e->mapped ? st.st_dev : 0;
        e->directory = e->mapped ? st.st_ino : 0;
    }
    if (!alike(r->image, s) || s->first < 3)
        return unlike(f);
    if (pipe2(gate, O_CLOEXEC) < 0)
        return set_failure(f, "pipe", "");
    mapping_ends(&told, &members);
    pid_t pid = fork_as(mapping_supervisor(), -1, CLONE_PARENT);
    if (pid == 0)
        become_supervisor(r, s, told, members, gate[0]);
    free(s);
    close(gate[0]);
    lift(gate[1], r->base);
    close(told);
    close(members);
    return pid < 0 ? set_failure(f, "fork", "the supervisor of mapped files") : 0;
}

/* Installs the filter on all threads at once (TSYNC), since each thread must have the same filter as the leader. */
int mapping_restore_filter(struct restoring *r, uint32_t row, struct tracee *leader, uint64_t room, struct failure *f)
{
    const struct process *p = (struct process *)r->image->processes.rows + row;
    const uint64_t flags = TRAPS_FLAGS | SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH;
    size_t count;
    const void *code = mapping_code((int)r->image->machine.first, &count);
    struct {
        uint16_t length, pad[3];
        uint64_t code;
    } program = {(uint16_t)count, {0}, room + sizeof program};
    if (!code || tracee_write(leader->tid, room, &program, sizeof program) < 0 ||
        tracee_write(leader->tid, program.code, code, count * 8) < 0)
        return set_failure(f, "seccomp", "mapping of file names");
    long number = CALL(leader, SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, room);
    if (number < 0) {
        errno = (int)-number;
        return set_failure(f, "seccomp", "mapping of file names needs user notification (Linux 5.19)");
    }
    int fd = take_from(p->pid, (int)number);
    int done = fd < 0 || hello_send(mapping_way(),
                                    &(struct hello){.what = HELLO_PROCESS, .member = p->mapped - 1, .pid = p->pid}, fd)
                   ? -1
                   : 0;
    if (done)
        set_failure(f, "send", "to the supervisor of mapped files");
    if (fd >= 0)
        close(fd);
    CALL(leader, SYS_close_range, number, number, 0);
    return done;
}

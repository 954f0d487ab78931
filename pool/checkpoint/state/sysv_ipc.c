/* System V message queues, semaphores and shared memory of a job with its own IPC namespace, restored with their ids
 * and keys. A namespace assigns ids in a fixed order, so in a fresh one objects are made until one has the wanted id.
 *
 * The kernel does not report a process's SEM_UNDO list, only whether it has one: such a process is refused. Threads
 * have an empty list from their start, so a process with threads is refused if it was the last to use a semaphore. The
 * last user of an object is not restored. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state/state.h"

#ifndef MSG_COPY
#define MSG_COPY 040000
#endif
#define IDS_MOST 1000000 /* objects made to reach an id */

enum { QUEUE, SEMAPHORES, SHARED_MEMORY, KINDS };
static const char *const names[KINDS] = {"msg", "sem", "shm"};

static struct file *add_object(struct dump *d, uint32_t kind, long key, long id, unsigned mode, uint64_t size)
{
    struct file *f = table_add(&d->image.files);
    *(struct sample *)table_add(&d->samples) = (struct sample){.fd = -1};
    *f = (struct file){.kind = FILE_SYSV,
                       .flags = kind,
                       .mode = mode,
                       .peer = NOBODY,
                       .number = (uint64_t)id,
                       .device = (uint32_t)key,
                       .size = size};
    return f;
}

static void save_semaphores(struct dump *d, struct file *f)
{
    uint16_t *values = calloc(f->size + 1, sizeof *values);
    struct span contents;
    if (!values || semctl((int)f->number, 0, GETALL, values) < 0)
        add_unsupported(d, "the System V semaphores %lu cannot be read (give them read permission)",
                        (unsigned long)f->number);
    contents = image_put(&d->image, values ? values : (uint16_t *)"", values ? f->size * sizeof *values : 0);
    f->contents = contents;
    free(values);
}

/* For each message its type, size and text. */
static void save_queue(struct dump *d, struct file *f)
{
    static struct {
        long type;
        char text[1 << 16];
    } message;
    struct msqid_ds queue;
    uint32_t at = d->image.bytes.count;
    ssize_t n = 0;
    if (msgctl((int)f->number, IPC_STAT, &queue) < 0)
        n = -1;
    f->times[0] = queue.msg_qbytes;
    for (unsigned long i = 0; n >= 0 && i < queue.msg_qnum; i++) {
        if ((n = msgrcv((int)f->number, &message, sizeof message.text, (long)i, MSG_COPY | IPC_NOWAIT)) < 0)
            break;
        const int64_t head[2] = {message.type, n};
        image_put(&d->image, head, sizeof head);
        image_put(&d->image, message.text, (size_t)n);
    }
    if (n < 0)
        add_unsupported(d, "the System V message queue %lu cannot be read (give it read permission)",
                        (unsigned long)f->number);
    f->contents = (struct span){at, d->image.bytes.count - at};
}

/* Called while everything is frozen. */
static int save_memory(struct dump *d, uint32_t row)
{
    struct file f = ((struct file *)d->image.files.rows)[row];
    const char *from = shmat((int)f.number, NULL, SHM_RDONLY);
    static char last[PAGE];
    int done = 0;
    if (from == (void *)-1) {
        add_unsupported(d, "the System V shared memory %lu cannot be read (give it read permission)",
                        (unsigned long)f.number);
        return 0;
    }
    for (uint64_t at = 0; at < f.size && !done; at += PAGE) {
        memset(last, 0, sizeof last);
        memcpy(last, from + at, f.size - at < PAGE ? f.size - at : PAGE);
        if (memcmp(last, "", 1) != 0 || memcmp(last, last + 1, PAGE - 1) != 0)
            done = writer_put(&d->out, 0, row, at, last, PAGE, &d->failure);
    }
    shmdt(from);
    return done;
}

/* Enters the job's IPC namespace: the keeper of a restored job is not in it. */
static bool enter_namespace(const struct dump *d)
{
    char path[64];
    for (size_t i = 0; i < d->count; i++) {
        snprintf(path, sizeof path, "/proc/%d/ns/ipc", d->processes[i].pid);
        int fd = d->processes[i].count ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        bool entered = fd >= 0 && setns(fd, CLONE_NEWIPC) == 0;
        if (fd >= 0)
            close(fd);
        if (fd >= 0)
            return entered;
    }
    return false;
}

static bool used_last(const struct dump *d, pid_t pid)
{
    EACH(&d->image, files, file, f)
        for (uint64_t i = 0; f->kind == FILE_SYSV && f->flags == SEMAPHORES && i < f->size; i++)
            if (semctl((int)f->number, (int)i, GETPID) == pid)
                return true;
    return false;
}

/* This process has no SEM_UNDO list: kcmp reports as equal a process without one. */
static void check_undo(struct dump *d)
{
    bool any = false;
    EACH(&d->image, files, file, f)
        any |= f->kind == FILE_SYSV && f->flags == SEMAPHORES;
    for (size_t i = 0; any && i < d->count; i++) {
        const struct dumped_process *s = &d->processes[i];
        if (s->count && syscall(SYS_kcmp, s->pid, getpid(), KCMP_SYSVSEM, 0, 0) > 0 &&
            (s->count == 1 || used_last(d, s->pid)))
            add_unsupported(
                d, "process %d has System V semaphore operations to undo at its exit (use them without SEM_UNDO)",
                s->pid);
    }
}

int sysv_save(struct dump *d)
{
    char path[64], line[512];
    int done = 0;
    if (!(settings.able & ABLE_IPC) || !enter_namespace(d))
        return 0;
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        snprintf(path, sizeof path, "/proc/sysvipc/%s", names[kind]);
        FILE *all = fopen(path, "re");
        while (all && fgets(line, sizeof line, all)) {
            long key, id;
            unsigned mode;
            unsigned long size;
            if (sscanf(line, "%ld %ld %o %lu", &key, &id, &mode, &size) != 4)
                continue;
            struct file *f = add_object(d, kind, key, id, mode, size);
            if (kind == SEMAPHORES)
                save_semaphores(d, f);
            else if (kind == QUEUE)
                save_queue(d, f);
        }
        if (all)
            fclose(all);
    }
    check_undo(d);
    for (uint32_t i = 0; i < d->image.files.count && !done; i++) {
        const struct file *f = (struct file *)d->image.files.rows + i;
        if (f->kind == FILE_SYSV && f->flags == SHARED_MEMORY)
            done = save_memory(d, i);
    }
    EACH(&d->image, areas, area, a) {
        bool found = a->kind != AREA_SYSV;
        EACH(&d->image, files, file, f)
            if (!found && f->kind == FILE_SYSV && f->flags == SHARED_MEMORY && f->number == a->sysv) {
                found = true;
                a->file = (uint32_t)(f - (struct file *)d->image.files.rows);
            }
        if (!found)
            add_unsupported(d,
                            "process %d has System V shared memory of another IPC namespace mapped (detach it first)",
                            ((struct process *)d->image.processes.rows)[a->owner].pid);
    }
    return done;
}

static int make_object(const struct file *f, bool exact)
{
    const int how = exact ? IPC_CREAT | IPC_EXCL | (int)(f->mode & 0777) : IPC_CREAT | 0600;
    key_t key = exact ? (key_t)f->device : IPC_PRIVATE;
    if (f->flags == QUEUE)
        return msgget(key, how);
    return f->flags == SEMAPHORES ? semget(key, exact ? (int)f->size : 1, how)
                                  : shmget(key, exact ? f->size : PAGE, how);
}

static int discard(const struct file *f, int id)
{
    if (f->flags == QUEUE)
        return msgctl(id, IPC_RMID, NULL);
    return f->flags == SEMAPHORES ? semctl(id, 0, IPC_RMID) : shmctl(id, IPC_RMID, NULL);
}

/* Makes and removes objects until one has the wanted id. */
static bool make_as(const struct file *f)
{
    for (int tries = 0; tries < IDS_MOST; tries++) {
        int id = make_object(f, true);
        if (id < 0 || (uint64_t)id == f->number)
            return id >= 0;
        discard(f, id);
        if ((uint64_t)id > f->number)
            return false;
    }
    return false;
}

static int give_to(const struct restoring *r, const struct file *f)
{
    struct ipc_perm owner = {.uid = r->job->start->uid, .gid = r->job->start->gid, .mode = (__mode_t)(f->mode & 0777)};
    if (f->flags == QUEUE) {
        struct msqid_ds queue = {.msg_perm = owner, .msg_qbytes = f->times[0]};
        return msgctl((int)f->number, IPC_SET, &queue);
    }
    if (f->flags == SEMAPHORES) {
        struct semid_ds set = {.sem_perm = owner};
        return semctl((int)f->number, 0, IPC_SET, &set);
    }
    struct shmid_ds memory = {.shm_perm = owner};
    return shmctl((int)f->number, IPC_SET, &memory);
}

static int fill_queue(const struct restoring *r, const struct file *f)
{
    static struct {
        long type;
        char text[1 << 16];
    } message;
    const char *at = image_bytes(r->image, f->contents), *end = at + f->contents.size;
    for (int64_t head[2]; (size_t)(end - at) >= sizeof head; at += head[1]) {
        memcpy(head, at, sizeof head);
        at += sizeof head;
        if (head[1] < 0 || head[1] > end - at || (size_t)head[1] > sizeof message.text)
            return -1;
        message.type = head[0];
        memcpy(message.text, at, (size_t)head[1]);
        if (msgsnd((int)f->number, &message, (size_t)head[1], IPC_NOWAIT) < 0)
            return -1;
    }
    return 0;
}

static int fill_memory(struct restoring *r, const struct file *f)
{
    char *to = shmat((int)f->number, NULL, 0);
    uint32_t row = (uint32_t)(f - (struct file *)r->image->files.rows);
    bool filled = to != (void *)-1;
    EACH(r->image, extents, extent, e) {
        if (!filled || e->file != row || e->at >= f->size)
            continue;
        const char *contents = extent_read(&r->in, e);
        filled = contents != NULL;
        if (filled)
            memcpy(to + e->at, contents, e->size < f->size - e->at ? e->size : f->size - e->at);
    }
    if (to != (void *)-1)
        shmdt(to);
    return filled ? 0 : -1;
}

static int by_number(const void *a, const void *b)
{
    const struct file *one = *(const struct file *const *)a, *other = *(const struct file *const *)b;
    return (one->number > other->number) - (one->number < other->number);
}

/* Makes the objects in a new namespace, in the order of their ids. */
int sysv_restore(struct restoring *r, struct failure *f)
{
    const struct file **all = calloc(r->image->files.count + 1ul, sizeof *all);
    size_t count = 0;
    int done = all ? 0 : set_failure(f, "malloc", "tables");
    EACH(r->image, files, file, row)
        if (all && row->kind == FILE_SYSV)
            all[count++] = row;
    if (count && unshare(CLONE_NEWIPC) < 0)
        done = set_failure(f, "unshare", "System V objects");
    if (count)
        qsort(all, count, sizeof *all, by_number);
    for (size_t i = 0; i < count && !done; i++) {
        const struct file *o = all[i];
        bool right = o->flags < KINDS && make_as(o);
        if (right && o->flags == SEMAPHORES)
            right = o->contents.size == o->size * sizeof(uint16_t) &&
                    semctl((int)o->number, 0, SETALL, image_bytes(r->image, o->contents)) == 0;
        else if (right)
            right = (o->flags == QUEUE ? fill_queue(r, o) : fill_memory(r, o)) == 0;
        if (!right || give_to(r, o) < 0)
            done = set_failure(f, "restore", "a System V object");
    }
    free(all);
    return done;
}

/* Called when all processes have their mappings: a segment that was marked as removed goes with the last of them. */
void sysv_remove(const struct restoring *r)
{
    EACH(r->image, files, file, f)
        if (f->kind == FILE_SYSV && f->flags == SHARED_MEMORY && f->mode & SHM_DEST)
            shmctl((int)f->number, IPC_RMID, NULL);
}

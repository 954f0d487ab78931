/* Freezes the job at a moment when it has read its inotify events, and received the file descriptors that are in flight
 * in its unix sockets: neither can be restored. dump.c calls it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dump/parts.h"

#define LOOKS 500u /* one millisecond apart, while events are unread and no reader wants to run */
#define MOST_US 10000000u
#define LOOK_AHEAD 64u

static bool is_queue(const char *name)
{
    return strncmp(name, "anon_inode:inotify", 18) == 0 || strncmp(name, "anon_inode:[inotify]", 20) == 0;
}

struct queue {
    pid_t pid; /* a process of the job */
    int number; /* of its descriptor */
    char name[48]; /* of what is open there, by which a later one is told apart */
    int fd; /* our copy of it, if it is inotify's; else -1 */
    bool takes; /* it is a unix socket, which takes descriptors */
};

/* File descriptors in flight to a unix socket; -1: it is none, or the kernel does not tell (before Linux 5.6). */
static int in_flight(pid_t pid, int number)
{
    char path[64], line[256];
    int count = -1;
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", pid, number);
    FILE *f = fopen(path, "re");
    while (f && count < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, "scm_fds:", 8) == 0)
            count = atoi(line + 8);
    if (f)
        fclose(f);
    return count;
}

/* The descriptor as it was listed before; NULL: it is new, or so much has changed that it is taken for new. Both lists
 * are in one order but for what has changed. */
static struct queue *listed(const struct table *before, uint32_t *next, const struct queue *q)
{
    struct queue *rows = (struct queue *)before->rows;
    for (uint32_t turn = 0; turn < before->count && turn < LOOK_AHEAD; turn++) {
        struct queue *r = &rows[(*next + turn) % before->count];
        if (r->pid == q->pid && r->number == q->number && strcmp(r->name, q->name) == 0) {
            *next = (uint32_t)(r - rows) + 1;
            return r;
        }
    }
    return NULL;
}

static void queues_of(pid_t pid, const struct table *before, uint32_t *next, struct table *queues)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    int of = -1;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        struct queue q = {.pid = pid, .number = atoi(e->d_name), .fd = -1}, *known;
        if (readlinkat(dirfd(dir), e->d_name, q.name, sizeof q.name - 1) < 0)
            continue;
        bool is_socket = strncmp(q.name, "socket:", 7) == 0;
        if (!is_socket && !is_queue(q.name))
            continue;
        if (is_socket && (known = listed(before, next, &q)))
            q.takes = known->takes;
        else if (is_socket)
            q.takes = in_flight(pid, q.number) >= 0;
        else if ((of < 0 && (of = (int)syscall(SYS_pidfd_open, pid, 0)) < 0) ||
                 (q.fd = (int)syscall(SYS_pidfd_getfd, of, q.number, 0)) < 0)
            continue;
        *(struct queue *)table_add(queues) = q;
    }
    if (of >= 0)
        close(of);
    if (dir)
        closedir(dir);
}

static void forget_queues(struct table *queues)
{
    for (uint32_t i = 0; i < queues->count; i++)
        if (((struct queue *)queues->rows)[i].fd >= 0)
            close(((struct queue *)queues->rows)[i].fd);
    free(queues->rows);
}

/* The queues of the processes that are listed. Of a socket that was in the table before nothing is read anew. */
static void list_queues(const struct dump *d, struct table *queues)
{
    struct table now = {.size = sizeof(struct queue)};
    uint32_t next = 0;
    for (size_t i = 0; i < d->count; i++)
        queues_of(d->processes[i].pid, queues, &next, &now);
    forget_queues(queues);
    *queues = now;
}

static bool has_unread(const struct table *queues)
{
    for (uint32_t i = 0; i < queues->count; i++) {
        const struct queue *q = (struct queue *)queues->rows + i;
        int waiting = 0;
        if (q->takes ? in_flight(q->pid, q->number) > 0
                     : q->fd >= 0 && ioctl(q->fd, FIONREAD, &waiting) == 0 && waiting)
            return true;
    }
    return false;
}

/* Whether a thread that could read the events waits for a CPU. */
static bool wants_to_run(const struct table *queues)
{
    char path[64];
    bool wants = false;
    for (uint32_t i = 0; i < queues->count && !wants; i++) {
        pid_t pid = ((struct queue *)queues->rows)[i].pid, *tids;
        if (i && pid == ((struct queue *)queues->rows)[i - 1].pid)
            continue;
        snprintf(path, sizeof path, "/proc/%d/task", pid);
        size_t count = numbers_in(path, &tids);
        for (size_t j = 0; j < count && !wants; j++) {
            struct stat_line line;
            wants = thread_stat_read(pid, tids[j], &line) && line.state == 'R';
        }
        free(tids);
    }
    return wants;
}

static void note_waits(struct dump *d)
{
    list_processes(d);
    timeouts_note(d);
    forget_processes(d);
}

/* What a job has made since its queues were listed is looked at when it is frozen, too. */
int freeze_at_quiet_moment(struct dump *d, struct outcome *o)
{
    struct table queues = {.size = sizeof(struct queue)};
    uint32_t looks = 0;
    int done;
    for (uint64_t end = boot_us() + MOST_US;;) {
        list_processes(d);
        list_queues(d, &queues);
        forget_processes(d);
        while (has_unread(&queues) && looks < LOOKS && boot_us() < end) {
            usleep(1000);
            looks += !wants_to_run(&queues);
        }
        note_waits(d);
        d->held_since = boot_us();
        done = freeze_job(d);
        if (done)
            break;
        list_queues(d, &queues);
        if (!has_unread(&queues) || looks == LOOKS || boot_us() > end)
            break;
        let_job_go(d);
        forget_processes(d);
        o->standstill_us += boot_us() - d->held_since;
        d->held_since = 0;
    }
    forget_queues(&queues);
    return done;
}

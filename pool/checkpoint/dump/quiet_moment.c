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

static bool is_queue(const char *name)
{
    return strncmp(name, "anon_inode:inotify", 18) == 0 || strncmp(name, "anon_inode:[inotify]", 20) == 0;
}

struct queue { /* pid: a process of the job; fd: our copy of its inotify descriptor; -1: number is one of a unix socket
                */
    pid_t pid;
    int fd, number;
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

static void queues_of(pid_t pid, struct table *queues)
{
    char path[64], name[64];
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    int of = -1;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        ssize_t n = readlinkat(dirfd(dir), e->d_name, name, sizeof name - 1);
        name[n < 0 ? 0 : n] = 0;
        if (strncmp(name, "socket:", 7) == 0 && in_flight(pid, atoi(e->d_name)) >= 0)
            *(struct queue *)table_add(queues) = (struct queue){pid, -1, atoi(e->d_name)};
        if (!is_queue(name) || (of < 0 && (of = (int)syscall(SYS_pidfd_open, pid, 0)) < 0))
            continue;
        int fd = (int)syscall(SYS_pidfd_getfd, of, atoi(e->d_name), 0);
        if (fd >= 0)
            *(struct queue *)table_add(queues) = (struct queue){pid, fd, -1};
    }
    if (of >= 0)
        close(of);
    if (dir)
        closedir(dir);
}

static bool has_unread(const struct table *queues)
{
    for (uint32_t i = 0; i < queues->count; i++) {
        const struct queue *q = (struct queue *)queues->rows + i;
        int waiting = 0;
        if (q->fd < 0 ? in_flight(q->pid, q->number) > 0 : ioctl(q->fd, FIONREAD, &waiting) == 0 && waiting)
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

/* Queues made after the list was taken are checked when the job is described. */
int freeze_at_quiet_moment(struct dump *d, struct outcome *o)
{
    struct table queues = {.size = sizeof(struct queue)};
    uint32_t looks = 0;
    int done;
    list_processes(d);
    for (size_t i = 0; i < d->count; i++)
        queues_of(d->processes[i].pid, &queues);
    forget_processes(d);
    for (uint64_t end = boot_us() + MOST_US;;) {
        while (has_unread(&queues) && looks < LOOKS && boot_us() < end) {
            usleep(1000);
            looks += !wants_to_run(&queues);
        }
        note_waits(d);
        d->held_since = boot_us();
        done = freeze_job(d);
        if (done || !has_unread(&queues) || looks == LOOKS || boot_us() > end)
            break;
        let_job_go(d);
        forget_processes(d);
        o->standstill_us += boot_us() - d->held_since;
        d->held_since = 0;
    }
    for (uint32_t i = 0; i < queues.count; i++)
        if (((struct queue *)queues.rows)[i].fd >= 0)
            close(((struct queue *)queues.rows)[i].fd);
    free(queues.rows);
    return done;
}

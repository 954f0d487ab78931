/* Finds which process waits for which: logs grow when the job would otherwise block for good, and deadlocks are named.
 * The paper does nothing about a cycle of processes (VS 4.1, figure 7.3). Here a full log grows when every process that
 * could empty it waits, twice as large each time, up to its bound: a program that runs with files of unlimited length
 * then runs with logs (Parks 1995). When every process waits for another and no log may grow, the job cannot end, and
 * is killed. A process that waits for a time, a terminal, another machine or the outside may still act, so it is no
 * part of a deadlock. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mapped_files/parts.h"

#define SOON_US 20000
#define SLOW_US 1000000 /* a reader that has taken nothing for so long, whatever it does */
#define SURE_US 250000 /* between two checks of a deadlock */

struct look {
    char text[TEXT]; /* names each process that waits at one of the job's pipes */
    uint64_t switches; /* context switches of all threads: an equal sum means that none has run */
    uint64_t moved; /* bytes through all logs: an equal sum means that the supervisor has moved none */
    bool blocked;
};

bool member_of(const struct supervisor *s, pid_t session, uint32_t *member)
{
    for (*member = 0; *member < s->job->count; ++*member)
        if (s->pids[*member] && s->pids[*member] == session)
            return true;
    return false;
}

static void note_waiting(struct look *l, const struct supervisor *s, uint32_t member, const struct end *e, bool writes,
                         int number)
{
    char whom[240];
    size_t used = strlen(l->text);
    const char *name = member < s->job->count ? s->job->members[member].name : "one";
    if (e)
        snprintf(l->text + used, sizeof l->text - used, "%s%.60s waits to %s %.100s (%.100s)", used ? ", " : "", name,
                 writes ? "write" : "read",
                 e->mapped ? e->name
                 : writes  ? "stdout"
                           : "stdin",
                 partner(e, whom, sizeof whom));
    else
        snprintf(l->text + used, sizeof l->text - used, "%s%.60s waits to %s descriptor %d", used ? ", " : "", name,
                 writes ? "write" : "read", number);
}

/* Whether the pipe's other end is on another machine. The node carries its bytes, which may come at any time. */
static bool leads_elsewhere(const struct supervisor *s, const char *link)
{
    unsigned long inode;
    for (uint32_t i = 0; sscanf(link, "pipe:[%lu]", &inode) == 1 && i < s->job->pipe_count; i++) {
        const struct conduit *c = &s->job->pipes[i];
        if ((c->head->writer < 0 || c->head->reader < 0) && c->inode == inode)
            return true;
    }
    return false;
}

/* Whether a thread waits only for another process of the job on this machine. */
static bool thread_waits(const struct supervisor *s, struct look *l, pid_t pid, const char *task, uint32_t member)
{
    char name[64], text[256], link[64];
    long call;
    unsigned long a[4];
    snprintf(name, sizeof name, "task/%.20s/syscall", task);
    if (!proc_text(pid, name, text, sizeof text) ||
        sscanf(text, "%ld %lx %lx %lx %lx", &call, &a[0], &a[1], &a[2], &a[3]) != 5)
        return false;
    snprintf(name, sizeof name, "task/%.20s/status", task);
    l->switches +=
        proc_field(pid, name, "voluntary_ctxt_switches", 10) + proc_field(pid, name, "nonvoluntary_ctxt_switches", 10);
    switch (call) {
    case SYS_wait4:
    case SYS_waitid:
        return true;
    case SYS_futex:
        return a[3] == 0;
    case SYS_lseek: /* waits for the bytes that it skips */
    case SYS_read:
    case SYS_readv:
    case SYS_write:
    case SYS_writev: {
        const struct end *e = end_at(pid, (int)a[0]);
        snprintf(text, sizeof text, "/proc/%d/fd/%d", pid, (int)a[0]);
        ssize_t n = e ? 0 : readlink(text, link, sizeof link - 1);
        link[n < 0 ? 0 : n] = 0;
        if (!e && (strncmp(link, "pipe:", 5) != 0 || leads_elsewhere(s, link)))
            return false;
        note_waiting(l, s, member, e, call == SYS_write || call == SYS_writev, (int)a[0]);
        return true;
    }
    }
    return false;
}

static void check_processes(const struct supervisor *s, struct look *l)
{
    memset(l, 0, sizeof *l);
    for (uint32_t i = 0; i < s->log_count; i++) {
        l->moved += s->logs[i].end;
        for (uint32_t j = 0; j < s->logs[i].count; j++)
            l->moved += s->logs[i].outlets[j].sent;
    }
    DIR *proc = opendir("/proc");
    l->blocked = proc != NULL;
    for (struct dirent *d; proc && l->blocked && (d = readdir(proc));) {
        pid_t pid = (pid_t)atoi(d->d_name);
        char path[64];
        struct stat_line line;
        uint32_t member;
        if (pid <= 1 || pid == getpid() || !stat_read(pid, &line) || line.state == 'Z' || line.state == 'X')
            continue;
        if (!member_of(s, line.session, &member) && !(settings.able & ABLE_PROC))
            continue;
        snprintf(path, sizeof path, "/proc/%d/task", pid);
        DIR *tasks = opendir(path);
        for (struct dirent *t; tasks && l->blocked && (t = readdir(tasks));)
            if (t->d_name[0] != '.')
                l->blocked = line.state == 'S' && thread_waits(s, l, pid, t->d_name, member);
        if (tasks)
            closedir(tasks);
    }
    if (proc)
        closedir(proc);
    l->blocked &= *l->text != 0;
}

static bool going_on(struct supervisor *s, uint64_t now, bool *idle_full, uint64_t *longest)
{
    bool alive = false;
    for (uint32_t i = 0; i < s->log_count; i++) {
        struct log *l = &s->logs[i];
        for (uint32_t j = 0; j < l->count; j++) {
            struct outlet *o = &l->outlets[j];
            alive |= o->fd >= 0;
            if (o->sent != o->seen || !o->moved_us)
                o->moved_us = now;
            o->seen = o->sent;
            if (o->fd < 0 || !log_full(l) || o->sent == l->end || now - o->moved_us < SOON_US)
                continue;
            *idle_full = true;
            if (now - o->moved_us > *longest)
                *longest = now - o->moved_us;
        }
    }
    return alive;
}

static bool grow_full_logs(struct supervisor *s)
{
    bool any = false;
    for (uint32_t i = 0; i < s->log_count; i++) {
        struct log *l = &s->logs[i];
        if (!log_full(l) || l->full_disk || l->limit >= l->bound)
            continue;
        l->limit = l->limit * 2 < l->bound ? l->limit * 2 : l->bound;
        any = true;
    }
    return any;
}

static const char *bounds(const struct supervisor *s, char *text, size_t size)
{
    *text = 0;
    for (uint32_t i = 0; i < s->log_count; i++)
        if (log_full(&s->logs[i]))
            snprintf(text, size, "; %.100s holds %llu MiB%s", s->logs[i].writer->name,
                     (unsigned long long)(log_held(&s->logs[i]) >> 20),
                     s->logs[i].full_disk ? ", and the disk is full" : ", as much as it may");
    return text;
}

int stuck_look(struct supervisor *s)
{
    static struct look before;
    static uint64_t looked_us;
    struct look now_seen;
    char text[TEXT], held[200];
    uint64_t now = boot_us(), longest = 0;
    bool idle_full = false;
    if (s->misused || !going_on(s, now, &idle_full, &longest))
        return -1;
    if (!idle_full && now - looked_us < SURE_US)
        return (int)((SURE_US - (now - looked_us)) / 1000) + 1;
    check_processes(s, &now_seen);
    if (idle_full && (now_seen.blocked || longest > SLOW_US) && grow_full_logs(s))
        return 0;
    if (now - looked_us < SURE_US)
        return 20;
    bool stands =
        now_seen.blocked && before.blocked && now_seen.switches == before.switches && now_seen.moved == before.moved;
    if (stands && grow_full_logs(s))
        return 0; /* the log was full just now */
    if (stands) {
        snprintf(text, sizeof text, "deadlock: %.500s%s", now_seen.text, bounds(s, held, sizeof held));
        accuse(NO_MEMBER, text);
    }
    before = now_seen;
    looked_us = now;
    return 250;
}

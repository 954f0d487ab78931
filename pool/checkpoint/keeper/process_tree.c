/* All processes of a job, wherever they went: signals, an end, and what they use.
 *
 * In a pid namespace the keeper is process 1 and kill(-1) reaches every other one at once; none can leave. Without one
 * the keeper is a subreaper: whatever loses its parent becomes its child, so that the tree below it is still the whole
 * job, and it is walked by /proc. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/common.h"

struct process {
    pid_t pid, parent;
    char state;
    bool ours;
    uint64_t user, system, rss_pages;
};

static bool read_stat(const char *pid, struct process *p)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = 0;
    /* The name may hold anything, brackets too: the fields begin after the last one. */
    char *at = strrchr(text, ')');
    unsigned long user, system, child_user, child_system;
    long rss;
    int parent;
    if (!at || sscanf(at + 2, "%c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %lu %lu %*d %*d %*d %*d %*u %*u %ld",
                      &p->state, &parent, &user, &system, &child_user, &child_system, &rss) != 7)
        return false;
    *p = (struct process){.pid = (pid_t)atol(pid), .parent = parent, .state = p->state, .rss_pages = (uint64_t)rss,
                          .user = user + child_user, .system = system + child_system};
    return true;
}

static size_t read_all(struct process **all)
{
    size_t count = 0, room = 0;
    struct dirent *e;
    DIR *proc = opendir("/proc");
    *all = NULL;
    while (proc && (e = readdir(proc))) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9')
            continue;
        if (count == room) {
            struct process *more = realloc(*all, (room = room ? room * 2 : 64) * sizeof **all);
            if (!more)
                break;
            *all = more;
        }
        if (read_stat(e->d_name, *all + count))
            count++;
    }
    if (proc)
        closedir(proc);
    return count;
}

/* Marks what descends from the keeper. Each round takes one more generation. */
static void mark(struct process *all, size_t count)
{
    pid_t self = settings.keeper;
    bool more = true;
    while (more) {
        more = false;
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; j < count && !all[i].ours; j++)
                if (all[i].parent == self || (all[j].ours && all[j].pid == all[i].parent))
                    more = all[i].ours = true;
    }
}

static size_t descendants(struct process **all)
{
    size_t count = read_all(all);
    if (settings.able & ABLE_PROC) {
        for (size_t i = 0; i < count; i++)
            (*all)[i].ours = (*all)[i].pid != 1 && !is_spared((*all)[i].pid);
    } else {
        mark(*all, count);
    }
    return count;
}

void tree_signal(int signal)
{
    if (settings.able & ABLE_PID && !settings.spared[0]) {
        kill(-1, signal);
        return;
    }
    /* Until a round finds nobody new: a process may fork while the list is read. */
    for (int round = 0, fresh = 1; fresh && round < 100; round++) {
        static pid_t seen[4096];
        static size_t seen_count;
        if (round == 0)
            seen_count = 0;
        struct process *all;
        size_t count = descendants(&all);
        fresh = 0;
        for (size_t i = 0; i < count; i++) {
            bool known = !all[i].ours || all[i].state == 'Z';
            for (size_t j = 0; j < seen_count && !known; j++)
                known = seen[j] == all[i].pid;
            if (known)
                continue;
            kill(all[i].pid, signal);
            if (seen_count < sizeof seen / sizeof *seen)
                seen[seen_count++] = all[i].pid;
            fresh = 1;
        }
        free(all);
    }
}

/* SIGSTOP for all but this process and its children: until a round finds nobody new. */
void tree_stop_but(pid_t spared)
{
    for (int round = 0, running = 1; running && round < 100; round++) {
        struct process *all;
        size_t count = descendants(&all);
        running = 0;
        for (size_t i = 0; i < count; i++)
            if (all[i].ours && all[i].pid != spared && all[i].parent != spared && !strchr("TtZX", all[i].state)) {
                kill(all[i].pid, SIGSTOP);
                running = 1;
            }
        free(all);
    }
}

/* Without a pid namespace: stop everybody first, so that nobody can fork ahead of the killing. */
void tree_kill(void)
{
    if (!(settings.able & ABLE_PID) || settings.spared[0])
        tree_signal(SIGSTOP);
    tree_signal(SIGKILL);
}

void tree_usage(struct report *r)
{
    long tick = sysconf(_SC_CLK_TCK), page = sysconf(_SC_PAGESIZE);
    struct process *all;
    size_t count = descendants(&all);
    for (size_t i = 0; i < count; i++) {
        if (!all[i].ours || checkpoint_makes(all[i].pid, all[i].parent))
            continue;
        r->processes += all[i].state != 'Z';
        r->user_us += all[i].user * 1000000 / (uint64_t)tick;
        r->system_us += all[i].system * 1000000 / (uint64_t)tick;
        r->rss_kib += all[i].rss_pages * (uint64_t)page / 1024;
    }
    free(all);
}

void tree_sweep(const pid_t *known, size_t count)
{
    for (int round = 0, found = 1; found && round < 100; round++) {
        struct process *all;
        size_t n = read_all(&all);
        pid_t self = getpid();
        found = 0;
        for (size_t i = 0; i < n; i++) {
            bool keeper = all[i].parent != self || all[i].state == 'Z';
            for (size_t j = 0; j < count && !keeper; j++)
                keeper = known[j] == all[i].pid;
            if (keeper)
                continue;
            kill(all[i].pid, SIGKILL);
            found = 1;
        }
        free(all);
    }
}

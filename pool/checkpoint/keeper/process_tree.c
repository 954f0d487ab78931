/* All processes of a job, wherever they are: sends signals to them, kills them, and sums up their use. In a pid
 * namespace the keeper is process 1, and kill(-1) reaches all others at once; none can leave. Without one the keeper is
 * a subreaper: a process that loses its parent becomes the keeper's child. The tree below the keeper is still the whole
 * job, and is read from /proc. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keeper/keeper.h"
#include "sandbox/sandbox.h"

struct process {
    pid_t pid, parent;
    char state;
    bool ours;
    uint64_t user, system, rss_pages;
};

static size_t read_all(struct process **all)
{
    pid_t *pids;
    struct stat_line line;
    size_t found = numbers_in("/proc", &pids), count = 0;
    *all = malloc((found + 1) * sizeof **all);
    for (size_t i = 0; *all && i < found; i++)
        if (stat_read(pids[i], &line))
            (*all)[count++] = (struct process){.pid = pids[i],
                                               .parent = line.parent,
                                               .state = line.state,
                                               .rss_pages = line.rss_pages,
                                               .user = line.user + line.waited_user,
                                               .system = line.system + line.waited_system};
    free(pids);
    return count;
}

/* Marks the descendants of the keeper, one more generation in each round. */
static void mark_descendants(struct process *all, size_t count)
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
        mark_descendants(*all, count);
    }
    return count;
}

void tree_signal(int signal)
{
    if (settings.able & ABLE_PID && !settings.spared[0]) {
        kill(-1, signal);
        return;
    }
    /* Repeats until a round finds no new process: a process may fork while the list is read. */
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

/* Sends SIGSTOP to all but this process and its children. Repeats until a round finds no running process. */
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

/* Without a pid namespace it stops all processes first, so that none can fork while others are killed. */
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

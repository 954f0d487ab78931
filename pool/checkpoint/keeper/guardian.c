/* The guardian kills a keeper that does not end its job at the end of the lease, and the job with it. A keeper ends its
 * job by itself when the lease ends. A keeper that was stopped, or hangs in the kernel, does not, and if its node is
 * gone too, a second copy of the job might run elsewhere. So the fork server checks too. The end of each lease is in
 * the keeper's cell, by the boot clock; it is read again when the end that was read last has passed. Leases of a keeper
 * end later and later (they belong to one claim), so renewals and new jobs need no message.
 *
 * While there is a node, the fork server checks its own keepers, and those that an earlier fork server left. When the
 * node is gone, a copy of it stays until no job with a lease is left, or another fork server has begun. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "keeper/keeper.h"
#include "sandbox/sandbox.h"

#define LATE_US 1000000 /* time for a keeper to act; the submit side waits for two seconds */
#define WAITS_US 1000000 /* interval for a keeper without a job: it may get another */
#define NO_LEASE_US 30000000
#define STAYS_US 200000

static struct guarded {
    pid_t pid; /* pid of the keeper; 0: no keeper */
    bool child; /* a child of this process: its pid is not reused until it is reaped */
    bool ended; /* killed by the guardian */
    uint64_t number, due;
} *all;
static uint32_t count;
static uint64_t next_due = NEVER;

static struct guarded *guarded_of_cell(uint32_t cell)
{
    if (cell >= count) {
        uint32_t more = (cell + 64) / 64 * 64;
        struct guarded *grown = realloc(all, more * sizeof *all);
        if (!grown)
            return NULL;
        all = grown;
        while (count < more)
            all[count++] = (struct guarded){.due = NEVER};
    }
    return &all[cell];
}

static void look_at(struct guarded *g, uint64_t due)
{
    g->due = due;
    if (due < next_due)
        next_due = due;
}

void guardian_add(uint32_t cell, pid_t pid, uint64_t number, uint64_t lease_end_us)
{
    struct guarded *g = guarded_of_cell(cell);
    if (!g)
        return;
    *g = (struct guarded){.pid = pid, .child = true, .number = number};
    look_at(g, lease_end_us ? lease_end_us + LATE_US : boot_us() + NO_LEASE_US);
}

bool guardian_drop(uint32_t cell)
{
    struct guarded *g = cell < count ? &all[cell] : NULL;
    bool ended = g && g->ended;
    if (g)
        *g = (struct guarded){.due = NEVER};
    return ended;
}

/* Without a pid namespace the job's processes are killed first: without their keeper nobody could find them. */
static void kill_job(pid_t keeper, uint32_t cell)
{
    if (settings.able & ABLE_PID)
        return;
    settings.keeper = keeper;
    tree_kill();
    settings.keeper = 0;
    int group = cgroup_of_cell(cell);
    cgroup_kill(group);
    if (group >= 0)
        close(group);
}

/* Kills a keeper that is not our child. Its pid may belong to another process by now, unless the cell is still
 * locked. */
static void end_foreign(struct guarded *g, uint32_t cell)
{
    int process = (int)syscall(SYS_pidfd_open, g->pid, 0);
    struct cell now;
    if (process < 0)
        return;
    if (cell_look(cell, &now, true) && now.state == CELL_RUNNING && now.number == g->number) {
        kill_job(g->pid, cell);
        syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
    }
    close(process);
}

static void end_keeper(struct guarded *g, uint32_t cell)
{
    g->ended = true;
    if (!g->child)
        return end_foreign(g, cell);
    kill_job(g->pid, cell);
    kill(g->pid, SIGKILL);
}

/* Decides about one keeper: kills it, or sets the time of the next check. */
static void check_keeper(struct guarded *g, uint32_t cell)
{
    struct cell c;
    uint64_t now = boot_us();
    bool known = cell_look(cell, &c, !g->child);
    if (!g->child && (!known || c.state != CELL_RUNNING || c.number != g->number || !c.lease_end_us)) {
        *g = (struct guarded){.due = NEVER};
        return;
    }
    if (!known || c.state != CELL_RUNNING)
        return look_at(g, now + WAITS_US);
    if (!c.lease_end_us)
        return look_at(g, now + NO_LEASE_US);
    if (now < c.lease_end_us + LATE_US)
        return look_at(g, c.lease_end_us + LATE_US);
    end_keeper(g, cell);
    look_at(g, now + WAITS_US);
}

uint64_t guardian_look(bool at_all)
{
    uint64_t now = boot_us();
    if (now < next_due && !at_all)
        return next_due;
    next_due = NEVER;
    for (uint32_t cell = 0; cell < count; cell++) {
        struct guarded *g = &all[cell];
        if (g->pid && (at_all || g->due <= now))
            check_keeper(g, cell);
        else if (g->pid && g->due < next_due)
            next_due = g->due;
    }
    return next_due;
}

/* Takes over the keepers of an earlier fork server. Those past their lease are killed at once. */
void guardian_find(void)
{
    int copy = openat(DIRECTORY, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;
    struct cell c;
    while (dir && (e = readdir(dir))) {
        unsigned cell;
        int used = 0;
        if (sscanf(e->d_name, "cell.%u%n", &cell, &used) != 1 || e->d_name[used] || cell >= CELLS)
            continue;
        struct guarded *g = cell_look(cell, &c, true) && c.state == CELL_RUNNING && c.pid > 0 && c.lease_end_us
                                ? guarded_of_cell(cell)
                                : NULL;
        if (g)
            *g = (struct guarded){.pid = c.pid, .number = c.number};
    }
    if (dir)
        closedir(dir);
    guardian_look(true);
}

/* Whether another process than `before` is the fork server now. */
static bool has_successor(pid_t before)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(DIRECTORY, "nursery", O_RDWR | O_CLOEXEC);
    bool found = fd >= 0 && fcntl(fd, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK && whole.l_pid != before;
    if (fd >= 0)
        close(fd);
    return found;
}

static bool guards_any(void)
{
    for (uint32_t cell = 0; cell < count; cell++)
        if (all[cell].pid)
            return true;
    return false;
}

void guardian_stay(void)
{
    pid_t before = getpid();
    for (uint32_t cell = 0; cell < count; cell++) {
        struct cell c;
        all[cell].child = false;
        if (all[cell].pid && cell_look(cell, &c, false))
            all[cell].number = c.number; /* the keeper may have run several jobs */
    }
    guardian_look(true);
    if (!guards_any() || fork() != 0)
        return;
    close(UP);
    while (guards_any() && !has_successor(before)) {
        usleep(STAYS_US);
        guardian_look(true);
    }
    _exit(0);
}

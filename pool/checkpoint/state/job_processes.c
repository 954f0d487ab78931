/* The job's members in an image: which processes they are, and how members that have exited ended. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "state/state.h"

/* Adds the user and system time of a running process and of the children that it has waited for. */
static void add_times(pid_t pid, struct member_end *end)
{
    struct stat_line line;
    uint64_t tick = (uint64_t)sysconf(_SC_CLK_TCK);
    if (!stat_read(pid, &line))
        return;
    end->user_us += (line.user + line.waited_user) * 1000000 / tick;
    end->system_us += (line.system + line.waited_system) * 1000000 / tick;
}

static bool is_held(const struct dump *d, pid_t pid)
{
    for (size_t i = 0; i < d->count; i++)
        if (d->processes[i].pid == pid)
            return true;
    return false;
}

/* Records the pids of running members, and the ends of those that have exited. A member may have exited before the
 * others were stopped; the keeper records its end in the meantime. */
int members_save(struct dump *d)
{
    for (uint32_t i = 0; i < d->job->count; i++) {
        const struct member *m = &d->job->members[i];
        bool held = is_held(d, m->pid);
        for (int tries = 0; !held && !(__atomic_load_n(&m->end->state, __ATOMIC_ACQUIRE) & MEMBER_OVER); tries++) {
            if (tries == 1000) {
                errno = ESRCH;
                return set_failure(&d->failure, "dump", m->name);
            }
            usleep(1000);
        }
        struct member_row *row = table_add(&d->image.members);
        row->end = *m->end;
        if (!held)
            continue;
        row->pid = m->pid;
        row->end.state = 0;
        row->end.wall_us += boot_us() - d->job->began_us;
        add_times(m->pid, &row->end);
    }
    return 0;
}

/* Marks the pipes that lead to other machines; the node makes their ends again. A pipe that no process holds any more
 * has no row, and is closed again after the restore. */
void members_remote_pipes(struct dump *d, char held[PIPES_MOST + 1])
{
    memset(held, '0', d->job->pipe_count);
    held[d->job->pipe_count] = 0;
    EACH(&d->image, files, file, f)
        for (uint32_t i = 0; f->kind == FILE_PIPE && i < d->job->pipe_count; i++)
            if (own_end(&d->job->pipes[i]) >= 0 && d->job->pipes[i].inode == f->inode) {
                f->times[0] = i + 1;
                held[i] = '1';
            }
}

/* Called before the restore: sets the members' pids, and the ends of those that have exited. */
int members_load(struct job *job, const struct image *image)
{
    const struct member_row *rows = image->members.rows;
    if (image->members.count != job->count)
        return -1;
    for (uint32_t i = 0; i < job->count; i++) {
        bool there = !rows[i].pid;
        EACH(image, processes, process, p)
            there |= p->pid == rows[i].pid;
        if (!there)
            return -1;
        job->members[i].pid = rows[i].pid;
        *job->members[i].end = rows[i].end;
        job->members[i].carried_user_us = rows[i].end.user_us;
        job->members[i].carried_system_us = rows[i].end.system_us;
    }
    for (uint32_t i = 0; i < job->count; i++)
        if (!(job->members[i].end->state & MEMBER_OVER))
            return 0;
    return -1;
}

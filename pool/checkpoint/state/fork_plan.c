/* Plans how each process of an image is forked, so that it has its parent and is in its session. A session is
 * inherited, and a process leaves it only by leading one of its own. A process is therefore forked by its parent,
 * before or after that parent has become a leader. If the parent was never in its session, there are two other ways.
 * The leader of its session forks it through a helper that exits at once; it is then adopted by the nearest ancestor
 * that adopts. Or a placeholder forks it, which has the pid of a leader that exited: a child of the same parent, which
 * leads the session and exits.
 *
 * Nothing here forks. A dump makes the same plan, so that a tree that cannot be forked again is refused by name. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "state/fork_plan.h"

#define FREE 0 /* any session */
#define UNKNOWN (-1)

struct plan {
    const struct image *image;
    struct planned_fork *all;
    pid_t *needs; /* the session in which each process has to be born */
    uint32_t *parents;
};

static const struct process *process_at(const struct plan *p, uint32_t row)
{
    return (struct process *)p->image->processes.rows + row;
}

static uint32_t row_with(const struct image *image, pid_t pid)
{
    EACH(image, processes, process, p)
        if (p->pid == pid)
            return (uint32_t)(p - (struct process *)image->processes.rows);
    return NOBODY;
}

static bool is_below(const struct plan *p, uint32_t row, uint32_t above)
{
    for (uint32_t steps = 0; row != NOBODY && steps <= p->image->processes.count; row = p->parents[row], steps++)
        if (row == above)
            return true;
    return false;
}

static bool leads(const struct process *p) { return p->session == p->pid; }

/* The session in which a process has to be born. A session leader is born in the session of its children that have
 * another session than its own: they were forked before it became a leader. */
static pid_t session_needed(struct plan *p, uint32_t row)
{
    const struct process *its = process_at(p, row);
    if (p->needs[row] != UNKNOWN)
        return p->needs[row];
    /* also set for a process that is reached again in the cycle of a damaged tree */
    p->needs[row] = its->session < 2 || leads(its) ? FREE : its->session;
    for (uint32_t i = 0; leads(its) && i < p->image->processes.count && p->needs[row] == FREE; i++) {
        pid_t child = p->parents[i] == row && i != row ? session_needed(p, i) : FREE;
        uint32_t leader = child == FREE ? NOBODY : row_with(p->image, child);
        if (child != FREE && child != its->pid && (leader == NOBODY || !is_below(p, leader, row)))
            p->needs[row] = child;
    }
    return p->needs[row];
}

static void choose_birth(struct plan *p, uint32_t row)
{
    uint32_t parent = p->parents[row];
    const struct process *above = parent == NOBODY ? NULL : process_at(p, parent);
    pid_t session = p->needs[row];
    struct planned_fork *b = &p->all[row];
    b->by = parent;
    b->session = session;
    if (session == FREE || (above && above->session == session))
        b->kind = BORN_LATE;
    else if (above && leads(above) && p->needs[parent] == session)
        b->kind = BORN_EARLY;
    else if (row_with(p->image, session) == NOBODY)
        b->kind = BORN_OF_PLACEHOLDER;
    else
        b->kind = BORN_ORPHAN, b->by = row_with(p->image, session);
}

/* Orphans go to the nearest ancestor that adopts. The pid of an exited leader can be used once. */
static bool is_possible(const struct plan *p, uint32_t row)
{
    const struct planned_fork *b = &p->all[row];
    if (b->kind == BORN_ORPHAN) {
        uint32_t adopts = b->by, steps = 0;
        if (is_below(p, b->by, row))
            return false;
        do
            adopts = p->parents[adopts];
        while (adopts != NOBODY && !p->all[adopts].adopts && steps++ < p->image->processes.count);
        return adopts == p->parents[row];
    }
    for (uint32_t i = 0; b->kind == BORN_OF_PLACEHOLDER && i < row; i++)
        if (p->all[i].kind == BORN_OF_PLACEHOLDER && p->all[i].session == b->session && p->all[i].by != b->by)
            return false;
    return true;
}

/* One plan for each process; the caller frees the array. NULL: process `wrong` cannot be forked again, or there is no
 * memory (`wrong` is 0). */
struct planned_fork *fork_plan_make(const struct image *image, pid_t *wrong)
{
    uint32_t count = image->processes.count;
    struct plan p = {image, calloc(count + 1ul, sizeof *p.all), calloc(count + 1ul, sizeof *p.needs),
                     calloc(count + 1ul, sizeof *p.parents)};
    bool made = p.all && p.needs && p.parents;
    *wrong = 0;
    for (uint32_t i = 0; made && i < count; i++) {
        p.needs[i] = UNKNOWN;
        p.parents[i] = process_at(&p, i)->parent < 2 ? NOBODY : row_with(image, process_at(&p, i)->parent);
    }
    for (uint32_t i = 0; made && i < count; i++)
        session_needed(&p, i);
    for (uint32_t i = 0; made && i < count; i++)
        choose_birth(&p, i);
    for (uint32_t i = 0; made && i < count; i++)
        if (p.all[i].kind == BORN_ORPHAN && p.parents[i] != NOBODY)
            p.all[p.parents[i]].adopts = true;
    for (uint32_t i = 0; made && i < count; i++)
        if (!is_possible(&p, i)) {
            *wrong = process_at(&p, i)->pid;
            made = false;
        }
    free(p.needs);
    free(p.parents);
    if (!made)
        free(p.all);
    return made ? p.all : NULL;
}

/* The process that makes a placeholder for a group whose leader has exited: the group's first member. NOBODY: the
 * leader exists, or its session has a placeholder. */
uint32_t group_maker(const struct image *image, pid_t group)
{
    EACH(image, processes, process, p)
        if (p->group == group)
            return p->session == group || group < 2 || row_with(image, group) != NOBODY
                       ? NOBODY
                       : (uint32_t)(p - (struct process *)image->processes.rows);
    return NOBODY;
}

/* Plans how each process of an image is forked again, so that it has its parent and is in its session.
 *
 * A session is inherited, and a process leaves it only by leading one of its own. A process therefore is forked by its
 * parent, before or after that parent has become a leader; or, where the parent was never in its session,
 *
 *     by the leader of its session, through a helper that exits at once: it goes to the nearest ancestor that adopts;
 *     by a placeholder that has the number of a leader that exited: a child of the same parent, which leads the
 *     session and exits.
 *
 * Nothing here forks: a dump asks the same, so that a tree that cannot be forked again is refused by name. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "state/fork_plan.h"

#define FREE 0 /* any session will do */
#define UNKNOWN (-1)

struct plan {
    const struct image *image;
    struct planned_fork *all;
    pid_t *needs; /* in which session each has to be born */
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

/* A leader is born where its children need it that are of another session than its own: they were there before it led.
 */
static pid_t need(struct plan *p, uint32_t row)
{
    const struct process *its = process_at(p, row);
    if (p->needs[row] != UNKNOWN)
        return p->needs[row];
    p->needs[row] =
        its->session < 2 || leads(its) ? FREE : its->session; /* also what is met on the way round a damaged tree */
    for (uint32_t i = 0; leads(its) && i < p->image->processes.count && p->needs[row] == FREE; i++) {
        pid_t child = p->parents[i] == row && i != row ? need(p, i) : FREE;
        uint32_t leader = child == FREE ? NOBODY : row_with(p->image, child);
        if (child != FREE && child != its->pid && (leader == NOBODY || !is_below(p, leader, row)))
            p->needs[row] = child;
    }
    return p->needs[row];
}

static void choose(struct plan *p, uint32_t row)
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

/* Orphans go to the nearest ancestor that adopts, and the number of a leader that ended is given once. */
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

/* One for each process, to be freed; NULL: `wrong` cannot be made again so, or there is no memory (0). */
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
        need(&p, i);
    for (uint32_t i = 0; made && i < count; i++)
        choose(&p, i);
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

/* The process that makes a placeholder for a group whose leader has ended: its first member. NOBODY: the leader is
 * there, or its session's placeholder was. */
uint32_t group_maker(const struct image *image, pid_t group)
{
    EACH(image, processes, process, p)
        if (p->group == group)
            return p->session == group || group < 2 || row_with(image, group) != NOBODY
                       ? NOBODY
                       : (uint32_t)(p - (struct process *)image->processes.rows);
    return NOBODY;
}

/* Files that the job removes one after the other in a directory, as `rm -r` does. Their names are gathered here for a
 * moment and sent as one frame, and no process waits for the answer. So a file that is removed costs no answer to wait
 * for.
 *
 * Only what the submit side will not refuse is removed ahead: a file that the job has not open, in a directory of which
 * it reports each change, and in which it has removed a file for the job under the same lease. The names are on their
 * way before any other request is, and the submit side does nothing behind them before they are gone: so nobody sees a
 * later change of the job, or gets its lock, and still finds them. An error is reported by the next removal or fsync in
 * that directory, and in the job's log. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "remote/parts.h"

#define NAMES_MOST 64 /* the same as UNLINKED in pool/remoteio/file_operations.py */
#define UNANSWERED_MOST 1024 /* names that the submit side has not answered for, above which the job waits */
#define LONGEST_NS 1000000u /* that names wait for more of them */
#define NAME_ROOM 256 /* longer names are removed one by one */

static struct {
    struct request *gathered; /* NULL: none */
    size_t count_at; /* where the number of names is in its frame */
    uint32_t count;
    uint64_t begun;
    size_t unanswered; /* names that were sent */
    struct parked *parked; /* until none is unanswered */
} late;

static bool unknown; /* the submit side has no such operation */

bool removals_wait(void) { return late.gathered; }

static void not_removed(struct node *directory, int error)
{
    if (error == ENOENT) /* somebody else has removed it */
        return;
    directory->error = error;
    directory->removable = 0;
}

static void names_answered(size_t count)
{
    late.unanswered -= count;
    if (!late.unanswered)
        unpark(&late.parked);
}

static void on_unlinked(struct request *r, int error, struct reader *answer)
{
    (void)answer;
    not_removed(r->node, error);
    names_answered(1);
}

/* For a submit side without the operation. */
static void unlink_each(const struct request *all)
{
    struct reader names = {all->frame + FRAME_HEAD, all->frame + all->size, false};
    uint32_t size;
    get_string(&names, &size);
    for (uint32_t left = (uint32_t)get_number(&names, 4); left; left--) {
        char name[NAME_ROOM];
        const uint8_t *text = get_string(&names, &size);
        memcpy(name, text, size);
        name[size] = 0;
        struct request *r = request_new(R_UNLINK, all->node, on_unlinked);
        put_path(r, all->node, name);
        request_send(r);
    }
}

static void on_names_unlinked(struct request *r, int error, struct reader *answer)
{
    if (error == ENOSYS) {
        unknown = true;
        unlink_each(r);
        return;
    }
    if (error)
        not_removed(r->node, error);
    for (uint32_t left = error ? 0 : (uint32_t)get_number(answer, 4); left && !answer->bad; left--) {
        get_number(answer, 4);
        not_removed(r->node, (int)get_number(answer, 4));
    }
    if (answer->bad)
        not_removed(r->node, EIO);
    names_answered(r->a);
}

void removals_send(void)
{
    struct request *r = late.gathered;
    if (!r)
        return;
    late.gathered = NULL;
    frame_number(r->frame + late.count_at, late.count, 4);
    r->a = late.count;
    late.unanswered += late.count;
    link_skip(late.count - 1); /* each name has a number of its own */
    request_send(r);
}

void removals_hurry(void)
{
    if (late.gathered && monotonic_ns() - late.begun > LONGEST_NS)
        removals_send();
}

/* Under a lease that stands nobody has changed the rights of the directory since, or mounted anything. */
void removal_succeeded(const struct request *r)
{
    if (r->op == R_UNLINK && lease_reports(r->node, r->unique))
        r->node->removable = lease_number(r->node);
}

static bool is_allowed(const struct node *directory, const struct node *file)
{
    bool quiet = !file->stale && !file->handles && !file->writing && !file->times_wait;
    return directory->removable && directory->removable == lease_number(directory) && !directory->error &&
           !(directory->attr.mode & S_ISVTX) && quiet && !S_ISDIR(file->attr.mode) && !file->names->other &&
           node_believed(file);
}

static void gather(struct node *directory, const char *name)
{
    if (late.gathered && late.gathered->node != directory)
        removals_send();
    if (!late.gathered) {
        late.gathered = request_new(R_UNLINK_NAMES, directory, on_names_unlinked);
        put_path(late.gathered, directory, NULL);
        late.count_at = late.gathered->size;
        put_number(late.gathered, 0, 4);
        late.count = 0;
        late.begun = monotonic_ns();
    }
    put_bytes(late.gathered, name, strlen(name));
    if (++late.count == NAMES_MOST)
        removals_send();
}

bool removal_accepts(struct ask *q, struct node *file)
{
    const char *name = q->body;
    bool file_removal = file && q->head->opcode == FUSE_UNLINK && strlen(name) < NAME_ROOM;
    bool has_room = late.unanswered < UNANSWERED_MOST && monotonic_ns() >= q->tree->full;
    if (!file_removal || serving.notified || unknown || !link_ready() || !has_room || !is_allowed(q->node, file))
        return false;
    gather(q->node, name);
    file->attr.nlink -= file->attr.nlink > 0;
    file->touched = link_last() + 1; /* answers under way do not show it */
    name_drop(q->node, name);
    lease_changed(q->node, name);
    reply(q->tree, q->head->unique, 0, NULL, 0);
    removals_hurry();
    return true;
}

static int errors_of(struct node *directory)
{
    int error = directory->error;
    directory->error = 0;
    return error;
}

bool removal_refused(struct ask *q)
{
    int error = errors_of(q->node);
    if (error)
        reply(q->tree, q->head->unique, error, NULL, 0);
    return error;
}

static bool waits_for_removals(struct ask *q)
{
    removals_send();
    if (late.unanswered)
        park(&late.parked, q);
    return late.unanswered;
}

void ask_fsyncdir(struct ask *q)
{
    if (!waits_for_removals(q))
        reply(q->tree, q->head->unique, errors_of(q->node), NULL, 0);
}

void ask_syncfs(struct ask *q)
{
    if (!waits_for_removals(q))
        reply(q->tree, q->head->unique, 0, NULL, 0);
}

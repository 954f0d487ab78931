/* The library's calls into its host. They come in the library's own thread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server.h"

/* A fence that all ranks of this part are in. The ranker has one under way at a time; later ones wait here. */
struct fence {
    struct fence *next;
    char *data;
    size_t size;
    fence_done_t *done;
    void *given;
};

static pthread_mutex_t fences_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fence *fences; /* the first is the one under way */
static char *gathered;
static size_t gathered_size, gathered_room;

/* The object that a client was registered with is its place among the ranks of this part, and one more. */
static int local_of(const void *object) { return (int)((uintptr_t)object - 1); }

static status_t connected(const struct process *p, void *object, done_t *done, void *given)
{
    (void)p, (void)done, (void)given;
    tell_rank(CONNECTED, local_of(object), NULL, 0);
    return OPERATION_SUCCEEDED;
}

/* The ranker has read this before it sees the rank's end: the rank waits for our answer. */
static status_t finalized(const struct process *p, void *object, done_t *done, void *given)
{
    (void)p, (void)done, (void)given;
    tell_rank(FINALIZED_RANK, local_of(object), NULL, 0);
    return OPERATION_SUCCEEDED;
}

static status_t aborted(const struct process *p, void *object, int code, const char *text, struct process *others,
                        size_t count, done_t *done, void *given)
{
    (void)p, (void)others, (void)count, (void)done, (void)given;
    char body[4 + 256];
    for (int i = 0; i < 4; i++)
        body[i] = (char)((uint32_t)code >> (8 * i) & 255);
    snprintf(body + 4, sizeof body - 4, "%s", text ? text : "");
    tell_rank(ABORTED, local_of(object), body, 4 + strlen(body + 4) + 1);
    return OPERATION_SUCCEEDED;
}

static void send_fence(const struct fence *f)
{
    for (size_t at = 0; at < f->size; at += CHUNK_MOST)
        tell(GATHER, f->data + at, f->size - at < CHUNK_MOST ? f->size - at : CHUNK_MOST);
    tell(BARRIER, NULL, 0);
}

/* Whether a fence is of all ranks of the job; others would need a tree of rankers of their own. */
static bool of_all(const struct process *p, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (p[i].rank == ANY_RANK)
            return true;
    return count >= (size_t)job.size;
}

static bool of_this_part(const struct process *p, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (p[i].rank < (uint32_t)job.first || p[i].rank >= (uint32_t)(job.first + job.count))
            return false;
    return true;
}

static void refuse(const char *what) { tell(REFUSED, what, strlen(what) + 1); }

static void *answer_alone(void *fence)
{
    struct fence *f = fence;
    f->done(SUCCESS, f->data, f->size, f->given, free, f->data);
    free(f);
    return NULL;
}

/* Nobody else is in it. The library wants its answer after the call only, from another thread. */
static status_t answer_later(struct fence *f)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, answer_alone, f) != 0)
        return NO_MEMORY;
    pthread_detach(thread);
    return SUCCESS;
}

/* `data` stays the library's. */
static status_t fence(const struct process *p, size_t count, const struct info *infos, size_t info_count, char *data,
                      size_t size, fence_done_t *done, void *given)
{
    (void)infos, (void)info_count;
    struct fence *f = calloc(1, sizeof *f), **last = &fences;
    char *copy = malloc(size + 1);
    if (!f || !copy) {
        free(f);
        free(copy);
        return NO_MEMORY;
    }
    if (size)
        memcpy(copy, data, size);
    *f = (struct fence){.data = copy, .size = size, .done = done, .given = given};
    if (!of_all(p, count)) {
        if (of_this_part(p, count))
            return answer_later(f);
        free(copy);
        free(f);
        refuse("a fence of PMIx over some of the ranks of several machines");
        return NOT_SUPPORTED;
    }
    pthread_mutex_lock(&fences_lock);
    bool first = !fences;
    while (*last)
        last = &(*last)->next;
    *last = f;
    pthread_mutex_unlock(&fences_lock);
    if (first)
        send_fence(f);
    return SUCCESS;
}

void fence_data(const char *data, size_t size)
{
    if (gathered_size + size > gathered_room) {
        size_t room = (gathered_size + size) * 2;
        char *bigger = realloc(gathered, room);
        if (!bigger)
            cannot("no memory for what the ranks give each other");
        gathered = bigger;
        gathered_room = room;
    }
    memcpy(gathered + gathered_size, data, size);
    gathered_size += size;
}

/* All parts are in the fence under way. */
void fence_complete(void)
{
    pthread_mutex_lock(&fences_lock);
    struct fence *f = fences, *next = f ? f->next : NULL;
    fences = next;
    pthread_mutex_unlock(&fences_lock);
    char *data = gathered;
    size_t size = gathered_size;
    gathered = NULL;
    gathered_size = gathered_room = 0;
    if (!f) {
        free(data);
        return;
    }
    f->done(SUCCESS, data, size, f->given, free, data);
    free(f->data);
    free(f);
    if (next)
        send_fence(next);
}

/* A rank asks for data of a rank of another part that no fence has brought. */
static status_t direct_modex(const struct process *p, const struct info *infos, size_t info_count, fence_done_t *done,
                             void *given)
{
    (void)p, (void)infos, (void)info_count, (void)done, (void)given;
    refuse("PMIx data of one rank without a fence (leave the variable OMPI_MCA_pmix_base_async_modex out)");
    return NOT_SUPPORTED;
}

static status_t spawn(const struct process *p, const struct info *infos, size_t info_count, const void *programs,
                      size_t count, void *done, void *given)
{
    (void)infos, (void)info_count, (void)programs, (void)count, (void)done, (void)given;
    tell_rank(SPAWNS, (int)p->rank - job.first, NULL, 0);
    return NOT_SUPPORTED;
}

struct host_calls host_calls = {
    .client_connected = connected,
    .client_finalized = finalized,
    .abort = aborted,
    .fence = fence,
    .direct_modex = direct_modex,
    .spawn = spawn,
};

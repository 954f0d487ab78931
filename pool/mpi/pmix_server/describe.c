/* The job, as the library wants it described: PMIx standard 4.1, 16.2.3.1 (register_nspace). */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server.h"

enum { OF_JOB = 24, OF_RANK = 9 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* The library answers in its own thread, or at once. */
struct reply {
    bool there;
    status_t status;
};

static void replied(status_t status, void *given)
{
    struct reply *reply = given;
    pthread_mutex_lock(&lock);
    *reply = (struct reply){true, status};
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void expect(struct reply *reply, status_t status, const char *what)
{
    pthread_mutex_lock(&lock);
    while (status == SUCCESS && !reply->there)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    if (status == SUCCESS)
        status = reply->status;
    if (status != SUCCESS && status != OPERATION_SUCCEEDED)
        cannot("the PMIx library cannot %s: %s", what, pmix.error_string(status));
}

static void *room_for(size_t count, size_t size)
{
    void *room = calloc(count, size);
    if (!room)
        cannot("no memory for the description of %d ranks", job.size);
    return room;
}

static struct info *next(struct info **at, const char *key, enum type type)
{
    struct info *i = (*at)++;
    snprintf(i->key, sizeof i->key, "%s", key);
    i->value.type = type;
    return i;
}

static void text(struct info **at, const char *key, char *value)
{
    next(at, key, TYPE_STRING)->value.data.string = value;
}

static void number(struct info **at, const char *key, int value)
{
    next(at, key, TYPE_UINT32)->value.data.uint32 = (uint32_t)value;
}

static void rank_number(struct info **at, const char *key, int value)
{
    next(at, key, TYPE_RANK)->value.data.uint32 = (uint32_t)value;
}

static void short_number(struct info **at, const char *key, int value)
{
    next(at, key, TYPE_UINT16)->value.data.uint16 = (uint16_t)value;
}

/* One rank of any part. */
static void describe_rank(struct info *array, int rank, int part, int first)
{
    char *host = room_for(1, 32);
    struct array *items = room_for(1, sizeof *items);
    struct info *own = room_for(OF_RANK, sizeof *own), *at = own;
    snprintf(host, 32, "poolnode%d", part);
    rank_number(&at, "pmix.rank", rank); /* the first, as the standard has it */
    number(&at, "pmix.appnum", part == job.part ? job.application : 0); /* each part knows its own alone */
    rank_number(&at, "pmix.grank", rank);
    rank_number(&at, "pmix.apprank", rank);
    rank_number(&at, "pmix.aldr", 0);
    short_number(&at, "pmix.lrank", rank - first);
    short_number(&at, "pmix.nrank", rank - first);
    number(&at, "pmix.nodeid", part);
    text(&at, "pmix.hname", host);
    *items = (struct array){TYPE_INFO, (size_t)(at - own), own};
    snprintf(array->key, sizeof array->key, "pmix.pdata");
    array->value.type = TYPE_ARRAY;
    array->value.data.array = items;
}

/* Names of nodes and lists of their ranks, which the library makes its own form of; and each rank. */
static void describe_layout(struct info **at, struct info **local_peers)
{
    size_t room = (size_t)job.parts * 20 + (size_t)job.size * 10 + 64;
    char *nodes = room_for(room, 1), *ranks = room_for(room, 1), *local = room_for((size_t)job.count * 10 + 1, 1);
    char *n = nodes, *r = ranks, *l = local, *node_map, *rank_map;
    const char *layout = job.layout;
    for (int part = 0, rank = 0, each = 0, many = 0; part < job.parts; part++, many--) {
        if (!many) {
            int used = 0;
            if (sscanf(layout, "%dx%d%n", &each, &many, &used) != 2 || each < 1 || many < 1)
                cannot("a wrong layout: %.100s", job.layout);
            layout += used + (layout[used] == ',');
        }
        n += sprintf(n, "%spoolnode%d", part ? "," : "", part);
        for (int i = 0; i < each; i++, rank++) {
            r += sprintf(r, "%s%d", i ? "," : part ? ";" : "", rank);
            if (part == job.part)
                l += sprintf(l, "%s%d", i ? "," : "", rank);
            describe_rank((*at)++, rank, part, rank - i);
        }
    }
    if (pmix.generate_regex(nodes, &node_map) != SUCCESS || pmix.generate_ppn(ranks, &rank_map) != SUCCESS)
        cannot("the PMIx library cannot describe %d nodes", job.parts);
    text(local_peers, "pmix.nmap", node_map);
    text(local_peers, "pmix.pmap", rank_map);
    text(local_peers, "pmix.lpeers", local);
}

/* Appends NAME=VALUE and a zero; the user's own value stays. */
static void append(char **body, size_t *used, const char *name, const char *value)
{
    size_t length = strlen(name) + strlen(value) + 2;
    if (getenv(name))
        return;
    char *bigger = realloc(*body, *used + length);
    if (!bigger)
        cannot("no memory for a rank's environment");
    *body = bigger;
    *used += (size_t)sprintf(bigger + *used, "%s=%s", name, value) + 1;
}

/* The variables of a rank's environment. Open MPI 4 names a rank's shared memory after the machine and the rank's place
 * there: two parts on one machine would take each other's. So each part has a directory of its own. */
static void send_variables(int local, const struct process *p)
{
    static const char *const shared_memory[] = {
        "OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory",
        "OMPI_MCA_osc_sm_backing_directory", "OMPI_MCA_osc_rdma_backing_directory"};
    char **environment = NULL, *body = NULL;
    size_t used = 0;
    status_t status = pmix.setup_fork(p, &environment);
    if (status != SUCCESS)
        cannot("the PMIx library cannot prepare a rank: %s", pmix.error_string(status));
    for (char **e = environment; e && *e; e++) {
        char *value = strchr(*e, '=');
        if (!value)
            continue;
        *value = 0;
        append(&body, &used, *e, value + 1);
    }
    for (size_t i = 0; i < sizeof shared_memory / sizeof *shared_memory && job.shared[0]; i++)
        append(&body, &used, shared_memory[i], job.shared);
    if (used > CHUNK_MOST - 8)
        cannot("the PMIx library wants %zu bytes in a rank's environment", used);
    tell_rank(VARIABLES, local, body, used);
    free(body);
}

static void register_ranks(void)
{
    struct reply *replies = room_for((size_t)job.count, sizeof *replies);
    status_t *statuses = room_for((size_t)job.count, sizeof *statuses);
    struct process p = {.rank = 0};
    snprintf(p.name_space, sizeof p.name_space, "%s", job.name);
    for (int i = 0; i < job.count; i++) {
        void *object = (void *)(uintptr_t)(i + 1);
        p.rank = (uint32_t)(job.first + i);
        statuses[i] = pmix.register_client(&p, getuid(), getgid(), object, replied, &replies[i]);
    }
    for (int i = 0; i < job.count; i++) {
        p.rank = (uint32_t)(job.first + i);
        expect(&replies[i], statuses[i], "register a rank");
        send_variables(i, &p);
    }
}

/* Registers the job and its ranks, and sends the ranker their environments. Nothing of it is freed: it is one job. */
void describe_job(void)
{
    struct info *all = room_for(OF_JOB + (size_t)job.size, sizeof *all), *at = all, *maps;
    struct reply reply = {false, SUCCESS};
    char *directory = strdup(job.directory), *name = strdup(job.name);
    number(&at, "pmix.univ.size", job.size);
    number(&at, "pmix.job.size", job.size);
    number(&at, "pmix.max.size", job.size);
    number(&at, "pmix.local.size", job.count);
    number(&at, "pmix.node.size", job.count);
    number(&at, "pmix.num.nodes", job.parts);
    number(&at, "pmix.job.napps", 1);
    number(&at, "pmix.spawned", 0);
    number(&at, "pmix.nodeid", job.part);
    rank_number(&at, "pmix.lldr", job.first);
    text(&at, "pmix.jobid", name);
    text(&at, "pmix.tmpdir", directory);
    text(&at, "pmix.nsdir", directory);
    maps = at;
    at += 3;
    describe_layout(&at, &maps);
    status_t status = pmix.register_namespace(job.name, job.count, all, (size_t)(at - all), replied, &reply);
    expect(&reply, status, "register the job");
    register_ranks();
}

/* Messages to and from the node: parses a start message and checks every length in it, and sends reports. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/common.h"

static char *next_string(char **at, const char *end)
{
    char *found = *at, *stop = *at < end ? memchr(*at, 0, (size_t)(end - *at)) : NULL;
    if (!stop)
        return NULL;
    *at = stop + 1;
    return found;
}

static bool strings(char **into, uint32_t count, char **at, const char *end)
{
    for (uint32_t i = 0; i < count; i++)
        if (!(into[i] = next_string(at, end)))
            return false;
    into[count] = NULL;
    return true;
}

static int malformed(struct failure *f)
{
    errno = EBADMSG;
    return set_failure(f, "read", "a start message from the node that does not fit this keeper");
}

/* Whether the counts in the message fit its size. Checked before anything else is read. */
static bool counts_fit(const struct start *s, const struct member_head *heads, size_t room)
{
    uint64_t needed = (uint64_t)s->hides + s->devices + s->remotes + 2u * s->binds + s->network + s->argc + s->envc;
    if (!s->argc || s->members > MEMBERS_MOST || s->pipes > PIPES_MOST || s->groups > 65536 ||
        (s->pipes && !s->members))
        return false;
    uint64_t fixed =
        s->members * sizeof(struct member_head) + s->pipes * sizeof(struct pipe_head) + s->groups * sizeof(uint32_t);
    if (fixed > room)
        return false;
    for (uint32_t i = 0; i < s->members; i++) {
        if (!heads[i].argc)
            return false;
        needed += (uint64_t)heads[i].argc + heads[i].envc;
    }
    return needed <= room - fixed;
}

static bool ends_fit(const struct start *s, const struct pipe_head *p)
{
    int32_t most = (int32_t)s->members;
    return p->writer >= -1 && p->writer < most && p->reader >= -1 && p->reader < most &&
           (p->writer >= 0 || p->reader >= 0);
}

static bool take_member(struct member *m, char ***list, char **at, const char *end)
{
    char *fixed[7];
    if (!strings(fixed, 6, at, end))
        return false;
    m->name = fixed[0], m->program = fixed[1], m->cwd = fixed[2], m->in = fixed[3], m->out = fixed[4],
    m->errors = fixed[5];
    m->argv = *list;
    m->envp = m->argv + m->head->argc + 1;
    *list = m->envp + m->head->envc + 1;
    return strings(m->argv, m->head->argc, at, end) && strings(m->envp, m->head->envc, at, end);
}

static bool take_members(struct job *job, const struct member_head *heads, const struct pipe_head *pipes, char **list,
                         char **at, const char *end)
{
    for (uint32_t i = 0; i < job->start->members; i++) {
        job->members[i].head = &heads[i];
        if (!take_member(&job->members[i], &list, at, end))
            return false;
    }
    for (uint32_t i = 0; i < job->pipe_count; i++) {
        char *files[3];
        if (!ends_fit(job->start, &pipes[i]) || !strings(files, 2, at, end))
            return false;
        job->pipes[i] =
            (struct conduit){.head = &pipes[i], .writer_file = files[0], .reader_file = files[1], .ends = {-1, -1}};
    }
    return true;
}

/* Allocates one block for members, pipes and the pointers of all string lists. */
static bool make_room(struct job *job, const struct member_head *heads)
{
    const struct start *s = job->start;
    size_t pointers = (size_t)s->hides + s->devices + s->remotes + 2u * s->binds + s->network + s->argc + s->envc + 7;
    for (uint32_t i = 0; i < s->members; i++)
        pointers += (size_t)heads[i].argc + heads[i].envc + 2;
    job->count = s->members ? s->members : 1;
    job->pipe_count = s->pipes;
    char *room =
        calloc(1, job->count * sizeof *job->members + job->pipe_count * sizeof *job->pipes + pointers * sizeof(char *));
    if (!room)
        return false;
    job->kept = room;
    job->members = (struct member *)(void *)room;
    job->pipes = (struct conduit *)(void *)(job->members + job->count);
    job->hide = (char **)(void *)(job->pipes + job->pipe_count);
    job->devices = job->hide + s->hides + 1;
    job->remote = job->devices + s->devices + 1;
    job->binds = job->remote + s->remotes + 1;
    job->network = job->binds + 2 * s->binds + 1;
    return true;
}

int parse_start(struct job *job, void *message, size_t size, struct failure *f)
{
    static const struct member_head only;
    const struct start *s = message;
    if (size < sizeof *s || s->head.size != size || s->head.magic != MAGIC || s->head.version != VERSION)
        return malformed(f);
    char *end = (char *)message + size, *at = (char *)message + sizeof *s, *fixed[10];
    const struct member_head *heads = (const struct member_head *)(const void *)at;
    if (s->members > (size_t)(end - at) / sizeof *heads || !counts_fit(s, heads, (size_t)(end - at)))
        return malformed(f);
    job->start = s;
    const struct pipe_head *pipes = (const struct pipe_head *)(const void *)(heads + s->members);
    job->groups = (const uint32_t *)(const void *)(pipes + s->pipes);
    at = (char *)(uintptr_t)(job->groups + s->groups);
    if (!strings(fixed, 9, &at, end))
        return malformed(f);
    if (!make_room(job, heads))
        return set_failure(f, "malloc", "arguments");
    job->id = fixed[0], job->scratch = fixed[7], job->root = fixed[8]; /* fixed[1]: the claim */
    char **argv = job->network + s->network + 1, **envp = argv + s->argc + 1;
    *job->members = (struct member){.head = &only,
                                    .name = fixed[0],
                                    .program = fixed[2],
                                    .cwd = fixed[3],
                                    .in = fixed[4],
                                    .out = fixed[5],
                                    .errors = fixed[6],
                                    .argv = argv,
                                    .envp = envp};
    if (!strings(job->hide, s->hides, &at, end) || !strings(job->devices, s->devices, &at, end) ||
        !strings(job->remote, s->remotes, &at, end) || !strings(job->binds, 2u * s->binds, &at, end) ||
        !strings(job->network, s->network, &at, end) || !strings(argv, s->argc, &at, end) ||
        !strings(envp, s->envc, &at, end) || !take_members(job, heads, pipes, envp + s->envc + 1, &at, end))
        return malformed(f);
    return 0;
}

void report_init(struct report *r, uint16_t verb, uint64_t number, uint32_t cell)
{
    memset(r, 0, sizeof *r);
    r->head = (struct head){.magic = MAGIC, .version = VERSION, .verb = verb, .number = number, .cell = cell};
    r->head.size = offsetof(struct report, text);
    r->code = r->signal = -1;
}

/* Waits while the node is too busy to read, and gives up only when there is no node. The caller has already written
 * what must not be lost to the cell. */
void report_send(struct report *r, const char *text)
{
    if (text) {
        copy_text(r->text, sizeof r->text, text);
        r->head.size = (uint32_t)(offsetof(struct report, text) + strlen(r->text));
    }
    while (send(UP, r, r->head.size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != ENOBUFS)
            return;
        struct pollfd wait = {.fd = UP, .events = POLLOUT};
        if (poll(&wait, 1, 1000) > 0 && wait.revents & (POLLERR | POLLHUP))
            return;
    }
}

void report_failure(uint64_t number, uint32_t cell, const struct failure *f)
{
    struct report r;
    report_init(&r, FAILED, number, cell);
    r.cause = CAUSE_START;
    r.err = f->err;
    copy_text(r.call, sizeof r.call, f->call);
    report_send(&r, f->text);
}

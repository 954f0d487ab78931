/* Messages in and out: a start message taken apart with every length checked, and reports to the node. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "keeper.h"

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
    return fail(f, "read", "a start message from the node that does not fit this keeper");
}

int take_apart(struct job *job, void *message, size_t size, struct failure *f)
{
    const struct start *s = message;
    if (size < sizeof *s || s->head.size != size || s->head.magic != MAGIC || s->head.version != VERSION)
        return malformed(f);
    char *end = (char *)message + size, *at = (char *)(s + 1);
    size_t room = (size_t)(end - at);
    if (s->groups > 65536 || s->groups * sizeof(uint32_t) > room || s->argc > room || s->envc > room || s->hides > room ||
        s->devices > room || !s->argc)
        return malformed(f);
    job->start = s;
    job->groups = (const uint32_t *)(const void *)at;
    at += s->groups * sizeof(uint32_t);
    char *fixed[9];
    if (!strings(fixed, 8, &at, end))
        return malformed(f);
    job->id = fixed[0], job->program = fixed[2], job->cwd = fixed[3], job->in = fixed[4]; /* fixed[1]: the claim */
    job->out = fixed[5], job->errors = fixed[6], job->scratch = fixed[7];
    job->hide = malloc(((size_t)s->hides + s->devices + s->argc + s->envc + 4) * sizeof(char *));
    if (!job->hide)
        return fail(f, "malloc", "arguments");
    job->devices = job->hide + s->hides + 1;
    job->argv = job->devices + s->devices + 1;
    job->envp = job->argv + s->argc + 1;
    if (!strings(job->hide, s->hides, &at, end) || !strings(job->devices, s->devices, &at, end) ||
        !strings(job->argv, s->argc, &at, end) || !strings(job->envp, s->envc, &at, end))
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

/* Waits while the node is too busy to read; gives up only when there is no node any more. What must not be lost lies in
 * the cell before this is called. */
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

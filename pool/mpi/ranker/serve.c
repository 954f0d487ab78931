/* What PMI-1 and PMI-2 have in common: reading requests, the rules, barriers, aborts, and the refusal to spawn. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ranker.h"

/* One that waits for an answer is not heard: a second request of it stays in the socket. */
bool rank_is_heard(const struct rank *r) { return r->fd >= 0 && !r->in_barrier && !r->waits_for; }

static void hang_up(struct rank *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
    me.changed = true;
}

void broke_rules(struct rank *r, const char *how)
{
    end_job(ENDS_WITH_CODE, 1, "rank %d does not keep to PMI: %s", r->number, how);
    hang_up(r);
}

/* A whole message, as it goes to the rank. */
bool answer(struct rank *r, const char *format, ...)
{
    char text[VALUE_MOST + NAME_MOST + 256];
    va_list list;
    if (r->fd < 0)
        return false;
    va_start(list, format);
    int size = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (size < 0 || size >= (int)sizeof text) {
        broke_rules(r, "the answer would be too long");
        return false;
    }
    ssize_t n = send(r->fd, text, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == size)
        return true;
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
        hang_up(r); /* it ends, or is about to */
    else
        broke_rules(r, "it does not read its answers");
    return false;
}

bool put_allowed(struct rank *r, const char *key, const char *value, const char **why)
{
    *why = "a key that is empty or too long";
    if (!key || !*key || strlen(key) >= KEY_MOST)
        return false;
    *why = "a value that is too long";
    if (!value || strlen(value) >= VALUE_MOST)
        return false;
    r->put_bytes += strlen(key) + strlen(value) + 64;
    *why = "it puts more than a rank may";
    return r->put_bytes <= PUTS_MOST;
}

void enter_barrier(struct rank *r)
{
    r->in_barrier = me.changed = true;
    for (int i = 0; i < me.count; i++)
        if (!me.ranks[i].pid && me.ranks[i].ended_well) {
            end_job(ENDS_WITH_CODE, 1, "rank %d waits for rank %d, which has ended%s", r->number, me.ranks[i].number,
                    me.ranks[i].stage == STARTED ? " without MPI_Init" : "");
            return;
        }
    barrier_changed();
}

void release_ranks(void)
{
    me.changed = true;
    for (int i = 0; i < me.count; i++) {
        struct rank *r = &me.ranks[i];
        if (!r->in_barrier)
            continue;
        r->in_barrier = false;
        (r->version == 2 ? pmi2_released : pmi1_released)(r);
    }
}

void refuse_spawn(struct rank *r)
{
    if (!me.refused_spawn)
        say("rank %d calls MPI_Comm_spawn: refused, a job of this pool starts with all its ranks", r->number);
    me.refused_spawn = true;
}

void aborted(struct rank *r, const char *code, const char *message)
{
    long number;
    if (!code || !number_of(code, INT32_MIN, INT32_MAX, &number))
        number = 1;
    int status = (int)(number & 255);
    if (number && !status)
        status = 1; /* 256 is no success */
    end_job(status ? ENDS_WITH_CODE : ENDS_WELL, status, "rank %d has aborted the job with code %ld%s%.200s", r->number,
            number, message && *message ? ": " : "", message ? message : "");
}

/* -1: none. */
int first_who_spoke(void)
{
    for (int i = 0; i < me.count; i++)
        if (me.ranks[i].stage != STARTED)
            return me.ranks[i].number;
    return -1;
}

/* After a rank's first request, and after the end of a rank: one that has ended without MPI is waited for by all
 * others, some of them in loops of their own. */
void look_for_silent(void)
{
    int waits = first_who_spoke();
    if (waits < 0)
        return;
    for (int i = 0; i < me.count; i++)
        if (me.ranks[i].stage == STARTED && !me.ranks[i].pid && me.ranks[i].ended_well) {
            end_job(ENDS_WITH_CODE, 1, "rank %d has ended without MPI_Init, which rank %d has called",
                    me.ranks[i].number, waits);
            return;
        }
    if (me.silent_part)
        end_job(ENDS_WITH_CODE, 1,
                "the ranks of another part of the job have ended without MPI_Init, which rank %d has called", waits);
}

/* Of a request to spawn, which has many lines: true when it is complete. RFC 13: `endcmd` ends one program of several.
 */
static bool spawn_complete(struct rank *r, const char *line, size_t size)
{
    long number;
    r->spawn_bytes += size;
    if (strncmp(line, "totspawns=", 10) == 0 && number_of(line + 10, 1, 1 << 16, &number))
        r->spawns = (int)number;
    else if (strncmp(line, "spawnssofar=", 12) == 0 && number_of(line + 12, 1, 1 << 16, &number))
        r->spawns_sent = (int)number;
    return strcmp(line, "endcmd") == 0 && r->spawns_sent >= r->spawns;
}

static void take_line(struct rank *r, char *line, size_t size)
{
    if (r->spawn_bytes) {
        if (r->spawn_bytes > SPAWN_MOST) {
            broke_rules(r, "its request to spawn is too long");
        } else if (spawn_complete(r, line, size)) {
            r->spawn_bytes = 0;
            refuse_spawn(r);
            answer(r, "cmd=spawn_result rc=-1 msg=not_supported\n");
        }
        return;
    }
    if (strcmp(line, "mcmd=spawn") == 0) {
        r->spawn_bytes = size;
        r->spawns = r->spawns_sent = 0;
        return;
    }
    pmi1_request(r, line);
}

/* Bytes of the first message in what was read; 0: not complete; -1: none. PMI-2 begins with its length in six digits.
 */
static ssize_t whole(struct rank *r)
{
    if (r->version != 2) {
        char *end = memchr(r->line, '\n', r->used);
        return end ? end - r->line + 1 : r->used >= LINE_MOST ? -1 : 0;
    }
    char digits[7] = {0};
    long size;
    if (r->used < 6)
        return 0;
    memcpy(digits, r->line, 6);
    for (int i = 5; i > 0 && digits[i] == ' '; i--)
        digits[i] = 0; /* some pad it on the right */
    if (!number_of(digits, 5, LINE_MOST - 7, &size))
        return -1;
    return r->used >= (size_t)size + 6 ? (ssize_t)size + 6 : 0;
}

static void take_first(struct rank *r, size_t size)
{
    char *text = r->line;
    if (r->version != 2) {
        text[size - 1] = 0;
        if (strlen(text) != size - 1)
            broke_rules(r, "a zero byte in a line");
        else
            take_line(r, text, size);
        return;
    }
    char after = text[size]; /* there is room for it */
    text[size] = 0;
    if (strlen(text) != size)
        broke_rules(r, "a zero byte in a message");
    else
        pmi2_request(r, text + 6);
    text[size] = after;
}

void rank_readable(struct rank *r)
{
    if (r->room < r->used + 4097) {
        size_t room = r->room ? r->room * 2 : 8192;
        char *bigger = room > 2 * LINE_MOST + 8192 ? NULL : realloc(r->line, room);
        if (!bigger) {
            broke_rules(r, "a line that is too long");
            return;
        }
        r->line = bigger;
        r->room = room;
    }
    ssize_t n = recv(r->fd, r->line + r->used, r->room - r->used - 1, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* its end says the rest: reap_ranks */
        if (r->stage != FINALIZED)
            r->gone_at = us_of_day();
        hang_up(r);
        return;
    }
    r->used += (size_t)n;
    ssize_t size;
    while (r->fd >= 0 && !me.over && (size = whole(r))) {
        if (size < 0) {
            broke_rules(r, "a message without an end");
            return;
        }
        if (r->in_barrier || r->waits_for) {
            broke_rules(r, "a request while another one is not answered");
            return;
        }
        take_first(r, (size_t)size);
        r->used -= (size_t)size;
        memmove(r->line, r->line + size, r->used);
    }
}

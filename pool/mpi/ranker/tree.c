/* The links between the rankers of a job: a tree with part 0 at its root, two pipes for each link.
 *
 * A barrier goes up and down once: a part that has all its ranks and all parts below in the barrier sends what they
 * have put since the last one, then BARRIER; part 0 sends everything down again, then BARRIER. So one round serves put,
 * barrier and get, and a get needs no message. A fence of PMIx is such a round, too, with GATHER for PUT.
 *
 * Writes never block: what a
 * pipe does not take waits in memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranker.h"

enum { MESSAGE_MOST = HEAD + 4 + LAUNCH_MOST, UNSENT_MOST = STORE_MOST, END_HEAD = 11 };

bool number_of(const char *text, long least, long most, long *number)
{
    char *end;
    errno = 0;
    *number = strtol(text, &end, 10);
    return end != text && !*end && !errno && *number >= least && *number <= most;
}

/* "IN,OUT": descriptors that the ranker was born with. */
int link_open(struct link *l, const char *text)
{
    char own[32], *comma;
    long in, out;
    if (strlen(text) >= sizeof own)
        return -1;
    strcpy(own, text);
    comma = strchr(own, ',');
    if (!comma)
        return -1;
    *comma = 0;
    if (!number_of(own, 3, 1 << 20, &in) || !number_of(comma + 1, 3, 1 << 20, &out))
        return -1;
    for (int i = 0; i < 2; i++) {
        int fd = (int)(i ? out : in), flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
            return -1;
    }
    *l = (struct link){.in = (int)in, .out = (int)out};
    return 0;
}

bool make_room(char **at, size_t *room, size_t wanted)
{
    size_t next = *room ? *room : 4096;
    while (next < wanted)
        next *= 2;
    if (next == *room)
        return true;
    char *bigger = realloc(*at, next);
    if (!bigger)
        return false;
    *at = bigger;
    *room = next;
    return true;
}

static int name_of(const struct link *l) { return l == &me.up ? -1 : (int)(l - me.below); }

static void link_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void link_writable(struct link *l)
{
    size_t sent = 0;
    while (l->out >= 0 && sent < l->unsent_used) {
        ssize_t n = write(l->out, l->unsent + sent, l->unsent_used - sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) { /* the other part has ended: why, its own end says */
            link_close(&l->out);
            sent = l->unsent_used;
            break;
        }
        sent += (size_t)n;
    }
    l->unsent_used -= sent;
    memmove(l->unsent, l->unsent + sent, l->unsent_used);
}

void send_to(struct link *l, enum kind kind, const void *body, size_t size)
{
    uint32_t length = (uint32_t)size + 1;
    if (l->out < 0)
        return;
    size_t wanted = l->unsent_used + HEAD + size;
    if (wanted > UNSENT_MOST || !make_room(&l->unsent, &l->unsent_room, wanted)) {
        link_close(&l->out);
        end_job(ENDS_WITH_CODE, 1, "the messages between the job's parts take more memory than there is");
        return;
    }
    char *at = l->unsent + l->unsent_used;
    for (int i = 0; i < 4; i++)
        at[i] = (char)(length >> (8 * i) & 255);
    at[4] = (char)kind;
    if (size)
        memcpy(at + HEAD, body, size);
    l->unsent_used = wanted;
}

static struct link *put_to; /* NULL: all below */

static void send_put(const char *key, const char *value)
{
    char body[KEY_MOST + VALUE_MOST];
    size_t k = strlen(key) + 1, v = strlen(value) + 1;
    memcpy(body, key, k);
    memcpy(body + k, value, v);
    if (put_to)
        send_to(put_to, PUT, body, k + v);
    for (int i = 0; i < me.below_count && !put_to; i++)
        send_to(&me.below[i], PUT, body, k + v);
}

static void append(struct bytes *to, const char *data, size_t size)
{
    if (to->used + size > STORE_MOST || !make_room(&to->at, &to->room, to->used + size + 1)) {
        end_job(ENDS_WITH_CODE, 1, "the ranks give each other more than this pool keeps for a job");
        return;
    }
    memcpy(to->at + to->used, data, size);
    to->used += size;
}

void send_gathered(struct link *l)
{
    const struct bytes *all = &me.gathered;
    for (size_t at = 0; at < all->used; at += CHUNK_MOST)
        send_to(l, GATHER, all->at + at, all->used - at < CHUNK_MOST ? all->used - at : (size_t)CHUNK_MOST);
}

/* Pieces from below and from the server wait until their sender is in the fence: each sender's stay together. One from
 * above goes on as it is, and is for this part's ranks, too. */
bool take_gather(struct link *l, const char *body, size_t size)
{
    if (!me.pmix || !size || size > CHUNK_MOST || l->in_barrier)
        return false;
    for (int i = 0; i < me.below_count && l == &me.up; i++)
        send_to(&me.below[i], GATHER, body, size);
    append(l == &me.up ? &me.gathered : &l->given, body, size);
    return true;
}

/* Its sender is in the fence. */
void take_given(struct link *l)
{
    if (l->given.used)
        append(&me.gathered, l->given.at, l->given.used);
    l->given.used = 0;
}

/* Puts that came from above go down as they came: here they are never `own`. */
static void release(void)
{
    for (int i = 0; i < me.below_count; i++) {
        me.below[i].in_barrier = false;
        if (me.up.in < 0)
            send_gathered(&me.below[i]);
        send_to(&me.below[i], BARRIER, NULL, 0);
        link_writable(&me.below[i]);
    }
    if (me.pmix)
        pmix_release();
    else
        release_ranks();
}

/* After each step into a barrier: are all there? */
void barrier_changed(void)
{
    for (int i = 0; i < me.count; i++)
        if (!me.ranks[i].in_barrier)
            return;
    for (int i = 0; i < me.below_count; i++)
        if (!me.below[i].in_barrier)
            return;
    put_to = me.up.in >= 0 ? &me.up : NULL;
    each_own(send_put);
    if (!put_to) {
        release();
        return;
    }
    send_gathered(&me.up);
    me.gathered.used = 0;
    send_to(&me.up, BARRIER, NULL, 0);
    link_writable(&me.up);
}

static void send_all(enum kind kind, const void *body, size_t size)
{
    struct link *up = me.up.in >= 0 || me.up.out >= 0 ? &me.up : NULL;
    for (int i = up ? -1 : 0; i < me.below_count; i++) {
        struct link *l = i < 0 ? up : &me.below[i];
        send_to(l, kind, body, size);
        link_writable(l);
    }
}

void tell_end(void)
{
    char body[END_HEAD + TEXT_MOST] = {(char)me.how, (char)me.code, !ranks_left()};
    size_t length = strlen(me.text) + 1;
    for (int i = 0; i < 8; i++)
        body[3 + i] = (char)(me.ended_at >> (8 * i) & 255);
    memcpy(body + END_HEAD, me.text, length);
    send_all(END, body, length + END_HEAD);
}

/* Every part below hears it: its number says whom it is for. */
void tell_launch(uint32_t part, const char *command)
{
    size_t length = strlen(command) + 1;
    char *body = malloc(4 + length);
    if (!body) {
        end_job(ENDS_WITH_CODE, 1, "no memory for the start of mpirun's daemons");
        return;
    }
    for (int i = 0; i < 4; i++)
        body[i] = (char)(part >> (8 * i) & 255);
    memcpy(body + 4, command, length);
    for (int i = 0; i < me.below_count; i++) {
        send_to(&me.below[i], LAUNCH, body, 4 + length);
        link_writable(&me.below[i]);
    }
    free(body);
}

static bool take_launch(const struct link *l, const char *body, size_t size)
{
    const unsigned char *p = (const unsigned char *)body;
    if (l != &me.up || !me.mpirun || size < 6 || size > 4 + LAUNCH_MOST || body[size - 1])
        return false;
    uint32_t part = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    char *command = strdup(body + 4);
    if (!command)
        return false;
    if (part == (uint32_t)me.part) {
        launch(command); /* which keeps it */
        return true;
    }
    tell_launch(part, command);
    free(command);
    return true;
}

void tell_done(bool spoke) { send_all(DONE, &(char){spoke}, 1); }

/* Whether a part that we told of the job's end may still see that one of its ranks had ended before. */
bool answers_left(void)
{
    bool left = me.up.in >= 0 && !me.up.heard_end;
    for (int i = 0; i < me.below_count; i++)
        left = left || (me.below[i].in >= 0 && !me.below[i].heard_end);
    return left;
}

bool unsent_left(void)
{
    bool left = me.up.out >= 0 && me.up.unsent_used;
    for (int i = 0; i < me.below_count; i++)
        left = left || (me.below[i].out >= 0 && me.below[i].unsent_used);
    return left;
}

static bool take_put(struct link *l, const char *body, size_t size)
{
    const char *zero = memchr(body, 0, size);
    if (!zero || zero == body || zero - body >= KEY_MOST)
        return false;
    const char *value = zero + 1;
    size_t left = size - (size_t)(value - body);
    if (!left || left > VALUE_MOST || memchr(value, 0, left) != value + left - 1)
        return false;
    bool from_below = l != &me.up;
    if (store_put(body, value, from_below) == -2)
        end_job(ENDS_WITH_CODE, 1, "the ranks put more keys and values than this pool keeps for a job");
    put_to = NULL;
    if (!from_below)
        send_put(body, value);
    return true;
}

static bool take_end(struct link *l, const char *body, size_t size)
{
    if (size <= END_HEAD || size > END_HEAD + TEXT_MOST || body[size - 1] || (unsigned char)body[0] > ENDS_BY_SIGNAL)
        return false;
    int code = (unsigned char)body[1];
    uint64_t at = 0;
    for (int i = 0; i < 8; i++)
        at |= (uint64_t)(unsigned char)body[3 + i] << (8 * i);
    if ((body[0] == ENDS_BY_SIGNAL && (code < 1 || code > 64)) || at > INT64_MAX)
        return false;
    l->heard_end = l->heard_end || body[2];
    end_from_afar((enum how)body[0], code, (int64_t)at, body + END_HEAD);
    return true;
}

static bool take_done(struct link *l, const char *body, size_t size)
{
    if (size != 1)
        return false;
    l->done = me.changed = true;
    me.silent_part = me.silent_part || !body[0];
    look_for_silent();
    return true;
}

static bool take(struct link *l, char kind, const char *body, size_t size)
{
    if (l == &me.server)
        return take_from_server(kind, body, size);
    if (l->done && kind != END)
        return false;
    switch (kind) {
    case PUT:
        return take_put(l, body, size);
    case GATHER:
        return take_gather(l, body, size);
    case BARRIER:
        if (size || l->in_barrier)
            return false;
        me.changed = true;
        if (l == &me.up) {
            release();
            return true;
        }
        l->in_barrier = true;
        take_given(l);
        barrier_changed();
        return true;
    case END:
        return take_end(l, body, size);
    case LAUNCH:
        return take_launch(l, body, size);
    case DONE:
        return take_done(l, body, size);
    default:
        return false;
    }
}

static void take_all(struct link *l)
{
    size_t at = 0;
    while (l->used - at >= HEAD) {
        const unsigned char *p = (unsigned char *)l->got + at;
        uint32_t length = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        bool good = length >= 1 && length <= MESSAGE_MOST;
        if (good && l->used - at < 4 + (size_t)length)
            break;
        if (!good || !take(l, (char)p[4], (const char *)p + HEAD, length - 1)) {
            link_close(&l->in);
            if (l == &me.server)
                end_job(ENDS_WITH_CODE, 1, "the PMIx server of part %d sent what is no message", me.part);
            else
                end_job(ENDS_WITH_CODE, 1, "another part of the job (link %d) sent what is no message", name_of(l));
            return;
        }
        at += 4 + (size_t)length;
    }
    l->used -= at;
    memmove(l->got, l->got + at, l->used);
}

bool link_readable(struct link *l)
{
    if (!make_room(&l->got, &l->room, l->used + MESSAGE_MOST)) {
        end_job(ENDS_WITH_CODE, 1, "no memory for the messages of the job's parts");
        return false;
    }
    ssize_t n = read(l->in, l->got + l->used, l->room - l->used);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0) {
        l->used += (size_t)n;
        take_all(l);
        return true;
    }
    link_close(&l->in);
    if (l == &me.server)
        end_job(ENDS_WITH_CODE, 1, "the PMIx server of part %d %s", me.part,
                me.server_ready ? "has ended" : "cannot be started: it needs the C library that it was built with");
    else if (!l->done) /* its machine is lost, or its ranker was killed: the pool says more about it than we can */
        end_job(ENDS_WITH_CODE, 1, "the connection to another part of the job has ended");
    return true;
}

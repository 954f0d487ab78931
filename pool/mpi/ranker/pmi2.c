/* PMI-2: messages of words `key=value;` behind their length in six characters. A `;` in a value is doubled.
 *
 * The first message of a rank is PMI-1's `init` with version 2 (pmi1.c). The store is the same: `kvs-fence` is the
 * barrier. Attributes of the node are kept here and go nowhere; a rank may wait for one.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranker.h"
#include "words.h"

static bool split(char *text, struct words *w)
{
    w->count = 0;
    while (*text && *text != '\n') {
        char *equals = strchr(text, '=');
        if (!equals)
            return false;
        *equals = 0;
        char *from = equals + 1, *to = from;
        if (!add_word(w, text, from))
            return false;
        for (; *from && (*from != ';' || from[1] == ';'); from++, to++) {
            *to = *from;
            from += *from == ';';
        }
        bool last = !*from;
        *to = 0;
        text = last ? from : from + 1;
    }
    return true;
}

static void reply(struct rank *r, const char *command, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void reply(struct rank *r, const char *command, const char *format, ...)
{
    char body[VALUE_MOST * 2 + NAME_MOST], thread[48] = "", text[sizeof body + 200];
    va_list list;
    va_start(list, format);
    int size = vsnprintf(body, sizeof body, format, list);
    va_end(list);
    if (*r->thread)
        snprintf(thread, sizeof thread, "thrid=%s;", r->thread);
    int whole = snprintf(text, sizeof text, "cmd=%.60s-response;%s%s", command, thread, body);
    if (size < 0 || size >= (int)sizeof body || whole >= (int)sizeof text)
        broke_rules(r, "the answer would be too long");
    else
        answer(r, "%6d%s", whole, text);
}

/* With each `;` doubled; room is twice VALUE_MOST. */
static void reply_value(struct rank *r, const char *command, const char *value)
{
    char doubled[VALUE_MOST * 2];
    size_t used = 0;
    for (; value && *value && used + 2 < sizeof doubled; value++) {
        doubled[used++] = *value;
        if (*value == ';')
            doubled[used++] = ';';
    }
    doubled[used] = 0;
    if (value)
        reply(r, command, "rc=0;found=TRUE;value=%s;", doubled);
    else
        reply(r, command, "rc=0;found=FALSE;");
}

static void fullinit(struct rank *r, const struct words *w)
{
    (void)w;
    reply(r, "fullinit",
          "rc=0;pmi-version=2;pmi-subversion=0;rank=%d;size=%d;appnum=%d;debugged=FALSE;pmiverbose=FALSE;", r->number,
          me.size, me.appnum);
}

static void finalize(struct rank *r, const struct words *w)
{
    (void)w;
    r->stage = FINALIZED;
    me.changed = true;
    reply(r, "finalize", "rc=0;");
}

static void abort_job(struct rank *r, const struct words *w)
{
    const char *message = word(w, "msg");
    aborted(r, word(w, "exitcode"), message ? message : word(w, "message"));
}

static void job_id(struct rank *r, const struct words *w)
{
    (void)w;
    reply(r, "job-getid", "rc=0;jobid=%s;", me.name);
}

static void put(struct rank *r, const struct words *w)
{
    const char *key = word(w, "key"), *value = word(w, "value"), *why;
    if (!put_allowed(r, key, value, &why)) {
        broke_rules(r, why);
        return;
    }
    int done = store_put(key, value, true);
    if (done == -2)
        broke_rules(r, "it puts more than this pool keeps for a job");
    else
        reply(r, "kvs-put", "rc=%d;", done);
}

static void get(struct rank *r, const struct words *w)
{
    const char *key = word(w, "key");
    reply_value(r, "kvs-get", key ? store_get(key) : NULL);
}

static void job_attribute(struct rank *r, const struct words *w)
{
    const char *key = word(w, "key");
    char size[16];
    snprintf(size, sizeof size, "%d", me.size);
    reply_value(r, "info-getjobattr",
                !key                                      ? NULL
                : strcmp(key, "PMI_process_mapping") == 0 ? me.mapping
                : strcmp(key, "universeSize") == 0        ? size
                                                          : NULL);
}

static void fence(struct rank *r, const struct words *w)
{
    (void)w;
    enter_barrier(r);
}

void pmi2_released(struct rank *r) { reply(r, "kvs-fence", "rc=0;"); }

static void put_node(struct rank *r, const struct words *w)
{
    const char *key = word(w, "key"), *value = word(w, "value"), *why;
    if (!put_allowed(r, key, value, &why)) {
        broke_rules(r, why);
        return;
    }
    int done = node_put(key, value);
    if (done == -2) {
        broke_rules(r, "it puts more than this pool keeps for a job");
        return;
    }
    reply(r, "info-putnodeattr", "rc=%d;", done);
    for (int i = 0; i < me.count && !done; i++) {
        struct rank *other = &me.ranks[i];
        if (!other->waits_for || strcmp(other->waits_for, key) != 0)
            continue;
        free(other->waits_for);
        other->waits_for = NULL;
        reply_value(other, "info-getnodeattr", value);
    }
}

static void get_node(struct rank *r, const struct words *w)
{
    const char *key = word(w, "key"), *wait = word(w, "wait"), *value = key ? node_get(key) : NULL;
    if (!value && key && strlen(key) < KEY_MOST && wait && strcmp(wait, "TRUE") == 0) {
        r->waits_for = strdup(key);
        if (r->waits_for)
            return;
    }
    reply_value(r, "info-getnodeattr", value);
}

static void spawn(struct rank *r, const struct words *w)
{
    (void)w;
    refuse_spawn(r);
    reply(r, "spawn", "rc=-1;errmsg=not_supported;");
}

static const struct {
    const char *command;
    void (*serve)(struct rank *r, const struct words *w);
} commands[] = {
    {"fullinit", fullinit},
    {"finalize", finalize},
    {"abort", abort_job},
    {"job-getid", job_id},
    {"kvs-put", put},
    {"kvs-get", get},
    {"kvs-fence", fence},
    {"info-getjobattr", job_attribute},
    {"spawn", spawn},
    {"info-putnodeattr", put_node},
    {"info-getnodeattr", get_node},
};

void pmi2_request(struct rank *r, char *text)
{
    struct words w;
    if (!split(text, &w)) {
        broke_rules(r, "a message that is no list of words");
        return;
    }
    const char *command = word(&w, "cmd"), *thread = word(&w, "thrid");
    if (!command || strlen(command) > 60 || (thread && strlen(thread) >= sizeof r->thread)) {
        broke_rules(r, "a message without a command");
        return;
    }
    snprintf(r->thread, sizeof r->thread, "%s", thread ? thread : "");
    if (strcmp(command, "abort") != 0 && r->stage != SPOKE) {
        broke_rules(r, "a request after finalize");
        return;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].command, command) == 0) {
            commands[i].serve(r, &w);
            return;
        }
    reply(r, command, "rc=-1;errmsg=not_supported;");
}

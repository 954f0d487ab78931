/* PMI-1: lines of words `key=value` (Flux RFC 13, "Wire Protocol"). */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranker.h"
#include "words.h"

/* `value` and `message` go on to the end of the line: they may hold blanks. */
static bool split(char *text, struct words *w)
{
    w->count = 0;
    while (*(text += strspn(text, " \t\r"))) {
        char *equals = strpbrk(text, "= \t\r");
        const char *key = text;
        if (!equals || *equals != '=') { /* a word without a value */
            text = equals ? equals : text + strlen(text);
            if (*text)
                *text++ = 0;
            if (!add_word(w, key, ""))
                return false;
            continue;
        }
        *equals = 0;
        char *value = equals + 1;
        bool rest = strcmp(key, "value") == 0 || strcmp(key, "message") == 0 || strcmp(key, "error_msg") == 0;
        text = value + (rest ? strlen(value) : strcspn(value, " \t\r"));
        if (*text)
            *text++ = 0;
        if (!add_word(w, key, value))
            return false;
    }
    return true;
}

static void init(struct rank *r, const struct words *w)
{
    const char *version = word(w, "pmi_version");
    long number;
    if (r->stage != STARTED) {
        broke_rules(r, "a second init");
        return;
    }
    if (!version || !number_of(version, 1, 1000, &number)) {
        broke_rules(r, "no version in its first request");
        return;
    }
    r->stage = SPOKE;
    me.changed = true;
    if (number != 2)
        answer(r, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n");
    else if (answer(r, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n"))
        r->version = 2;
    look_for_silent();
}

static void get_maxes(struct rank *r, const struct words *w)
{
    (void)w;
    answer(r, "cmd=maxes rc=0 kvsname_max=%d keylen_max=%d vallen_max=%d\n", NAME_MOST, KEY_MOST, VALUE_MOST);
}

static void get_appnum(struct rank *r, const struct words *w)
{
    (void)w;
    answer(r, "cmd=appnum rc=0 appnum=%d\n", me.appnum);
}

static void get_name(struct rank *r, const struct words *w)
{
    (void)w;
    answer(r, "cmd=my_kvsname rc=0 kvsname=%s\n", me.name);
}

static void get_universe(struct rank *r, const struct words *w)
{
    (void)w;
    answer(r, "cmd=universe_size rc=0 size=%d\n", me.size);
}

static bool own_store(struct rank *r, const struct words *w)
{
    const char *name = word(w, "kvsname");
    if (!name || strcmp(name, me.name) == 0)
        return true;
    answer(r, "cmd=%s_result rc=-1 msg=unknown_kvsname\n", word(w, "cmd"));
    return false;
}

static void put(struct rank *r, const struct words *w)
{
    const char *key = word(w, "key"), *value = word(w, "value"), *why;
    if (!own_store(r, w))
        return;
    if (!put_allowed(r, key, value, &why)) {
        broke_rules(r, why);
        return;
    }
    int done = store_put(key, value, true);
    if (done == -2)
        broke_rules(r, "it puts more than this pool keeps for a job");
    else
        answer(r, "cmd=put_result rc=%d msg=%s\n", done, done ? "duplicate_key" : "success");
}

static void get(struct rank *r, const struct words *w)
{
    const char *key = word(w, "key"), *value;
    if (!own_store(r, w))
        return;
    value = !key ? NULL : strcmp(key, "PMI_process_mapping") == 0 ? me.mapping : store_get(key);
    if (value)
        answer(r, "cmd=get_result rc=0 msg=success value=%s\n", value);
    else
        answer(r, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
}

static void barrier(struct rank *r, const struct words *w)
{
    (void)w;
    enter_barrier(r);
}

void pmi1_released(struct rank *r) { answer(r, "cmd=barrier_out rc=0 msg=success\n"); }

static void finalize(struct rank *r, const struct words *w)
{
    (void)w;
    r->stage = FINALIZED;
    me.changed = true;
    answer(r, "cmd=finalize_ack rc=0\n");
}

static void abort_job(struct rank *r, const struct words *w)
{
    const char *message = word(w, "message");
    aborted(r, word(w, "exitcode"), message ? message : word(w, "error_msg"));
}

static const struct {
    const char *command;
    void (*serve)(struct rank *r, const struct words *w);
} commands[] = {
    {"get_maxes", get_maxes},
    {"get_appnum", get_appnum},
    {"get_my_kvsname", get_name},
    {"get_universe_size", get_universe},
    {"put", put},
    {"get", get},
    {"barrier_in", barrier},
    {"finalize", finalize},
    {"abort", abort_job},
};

void pmi1_request(struct rank *r, char *text)
{
    struct words w;
    char why[120];
    if (!split(text, &w)) {
        broke_rules(r, "too many words in a line");
        return;
    }
    const char *command = word(&w, "cmd");
    if (!command) {
        broke_rules(r, "a line without a command");
        return;
    }
    if (strcmp(command, "init") == 0) {
        init(r, &w);
        return;
    }
    if (strcmp(command, "abort") != 0 && r->stage != SPOKE) {
        broke_rules(r, r->stage == STARTED ? "its first request is not init" : "a request after finalize");
        return;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].command, command) == 0) {
            commands[i].serve(r, &w);
            return;
        }
    /* publish_name, lookup_name and what later versions have: the rank goes on without. */
    snprintf(why, sizeof why, "%.60s", command);
    if (strlen(command) > 60 || strpbrk(why, "\\\""))
        broke_rules(r, "a command that is none");
    else if (strcmp(why + (strlen(why) > 5 ? strlen(why) - 5 : 0), "_name") == 0)
        answer(r, "cmd=%.*s_result rc=-1 msg=not_supported\n", (int)strlen(why) - 5, why);
    else
        answer(r, "cmd=%s_result rc=-1 msg=not_supported\n", why);
}

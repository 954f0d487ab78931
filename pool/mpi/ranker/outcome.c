/* How the job ends, and what its user reads about it: a line in the job's error file, and the status file, which the
 * node reads while the job runs and when it has ended.
 *
 * The status is text, written anew at each change:
 *
 *     ranker 1
 *     ranks FIRST COUNT SIZE
 *     states LETTERS      one for each rank of this part: see `letter`
 *     below LETTERS       one for each link to a part below: w it waits in a barrier, . it does not, x it has ended
 *     end HOW NUMBER TEXT once the job ends: code or signal; none before
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ranker.h"

/* No control characters: it stands in logs and on terminals. */
static void make_plain(char *text)
{
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127)
            *c = ' ';
}

void say(const char *format, ...)
{
    char line[TEXT_MOST + 64];
    va_list list;
    int used = snprintf(line, sizeof line, "poolnode: ");
    va_start(list, format);
    vsnprintf(line + used, sizeof line - (size_t)used - 1, format, list);
    va_end(list);
    make_plain(line);
    strcat(line, "\n");
    if (write(2, line, strlen(line)) < 0) {
        /* the job has no error file any more: the status has it, too */
    }
}

static void set_end(enum how how, int code, int64_t at, const char *text)
{
    me.over = me.changed = true;
    me.ended_at = at;
    me.how = how;
    me.code = code;
    snprintf(me.text, sizeof me.text, "%s", text);
    make_plain(me.text);
    signal_ranks(SIGKILL);
    tell_end();
}

/* The first end counts: those after it follow from it. */
void end_job(enum how how, int code, const char *format, ...)
{
    char text[TEXT_MOST];
    va_list list;
    if (me.over)
        return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    set_end(how, code, us_of_day(), text);
    say("%s", me.text);
}

/* A rank that fails takes ranks of other parts with it, and their rankers may see those end before they hear of the
 * cause. So all parts tell each other, and the earliest end counts; each part's error file names its own. A rank's
 * sockets are closed a moment before it has ended: from the first of both its end is counted. The clocks of machines
 * differ, and a ranker may be late to see an end: what is the earliest is as right as these are.
 */
void end_by_rank(const struct rank *r, enum how how, int code, const char *format, ...)
{
    char text[TEXT_MOST];
    va_list list;
    int64_t at = r->gone_at ? r->gone_at : us_of_day();
    bool first = !me.over || at < me.ended_at, before = me.over;
    if (!first && (me.own_named || !me.from_afar))
        return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    me.own_named = true;
    say("%s%s", before && first ? "but first: " : "", text);
    if (first) {
        me.from_afar = false;
        set_end(how, code, at, text);
    }
}

void end_from_afar(enum how how, int code, int64_t at, const char *text)
{
    for (int i = 0; i < me.count && !me.over; i++)
        if (rank_is_heard(&me.ranks[i]))
            rank_readable(&me.ranks[i]);
    if (!me.over)
        reap_ranks();
    if (me.over && at >= me.ended_at)
        return;
    bool own = me.over && !me.from_afar;
    me.from_afar = true;
    set_end(how, code, at, text);
    if (own)
        say("but first: %s", me.text);
}

/* . it has not called MPI_Init, i it has, b it is in a barrier, f it has called MPI_Finalize, and e, E the same of
 * ranks that have ended well: without and with MPI. X it failed. */
static char letter(const struct rank *r)
{
    if (r->pid)
        return r->in_barrier || (me.pmix && r->stage == SPOKE && !me.fenced) ? 'b'
               : r->stage == FINALIZED                                       ? 'f'
               : r->stage == SPOKE                                           ? 'i'
                                                                             : '.';
    return !r->ended_well ? 'X' : r->stage == STARTED ? 'e' : 'E';
}

void write_status(void)
{
    static const char *const hows[] = {"well", "code", "signal"};
    me.changed = false;
    if (!me.status)
        return;
    int fd = open(me.status, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w"); /* not kept open: a restored job may lie elsewhere */
    if (!file) {
        if (fd >= 0)
            close(fd);
        return;
    }
    fprintf(file, "ranker 1\nranks %d %d %d\nstates ", me.first, me.count, me.size);
    for (int i = 0; i < me.count; i++)
        fputc(letter(&me.ranks[i]), file);
    fputs("\nbelow ", file);
    for (int i = 0; i < me.below_count; i++)
        fputc(me.below[i].done ? 'x' : me.below[i].in_barrier ? 'w' : '.', file);
    if (me.over)
        fprintf(file, "\nend %s %d %s", hows[me.how], me.code, me.text);
    fputc('\n', file);
    fflush(file);
    if (ftruncate(fd, ftell(file)) < 0) {
        /* an older end may stay behind the new text: the reader takes the first of each line */
    }
    fclose(file);
}

/* The part's end is that of its first rank that failed. */
_Noreturn void leave(void)
{
    write_status();
    if (me.over && me.how == ENDS_BY_SIGNAL) {
        sigset_t none;
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* the rank's own core file is the one to read */
        signal(me.code, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        raise(me.code);
    }
    _exit(me.over && me.how != ENDS_WELL ? me.code : 0);
}

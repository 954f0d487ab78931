/* Options and the loop of the ranker. See ranker.h.
 *
 *     ranker --part N --layout RANKSxPARTS[,RANKSxPARTS...] [--up IN,OUT] [--down IN,OUT]... [--status FILE]
 *            [--appnum N] [--mpirun FILE|auto] [--pmix FILE [--pmix-library FILE]] -- PROGRAM [ARGUMENT...]
 *
 * The layout says how many ranks each part has, part 0 first: 2x3,4x1 are three parts of two ranks and one of four. The
 * environment variable POOLNODE_MPI_NAME has the name of the key-value store, the same in all parts and never used
 * before: MPICH names its shared memory after it. POOLNODE_MPI_CPUS has the number of processors that the part asked
 * for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ranker.h"

/* After the end of another part's rank: the pool ends this part, with the right cause, if it is given the time. */
enum { LINGER_MS = 3000, SEND_MS = 2000 };

struct ranker me = {.up = {.in = -1, .out = -1}, .server = {.in = -1, .out = -1}, .agents = -1, .pmix_library = "auto"};

/* How many ranks the parts have, from the layout. */
static struct layout_row {
    int ranks, parts;
} *kinds;
static size_t kind_count;

int ranks_of(int part)
{
    for (size_t i = 0; i < kind_count; i++) {
        if (part < kinds[i].parts)
            return kinds[i].ranks;
        part -= kinds[i].parts;
    }
    return 0;
}

static volatile sig_atomic_t to_forward[65];

static void note_signal(int signal) { to_forward[signal] = 1; }

static _Noreturn void wrong(const char *what)
{
    say("the ranker was started with a wrong %s", what);
    _exit(125);
}

/* Sets the ranks of this part and of the job, and PMI_process_mapping. */
static void read_layout(const char *layout, long part)
{
    static char mapping[VALUE_MOST];
    size_t used = (size_t)snprintf(mapping, sizeof mapping, "(vector");
    long parts = 0, ranks = 0;
    while (*layout) {
        char *end;
        errno = 0;
        long each = strtol(layout, &end, 10);
        if (errno || end == layout || *end != 'x' || each < 1 || each > RANKS_MOST)
            wrong("--layout");
        layout = end + 1;
        long many = strtol(layout, &end, 10);
        if (errno || end == layout || (*end && *end != ',') || many < 1 || parts + many > PARTS_MOST)
            wrong("--layout");
        layout = *end ? end + 1 : end;
        struct layout_row *more = realloc(kinds, (kind_count + 1) * sizeof *kinds);
        if (!more)
            wrong("amount of memory");
        kinds = more;
        kinds[kind_count++] = (struct layout_row){(int)each, (int)many};
        if (part >= parts && part < parts + many) {
            me.count = (int)each;
            me.first = (int)(ranks + each * (part - parts));
        }
        if (used < sizeof mapping)
            used += (size_t)snprintf(mapping + used, sizeof mapping - used, ",(%ld,%ld,%ld)", parts, many, each);
        parts += many;
        ranks += each * many;
        if (ranks > 1 << 24)
            wrong("--layout");
    }
    if (used < sizeof mapping)
        used += (size_t)snprintf(mapping + used, sizeof mapping - used, ")");
    if (part >= parts)
        wrong("--part");
    me.mapping = used < sizeof mapping ? mapping : ""; /* RFC 13: an empty one means that it is not known */
    me.part = (int)part;
    me.parts = (int)parts;
    me.size = (int)ranks;
}

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"part", required_argument, NULL, 'p'},         {"layout", required_argument, NULL, 'l'},
        {"up", required_argument, NULL, 'u'},           {"down", required_argument, NULL, 'd'},
        {"status", required_argument, NULL, 's'},       {"appnum", required_argument, NULL, 'a'},
        {"mpirun", required_argument, NULL, 'm'},       {"pmix", required_argument, NULL, 'x'},
        {"pmix-library", required_argument, NULL, 'y'}, {NULL, 0, NULL, 0}};
    const char *layout = NULL;
    long part = 0, appnum = 0;
    int option;
    opterr = 0;
    me.below = calloc(CHILDREN_MOST, sizeof *me.below);
    if (!me.below)
        wrong("amount of memory");
    while ((option = getopt_long(argc, argv, "+", options, NULL)) != -1) {
        if (option == 'p' && !number_of(optarg, 0, PARTS_MOST, &part))
            wrong("--part");
        if (option == 'a' && !number_of(optarg, 0, 1 << 16, &appnum))
            wrong("--appnum");
        if (option == 'l')
            layout = optarg;
        if (option == 's')
            me.status = optarg;
        if (option == 'm')
            me.mpirun = optarg;
        if (option == 'x')
            me.pmix = optarg;
        if (option == 'y')
            me.pmix_library = optarg;
        if (option == 'u' && link_open(&me.up, optarg) < 0)
            wrong("--up");
        if (option == 'd' && (me.below_count == CHILDREN_MOST || link_open(&me.below[me.below_count++], optarg) < 0))
            wrong("--down");
        if (option == '?')
            wrong("option");
    }
    if (!layout || optind >= argc)
        wrong("command line");
    me.layout = layout;
    read_layout(layout, part);
    me.appnum = (int)appnum;
    me.argv = argv + optind;
    me.name = getenv("POOLNODE_MPI_NAME");
    if (!me.name || !*me.name || strlen(me.name) >= NAME_MOST || strpbrk(me.name, " =;\n"))
        wrong("POOLNODE_MPI_NAME");
    if (me.mpirun)
        me.count = 1;
    me.ranks = calloc((size_t)me.count, sizeof *me.ranks);
    if (!me.ranks)
        wrong("amount of memory");
    for (int i = 0; i < me.count; i++)
        me.ranks[i] = (struct rank){.number = me.first + i, .fd = -1, .version = 1};
}

/* SIGCHLD and the signals that go on to the ranks come only while we wait. */
static void take_signals(sigset_t *while_waiting)
{
    static const int forwarded[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU};
    struct sigaction action = {.sa_handler = note_signal};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigprocmask(SIG_SETMASK, NULL, while_waiting);
    sigaction(SIGCHLD, &action, NULL);
    sigaddset(&blocked, SIGCHLD);
    sigdelset(while_waiting, SIGCHLD);
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++) {
        sigaction(forwarded[i], &action, NULL);
        sigaddset(&blocked, forwarded[i]);
        sigdelset(while_waiting, forwarded[i]);
    }
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
}

static void forward_signals(void)
{
    for (int i = 1; i < 65; i++)
        if (to_forward[i]) {
            to_forward[i] = 0;
            if (i != SIGCHLD)
                signal_ranks(i);
        }
}

long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t us_of_day(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Those to the parts below, the one to the part above, and the one to the PMIx server; some may be closed. */
static struct link *link_at(int i)
{
    return i < me.below_count ? &me.below[i] : i == me.below_count ? &me.up : &me.server;
}

/* Waits for one thing to happen, at most so long, and deals with it. -1: for ever. */
static void turn(const sigset_t *signals, struct pollfd *polled, long most)
{
    int links = me.below_count + 2, count = 0;
    for (int i = 0; i < me.count; i++) {
        const struct rank *r = &me.ranks[i];
        polled[count++] = (struct pollfd){.fd = !me.over && rank_is_heard(r) ? r->fd : -1, .events = POLLIN};
    }
    for (int i = 0; i < links; i++) {
        const struct link *l = link_at(i);
        polled[count++] = (struct pollfd){.fd = l->in, .events = POLLIN};
        polled[count++] = (struct pollfd){.fd = l->unsent_used ? l->out : -1, .events = POLLOUT};
    }
    polled[count++] = (struct pollfd){.fd = me.agents, .events = POLLIN};
    struct timespec limit = {most / 1000, most % 1000 * 1000000};
    int ready = ppoll(polled, (nfds_t)count, most < 0 ? NULL : &limit, signals);
    for (int i = 0; ready > 0 && i < me.count; i++)
        if (polled[i].revents && me.ranks[i].fd >= 0)
            rank_readable(&me.ranks[i]);
    for (int i = 0; ready > 0 && i < links; i++) {
        struct link *l = link_at(i);
        if (polled[me.count + 2 * i].revents && l->in >= 0)
            link_readable(l);
        if (polled[me.count + 2 * i + 1].revents && l->out >= 0)
            link_writable(l);
    }
    if (ready > 0 && polled[count - 1].revents)
        agent_readable();
    forward_signals();
    reap_ranks();
}

int main(int argc, char **argv)
{
    sigset_t signals;
    if (argc > 1 && strcmp(argv[1], "--agent") == 0)
        return agent_main(argc, argv);
    read_options(argc, argv);
    take_signals(&signals);
    struct pollfd *polled = calloc((size_t)me.count + 2 * (size_t)me.below_count + 5, sizeof *polled);
    if (!polled)
        wrong("amount of memory");
    if (me.mpirun)
        start_launcher();
    else if (me.pmix)
        start_pmix();
    else
        start_ranks();
    for (long most = judge_ranks(); ranks_left(); most = judge_ranks()) {
        if (me.changed)
            write_status();
        turn(&signals, polled, most);
    }
    if (me.over)
        tell_end();
    else
        tell_done(me.mpirun || first_who_spoke() >= 0);
    write_status();
    long until = now_ms() + (me.from_afar ? LINGER_MS : SEND_MS), left;
    while ((left = until - now_ms()) > 0 && (me.from_afar || unsent_left() || (me.over && answers_left())))
        turn(&signals, polled, left);
    stop_pmix();
    leave();
}

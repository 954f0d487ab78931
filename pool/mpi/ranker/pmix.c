/* PMIx: its server is a helper of ours, a child that gets a socket as descriptor 3 (pool/mpi/pmix_server/server.h).
 *
 * The helper sends each rank's environment, and is READY; then we start the ranks. It says which ranks have called
 * MPI_Init and MPI_Finalize, and when all ranks of this part are in a fence, with what they give each other there; the
 * links carry it (tree.c). It is a program of the job's user, and not trusted further than the ranks are.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ranker.h"

enum { SERVER_SOCKET = 3, STOP_MS = 1000 };

extern char **environ;

/* Those of another job of PMIx or PMI, from which this one was submitted. Settings of the library (PMIX_MCA_) stay. */
static void drop_variables(void)
{
    static const char *const prefixes[] = {"PMIX_", "PMI_", "OMPI_COMM_WORLD_", "OMPI_MCA_orte_", "OMPI_MCA_ess"};
    for (char **e = environ; *e;) {
        char name[128];
        bool drop = false;
        size_t length = strcspn(*e, "=");
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
            drop = drop || strncmp(*e, prefixes[i], strlen(prefixes[i])) == 0;
        drop = drop && strncmp(*e, "PMIX_MCA_", 9) != 0 && length < sizeof name;
        if (!drop) {
            e++;
            continue;
        }
        memcpy(name, *e, length);
        name[length] = 0;
        unsetenv(name); /* the next one is at this place now */
    }
}

/* Beside the status file, in the job's scratch directory, which is removed after the job in any case. */
static void directory_of_server(char *path, size_t size)
{
    const char *slash = me.status ? strrchr(me.status, '/') : NULL;
    if (slash)
        snprintf(path, size, "%.*s/.poolnode.pmix.%d", (int)(slash - me.status), me.status, me.part);
    else
        snprintf(path, size, "/tmp/.poolnode.pmix.%d", (int)getpid());
}

static _Noreturn void become_server(int socket, const char *layout)
{
    static const int ours[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU, SIGPIPE};
    char directory[4200], numbers[6][16];
    int values[] = {me.parts, me.part, me.first, me.count, me.size, me.appnum}, nothing = open("/dev/null", O_RDWR);
    sigset_t none;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        signal(ours[i], SIG_IGN); /* they are for the ranks; it ends when its socket does */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    directory_of_server(directory, sizeof directory);
    for (int i = 0; i < 6; i++)
        snprintf(numbers[i], sizeof numbers[i], "%d", values[i]);
    if (nothing >= 0) {
        dup2(nothing, 0);
        dup2(nothing, 1);
    }
    dup2(socket, SERVER_SOCKET);
    if (socket == SERVER_SOCKET)
        fcntl(socket, F_SETFD, 0);
    setenv("PMIX_MCA_gds", "hash", 0); /* its other store breaks with values of some megabytes */
    execl(me.pmix, me.pmix, me.pmix_library, directory, layout, numbers[0], numbers[1], numbers[2], numbers[3],
          numbers[4], numbers[5], (char *)NULL);
    _exit(127);
}

/* Ranks that outnumber the processors give way to each other: Open MPI sees it only under its own mpirun. */
static void give_way(void)
{
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof all, &all) == 0 && me.count > CPU_COUNT(&all))
        setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

int start_pmix(void)
{
    int pair[2], again;
    give_way();
    drop_variables();
    setenv("OMPI_MCA_schizo", "jsm", 0); /* Open MPI 4 believes then that somebody has started it */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 || (again = dup(pair[0])) < 0) {
        end_job(ENDS_WITH_CODE, 1, "cannot prepare the PMIx server: %s", strerror(errno));
        return -1;
    }
    fcntl(again, F_SETFD, FD_CLOEXEC);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    pid_t pid = fork();
    if (pid == 0)
        become_server(pair[1], me.layout);
    close(pair[1]);
    if (pid < 0) {
        end_job(ENDS_WITH_CODE, 1, "cannot start the PMIx server: %s", strerror(errno));
        return -1;
    }
    me.server_pid = pid;
    me.server = (struct link){.in = pair[0], .out = again};
    return 0;
}

/* It removes its files when its socket is closed; for that it has a moment. */
void stop_pmix(void)
{
    if (me.server.in >= 0)
        close(me.server.in);
    if (me.server.out >= 0)
        close(me.server.out);
    me.server.in = me.server.out = -1;
    for (int i = 0; i < STOP_MS && me.server_pid > 0; i++) {
        if (waitpid(me.server_pid, NULL, WNOHANG) != 0)
            me.server_pid = 0;
        else
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    if (me.server_pid > 0 && kill(me.server_pid, SIGKILL) == 0)
        waitpid(me.server_pid, NULL, 0);
}

static struct rank *rank_of(const char *body, size_t size)
{
    const unsigned char *p = (const unsigned char *)body;
    uint32_t local = size < 4 ? UINT32_MAX : p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return local < (uint32_t)me.count ? &me.ranks[local] : NULL;
}

static bool is_text(const char *body, size_t size) { return size && memchr(body, 0, size) == body + size - 1; }

/* In the child that becomes the rank. */
void pmix_variables(const struct rank *r)
{
    static const char *const words[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_NODE_RANK"};
    int local = r->number - me.first, values[] = {r->number, me.size, local, me.count, local};
    char text[16];
    for (size_t at = 0; at < r->variables_size; at += strlen(r->variables + at) + 1)
        putenv(r->variables + at);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        snprintf(text, sizeof text, "%d", values[i]);
        setenv(words[i], text, 1);
    }
}

static bool take_variables(const char *body, size_t size)
{
    struct rank *r = rank_of(body, size);
    if (!r || me.server_ready || r->variables || (size > 4 && body[size - 1]))
        return false;
    r->variables_size = size - 4;
    r->variables = malloc(size);
    if (!r->variables)
        return false;
    memcpy(r->variables, body + 4, size - 4);
    return true;
}

static bool take_stage(const char *body, size_t size, enum stage stage)
{
    struct rank *r = rank_of(body, size);
    if (!r || size != 4)
        return false;
    if (stage > r->stage)
        r->stage = stage;
    me.changed = true;
    look_for_silent();
    return true;
}

static bool take_abort(const char *body, size_t size)
{
    const struct rank *r = rank_of(body, size);
    char code[16];
    if (!r || size < 9 || !is_text(body + 8, size - 8))
        return false;
    const unsigned char *p = (const unsigned char *)body + 4;
    snprintf(code, sizeof code, "%d",
             (int32_t)(p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24));
    aborted(&me.ranks[r - me.ranks], code, body + 8);
    return true;
}

/* All ranks of this part are in the fence. */
static bool take_fence(void)
{
    for (int i = 0; i < me.count; i++)
        if (me.ranks[i].in_barrier)
            return false;
    for (int i = 0; i < me.count; i++)
        me.ranks[i].in_barrier = true;
    take_given(&me.server);
    me.changed = true;
    barrier_changed();
    return true;
}

static bool take_spawn(const char *body, size_t size)
{
    struct rank *r = rank_of(body, size);
    if (r)
        refuse_spawn(r);
    return r;
}

bool take_from_server(char kind, const char *body, size_t size)
{
    switch (kind) {
    case VARIABLES:
        return take_variables(body, size);
    case READY:
        if (size || me.server_ready)
            return false;
        me.server_ready = true;
        if (!me.over)
            start_ranks();
        return true;
    case CANNOT:
    case REFUSED:
        if (!is_text(body, size))
            return false;
        if (kind == CANNOT)
            end_job(ENDS_WITH_CODE, 1, "part %d: %.300s", me.part, body);
        else
            say("refused: %.300s", body);
        return true;
    case CONNECTED:
        return take_stage(body, size, SPOKE);
    case FINALIZED_RANK:
        return take_stage(body, size, FINALIZED);
    case ABORTED:
        return take_abort(body, size);
    case SPAWNS:
        return take_spawn(body, size);
    case GATHER:
        return take_gather(&me.server, body, size);
    case BARRIER:
        return !size && take_fence();
    default:
        return false;
    }
}

/* All parts are in the fence: the ranks go on, with what all gave. */
void pmix_release(void)
{
    for (int i = 0; i < me.count; i++)
        me.ranks[i].in_barrier = false;
    me.fenced = me.changed = true;
    send_gathered(&me.server);
    send_to(&me.server, BARRIER, NULL, 0);
    me.gathered.used = 0;
    link_writable(&me.server);
}

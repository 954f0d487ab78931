/* Open MPI: its own mpirun runs on part 0, and starts its daemons on the other parts by us instead of ssh.
 *
 *     mpirun (part 0) -- runs --> ranker --agent HOST COMMAND -- socket --> ranker of part 0 -- links --> ranker of
 * part N
 *
 * mpirun takes the agent for ssh. A part's HOST is "poolnode" and its number; the ranker of that part runs COMMAND. A
 * daemon that goes into the background becomes a child of the ranker, which waits until none is left.
 *
 * The socket's name is the secret of the job's store; and only processes of the same user are heard.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranker.h"

static const char host_name[] = "poolnode", socket_variable[] = "POOLNODE_MPI_NAME";

static socklen_t address_of(struct sockaddr_un *address)
{
    const char *name = getenv(socket_variable);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int size = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "poolnode-mpi-%.60s", name ? name : "");
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size);
}

static bool same_user(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* ranker --agent [OPTION...] HOST WORD...: as ssh takes them. Exits when the command is on its way. */
int agent_main(int argc, char **argv)
{
    struct sockaddr_un address;
    socklen_t size = address_of(&address);
    char *message = malloc(LAUNCH_MOST), answer;
    size_t used = 0;
    int at = 2, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (at < argc && argv[at][0] == '-')
        at++;
    if (!message || fd < 0 || argc - at < 2)
        return 125;
    for (int i = at; i < argc; i++) {
        size_t length = strlen(argv[i]);
        if (used + length + 2 > LAUNCH_MOST)
            return 125;
        memcpy(message + used, argv[i], length);
        used += length;
        message[used++] = i == at ? 0 : ' ';
    }
    bool sent = connect(fd, (struct sockaddr *)&address, size) == 0 && same_user(fd) &&
                send(fd, message, used, MSG_NOSIGNAL) == (ssize_t)used && shutdown(fd, SHUT_WR) == 0;
    free(message);
    return sent && read(fd, &answer, 1) == 1 ? answer : 125;
}

static int listen_for_agents(void)
{
    struct sockaddr_un address;
    socklen_t size = address_of(&address);
    me.agents = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (me.agents < 0 || bind(me.agents, (struct sockaddr *)&address, size) < 0 || listen(me.agents, 1024) < 0)
        return -1;
    return 0;
}

/* All of it comes at once, and within a moment: it is one message of the job's own mpirun. */
static ssize_t read_agent(int fd, char *message)
{
    struct timeval limit = {.tv_sec = 5};
    size_t used = 0;
    ssize_t n;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    while ((n = read(fd, message + used, LAUNCH_MOST - used)) > 0)
        used += (size_t)n;
    return n < 0 || used == LAUNCH_MOST ? -1 : (ssize_t)used;
}

void agent_readable(void)
{
    int fd = accept4(me.agents, NULL, NULL, SOCK_CLOEXEC);
    char *message = malloc(LAUNCH_MOST + 1), answer = 125;
    if (fd >= 0 && message && same_user(fd)) {
        ssize_t size = read_agent(fd, message);
        size_t host = size > 0 ? strnlen(message, (size_t)size) : 0;
        long part;
        if (size > 0 && host + 1 < (size_t)size && strncmp(message, host_name, sizeof host_name - 1) == 0 &&
            number_of(message + sizeof host_name - 1, 1, me.parts - 1, &part)) {
            message[size] = 0;
            tell_launch((uint32_t)part, message + host + 1);
            answer = 0;
        }
        if (write(fd, &answer, 1) < 0)
            say("mpirun does not wait for the start of its daemon");
    }
    free(message);
    if (fd >= 0)
        close(fd);
}

/* By the first of these names along PATH; `mpirun` alone may be MPICH's. */
static const char *find_mpirun(void)
{
    static const char *const names[] = {"mpirun.openmpi", "orterun", "mpirun"};
    static char path[4200];
    const char *all = getenv("PATH");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (const char *at = all ? all : "/usr/bin"; *at;) {
            int length = (int)strcspn(at, ":");
            snprintf(path, sizeof path, "%.*s/%s", length, at, names[i]);
            if (length && access(path, X_OK) == 0)
                return path;
            at += length + (at[length] == ':');
        }
    return NULL;
}

/* "poolnode3:2": a part as mpirun is to know it, with its number of ranks. Part 0 is where mpirun runs. */
static char *host_list(void)
{
    char own[256] = "localhost", *list = malloc((size_t)me.parts * 32 + sizeof own + 32);
    size_t used;
    if (!list)
        return NULL;
    gethostname(own, sizeof own - 1);
    used = (size_t)sprintf(list, "%s:%d", own, ranks_of(0));
    for (int part = 1; part < me.parts; part++)
        used += (size_t)sprintf(list + used, ",%s%d:%d", host_name, part, ranks_of(part));
    return list;
}

/* Both generations read their own: Open MPI 4 (OMPI) and 5 (PRTE). */
static void set_variables(void)
{
    static const char *const fixed[][2] = {
        {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
        {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
        {"PRTE_ALLOW_RUN_AS_ROOT", "1"},
        {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
        {"OMPI_MCA_plm", "rsh"},
        {"PRTE_MCA_plm", "ssh"},
        {"OMPI_MCA_plm_rsh_no_tree_spawn", "1"},
        {"PRTE_MCA_plm_ssh_no_tree_spawn", "1"},
        {"OMPI_MCA_orte_keep_fqdn_hostnames", "1"},
        {"OMPI_MCA_rmaps_base_mapping_policy", "slot"},
    };
    char self[4096], agent[4200];
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        setenv(fixed[i][0], fixed[i][1], 1);
    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
    self[size < 0 ? 0 : size] = 0;
    snprintf(agent, sizeof agent, "%s --agent", self);
    setenv("OMPI_MCA_plm_rsh_agent", agent, 1);
    setenv("PRTE_MCA_plm_ssh_agent", agent, 1);
}

/* mpirun in place of the ranks; on other parts nothing until mpirun wants its daemon there. */
int start_launcher(void)
{
    static char size[16];
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (me.part)
        return 0;
    if (strcmp(me.mpirun, "auto") == 0)
        me.mpirun = find_mpirun();
    if (!me.mpirun) {
        me.mpirun = "mpirun";
        end_job(ENDS_WITH_CODE, 127, "there is no mpirun of Open MPI along PATH on the job's first machine");
        return -1;
    }
    char **argv = me.argv;
    int count = 0;
    while (argv[count])
        count++;
    char **words = calloc((size_t)count + 9, sizeof *words), *hosts = host_list();
    if (!words || !hosts || (me.parts > 1 && listen_for_agents() < 0)) {
        end_job(ENDS_WITH_CODE, 1, "cannot prepare the start of mpirun: %s", strerror(errno));
        return -1;
    }
    snprintf(size, sizeof size, "%d", me.size);
    char *first[] = {(char *)me.mpirun, "--bind-to", "none", "--host", hosts, "-n", size};
    size_t at = 0;
    for (; at < sizeof first / sizeof *first; at++)
        words[at] = first[at];
    memcpy(words + at, argv, (size_t)count * sizeof *words);
    me.argv = words;
    set_variables();
    int done = start_ranks();
    me.launched = true;
    free(hosts);
    return done;
}

/* On the part that was meant. */
void launch(char *command)
{
    static char *words[] = {"sh", "-c", NULL, NULL};
    if (me.launched) {
        end_job(ENDS_WITH_CODE, 1, "mpirun wants a second daemon on one machine");
        return;
    }
    words[2] = command;
    me.argv = words;
    me.launched = true;
    start_ranks();
}

/* Open MPI's processes on this part: mpirun, or a daemon, which may have gone into the background. */
bool launcher_left(void)
{
    siginfo_t any;
    if (!me.launched)
        return !me.over && !me.up.done && me.up.in >= 0;
    return waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* Everything that a process can hold beside plain files, filled before the checkpoint and looked at after it. Says "ready"
 * on its output, waits until `go` is there, and tells what it finds. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int alarms;
static void on_alarm(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    alarms += info->si_value.sival_int;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void show(const char *what, long long value) { printf("%s %lld\n", what, value); }

static void put(int fd, const char *text) { if (write(fd, text, strlen(text)) < 0) perror("write"); }

static void get(const char *what, int fd)
{
    char text[100] = "";
    ssize_t n = read(fd, text, sizeof text - 1);
    printf("%s %zd %s\n", what, n, text);
}

int main(void)
{
    char template[] = "deleted.XXXXXX", text[64];
    int pipe_ends[2], status;
    if (pipe2(pipe_ends, O_NONBLOCK) < 0)
        return 1;
    put(pipe_ends[1], "in the pipe");
    int event = eventfd(5, EFD_SEMAPHORE | EFD_NONBLOCK), counter = eventfd(0, 0);
    int timer = timerfd_create(CLOCK_MONOTONIC, 0), memory = memfd_create("scratch", 0), gone = mkstemp(template);
    struct itimerspec in_a_moment = {{0, 0}, {0, 100000000}};
    timerfd_settime(timer, 0, &in_a_moment, NULL);
    put(memory, "in memory");
    lseek(memory, 3, SEEK_SET);
    put(gone, "deleted but here");
    unlink(template);
    lseek(gone, 8, SEEK_SET);
    int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0640), same = dup(log), shared_file = open("data", O_RDWR | O_CREAT, 0600);
    put(log, "one\n");
    put(shared_file, "0123456789");
    lseek(shared_file, 4, SEEK_SET);
    int changes = inotify_init1(IN_NONBLOCK), pair[2];
    if (inotify_add_watch(changes, "data", IN_ATTRIB) < 0 || flock(shared_file, LOCK_EX) < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return 1;
    put(pair[0], "in the socket");
    char *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shared_file, 0);
    mapped[0] = 'x';
    int *common = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *no_access = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(no_access, "hidden");
    mprotect(no_access, 4096, PROT_NONE);
    char *alone = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(alone, "in no copy");
    madvise(alone, 8192, MADV_DONTFORK);
    char *of_memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    int watcher = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event wanted = {EPOLLIN, {.u64 = 0x123456789abcull}}, met;
    epoll_ctl(watcher, EPOLL_CTL_ADD, pipe_ends[0], &wanted);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN + 3);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_NONBLOCK);
    kill(getpid(), SIGUSR1);
    for (int i = 1; i <= 3; i++)
        sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = i});
    struct sigaction action = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGRTMIN + 1, &action, NULL);
    struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1, .sigev_value.sival_int = 100};
    timer_t first, second;
    timer_create(CLOCK_MONOTONIC, &how, &first);
    how.sigev_value.sival_int = 1;
    timer_create(CLOCK_MONOTONIC, &how, &second);
    timer_delete(first);
    struct itimerspec often = {{0, 5000000}, {0, 5000000}};
    timer_settime(second, 0, &often, NULL);
    umask(027);
    mkdir("inside", 0777);
    if (chdir("inside") < 0)
        return 1;
    pid_t ended = fork();
    if (ended == 0)
        _exit(7);
    waitid(P_PID, (id_t)ended, &(siginfo_t){0}, WEXITED | WNOWAIT);
    pid_t child = fork();
    if (child == 0) {
        uint64_t one;
        setsid();
        if (read(counter, &one, sizeof one) < 0)
            _exit(1);
        common[0] += 40 + (int)one;
        put(same, "child\n");
        lseek(shared_file, 6, SEEK_SET);
        _exit(getsid(0) == getpid() ? 9 : 1);
    }
    struct rlimit limit = {111, 222};
    setrlimit(RLIMIT_NOFILE, &limit);
    common[0] = 1;
    double began = now();
    put(1, "ready\n");
    while (access("../go", F_OK) < 0)
        usleep(2000);
    show("clock went on", now() >= began && now() - began < 60);
    get("pipe", pipe_ends[0]);
    show("epoll before", epoll_wait(watcher, &met, 1, 0));
    put(pipe_ends[1], "again");
    show("epoll", epoll_wait(watcher, &met, 1, 1000) == 1 && met.data.u64 == 0x123456789abcull);
    uint64_t value = 0;
    show("event", read(event, &value, 8) == 8 && value == 1 && read(event, &value, 8) == 8);
    show("timer", read(timer, &value, 8) == 8 && value == 1);
    get("memory", memory);
    printf("%s\n", of_memory);
    get("deleted", gone);
    get("socket", pair[1]);
    fchmod(shared_file, 0644);
    struct inotify_event change;
    show("change", read(changes, &change, sizeof change) == sizeof change && change.wd == 1 && change.mask == IN_ATTRIB);
    mprotect(no_access, 4096, PROT_READ);
    printf("%s\n%s\n", no_access, alone);
    value = 2;
    if (write(counter, &value, 8) < 0)
        return 1;
    show("child", waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 9);
    show("ended", waitpid(ended, &status, 0) == ended && WEXITSTATUS(status) == 7);
    show("shared memory", common[0]);
    show("shared offset", lseek(shared_file, 0, SEEK_CUR));
    put(log, "two\n");
    snprintf(text, sizeof text, "%s", mapped);
    printf("%s\n", text);
    struct signalfd_siginfo info;
    for (int i = 0; i < 4 && read(signals, &info, sizeof info) == sizeof info; i++)
        printf("signal %d value %d code %d\n", (int)info.ssi_signo, info.ssi_int, info.ssi_code);
    int before = alarms;
    while (alarms < before + 3)
        pause();
    show("alarms", alarms < 100000 && timer_delete(second) == 0);
    getrlimit(RLIMIT_NOFILE, &limit);
    printf("limit %d %d\n", (int)limit.rlim_cur, (int)limit.rlim_max);
    printf("umask %o cwd %s\n", umask(0), strrchr(getcwd(NULL, 0), '/'));
    show("close on exec", fcntl(watcher, F_GETFD));
    return 0;
}

/* One wait of its kind, and what came of it: `sleep` and `until`, an hour that a signal cuts short, with what was left of it;
 * `read` from a pipe into which another process writes when it is told to; `futex`, a thread that waits for another.
 *
 * A thread that waits for a file named `go` looks for it every few milliseconds; one that waits in the kernel does not. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int given;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void await_go(void)
{
    while (access("go", F_OK) < 0)
        usleep(2000);
}

static void on_signal(int signal) { (void)signal; }

static int by_sleep(int relative)
{
    double begun = now();
    struct timespec rest = {3600, 0}, until = {(time_t)begun + 3600, 0};
    signal(SIGUSR1, on_signal);
    int done = relative ? clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, &rest)
                        : clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    double took = now() - begun, left = relative ? (double)rest.tv_sec + (double)rest.tv_nsec / 1e9 : 3600 - took;
    printf("%s %d\n", strerror(done), took > 0 && took + left > 3590 && took + left < 3700);
    return 0;
}

static int by_read(void)
{
    int ends[2];
    char text[64] = "";
    if (pipe(ends) < 0)
        return 1;
    if (fork() == 0) {
        close(ends[0]);
        await_go();
        return write(ends[1], "from the other end", 18) != 18;
    }
    close(ends[1]);
    ssize_t n = read(ends[0], text, sizeof text), end = read(ends[0], text + 32, 8);
    wait(NULL);
    printf("%zd %s %zd\n", n, text, end);
    return 0;
}

static void *wait_for_it(void *argument)
{
    pthread_mutex_lock(&mutex);
    while (!given)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    return argument;
}

static int by_futex(void)
{
    pthread_t thread;
    void *answer = NULL;
    pthread_create(&thread, NULL, wait_for_it, "woken");
    await_go();
    pthread_mutex_lock(&mutex);
    given = 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
    pthread_join(thread, &answer);
    printf("%s\n", (char *)answer);
    return 0;
}

int main(int count, char **arguments)
{
    const char *how = count > 1 ? arguments[1] : "";
    puts("begin");
    fflush(stdout);
    if (strcmp(how, "sleep") == 0 || strcmp(how, "until") == 0)
        return by_sleep(how[0] == 's');
    return strcmp(how, "read") == 0 ? by_read() : by_futex();
}

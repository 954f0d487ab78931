/* Waits of every kind that are given a while, each in a thread of its own, beside one that waits for a moment. Told how long
 * in ms, it says which came to their end as they should before 1.5 times that: none that began anew after two thirds. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long whole;
static atomic_int over[6];
static const char *const names[6] = {"nanosleep", "clock_nanosleep", "poll", "epoll_wait", "epoll_pwait2", "futex"};

static void *wait_so(void *argument)
{
    int kind = (int)(long)argument, done = -1, word = 0, epoll = epoll_create1(0), ends[2];
    const struct timespec given = {whole / 1000, whole % 1000 * 1000000};
    struct epoll_event event = {.events = EPOLLIN};
    if (pipe(ends) < 0)
        return NULL;
    epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
    struct pollfd one = {ends[0], POLLIN, 0};
    errno = 0;
    switch (kind) {
    case 0:
        done = (int)syscall(SYS_nanosleep, &given, NULL);
        break;
    case 1:
        done = (int)syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &given, NULL);
        break;
    case 2:
        done = poll(&one, 1, (int)whole);
        break;
    case 3:
        done = epoll_wait(epoll, &event, 1, (int)whole);
        break;
    case 4:
        done = (int)syscall(441, epoll, &event, 1, &given, NULL, 8);
        done = errno == ENOSYS ? epoll_wait(epoll, &event, 1, (int)whole) : done;
        break;
    case 5:
        done = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &given, NULL, 0) < 0 && errno == ETIMEDOUT ? 0 : -1;
    }
    over[kind] = done == 0 && given.tv_sec == whole / 1000 ? 1 : 2;
    return NULL;
}

static void until(const struct timespec *begun, long ms)
{
    struct timespec t = {begun->tv_sec + (begun->tv_nsec / 1000000 + ms) / 1000, (begun->tv_nsec / 1000000 + ms) % 1000 * 1000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

int main(int count, char **arguments)
{
    pthread_t threads[6];
    struct timespec begun;
    whole = count > 1 ? atol(arguments[1]) : 3000;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (long i = 0; i < 6; i++)
        pthread_create(&threads[i], NULL, wait_so, (void *)i);
    until(&begun, whole * 2 / 3);
    puts("now");
    fflush(stdout);
    until(&begun, whole * 3 / 2);
    for (int i = 0; i < 6; i++)
        printf("%s %d\n", names[i], over[i]);
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 6; i++)
        printf("%s %d\n", names[i], over[i]);
    return 0;
}

/* Four threads that take turns, with thread-local state, while a timer fires on an alternate stack. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn;
static __thread long local;
static volatile int ticks, wrong;
static char *stack;

static void on_alarm(int signal)
{
    char here;
    (void)signal;
    ticks++;
    if (&here < stack || &here > stack + 65536)
        wrong++;
}

static void *run(void *argument)
{
    long me = (long)argument;
    double *f = malloc(sizeof *f);
    *f = 1;
    for (int i = 0; i < 60; i++) {
        pthread_mutex_lock(&mutex);
        while (turn != me)
            pthread_cond_wait(&changed, &mutex);
        for (int j = 0; j < 800000; j++)
            *f = *f * 1.0000001 + me;
        local += i * me;
        turn = (turn + 1) % 4;
        if (me == 0) {
            printf("step %d\n", i);
            fflush(stdout);
            while (i == 40 && access(".enough", F_OK) != 0) /* it has been moved as often as it was to be */
                usleep(1000);
        }
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
    *f += local;
    return f;
}

int main(void)
{
    pthread_t threads[4];
    sigset_t alarm;
    stack = malloc(65536);
    stack_t alternate = {.ss_sp = stack, .ss_size = 65536};
    sigaltstack(&alternate, NULL);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 2000}, {0, 2000}};
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    for (long i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, run, (void *)i);
    pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        printf("%d %.17g\n", i, *(double *)result);
    }
    int before = ticks;
    while (ticks < before + 3) /* the timer still fires */
        pause();
    printf("%d\n", wrong);
    return 0;
}

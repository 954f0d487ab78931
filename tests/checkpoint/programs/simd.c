/* Four threads that keep their sums in vector registers and never let go of them, while two timers fire: an interval timer
 * whose handler runs on an alternate stack, and a POSIX timer whose signal one thread waits for.
 *
 * The handlers' counts depend on the clock and are not printed; whether they counted is. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#define STEPS 300

typedef double wide __attribute__((vector_size(32)));
typedef long whole __attribute__((vector_size(32)));

static volatile sig_atomic_t fired, wrong;
static volatile int waited, over;
static pthread_barrier_t barrier;
static double sums[4];
static char *stack;

static void on_alarm(int signal)
{
    char here;
    /* The handler uses the registers too: the kernel puts the thread's own back. */
    wide x = {1, 2, 3, 4}, y = x * x - x;
    (void)signal;
    fired++;
    if (&here < stack || &here > stack + 65536 || y[3] != 12)
        wrong = 1;
}

/* One long loop without a call: eight vectors live in registers all the time. */
__attribute__((noinline, target_clones("avx2", "default"))) static double turn(double seed, long rounds)
{
    wide a = {seed, seed + 1, seed + 2, seed + 3}, b = a * 0.5, c = a - b, d = b + 1, e = c * 2, f = d - 3;
    whole n = {1, 2, 3, 4}, m = {5, 7, 11, 13};
    for (long i = 0; i < rounds; i++) {
        a = a * 0.999999 + b * 1e-6;
        b = b * 0.999998 + c * 1e-6;
        c = c * 0.999997 + d * 1e-6;
        d = d * 0.999996 + e * 1e-6;
        e = e * 0.999995 + f * 1e-6;
        f = f * 0.999994 + a * 1e-6;
        n = n * 31 + m;
        m = (m ^ n) & 1048575;
    }
    wide all = a + b + c + d + e + f;
    whole bits = n ^ m;
    return all[0] + all[1] + all[2] + all[3] + (double)((bits[0] ^ bits[1] ^ bits[2] ^ bits[3]) & 65535);
}

static void *compute(void *argument)
{
    long me = (long)argument;
    for (int step = 0; step < STEPS; step++) {
        sums[me] += turn(sums[me] / 65536 + (double)me, 300000);
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
            printf("%d %.17g %.17g %.17g %.17g\n", step, sums[0], sums[1], sums[2], sums[3]);
            fflush(stdout);
        }
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void *count(void *argument)
{
    sigset_t *wanted = argument;
    while (!over) {
        siginfo_t info;
        struct timespec most = {0, 20000000};
        if (sigtimedwait(wanted, &info, &most) == SIGRTMIN + 1 && info.si_value.sival_int == 42)
            waited++;
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[4], counter;
    sigset_t queued, alarm;
    timer_t timer;
    stack = malloc(65536);
    stack_t alternate = {.ss_sp = stack, .ss_size = 65536};
    struct sigaction action;
    struct sigevent event;
    memset(&action, 0, sizeof action);
    memset(&event, 0, sizeof event);
    sigemptyset(&queued);
    sigaddset(&queued, SIGRTMIN + 1);
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &queued, NULL);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    pthread_barrier_init(&barrier, NULL, 4);
    for (long i = 1; i < 4; i++)
        pthread_create(&threads[i], NULL, compute, (void *)i);
    pthread_create(&counter, NULL, count, &queued);
    sigaltstack(&alternate, NULL);
    action.sa_handler = on_alarm;
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
    struct itimerval every = {{0, 1500}, {0, 1500}};
    setitimer(ITIMER_REAL, &every, NULL);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGRTMIN + 1;
    event.sigev_value.sival_int = 42;
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    struct itimerspec often = {{0, 3000000}, {0, 3000000}};
    timer_settime(timer, 0, &often, NULL);
    compute((void *)0);
    for (int i = 1; i < 4; i++)
        pthread_join(threads[i], NULL);
    int before = fired, seen = waited;
    struct timespec pause = {0, 1000000};
    for (int i = 0; i < 5000 && (fired < before + 3 || waited < seen + 3); i++) /* both still fire */
        nanosleep(&pause, NULL);
    over = 1;
    pthread_join(counter, NULL);
    printf("%d %d %d\n", fired > before + 2, waited > seen + 2, wrong);
    return 0;
}

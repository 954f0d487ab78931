/* So many processes, and so many threads in the first of them; each adds to a sum when it is told to. Says "ready" when all
 * are there and waits for `go`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static int going, there;
static long sum;

static void *run(void *number)
{
    pthread_mutex_lock(&lock);
    there++;
    while (!going)
        pthread_cond_wait(&told, &lock);
    sum += (long)number;
    pthread_mutex_unlock(&lock);
    return NULL;
}

int main(int argc, char **argv)
{
    int processes = argc > 1 ? atoi(argv[1]) : 1, threads = argc > 2 ? atoi(argv[2]) : 0, ends[2];
    long *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), total = 0;
    pthread_t *all = calloc((size_t)threads + 1, sizeof *all);
    pthread_attr_t small;
    if (pipe(ends) < 0)
        return 1;
    for (int i = 0; i < processes; i++)
        if (fork() == 0) {
            char c;
            __atomic_add_fetch(&shared[1], 1, __ATOMIC_SEQ_CST);
            if (read(ends[0], &c, 1) == 1)
                __atomic_add_fetch(&shared[0], i, __ATOMIC_SEQ_CST);
            _exit(i % 100);
        }
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (long i = 0; i < threads; i++)
        if (pthread_create(&all[i], &small, run, (void *)i) != 0)
            return 2;
    while (__atomic_load_n(&shared[1], __ATOMIC_SEQ_CST) < processes || __atomic_load_n(&there, __ATOMIC_SEQ_CST) < threads)
        usleep(1000);
    puts("ready");
    fflush(stdout);
    while (access("go", F_OK) != 0)
        usleep(5000);
    pthread_mutex_lock(&lock);
    going = 1;
    pthread_cond_broadcast(&told);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    for (int i = 0; i < processes; i++)
        if (write(ends[1], "x", 1) != 1)
            return 3;
    for (int status; wait(&status) > 0;)
        total += WEXITSTATUS(status);
    printf("%ld %ld %ld\n", sum, shared[0], total);
    return 0;
}

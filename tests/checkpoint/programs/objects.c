/* System V objects: says "ready", waits for `go`, then looks at each by its id and by its key. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
struct message {
    long type;
    char text[32];
};

static int failures;
static void look(int right, const char *what)
{
    if (!right)
        printf("%s\n", what), failures++;
}

int main(void)
{
    struct message first = {3, "third kind"}, second = {1, "first kind"}, got = {0};
    unsigned short values[3] = {7, 0, 2}, found[3] = {0};
    for (int i = 0; i < 5; i++) /* ids that were given and taken away */
        msgctl(msgget(IPC_PRIVATE, 0600), IPC_RMID, NULL);
    int queue = msgget(0x1234, IPC_CREAT | 0640), set = semget(0x2345, 3, IPC_CREAT | 0600);
    int named = shmget(0x3456, 3 * PAGE - 100, IPC_CREAT | 0600), removed = shmget(IPC_PRIVATE, PAGE, 0600);
    msgsnd(queue, &first, sizeof first.text, 0);
    msgsnd(queue, &second, 0, 0);
    semctl(set, 0, SETALL, values);
    char *part = shmat(named, NULL, 0), *hidden = shmat(removed, NULL, 0);
    strcpy(part, "not mapped");
    strcpy(part + PAGE, "mapped");
    munmap(part, PAGE);
    strcpy(hidden, "removed");
    shmctl(removed, IPC_RMID, NULL);
    puts("ready");
    fflush(stdout);
    while (access("go", F_OK) < 0)
        usleep(10000);
    look(msgget(0x1234, 0) == queue && semget(0x2345, 3, 0) == set && shmget(0x3456, PAGE, 0) == named, "ids");
    look(msgrcv(queue, &got, sizeof got.text, 1, IPC_NOWAIT) == 0, "a message without text");
    look(msgrcv(queue, &got, sizeof got.text, 3, IPC_NOWAIT) == sizeof got.text && strcmp(got.text, first.text) == 0, "a message");
    look(semctl(set, 0, GETALL, found) == 0 && memcmp(found, values, sizeof values) == 0, "semaphores");
    look(strcmp(part + PAGE, "mapped") == 0 && strcmp(hidden, "removed") == 0, "what is mapped");
    if (fork() == 0) { /* it is shared */
        strcpy(part + PAGE, "shared");
        _exit(strcmp(shmat(named, NULL, SHM_RDONLY), "not mapped") != 0);
    }
    int status;
    wait(&status);
    look(status == 0 && strcmp(part + PAGE, "shared") == 0, "sharing");
    shmdt(hidden);
    look(shmat(removed, NULL, 0) == (void *)-1, "what was removed is still there");
    printf("%d wrong\n", failures);
    return failures;
}

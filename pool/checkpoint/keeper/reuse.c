/* Reuses a keeper for job after job: checks whether that is possible, and waits for the next job. For a short job the
 * namespaces cost more than the job itself. A keeper whose job has ended may serve a job that sees and may do the same
 * (the node compares), if nothing of the old job is left in its namespaces: no process (certain in a pid namespace
 * whose first process is the keeper), no System V object, no message queue, nothing in a /tmp of its own. A job cannot
 * change the mounts: it has no power over their namespace. Scratch directory, user and limits are set for each job by
 * the starter and the first process. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <linux/mount.h>
#include <unistd.h>

#include "keeper/keeper.h"
#include "sandbox/sandbox.h"

/* The size of the root directory of an empty file system of message queues: two entries of 20 bytes (ipc/mqueue.c). */
#define NO_QUEUE 40

static struct statfs tmp;
static int queues = -2; /* file descriptor of that root in the job's namespace */

void reuse_prepare(void)
{
    if (statfs("/tmp", &tmp) < 0)
        memset(&tmp, 0, sizeof tmp);
}

/* Whether nothing was created in it; resets its mode. */
static bool tmp_is_clean(const struct job *job)
{
    struct statfs now;
    if (!has_own_tmp(job))
        return true;
    if (statfs("/tmp", &now) < 0 || memcmp(&now.f_fsid, &tmp.f_fsid, sizeof now.f_fsid) != 0)
        return false;
    return now.f_ffree == tmp.f_ffree && now.f_bfree == tmp.f_bfree && chmod("/tmp", 01777) == 0;
}

static bool no_queues(void)
{
    struct stat st;
    if (queues == -2) {
        int context = (int)syscall(SYS_fsopen, "mqueue", FSOPEN_CLOEXEC);
        queues = -1;
        if (context >= 0 && syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
            queues = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, 0);
        if (context >= 0)
            close(context);
    }
    return queues >= 0 && fstat(queues, &st) == 0 && st.st_size == NO_QUEUE;
}

static bool no_objects(void)
{
    struct shm_info memory;
    struct seminfo semaphores;
    struct msginfo messages;
    return shmctl(0, SHM_INFO, (struct shmid_ds *)(void *)&memory) >= 0 && memory.used_ids == 0 &&
           semctl(0, 0, SEM_INFO, &semaphores) >= 0 && semaphores.semusz == 0 &&
           msgctl(0, MSG_INFO, (struct msqid_ds *)(void *)&messages) >= 0 && messages.msgpool == 0;
}

bool reuse_possible(const struct job *job)
{
    const uint32_t needed = ABLE_PID | ABLE_IPC;
    if (job->start->flags & FLAG_PRIVATE_NETWORK) /* its address is the job's, and connections of it may linger */
        return false;
    return !job->start->remotes && !job->start->binds && (settings.able & needed) == needed && tmp_is_clean(job) &&
           no_objects() && no_queues();
}

/* Waits for a message. If the node closes its end, no job can follow. */
static void await_message(void)
{
    struct pollfd fds[2] = {{.fd = SOCKET, .events = POLLIN}, {.fd = UP}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR) {
    }
    if (fds[1].revents)
        _exit(0);
}

size_t reuse_wait(const struct job *job, uint32_t cell, void **message)
{
    static union {
        struct start start;
        char room[TOO_BIG];
    } next;
    uint64_t last = job->start->head.number; /* copied, since the message below may overwrite it */
    for (;;) {
        await_message();
        ssize_t n = recv(SOCKET, &next, sizeof next, MSG_DONTWAIT);
        const struct head *head = &next.start.head;
        if (n < (ssize_t)sizeof *head || head->magic != MAGIC || head->version != VERSION || head->cell != cell)
            continue;
        if (head->verb == RETIRE && head->number == last)
            _exit(0);
        if (head->verb == START && head->number > last) {
            *message = &next;
            return (size_t)n;
        }
    }
}

/* Answers on the CPU of the thread that asks.
 *
 * A thread that asks for one thing after the other sleeps while it is answered, and the server sleeps while it works.
 * On two CPUs each is woken by an interrupt for every request, which takes ten times as long as the answer on a
 * virtual machine. So as long as one thread asks, and asks again soon, the server follows it to its CPU and yields
 * there instead of sleeping, unless another process wants that CPU. Large reads and writes, several threads, and
 * requests to the submit side are better served on two CPUs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/parts.h"

#define STREAK 32 /* consecutive requests of one thread */
#define LOOK 128 /* requests after which its CPU is read again */
#define SOON_NS 500000u
#define REST_NS 100000000u /* after others wanted the CPU: time until it is used again */
#define LARGE (32u << 10)

static struct {
    int proc;
    cpu_set_t any;
    int at; /* CPU, -1 for any */
    uint32_t who, streak;
    uint64_t answered, rests;
} follow = {.proc = -1, .at = -1};

/* The kernel sends thread ids of the mounting process's pid namespace, as this /proc has them. */
void follow_begin(void)
{
    if (!serving.notified && sched_getaffinity(0, sizeof follow.any, &follow.any) == 0 && CPU_COUNT(&follow.any) > 1)
        follow.proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* The CPU on which it ran last; -1 if unknown. */
static int processor_of(uint32_t thread)
{
    struct stat_line line;
    return stat_read_at(follow.proc, (pid_t)thread, &line) ? line.processor : -1;
}

static void move_to_cpu(int to)
{
    cpu_set_t one;
    if (to == follow.at)
        return;
    CPU_ZERO(&one);
    if (to >= 0)
        CPU_SET((size_t)to, &one);
    follow.at = sched_setaffinity(0, sizeof one, to >= 0 ? &one : &follow.any) < 0 ? -1 : to;
}

static void leave_cpu(void)
{
    follow.streak = 0;
    move_to_cpu(-1);
}

static bool is_large(const struct fuse_in_header *head)
{
    const struct fuse_read_in *in = (const void *)(head + 1);
    return head->len > LARGE || (head->opcode == FUSE_READ && in->size > LARGE);
}

void follow_asked(const struct fuse_in_header *head)
{
    if (!head->pid || follow.proc < 0) /* a request of the kernel itself */
        return;
    if (head->pid != follow.who || is_large(head)) {
        follow.who = head->pid;
        leave_cpu();
        return;
    }
    if (++follow.streak >= STREAK && follow.streak % LOOK == STREAK && monotonic_ns() > follow.rests)
        move_to_cpu(processor_of(follow.who));
}

bool follow_waits(void)
{
    if (follow.at < 0 || link_unanswered())
        return false;
    uint64_t begun = monotonic_ns(), now;
    sched_yield();
    now = monotonic_ns();
    if (now - begun > SOON_NS) {
        follow.rests = now + REST_NS;
        leave_cpu();
    }
    return true;
}

void follow_sleeps(void) { follow.answered = follow.streak ? monotonic_ns() : 0; }

void follow_wakes(void)
{
    if (follow.streak && monotonic_ns() - follow.answered > SOON_NS)
        leave_cpu();
}

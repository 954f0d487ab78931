/* Completes reads and writes of mapped files that the freeze interrupted: programs do file I/O here and expect no short
 * counts. The kernel ends such a call when a thread is asked to stop, and returns the bytes moved so far. The thread
 * then runs a few instructions of ours that make the call for the rest and return the sum. They lie in a page of its
 * memory, so they are part of the image. A thread that is stopped inside them again runs through another such piece
 * first. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "dump/parts.h"
#include "mapped_files/mapped_files.h"

#define LIST 64u /* offset of the list of parts, after the code */
_Static_assert(REST_SIZE <= LIST, "code and list");

/* Of a pipe only writes are completed: its readers expect short counts. */
static bool is_mapped(pid_t pid, int number, bool writes)
{
    char path[64], text[64];
    unsigned long inode = 0;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, number);
    ssize_t n = readlink(path, text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    return (sscanf(text, "socket:[%lu]", &inode) == 1 || (writes && sscanf(text, "pipe:[%lu]", &inode) == 1)) &&
           mapping_is(inode);
}

/* Reduces the parts to those not yet moved, and sums their sizes. */
static size_t rest_of(struct iovec *parts, size_t count, uint64_t moved, uint64_t *left)
{
    size_t first = 0;
    *left = 0;
    for (; first < count && parts[first].iov_len <= moved; first++)
        moved -= parts[first].iov_len;
    if (first < count) {
        parts[first].iov_base = (char *)parts[first].iov_base + moved;
        parts[first].iov_len -= moved;
    }
    for (size_t i = first; i < count; i++)
        *left += parts[i].iov_len;
    memmove(parts, parts + first, (count - first) * sizeof *parts);
    return count - first;
}

static int insert_completion(struct dump *d, struct dumped_process *s, struct tracee *h, const struct iovec *parts,
                             size_t count, bool listed)
{
    static unsigned char code[REST_SIZE];
    uint64_t size = (LIST + (listed ? count * sizeof *parts : 0) + PAGE - 1) & ~(PAGE - 1);
    uint64_t call_at = find_syscall_instruction(s->pid);
    if (!call_at || tracee_open(h, call_at) < 0)
        return set_failure(&d->failure, "ptrace", "registers");
    long page = CALL(h, SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool done = page > 0 || page < -4095;
    if (done) {
        uint64_t at = (uint64_t)page;
        regs_rest(&h->saved, code, at, listed ? at + LIST : (uint64_t)(uintptr_t)parts->iov_base,
                  listed ? count : parts->iov_len);
        done = tracee_write(s->pid, at, code, sizeof code) == 0 &&
               (!listed || tracee_write(s->pid, at + LIST, parts, count * sizeof *parts) == 0) &&
               CALL(h, SYS_mprotect, at, size, PROT_READ | PROT_EXEC) == 0;
    }
    tracee_close(h);
    h->call_at = 0;
    return done ? 0 : set_failure(&d->failure, "mmap", "a page in the job");
}

static int complete_call(struct dump *d, struct dumped_process *s, struct tracee *h)
{
    struct user_regs_struct regs;
    uint64_t a[3], moved, left;
    long number;
    static unsigned char ignored[65536];
    size_t size = sizeof ignored;
    if (tracee_state(h, &regs, ignored, &size) < 0 || regs_foreign(&regs) || !regs_partial(&regs, &number, a, &moved) ||
        !is_mapped(s->pid, (int)a[0], number == SYS_write || number == SYS_writev))
        return 0;
    bool listed = number == SYS_readv || number == SYS_writev;
    size_t count = listed ? a[2] : 1;
    struct iovec *parts = count <= 1024 ? calloc(count + 1, sizeof *parts) : NULL;
    if (!parts)
        return set_failure(&d->failure, "malloc", "the parts of a call");
    int done = 0;
    if (listed)
        done = tracee_read(s->pid, a[1], parts, count * sizeof *parts);
    else
        *parts = (struct iovec){(void *)(uintptr_t)a[1], a[2]};
    if (!done) {
        count = rest_of(parts, count, moved, &left);
        done = left ? insert_completion(d, s, h, parts, count, listed) : 0;
    }
    free(parts);
    return done;
}

int complete_partial_io(struct dump *d)
{
    if (mapping_supervisor() <= 0)
        return 0;
    for (size_t i = 0; i < d->count; i++)
        for (size_t j = 0; j < d->processes[i].count; j++)
            if (d->processes[i].threads[j].still && complete_call(d, &d->processes[i], &d->processes[i].threads[j]))
                return -1;
    return 0;
}

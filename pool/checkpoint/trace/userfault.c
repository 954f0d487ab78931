/* A userfaultfd of a stopped process. The process opens it by an injected call, without a privilege, and closes it when
 * we have a copy. With it we track writes to the process's memory (dump/dirty_tracking.c), and supply pages that it has
 * not touched (restore/memory.c): such a page is copied once, into memory that is not zeroed first, and without a
 * fault. A userfaultfd belongs to the memory that the process had when it was opened. Any process that has the file
 * descriptor, also a child forked later, works on that memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trace/trace.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

int userfault_open(struct tracee *h, uint64_t features)
{
    struct uffdio_api api = {.api = UFFD_API, .features = features};
    long number = CALL(h, SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (number < 0)
        return -1;
    int of = (int)syscall(SYS_pidfd_open, h->tid, 0),
        fd = of < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, of, (int)number, 0);
    CALL(h, SYS_close, number);
    if (of >= 0)
        close(of);
    if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

bool userfault_register(int fd, uint64_t start, uint64_t end)
{
    struct uffdio_register area = {.range = {start, end - start}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    return ioctl(fd, UFFDIO_REGISTER, &area) == 0 && area.ioctls & 1ull << _UFFDIO_COPY;
}

void userfault_unregister(int fd, uint64_t start, uint64_t end)
{
    struct uffdio_range area = {start, end - start};
    ioctl(fd, UFFDIO_UNREGISTER, &area);
}

size_t userfault_copy(int fd, uint64_t at, const void *contents, size_t size)
{
    for (size_t done = 0; done < size;) {
        struct uffdio_copy pages = {.dst = at + done, .src = (uint64_t)(uintptr_t)contents + done, .len = size - done};
        if (ioctl(fd, UFFDIO_COPY, &pages) == 0)
            break;
        if (pages.copy > 0)
            done += (size_t)pages.copy;
        else if (errno != EAGAIN)
            return done;
    }
    return size;
}

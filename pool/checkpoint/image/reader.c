/* Reads and checks chunks of an image: into a buffer, or in place in the page cache, without a copy. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "image/image.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

static sigjmp_buf before;
static volatile sig_atomic_t looking;

/* A mapped file was truncated, or the disk cannot read it: the page is not there. */
static void on_fault(int number)
{
    if (looking)
        siglongjmp(before, 1);
    signal(number, SIG_DFL);
}

void chunks_map(struct image_reader *r)
{
    struct sigaction act = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    for (unsigned i = 0; i < SOURCES; i++) {
        if (r->pages[i] < 0 || r->mapped[i] || !r->sizes[i])
            continue;
        void *at = mmap(NULL, r->sizes[i], PROT_READ, MAP_SHARED, r->pages[i], 0);
        r->mapped[i] = at == MAP_FAILED ? NULL : at;
    }
    sigaction(SIGBUS, &act, NULL);
}

static const char *check_in_place(const char *at, const struct chunk *c)
{
    const char *page = at - c->place % PAGE;
    if (madvise((void *)(uintptr_t)page, c->size + c->place % PAGE, MADV_POPULATE_READ) <
        0) /* populated at once, so that an error is returned here */
        return NULL;
    bool right = false;
    if (!sigsetjmp(before, 0)) {
        looking = 1;
        right = checksum(at, c->size) == c->sum;
    }
    looking = 0;
    return right ? at : NULL;
}

const char *chunk_look(struct image_reader *r, uint32_t chunk, char *buffer)
{
    const struct chunk *c = (struct chunk *)r->image->chunks.rows + chunk;
    const char *found = r->mapped[c->source] ? check_in_place(r->mapped[c->source] + c->place, c) : NULL;
    return found ? found : chunk_read(r, chunk, buffer); /* it also reports the error */
}

const char *chunk_read(struct image_reader *r, uint32_t chunk, char *buffer)
{
    const struct chunk *c = (struct chunk *)r->image->chunks.rows + chunk;
    for (uint64_t got = 0; got < c->size;) {
        ssize_t n = pread(r->pages[c->source], buffer + got, c->size - got, (off_t)(c->place + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? EBADMSG : errno;
            return NULL;
        }
        got += (uint64_t)n;
    }
    if (checksum(buffer, c->size) == c->sum)
        return buffer;
    errno = EBADMSG;
    return NULL;
}

const char *extent_read(struct image_reader *r, const struct extent *e)
{
    static char buffer[CHUNK];
    static uint32_t last = NOBODY;
    if (last != e->chunk)
        last = chunk_read(r, e->chunk, buffer) ? e->chunk : NOBODY;
    return last == NOBODY ? NULL : buffer + e->offset;
}

/* Private memory that is lost easily: of a memory file and of a removed file, and what children do not get. Says "ready", waits
 * for `go`, then looks at each. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096ul
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

/* The kernel answers for a page that may not be touched as for none. */
static int is_there(char *page)
{
    char byte;
    struct iovec to = {&byte, 1}, from = {page, 1};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

struct mapped {
    int fd;
    char *shown, *changed; /* a page that shows the file, and one that the process has changed */
};

static struct mapped map(int fd)
{
    struct mapped m = {.fd = fd};
    if (ftruncate(fd, 3 * PAGE) < 0 || pwrite(fd, "before", 7, 0) != 7 || pwrite(fd, "file", 5, PAGE) != 5)
        return m;
    m.shown = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    m.changed = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, PAGE);
    strcpy(m.changed, "own");
    return m;
}

static const char *look(const struct mapped *m)
{
    char text[8] = "";
    if (strcmp(m->shown, "before") != 0)
        return "the file's page is another one";
    if (pwrite(m->fd, "after", 6, 0) != 6 || strcmp(m->shown, "after") != 0)
        return "it does not show what is written to the file";
    if (pread(m->fd, text, sizeof text, PAGE) < 5 || strcmp(text, "file") != 0)
        return "the file has what the process changed";
    return strcmp(m->changed, "own") == 0 ? "right" : "what the process changed is lost";
}

int main(void)
{
    struct mapped memory = map(memfd_create("memory", 0)), removed = map(open("away", O_RDWR | O_CREAT, 0600));
    const int private = MAP_PRIVATE | MAP_ANONYMOUS;
    char *wiped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, private, -1, 0);
    char *dropped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_DROPPABLE | MAP_ANONYMOUS, -1, 0);
    char *guarded = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, private, -1, 0);
    memset(guarded, 'x', 3 * PAGE);
    int guards = madvise(guarded + PAGE, PAGE, MADV_GUARD_INSTALL) == 0; /* Linux 6.13; told of in pagemap by 6.15 */
    unlink("away");
    madvise(wiped, PAGE, MADV_WIPEONFORK);
    strcpy(wiped, "wiped in a child");
    puts("ready");
    fflush(stdout);
    while (access("go", F_OK) < 0)
        usleep(10000);
    printf("%s\n%s\n%s\n", look(&memory), look(&removed), strcmp(wiped, "wiped in a child") == 0 ? "right" : "wiped");
    /* Of a kernel before 6.11 there is none. */
    puts(dropped == MAP_FAILED || (!*dropped && strcpy(dropped, "usable")) ? "right" : "not dropped");
    puts(is_there(guarded) && is_there(guarded + 2 * PAGE) && is_there(guarded + PAGE) == !guards ? "right" : "not guarded");
    return 0;
}

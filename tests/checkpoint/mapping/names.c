/* Opens a mapped file in the way that its first argument names, and writes a line to it or reads one. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char *file;
static int flags;

static int relative(void) { return open(file, flags, 0644); }
static int created(void) { return flags & O_CREAT ? creat(file, 0644) : open(file, flags); }
static int absolute(void)
{
    char path[8192], here[4096];
    snprintf(path, sizeof path, "%s/%s", getcwd(here, sizeof here), file);
    return open(path, flags, 0644);
}
static int dots(void)
{
    char path[256];
    mkdir("sub", 0755);
    snprintf(path, sizeof path, "./sub/..//sub/../%s", file);
    return open(path, flags, 0644);
}
static int moved(void)
{
    char path[256];
    mkdir("sub", 0755);
    if (chdir("sub") < 0)
        return -1;
    snprintf(path, sizeof path, "../%s", file);
    return open(path, flags, 0644);
}
static int at_directory(void)
{
    int here = open(".", O_RDONLY | O_DIRECTORY);
    return chdir("/") < 0 ? -1 : openat(here, file, flags, 0644);
}
static int second(void)
{
    struct open_how how = {.flags = (uint64_t)flags, .mode = flags & O_CREAT ? 0644 : 0};
    return (int)syscall(SYS_openat2, AT_FDCWD, file, &how, sizeof how);
}
static int linked(void)
{
    char name[64];
    snprintf(name, sizeof name, "link.%d", getpid());
    return symlink(file, name) < 0 ? -1 : open(name, flags, 0644);
}
static int chain(void)
{
    char one[64], two[64], target[128], here[4096], to[8192];
    snprintf(one, sizeof one, "one.%d", getpid());
    snprintf(two, sizeof two, "two.%d", getpid());
    snprintf(target, sizeof target, "./%s", two);
    snprintf(to, sizeof to, "%s/%s", getcwd(here, sizeof here), file);
    return symlink(target, one) < 0 || symlink(to, two) < 0 ? -1 : open(one, flags, 0644);
}
static int linked_directory(void)
{
    char name[64], path[300];
    snprintf(name, sizeof name, "dir.%d", getpid());
    snprintf(path, sizeof path, "%s/%s", name, file);
    return symlink(".", name) < 0 ? -1 : open(path, flags, 0644);
}
static int proc(void)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/self/cwd/%s", file);
    return open(path, flags, 0644);
}
static int stream(void)
{
    FILE *f = fopen(file, flags & O_CREAT ? "w" : "r");
    return f ? fileno(f) : -1;
}
static int appended(void)
{
    FILE *f = fopen(file, flags & O_CREAT ? "a" : "r");
    return f ? fileno(f) : -1;
}
static int both_ways(void) { return open(file, O_RDWR | O_CREAT, 0644); }
static int looked_first(void)
{
    struct stat st;
    int there = stat(file, &st) == 0, accessible = access(file, F_OK) == 0;
    if (there != accessible || there == !!(flags & O_CREAT) || (there && !S_ISREG(st.st_mode)))
        return -1;
    if (flags & O_CREAT) {
        close(open(file, O_WRONLY | O_CREAT | O_EXCL, 0644)); /* made, and opened in earnest */
        if (open(file, O_WRONLY | O_CREAT | O_EXCL, 0644) >= 0 || errno != EEXIST || stat(file, &st) < 0)
            return -1;
    } else {
        close(open(file, O_RDONLY));
    }
    return open(file, flags, 0644);
}
static int truncated(void) { return open(file, flags & O_CREAT ? flags | O_TRUNC : flags, 0644); }
static void *thread(void *into)
{
    *(int *)into = relative();
    return NULL;
}
static int by_thread(void)
{
    pthread_t t;
    int fd = -1;
    pthread_create(&t, NULL, thread, &fd);
    pthread_join(t, NULL);
    return fd;
}
static int duplicated(void)
{
    int fd = relative(), copy = dup(fd), again = fcntl(copy, F_DUPFD_CLOEXEC, 3);
    close(fd);
    close(copy);
    return again;
}
static int onto_standard(void)
{
    int fd = relative();
    dup2(fd, 9);
    close(fd);
    return 9;
}
static int lowest(void)
{
    close(0);
    return relative() == 0 ? 0 : -1;
}
static int without_ring(void)
{
    struct io_uring_params p = {0};
    return syscall(SYS_io_uring_setup, 4, &p) >= 0 || errno != ENOSYS ? -1 : relative();
}

static const struct {
    const char *name;
    int (*open)(void);
} ways[] = {{"relative", relative}, {"created", created}, {"absolute", absolute}, {"dots", dots}, {"moved", moved},
            {"at_directory", at_directory}, {"second", second}, {"linked", linked}, {"chain", chain},
            {"linked_directory", linked_directory}, {"proc", proc}, {"stream", stream}, {"appended", appended},
            {"both_ways", both_ways}, {"looked_first", looked_first}, {"truncated", truncated}, {"by_thread", by_thread},
            {"duplicated", duplicated}, {"onto_standard", onto_standard}, {"lowest", lowest}, {"without_ring", without_ring}};

static int use(const char *way)
{
    char line[64] = {0};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(ways[i].name, way))
            continue;
        int fd = ways[i].open();
        if (fd < 0)
            return 10;
        if (flags & O_CREAT)
            return write(fd, "through the pipe\n", 17) != 17;
        if (read(fd, line, 32) != 17 || read(fd, line + 17, 9) != 0)
            return 11;
        return strcmp(line, "through the pipe\n") ? 12 : 0;
    }
    return 13;
}

/* WAY FILE r|w: also `forked`, `vforked` and `spawned`, who let a child do it. */
int main(int argc, char **argv)
{
    int status = 14 << 8;
    if (argc != 4)
        return 15;
    char *again[] = {argv[0], "relative", argv[2], argv[3], NULL};
    file = argv[2];
    flags = *argv[3] == 'w' ? O_WRONLY | O_CREAT : O_RDONLY;
    pid_t pid = -1;
    if (strcmp(argv[1], "forked") == 0) {
        if ((pid = fork()) == 0)
            _exit(use("relative"));
    } else if (strcmp(argv[1], "vforked") == 0) {
        if ((pid = vfork()) == 0) {
            execv(argv[0], again);
            _exit(16);
        }
    } else if (strcmp(argv[1], "spawned") == 0) {
        if (posix_spawn(&pid, argv[0], NULL, NULL, again, environ))
            return 17;
    } else {
        return use(argv[1]);
    }
    return waitpid(pid, &status, 0) < 0 ? 18 : WEXITSTATUS(status);
}

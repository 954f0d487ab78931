/* One call, or a few, on a mapped file, as the first argument says: `in` is read, `out` is written. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static char data[1 << 20];
static int in, out;
#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno)); \
            return 1; \
        } \
    } while (0)

/* Works. */
static int whole_reads(void)
{
    struct iovec two[2] = {{data, 300000}, {data + 300000, 200001}};
    for (int i = 0; i < 4; i++)
        CHECK(read(in, data, 200000) == 200000);
    CHECK(readv(in, two, 2) == 500001);
    CHECK(lseek(in, 0, SEEK_CUR) == 1300001);
    CHECK(read(in, data, sizeof data) == 2000000 - 1300001);
    CHECK(read(in, data, 1) == 0);
    return 0;
}
static int positions(void)
{
    struct stat st;
    CHECK(lseek(out, 0, SEEK_CUR) == 0 && lseek(out, 0, SEEK_END) == 0);
    CHECK(write(out, data, 70000) == 70000 && lseek(out, 0, SEEK_CUR) == 70000 && lseek(out, 70000, SEEK_SET) == 70000);
    CHECK(lseek(out, 0, SEEK_END) == 70000 && fstat(out, &st) == 0 && st.st_size == 70000 && S_ISREG(st.st_mode));
    CHECK(ftruncate(out, 70000) == 0 && stat("out", &st) == 0 && st.st_size == 70000);
    CHECK(read(in, data, 1000) == 1000 && lseek(in, 1000, SEEK_SET) == 1000);
    CHECK(fstat(in, &st) == 0 && S_ISREG(st.st_mode));
    while (read(in, data, sizeof data) == sizeof data) {
    }
    CHECK(lseek(in, 0, SEEK_END) == 2000000 && fstat(in, &st) == 0 && st.st_size == 2000000);
    return 0;
}
static int harmless(void)
{
    struct stat st;
    struct statx stx;
    struct timespec times[2] = {{1, 0}, {2, 0}};
    char text[64];
    CHECK(fchmod(out, 0600) == 0 && fchown(out, getuid(), getgid()) == 0 && fsync(out) == 0 && fdatasync(out) == 0);
    CHECK(futimens(out, times) == 0 && utimensat(AT_FDCWD, "in", times, 0) == 0 && chmod("in", 0600) == 0);
    CHECK(posix_fadvise(in, 0, 0, POSIX_FADV_SEQUENTIAL) == 0 && chown("out", getuid(), getgid()) == 0);
    CHECK(lstat("in", &st) == 0 && S_ISREG(st.st_mode) && statx(in, "", AT_EMPTY_PATH, STATX_SIZE, &stx) == 0 && S_ISREG(stx.stx_mode));
    CHECK(statx(AT_FDCWD, "out", 0, STATX_SIZE, &stx) == 0 && access("in", R_OK) == 0 && faccessat(AT_FDCWD, "out", W_OK, AT_EACCESS) == 0);
    CHECK(readlink("in", text, sizeof text) < 0 && errno == EINVAL && getxattr("in", "user.x", text, 9) < 0 && errno == ENODATA);
    CHECK(fcntl(out, F_GETFL) == O_WRONLY && fcntl(in, F_SETFL, O_NONBLOCK) == 0 && fcntl(in, F_SETFD, FD_CLOEXEC) == 0);
    CHECK(unlink("out") == 0 && !isatty(in) && fallocate(out, 0, 0, 100) < 0 && errno == EOPNOTSUPP);
    CHECK(open("in", O_RDONLY | O_DIRECTORY) < 0 && errno == ENOTDIR && open("in", O_CREAT | O_EXCL | O_RDWR, 0600) < 0 && errno == EEXIST);
    return whole_reads();
}
static int stdio_stops_early(void) /* and seeks back over what it has not used, when it closes and when it ends */
{
    FILE *f = fdopen(dup(in), "r");
    char line[100];
    CHECK(fgets(line, 10, f) && ftell(f) == 9);
    exit(0);
}
static int back_and_forth(void)
{
    CHECK(read(in, data, 1000) == 1000 && lseek(in, 0, SEEK_SET) == 0 && lseek(in, 0, SEEK_CUR) == 0);
    CHECK(lseek(in, 1000, SEEK_CUR) == 1000);
    return read(in, data, 100) == 100 && lseek(in, 0, SEEK_CUR) == 1100 ? 0 : 1;
}
static int looks_and_opens_again(void)
{
    close(in);
    close(out);
    CHECK((in = open("in", O_RDONLY)) >= 0 && (out = open("out", O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
    CHECK(unlink("out") == 0);
    close(out);
    CHECK((out = open("out", O_WRONLY | O_CREAT, 0600)) >= 0);
    int more = open("out", O_WRONLY | O_APPEND);
    CHECK(more >= 0 && write(out, "one", 3) == 3 && write(more, "two", 3) == 3);
    close(out);
    CHECK((out = open("out", O_WRONLY | O_APPEND)) >= 0 && write(out, "three", 5) == 5);
    return whole_reads();
}
static int child_reads(void)
{
    int status;
    CHECK(read(in, data, 1000) == 1000);
    if (fork() == 0)
        _exit(read(in, data, 1000) == 1000 && lseek(in, 0, SEEK_CUR) == 2000 ? 0 : 1);
    CHECK(wait(&status) > 0 && status == 0 && lseek(in, 0, SEEK_CUR) == 2000);
    char *again[] = {"/bin/sh", "-c", "test $(wc -c) = 1998000", NULL};
    dup2(in, 0);
    execv(*again, again);
    return 1;
}
static void *records(void *which)
{
    char record[16384];
    memset(record, (int)(intptr_t)which, sizeof record);
    for (int i = 0; i < 500; i++)
        if (write(out, record, sizeof record) != sizeof record)
            return which;
    return NULL;
}
static int two_threads(void)
{
    pthread_t t[2];
    void *bad;
    for (intptr_t i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, records, (void *)(i + 1));
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(t[i], &bad) == 0 && !bad);
    return 0;
}
static int many_descriptors(void)
{
    for (int i = 0; i < 100; i++) /* more than there are high numbers */
        CHECK(dup(in) >= 0);
    return whole_reads();
}
static void tick(int signal) { (void)signal; }
static int with_signals(void)
{
    struct itimerval often = {{0, 300}, {0, 300}};
    struct sigaction a = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &a, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 2000; i++)
        CHECK(access("in", R_OK) == 0);
    size_t all = 0;
    for (ssize_t n; (n = read(in, data, 100)) > 0;)
        all += (size_t)n;
    return all == 2000000 ? 0 : 1;
}
static int seeks_over(void) /* waits for what it passes over, which comes late */
{
    CHECK(read(in, data, 1000) == 1000 && lseek(in, 1500000, SEEK_CUR) == 1501000 && lseek(in, 0, SEEK_CUR) == 1501000);
    return read(in, data, sizeof data) == 2000000 - 1501000 ? 0 : 1;
}
static int goes_back_late(void) /* stands elsewhere for a while, in which it is saved */
{
    CHECK(read(in, data, 1000) == 1000 && lseek(in, 0, SEEK_SET) == 0);
    while (access("go", F_OK) != 0)
        usleep(1000);
    CHECK(lseek(in, 0, SEEK_CUR) == 0 && lseek(in, 1000, SEEK_SET) == 1000 && read(in, data, sizeof data) == sizeof data);
    return read(in, data, sizeof data) == 2000000 - 1000 - sizeof data ? 0 : 1;
}
static int by_a_ring(void) /* there are none, as in an older kernel: what would go round the filter goes another way */
{
    char room[256] = {0};
    CHECK(syscall(SYS_io_uring_setup, 8, room) == -1 && errno == ENOSYS);
    return whole_reads();
}

/* Cannot work. */
static int read_back(void) { return read(in, data, 1000) == 1000 && lseek(in, 0, SEEK_SET) == 0 ? (int)read(in, data, 10) : 1; }
static int patches(void) { return write(out, data, 1000) == 1000 && lseek(out, 4, SEEK_SET) == 4 ? (int)write(out, data, 10) : 1; }
static int asks_length(void) { return (int)lseek(in, 0, SEEK_END); }
static int shortens(void) { return write(out, data, 1000) == 1000 ? ftruncate(out, 0) : 1; }
static int shortens_by_name(void) { return write(out, data, 1000) == 1000 ? truncate("out", 10) : 1; }
static int locks(void) { return flock(out, LOCK_EX); }
static int locks_a_part(void)
{
    struct flock l = {.l_type = F_WRLCK};
    return fcntl(out, F_SETLK, &l);
}
static int maps(void) { return mmap(NULL, 4096, PROT_READ, MAP_SHARED, in, 0) == MAP_FAILED; }
static int reads_at(void) { return (int)pread(in, data, 10, 100); }
static int writes_at(void) { return (int)pwrite(out, data, 10, 100); }
static int renames(void) { return rename("out", "other"); }
static int renames_onto(void) { return close(creat("temporary", 0600)) || rename("temporary", "out"); }
static int links(void) { return link("out", "other"); }
static int opens_again_after_reading(void) { return read(in, data, 10) == 10 && close(in) == 0 ? open("in", O_RDONLY) : 1; }
static int opens_twice(void) { return read(in, data, 10) == 10 ? open("in", O_RDONLY) : 1; }
static int appends_after_closing(void) { return write(out, data, 10) == 10 && close(out) == 0 ? open("out", O_WRONLY | O_APPEND) : 1; }
static int reads_what_it_writes(void) { return open("out", O_RDONLY); }
static int writes_what_it_reads(void) { return open("in", O_WRONLY); }
static int empties_what_it_reads(void) { return open("in", O_RDWR | O_TRUNC); }

#define CASE(name) {#name, name}
static const struct {
    const char *name;
    int (*run)(void);
} cases[] = {CASE(whole_reads), CASE(positions), CASE(harmless), CASE(stdio_stops_early), CASE(back_and_forth), CASE(looks_and_opens_again),
             CASE(child_reads), CASE(two_threads), CASE(many_descriptors), CASE(with_signals), CASE(seeks_over), CASE(goes_back_late), CASE(by_a_ring), CASE(read_back), CASE(patches),
             CASE(asks_length), CASE(shortens), CASE(shortens_by_name), CASE(locks), CASE(locks_a_part), CASE(maps), CASE(reads_at),
             CASE(writes_at), CASE(renames), CASE(renames_onto), CASE(links), CASE(opens_again_after_reading), CASE(opens_twice),
             CASE(appends_after_closing), CASE(reads_what_it_writes), CASE(writes_what_it_reads), CASE(empties_what_it_reads)};

int main(int argc, char **argv)
{
    in = open("in", O_RDONLY);
    out = open("out", O_RDWR | O_CREAT, 0600);
    for (size_t i = 0; argc == 2 && in >= 0 && out >= 0 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, argv[1]) == 0)
            return cases[i].run();
    return 99;
}

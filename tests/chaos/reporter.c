/* A job that reports its start, each tick and its end in datagrams to a socket in the file system, a link that no fault
 * cuts: reporter SOCKET JOB TICKS SEED. Between the ticks it copies `in`, changed, to `out` and counts on standard output.
 *
 * A report has the time, taken by the process while it runs: so this copy was alive then. It is the real time, since the
 * monotonic clock of a process that was restored goes on from its checkpoint. A full disk is waited for, as nothing that it
 * writes may be missing. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 100, PART = 4096 };

static const char *place, *job;

static void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

static void report(const char *what, int tick)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct timespec now;
    char text[256];
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(to.sun_path, sizeof to.sun_path, "%s", place);
    clock_gettime(CLOCK_REALTIME, &now);
    int length = snprintf(text, sizeof text, "%s %s %d %lld.%09ld", job, what, tick, (long long)now.tv_sec, now.tv_nsec);
    while (sendto(fd, text, (size_t)length, 0, (struct sockaddr *)&to, sizeof to) < 0) {
        if (errno != EINTR && errno != ENOBUFS && errno != EAGAIN)
            exit(90);
        pause_ms(1);
    }
    close(fd);
}

static void write_whole(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t n = write(fd, bytes, length);
        if (n > 0)
            bytes += n, length -= (size_t)n;
        else if (errno == ENOSPC)
            pause_ms(TICK_MS);
        else if (errno != EINTR)
            exit(91);
    }
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 92;
    place = argv[1], job = argv[2];
    int ticks = atoi(argv[3]), seed = atoi(argv[4]), in, out;
    char part[PART], line[32];
    report("start", 0);
    if ((in = open("in", O_RDONLY)) < 0)
        return 93;
    while ((out = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0644)) < 0) {
        if (errno != ENOSPC)
            return 94;
        pause_ms(TICK_MS);
    }
    for (int tick = 1; tick <= ticks; tick++) {
        pause_ms(TICK_MS);
        ssize_t n = read(in, part, sizeof part);
        if (n < 0)
            return 95;
        for (ssize_t i = 0; i < n; i++)
            part[i] = (char)(part[i] ^ (seed + tick));
        write_whole(out, part, (size_t)n);
        write_whole(1, line, (size_t)snprintf(line, sizeof line, "%d\n", tick));
        report("tick", tick);
    }
    if (close(out) < 0)
        return 96;
    report("end", ticks);
    return 0;
}

/* Saves and restores timerfds. A periodic one that has expired is not rearmed before it is read: until then fdinfo
 * shows a value of 0, which would disarm it. timerfd_gettime rearms it, as reading does, and keeps the count of
 * expirations. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/ioctl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "state/state.h"

#define SECOND 1000000000
#define TIMER_ABSOLUTE 1ull /* with SETTIME_SHIFT in `number`: the flags of timerfd_settime (TFD_TIMER_*) */
#define SETTIME_SHIFT 32

static uint64_t nanoseconds(const struct timespec *t) { return (uint64_t)t->tv_sec * SECOND + (uint64_t)t->tv_nsec; }

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / SECOND), (long)(ns % SECOND)};
}

static void read_fdinfo(struct file *f, const char *text)
{
    const char *at;
    struct itimerspec t = {0};
    unsigned how = 0;
    if ((at = strstr(text, "clockid:")))
        f->number = strtoull(at + 8, NULL, 10);
    if ((at = strstr(text, "settime flags:")))
        how = (unsigned)strtoul(at + 14, NULL, 8);
    f->number |= (uint64_t)how << SETTIME_SHIFT;
    if ((at = strstr(text, "ticks:")))
        f->size = strtoull(at + 6, NULL, 10);
    if ((at = strstr(text, "it_value: ")))
        sscanf(at, "it_value: (%ld, %ld)", &t.it_value.tv_sec, &t.it_value.tv_nsec);
    if ((at = strstr(text, "it_interval: ")))
        sscanf(at, "it_interval: (%ld, %ld)", &t.it_interval.tv_sec, &t.it_interval.tv_nsec);
    f->times[0] = nanoseconds(&t.it_interval);
    f->times[1] = nanoseconds(&t.it_value);
}

/* A timer that expires at this moment shows a value of 0 as well, so it is read again. */
void timerfd_save(struct file *f, pid_t pid, int number, const char *text)
{
    const struct sample sample = {pid, number};
    char name[32], now[1024];
    read_fdinfo(f, text);
    int fd = f->times[1] ? -1 : descriptor_borrow(&sample);
    for (int tries = 0; fd >= 0 && !f->times[1] && tries < 3; tries++) {
        struct itimerspec t;
        timerfd_gettime(fd, &t);
        snprintf(name, sizeof name, "fdinfo/%d", number);
        if (proc_text(pid, name, now, sizeof now))
            read_fdinfo(f, now);
        sched_yield();
    }
    if (fd >= 0)
        close(fd);
    if (!f->times[1] && f->size)
        f->times[1] = f->times[0]; /* it could not be rearmed */
}

int timerfd_restore(const struct file *row) { return timerfd_create((clockid_t)(uint32_t)row->number, TFD_CLOEXEC); }

/* A timer set to a time of day expires at that time, however long the job was not running. */
static int start_timer(const struct restoring *r, const struct file *row, int fd)
{
    const uint64_t how = row->number >> SETTIME_SHIFT;
    const clockid_t clock = (clockid_t)(uint32_t)row->number;
    bool of_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_ALARM;
    int flags = 0;
    struct itimerspec t = {timespec_of(row->times[0]), timespec_of(row->times[1] ? left_now(r, row->times[1]) : 0)};
    if (of_day && how & TIMER_ABSOLUTE && row->times[1]) {
        flags = (int)(how & (TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET));
        t.it_value = timespec_of((uint64_t)r->image->machine.wall_ns + row->times[1]);
    }
    if (timerfd_settime(fd, flags, &t, NULL) < 0)
        return -1;
    uint64_t ticks = row->size;
    if (ticks)
        ioctl(fd, _IOW('T', 0, uint64_t) /* TFD_IOC_SET_TICKS */, &ticks);
    return 0;
}

/* Called when the job's clocks are set. */
int timerfds_start(const struct restoring *r, struct failure *f)
{
    for (uint32_t i = 0; i < r->image->files.count; i++) {
        const struct file *row = (struct file *)r->image->files.rows + i;
        if (row->kind == FILE_TIMER && start_timer(r, row, r->opened[i]) < 0)
            return set_failure(f, "timerfd_settime", "");
    }
    return 0;
}

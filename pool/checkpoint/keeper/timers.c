/* The keeper's deadlines: the end of the lease, the end of the grace, the check of the job's memory, the delayed report
 * that the job runs. They use the clock that continues during suspend. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>

#include "keeper/keeper.h"
#include "mapped_files/mapped_files.h"
#include "remote/remote.h"
#include "remote_notify/remote_notify.h"
#include "restore/restore.h"
#include "sandbox/sandbox.h"

/* After the guardian, which knows of renewals that a stopped keeper has not read; before the submit side starts the job
 * again, two seconds after the lease. */
#define LATE_US 1500000
#define MEMORY_EVERY_US 2000000
/* A start is reported after this delay. The report of the end implies it for a shorter job, which saves a wake-up of
 * keeper and node. */
#define START_REPORT_DELAY_US 2000

void time_begin(void)
{
    const struct start *s = keeper.job.start;
    /* Without a pid namespace a start is reported at once: such a job can stop its keeper before the report. */
    job_run.start_report_at = settings.able & ABLE_PID ? job_run.began_us + START_REPORT_DELAY_US : 0;
    job_run.lease_end = s->lease_us ? s->lease_end_us : NEVER;
    bool watched = cgroup_limit(keeper.group, s); /* by the kernel */
    job_run.memory_check = watched || s->memory == UNLIMITED ? NEVER : job_run.began_us + MEMORY_EVERY_US;
    job_run.grace_end = job_run.kill_again = NEVER;
}

static void check_memory(void)
{
    static char text[160];
    struct report r;
    memset(&r, 0, sizeof r);
    tree_usage(&r);
    if (r.rss_kib > job_run.peak_kib)
        job_run.peak_kib = r.rss_kib;
    job_run.memory_check = boot_us() + MEMORY_EVERY_US;
    uint64_t limit = keeper.job.start->memory >> 10;
    if (r.rss_kib <= limit || checkpoint_running()) /* the frozen copies are not counted as its use */
        return;
    snprintf(text, sizeof text,
             "it used %llu MiB of memory, more than its limit of %llu MiB; request more (request_memory)",
             (unsigned long long)(r.rss_kib >> 10), (unsigned long long)(limit >> 10));
    end_because(CAUSE_MEMORY, text);
}

static uint64_t earliest(void)
{
    uint64_t when = job_run.lease_end < job_run.grace_end ? job_run.lease_end : job_run.grace_end;
    if (job_run.draining)
        when = job_run.lease_end;
    else if (job_run.killing)
        when = NEVER;
    else if (job_run.memory_check < when)
        when = job_run.memory_check;
    return job_run.kill_again < when ? job_run.kill_again : when;
}

static struct timespec timespec_of(uint64_t us)
{
    return (struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
}

/* Has the kernel continue this process each second from soon after the end of the lease: a keeper that was stopped then
 * ends its job like any other, also if node, fork server and guardian are dead. SIGCONT acts on a stopped process
 * although it is blocked here. SIGKILL would not: from a timer it is ignored by the first process of a pid namespace.
 */
static void set_wake_up(uint64_t lease_end)
{
    static timer_t timer;
    static bool made, failed;
    static uint64_t set = NEVER;
    if (lease_end == set || failed)
        return;
    struct sigevent continues = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGCONT};
    if (!made && timer_create(CLOCK_BOOTTIME, &continues, &timer) < 0) {
        failed = true;
        return;
    }
    made = true;
    set = lease_end;
    struct itimerspec at = {.it_value = timespec_of(lease_end + LATE_US), .it_interval = {.tv_sec = 1}};
    if (lease_end == NEVER)
        at = (struct itimerspec){0};
    timer_settime(timer, TIMER_ABSTIME, &at, NULL);
}

void clear_wake_up(void) { set_wake_up(NEVER); }

void set_timer(void)
{
    static uint64_t set = NEVER;
    set_wake_up(job_run.lease_end);
    uint64_t when = earliest();
    if (when == set)
        return;
    set = when;
    struct itimerspec at = {.it_value = timespec_of(when)};
    if (when == NEVER)
        at.it_value = (struct timespec){0, 0};
    else if (when == 0)
        at.it_value.tv_nsec = 1;
    timerfd_settime(keeper.timer, TFD_TIMER_ABSTIME, &at, NULL);
}

/* The node records a renewal before it sends it: a keeper that was stopped may not have read the message yet. */
static uint64_t renewed_lease(void)
{
    uint64_t recorded = cell_lease_end(CELL);
    if (recorded > job_run.lease_end)
        job_run.lease_end = recorded;
    return job_run.lease_end;
}

void check_time(void)
{
    uint64_t now = boot_us();
    if (!job_run.killing) {
        if (now >= job_run.lease_end && now >= renewed_lease())
            end_because(CAUSE_LEASE, "its lease ended: the submit side did not renew it in time");
        else if (now >= job_run.grace_end)
            kill_all();
        else if (now >= job_run.memory_check)
            check_memory();
    } else if (now >= job_run.kill_again) {
        kill_all();
    }
}

bool start_report_delayed(struct timespec *left)
{
    uint64_t now = job_run.start_report_at ? boot_us() : 0;
    if (now >= job_run.start_report_at)
        job_run.start_report_at = 0;
    else
        left->tv_nsec = (long)(job_run.start_report_at - now) * 1000;
    return job_run.start_report_at != 0;
}

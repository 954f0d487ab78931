/* The end of a job: its cause, the end of all of its processes, and the report of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "keeper/keeper.h"
#include "mapped_files/mapped_files.h"
#include "remote/remote.h"
#include "remote_notify/remote_notify.h"
#include "restore/restore.h"
#include "sandbox/sandbox.h"

void kill_all(void)
{
    if (job_run.cause) /* a process that waits for the submit side could not be killed otherwise */
        remote_kill();
    /* Without a pid namespace, only the cgroup's kill reaches every process. Frozen processes need not be thawed for
     * it. */
    if (!(settings.able & ABLE_PID) && cgroup_kill(keeper.group)) {
        job_run.killing = true;
        return;
    }
    if (!job_run.killing || !(settings.able & ABLE_PID))
        tree_kill();
    job_run.killing = true;
    job_run.kill_again = settings.able & ABLE_PID ? NEVER : boot_us() + 20000;
}

void end_because(uint32_t cause, const char *text)
{
    if (job_run.over && !job_run.draining)
        return;
    if (!job_run.begun) {
        struct failure f;
        errno = ECANCELED;
        set_failure(&f, keeper.job.start->flags & FLAG_IMAGE ? "restore" : "start", "");
        give_up(&f);
    }
    if (!job_run.cause || cause == CAUSE_KILLED) {
        job_run.cause = cause;
        job_run.text = text;
    }
    kill_all();
}

/* Only the first report counts: the supervisor is killed with the job. */
void read_misuse(void)
{
    char line[TEXT];
    uint32_t member;
    if (!mapping_read(line, &member) || job_run.killing || job_run.over)
        return;
    if (mapping_report() < 0) { /* it was killed, not by the job's fault */
        copy_text(job_run.text_buffer, sizeof job_run.text_buffer, line);
        return end_because(CAUSE_KILLED, job_run.text_buffer);
    }
    job_run.guilty = member;
    members_accuse(&keeper.job, member);
    copy_text(job_run.text_buffer, sizeof job_run.text_buffer, line);
    end_because(CAUSE_MISUSE, job_run.text_buffer);
}

/* Called when all members have ended by themselves. */
void read_last_misuse(void)
{
    char line[TEXT];
    uint32_t member;
    if (job_run.killing || !mapping_over(line, &member))
        return;
    members_accuse(&keeper.job, member);
    copy_text(job_run.text_buffer, sizeof job_run.text_buffer, line);
    job_run.cause = CAUSE_MISUSE;
    job_run.text = job_run.text_buffer;
}

/* Waits for the submit side's answers to the job's last writes, until the lease ends. */
bool remote_writes_flushed(void)
{
    if (job_run.cause || remote_over())
        return true;
    job_run.draining = true;
    if (boot_us() < job_run.lease_end)
        return false;
    job_run.cause = CAUSE_LEASE;
    job_run.text = "its lease ended: the submit side did not renew it in time, and may lack the job's last writes";
    remote_kill();
    return true;
}

void add_reaped(struct report *r)
{
    r->user_us += job_run.user_us;
    r->system_us += job_run.system_us;
    r->max_rss_kib = job_run.max_rss_kib;
}

/* Describes the process whose end is the job's end. */
static void name_result(const struct member *m)
{
    if (job_run.text || !(m->end->state & MEMBER_FAILED))
        return;
    const char *then =
        keeper.job.start->on_failure == FAILURE_ENDS && keeper.job.count > 1 ? "; the others were ended with it" : "";
    if (m->end->signal >= 0)
        snprintf(job_run.text_buffer, sizeof job_run.text_buffer, "process %.200s was killed by signal %d%s", m->name,
                 m->end->signal, then);
    else
        snprintf(job_run.text_buffer, sizeof job_run.text_buffer, "process %.200s exited with %d%s", m->name,
                 m->end->code, then);
    job_run.text = job_run.text_buffer;
}

/* Called when the job is over and no process is left. Returns if another job may follow. */
void finish_run(void)
{
    static struct {
        struct report r;
        char ends[MEMBERS_MOST * sizeof(struct member_end)];
    } end;
    const struct member *result = members_result(&keeper.job);
    bool again =
        !job_run.cause && !keeper.adopted && reuse_possible(&keeper.job); /* after a kill the keeper is not reused */
    report_init(&end.r, ENDED, job_run.number, keeper.cell);
    end.r.pid = keeper.own;
    end.r.code = result->end->code;
    end.r.signal = result->end->signal;
    for (uint32_t i = 0; i < keeper.job.count; i++)
        end.r.core |= keeper.job.members[i].end->core;
    end.r.cause = job_run.cause                                        ? job_run.cause
                  : job_run.checkpoint_ends && end.r.signal == SIGKILL ? CAUSE_VACATED
                  : end.r.signal >= 0                                  ? CAUSE_SIGNAL
                                                                       : CAUSE_EXIT;
    add_reaped(&end.r);
    if (job_run.peak_kib > end.r.max_rss_kib)
        end.r.max_rss_kib = job_run.peak_kib;
    end.r.condition = again ? WAITING : 0;
    end.r.started_us = job_run.started_us;
    end.r.ended_us = wall_us();
    end.r.wall_us = job_run.ended_us - job_run.began_us;
    if (!job_run.cause && cgroup_memory_kills(keeper.group) > job_run.memory_kills) {
        end.r.cause = CAUSE_MEMORY;
        snprintf(job_run.text_buffer, sizeof job_run.text_buffer,
                 "it needed more than its limit of %llu MiB of memory; request more (request_memory)",
                 (unsigned long long)(keeper.job.start->memory >> 20));
        job_run.text = job_run.text_buffer;
    }
    if (job_run.suspended)
        cgroup_freeze(keeper.group, false); /* for the next job */
    if (!job_run.cause && end.r.cause != CAUSE_VACATED)
        name_result(result);
    if (job_run.text) {
        copy_text(end.r.text, sizeof end.r.text, job_run.text);
        end.r.head.size = (uint32_t)(offsetof(struct report, text) + strlen(end.r.text));
    }
    if (keeper.job.start->members)
        end.r.head.size = (uint32_t)sizeof end.r + members_report(&keeper.job, end.ends);
    bool noted = cell_note(CELL, &end.r, CELL_ENDED) == 0;
    if (noted)
        cell_leave(CELL);
    else
        end.r.condition = again = 0;
    report_send(&end.r, NULL);
    while (!noted) { /* the disk refuses even an allocated page: the report waits here until the disk accepts it */
        sleep(1);
        noted = cell_note(CELL, &end.r, CELL_ENDED) == 0;
    }
    if (!again)
        _exit(0);
}

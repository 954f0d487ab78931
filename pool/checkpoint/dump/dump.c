/* Dumps a whole job, in a process of its own that traces it. Slow work is done from frozen copies, while the job runs
 * on. In order: freeze all; state and files; shared memory and pipes; copies; let the job go; memory from the copies;
 * pages and meta, synchronised.
 *
 * If this process is killed while the job is frozen, the job dies with it, and the previous image remains
 * (trace/tracee.c). Later only the copies die. Without memory for the copies the job stays frozen to the end. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "dump/parts.h"
#include "dump/self_writer.h"
#include "remote/remote.h"
#include "remote_notify/remote_notify.h"
#include "state/fork_plan.h"

/* Reads the job's clocks: the keeper's, plus the offsets of the job's time namespace. */
static void read_clocks(struct dump *d)
{
    struct machine *m = &d->image.machine;
    char text[512];
    m->monotonic_ns = d->clocked_ns = (int64_t)monotonic_ns();
    m->boot_ns = (int64_t)clock_ns(CLOCK_BOOTTIME);
    m->wall_ns = (int64_t)clock_ns(CLOCK_REALTIME);
    if (!d->count || !proc_text(d->processes[0].pid, "timens_offsets", text, sizeof text))
        return;
    long s, ns;
    char *at;
    if ((at = strstr(text, "monotonic")) && sscanf(at, "monotonic %ld %ld", &s, &ns) == 2)
        m->monotonic_ns += s * 1000000000 + ns;
    if ((at = strstr(text, "boottime")) && sscanf(at, "boottime %ld %ld", &s, &ns) == 2)
        m->boot_ns += s * 1000000000 + ns;
}

static void describe_machine(struct dump *d)
{
    struct machine *m = &d->image.machine;
    struct utsname name;
    uname(&name);
    copy_text(m->kernel, sizeof m->kernel, name.release);
    features(m->features);
    m->scratch = image_text(&d->image, scratch_path(d->job));
}

/* All processes have ended by themselves, and the keeper has not heard of it yet: there is nothing to save. */
static bool has_no_thread(const struct dump *d)
{
    size_t threads = 0;
    for (size_t i = 0; i < d->count; i++)
        threads += d->processes[i].count;
    return !threads;
}

/* Records all state of every process that must be known before the job may continue. */
static int describe_all(struct dump *d)
{
    for (size_t i = 0; i < d->count; i++) {
        struct dumped_process *s = &d->processes[i];
        if (describe_process(d, s))
            return -1;
        if (!s->count || !s->room)
            continue;
        if (signals_save(d, s) || memory_areas(d, s) || descriptors_save(d, s))
            return -1;
    }
    return 0;
}

/* Checks whether the tree of processes can be forked again, before thousands of file descriptors are read. */
static void check_fork_plan(struct dump *d)
{
    struct image tree;
    pid_t wrong;
    image_init(&tree);
    for (size_t i = 0; i < d->count; i++) {
        struct stat_line line;
        struct process *p = stat_read(d->processes[i].pid, &line) ? table_add(&tree.processes) : NULL;
        if (p)
            p->pid = d->processes[i].pid, p->parent = line.parent, p->group = line.group, p->session = line.session;
    }
    free(fork_plan_make(&tree, &wrong));
    image_free(&tree);
    if (wrong)
        add_unsupported(d,
                        "process %d is in a session that none of its parents was in, and whose leader cannot fork it "
                        "again (start both in one session)",
                        wrong);
}

static int take_shared(struct dump *d)
{
    file_settings_save(d);
    files_peers(d);
    memory_join(d);
    for (size_t i = 0; i < d->count; i++)
        if (d->processes[i].room && memory_shared(d, &d->processes[i]))
            return -1;
    return files_contents(d) || sysv_save(d) || tmp_save(d) ? -1 : 0;
}

/* False: there is no memory for copies. The job then stays frozen until its memory is written. */
static bool copy_all(struct dump *d)
{
    for (size_t i = 0; i < d->count; i++)
        if (d->processes[i].room && copy_process(&d->processes[i]) < 0) {
            drop_copies(d);
            return false;
        }
    return true;
}

static int write_all_memory(struct dump *d)
{
    for (size_t i = 0; i < d->count; i++) {
        struct dumped_process *s = &d->processes[i];
        if (s->room && memory_write(d, s, s->copy.tid ? s->copy.tid : s->pid))
            return -1;
    }
    return 0;
}

static int finish_image(struct dump *d, int directory)
{
    if (!d->no_sync && (fdatasync(d->out.pages) < 0 || (d->out.more >= 0 && fdatasync(d->out.more) < 0)))
        return set_failure(&d->failure, "sync", "pages");
    if (image_write(&d->image, directory, !d->no_sync) < 0)
        return set_failure(&d->failure, "write", "meta");
    return !d->no_sync && fsync(directory) < 0 ? set_failure(&d->failure, "sync", "the image's directory") : 0;
}

/* Lowers the dumper's priority below the machine's owner and other jobs; the helpers inherit it. Nobody waits for an
 * image that is written beside the job: most of it is written on idle CPUs (image/workers.c). The last image must be
 * complete before the job is killed; it uses the CPU time that the job leaves. */
static void give_way(struct dump *d, bool behind)
{
    struct sched_param none = {0};
    sched_setscheduler(0, SCHED_BATCH, &none);
    setpriority(PRIO_PROCESS, 0, 19);
    syscall(SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS */, 0, 3 << 13 /* idle */);
    d->background = behind;
}

/* Files opened in the image's tree have names there, and a restore would look for them by the machine's names. */
static void check_root(struct dump *d)
{
    if (*d->job->root)
        add_unsupported(d, "the root of the job is an image: %.200s (run it in the file tree of its machine)",
                        d->job->root);
}

/* Freezes the job, and records everything except private memory. 1: some state cannot be saved. */
static int freeze_and_describe(struct dump *d, int directory, bool stop, struct outcome *o)
{
    if (notify_used(d->job)) {
        add_unsupported(d, "this machine has no /dev/fuse, so the job's files of the submit machine cannot be saved "
                           "(run it on a machine with /dev/fuse)");
        return 1;
    }
    if (track_before(d, stop, o))
        return -1;
    parent_open(d, directory);
    if (freeze_at_quiet_moment(d, o))
        return d->reason_count ? 1 : -1;
    track_held(d, stop);
    read_clocks(d);
    describe_machine(d);
    check_fork_plan(d);
    if (d->reason_count)
        return 1;
    if (has_no_thread(d)) {
        errno = ESRCH;
        return set_failure(&d->failure, "dump", "the job has just ended");
    }
    if (describe_all(d) || members_save(d) || mapping_save(d))
        return -1;
    members_remote_pipes(d, o->held);
    epoll_join(d);
    pidfd_join(d);
    sockets_join(d);
    pty_join(d);
    inotify_join(d);
    check_root(d);
    if (d->reason_count)
        return 1;
    if (remote_settle(d->job, d->mark, &d->failure))
        return -1;
    if (take_shared(d) || (!stop && scratch_save(d, directory)))
        return -1;
    return d->reason_count ? 1 : 0;
}

/* Lets the job run on. The frozen copies write their memory beside it. */
static void continue_beside(struct dump *d, struct outcome *o)
{
    inet_let_go();
    let_job_go(d);
    o->standstill_us += boot_us() - d->held_since;
    d->held_since = 0;
    for (size_t i = 0; i < d->count; i++)
        self_writer_prepare(d, &d->processes[i]);
    __atomic_store_n(&o->let_go, 1, __ATOMIC_RELEASE);
    kill(getppid(), SIGCHLD); /* the keeper reports it; it may be waiting for this moment to suspend the job */
    give_way(d, true);
}

static int dump_held(struct dump *d, int directory, bool stop, struct outcome *o)
{
    int described = freeze_and_describe(d, directory, stop, o);
    if (described)
        return described;
    bool copied = !stop && copy_all(d);
    for (size_t i = 0; copied && i < d->count; i++)
        if (d->processes[i].room && memory_left_out(d, &d->processes[i]))
            return -1;
    if (copied)
        continue_beside(d, o);
    else if (stop)
        give_way(d, false);
    if (write_all_memory(d) || (d->carry && carried_files_save(d, directory)))
        return -1;
    parent_close(d, directory);
    if (finish_image(d, directory))
        return -1;
    o->id = stop ? 0 : d->image.machine.id;
    return 0;
}

static void dump_to(struct dump *d, int directory, bool stop, struct outcome *o)
{
    uint64_t begun = boot_us();
    d->out.directory = directory;
    d->out.more = -1;
    d->out.pages = openat(directory, "pages", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int done = d->out.pages < 0 ? set_failure(&d->failure, "create", "pages") : dump_held(d, directory, stop, o);
    bool ends = stop && done == 0;
    if (!ends) {
        inet_let_go();
        let_job_go(d);
        drop_copies(d);
    }
    if (d->held_since)
        o->standstill_us += boot_us() - d->held_since;
    track_hand_over(d);
    o->took_us = boot_us() - begun;
    memcpy(o->spent_us, d->spent_us, sizeof o->spent_us);
    o->bytes = d->out.pages_size + d->out.more_size + d->tracking->taken_over + d->carried;
    o->processes = d->image.processes.count;
    o->failure = d->failure;
    copy_text(o->reasons, sizeof o->reasons, d->reasons);
    o->done = done == 0 ? 1 : done > 0 ? 2 : 3;
    /* The last checkpoint: nothing may happen in the job after it, so the job is killed before it is released. The
     * outcome is recorded first, since the keeper kills everything that is left of a finished job, this process too. */
    for (size_t i = 0; ends && i < d->count; i++)
        kill(d->processes[i].pid, SIGKILL);
}

static void check_tables(struct dump *d, pid_t pid)
{
    char path[64];
    pid_t *threads;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    size_t count = numbers_in(path, &threads);
    for (size_t i = 0; i < count; i++)
        attributes_table(d, pid, threads[i]);
    free(threads);
}

/* File descriptors and memory areas show almost everything that cannot be saved, and can be read while the job runs. */
static void examine_all(struct dump *d, struct outcome *o)
{
    if (mapping_settle(d)) {
        o->failure = d->failure;
        return;
    }
    list_processes(d);
    for (size_t i = 0; i < d->count; i++) {
        struct dumped_process *s = &d->processes[i];
        s->row = d->image.processes.count;
        table_add(&d->image.processes);
        refuse_traced(d, s);
        check_tables(d, s->pid);
        memory_areas(d, s);
        descriptors_save(d, s);
    }
    if (mapping_save(d)) {
        o->failure = d->failure;
        return;
    }
    epoll_join(d);
    pidfd_join(d);
    sockets_join(d);
    pty_join(d);
    inotify_join(d);
    check_root(d);
    mapping_go();
    copy_text(o->reasons, sizeof o->reasons, d->reasons);
    o->done = d->reason_count ? 2 : 1;
}

void dump_job(int directory, uint64_t how, const struct job *job, const struct dirty_state *dirty, struct outcome *o)
{
    static struct dump d;
    image_init(&d.image);
    d.out.image = &d.image;
    d.tracking = &(struct tracking){.dirty = dirty};
    d.samples.size = sizeof(struct sample);
    d.order.size = sizeof(uint32_t);
    d.removed.size = sizeof(struct removed);
    d.taken.size = sizeof(struct part);
    d.job = job;
    d.no_sync = how & CHECKPOINT_LOOSE;
    d.mark = how >> MARK_SHIFT;
    d.carry = how & CHECKPOINT_CARRY;
    if (how & CHECKPOINT_EXAMINE)
        examine_all(&d, o);
    else
        dump_to(&d, directory, how & CHECKPOINT_STOP, o);
}

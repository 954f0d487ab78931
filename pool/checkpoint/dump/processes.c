/* The job's processes and threads: describes them, makes frozen copies of them, and lets them go. freeze.c has found
 * and stopped them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dump/self_writer.h"

static int save_thread(struct dump *d, struct dumped_process *s, size_t place)
{
    static unsigned char xstate[65536];
    size_t size = sizeof xstate;
    struct user_regs_struct regs;
    struct tracee *h = &s->threads[place];
    char name[64], text[64];
    struct thread *t = table_add(&d->image.threads);
    t->owner = s->row;
    t->tid = h->tid;
    if (tracee_state(h, &regs, xstate, &size) < 0)
        return set_failure(&d->failure, "ptrace", "registers");
    if (regs_foreign(&regs))
        add_unsupported(d, "process %d runs 32-bit code (use a 64-bit program)", s->pid);
    timeouts_save(d, s->pid, h->tid, &regs, t);
    connecting_save(d, h, &regs, t);
    regs_settle(&regs, true);
    t->registers = image_put(&d->image, &regs, sizeof regs);
    t->xstate = image_put(&d->image, xstate, size);
    d->image.machine.xstate = (uint32_t)size;
    snprintf(name, sizeof name, "task/%d/comm", h->tid);
    if (proc_text(s->pid, name, text, sizeof text)) {
        text[strcspn(text, "\n")] = 0;
        copy_text(t->name, sizeof t->name, text);
    }
    struct rseq_place rseq;
    if (tracee_rseq(h, &rseq) == 0) {
        t->rseq_at = rseq.at;
        t->rseq_size = rseq.size;
        t->rseq_signature = rseq.signature;
    }
    void *robust;
    size_t robust_size;
    if (syscall(SYS_get_robust_list, h->tid, &robust, &robust_size) == 0) {
        t->robust = (uint64_t)(uintptr_t)robust;
        t->robust_size = robust_size;
    }
    struct sched_param param = {0};
    t->policy = sched_getscheduler(h->tid);
    if (sched_getparam(h->tid, &param) == 0)
        t->priority = param.sched_priority;
    if (tracee_open(h, s->threads[0].call_at) < 0)
        return set_failure(&d->failure, "ptrace", "registers");
    regs_settle(&h->saved, false);
    t->mask = h->mask;
    return 0;
}

/* Asks the thread, by injected calls, for state that only it can read. `room` is mapped by now. */
static int ask_thread(struct dump *d, struct dumped_process *s, struct tracee *h, struct thread *t)
{
    uint64_t at = 0;
    if (CALL(h, SYS_prctl, PR_GET_TID_ADDRESS, s->room) == 0 && tracee_read(s->pid, s->room, &at, sizeof at) == 0)
        t->clear_tid = at;
    long slack = CALL(h, SYS_prctl, PR_GET_TIMERSLACK);
    t->slack = slack > 0 ? (uint32_t)slack : 0;
    attributes_of_thread(d, s, h, t);
    return signals_thread(d, s, h, t);
}

static bool is_keeper(const char *path)
{
    struct stat one, other;
    return stat(path, &one) == 0 && stat("/proc/self/exe", &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

static void describe_from_proc(struct dump *d, struct dumped_process *s, struct process *p)
{
    struct stat_line line;
    char text[4096], path[64];
    stat_read(s->pid, &line);
    p->pid = s->pid, p->parent = line.parent, p->group = line.group, p->session = line.session, p->nice = line.nice;
    p->born = line.born;
    p->terminal = line.terminal; /* pty_join replaces it by a row */
    p->layout = (struct layout){line.start_code,  line.end_code,  line.start_data, line.end_data,  line.start_brk, 0,
                                line.start_stack, line.arg_start, line.arg_end,    line.env_start, line.env_end};
    p->umask = (uint32_t)proc_field(s->pid, "status", "Umask", 8);
    if (proc_text(s->pid, "personality", text, sizeof text))
        p->personality = (uint32_t)strtoul(text, NULL, 16);
    int fd;
    snprintf(path, sizeof path, "/proc/%d/auxv", s->pid);
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0) {
        ssize_t n = read(fd, text, sizeof text);
        if (n > 0)
            p->auxv = image_put(&d->image, text, (size_t)n);
        close(fd);
    }
    snprintf(path, sizeof path, "/proc/%d/cwd", s->pid);
    ssize_t n = readlink(path, text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    if (removed_is(path, text))
        p->directory = removed_directory(d, path, text) + 1;
    p->cwd = image_text(&d->image, text);
    snprintf(path, sizeof path, "/proc/%d/exe", s->pid);
    n = readlink(path, text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    if (is_keeper(path))
        text[n = 0] = 0; /* the restore could not set its own program as /proc/PID/exe */
    if (n > 10 && strcmp(text + n - 10, " (deleted)") == 0)
        add_unsupported(d, "the program of process %d was removed or replaced: %.200s (leave it in place)", s->pid,
                        text);
    p->exe = image_text(&d->image, text);
    if ((fd = open(text, O_RDONLY | O_CLOEXEC)) >= 0) {
        struct stat st;
        if (fstat(fd, &st) == 0 && !(st.st_mode & 0444))
            add_unsupported(d, "the program of process %d may not be read: %.200s (give it read permission)", s->pid,
                            text);
        p->exe_sum = file_sum(fd);
        p->exe_size = (uint64_t)lseek(fd, 0, SEEK_END);
        close(fd);
    }
    for (size_t i = 0; i < d->count; i++)
        if (d->processes[i].pid != s->pid && d->processes[i].count && d->processes[i].pid < s->pid) {
            if (syscall(SYS_kcmp, s->pid, d->processes[i].pid, KCMP_VM, 0, 0) == 0)
                add_unsupported(d,
                                "process %d shares its memory with process %d by vfork or clone (use fork or threads)",
                                s->pid, d->processes[i].pid);
            else if (syscall(SYS_kcmp, s->pid, d->processes[i].pid, KCMP_FILES, 0, 0) == 0)
                add_unsupported(d,
                                "process %d shares its descriptor table with process %d by clone (use fork or threads)",
                                s->pid, d->processes[i].pid);
        }
    char status[8192];
    char *at = proc_text(s->pid, "status", status, sizeof status) ? strstr(status, "\nNSpid:") : NULL;
    int inner;
    if (at && sscanf(at + 7, "%*d %d", &inner) == 1)
        add_unsupported(d, "process %d has a pid namespace of its own (run it without unshare or a container)", s->pid);
}

static void ask_process(struct dumped_process *s, struct process *p)
{
    struct tracee *h = &s->threads[0];
    int32_t value = 0;
    long brk = CALL(h, SYS_brk, 0);
    p->layout.brk = brk > 0 ? (uint64_t)brk : p->layout.start_brk;
    if (CALL(h, SYS_prctl, PR_GET_PDEATHSIG, s->room) == 0 && tracee_read(s->pid, s->room, &value, sizeof value) == 0)
        p->death_signal = value;
    if (CALL(h, SYS_prctl, PR_GET_CHILD_SUBREAPER, s->room) == 0 &&
        tracee_read(s->pid, s->room, &value, sizeof value) == 0 && value)
        p->flags |= PROCESS_SUBREAPER;
    if (CALL(h, SYS_prctl, PR_GET_DUMPABLE, 0) == 0)
        p->flags |= PROCESS_NO_DUMP;
    if (CALL(h, SYS_prctl, PR_GET_THP_DISABLE, 0) == 1)
        p->flags |= PROCESS_NO_THP;
    p->mapped = mapping_member(h);
    attributes_of_process(s, p);
}

/* Single-steps the threads out of the vdso: another kernel has another vdso. */
static void leave_vdso(struct dumped_process *s)
{
    char path[64], line[512];
    uint64_t start = 0, end = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", s->pid);
    FILE *maps = fopen(path, "re");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "[vdso]"))
            sscanf(line, "%lx-%lx", &start, &end);
    if (maps)
        fclose(maps);
    for (size_t i = 0; i < s->count && end; i++)
        tracee_leave(&s->threads[i], start, end);
}

static int describe_zombie(struct dump *d, struct dumped_process *s)
{
    struct stat_line line;
    if (!stat_read(s->pid, &line))
        return 0;
    s->row = d->image.processes.count;
    struct process *p = table_add(&d->image.processes);
    p->pid = s->pid, p->parent = line.parent, p->group = line.group, p->session = line.session;
    p->flags = PROCESS_ZOMBIE;
    p->status = line.exit_code;
    return 0;
}

int describe_process(struct dump *d, struct dumped_process *s)
{
    if (s->unseized && refuse_traced(d, s))
        return 0;
    if (!s->count)
        return describe_zombie(d, s);
    for (size_t i = 1; i < s->count; i++) /* the first thread of the process comes first */
        if (s->threads[i].tid == s->pid) {
            struct tracee leader = s->threads[i];
            s->threads[i] = s->threads[0];
            s->threads[0] = leader;
        }
    if (s->threads[0].tid != s->pid) {
        add_unsupported(d, "the first thread of process %d has exited before the others (keep it until they exit)",
                        s->pid);
        return 0;
    }
    s->row = d->image.processes.count;
    uint32_t first = d->image.threads.count;
    struct process *p = table_add(&d->image.processes);
    describe_from_proc(d, s, p);
    p = (struct process *)d->image.processes.rows + s->row;
    if (s->threads[0].stopped) {
        p->flags |= PROCESS_STOPPED;
        p->status = (uint32_t)s->threads[0].stopped;
    }
    leave_vdso(s);
    if (!(s->threads[0].call_at = find_syscall_instruction(s->pid))) {
        add_unsupported(d, "process %d has no system call instruction, by which its state would be read", s->pid);
        return 0;
    }
    for (size_t i = 0; i < s->count; i++)
        if (save_thread(d, s, i))
            return -1;
    long room = CALL(&s->threads[0], SYS_mmap, 0, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room < 0 && room > -4096) {
        errno = (int)-room;
        return set_failure(&d->failure, "mmap", "a page in the job");
    }
    s->room = (uint64_t)room;
    for (size_t i = 0; i < s->count; i++)
        if (ask_thread(d, s, &s->threads[i], (struct thread *)d->image.threads.rows + first + i))
            return -1;
    ask_process(s, (struct process *)d->image.processes.rows + s->row);
    return 0;
}

/* Makes a copy of the whole process that never runs; the process forks it itself. A helper process that shares the
 * memory forks the copy and is reaped at once: the job has no unknown child, and the copy is the keeper's child. */
int copy_process(struct dumped_process *s)
{
    struct tracee middle, *h = &s->threads[0];
    if (tracee_clone(h, &middle, CLONE_VM) < 0)
        return -1;
    pid_t copy = tracee_clone(&middle, &s->copy, 0);
    if (copy < 0)
        memset(&s->copy, 0, sizeof s->copy);
    kill(middle.tid, SIGKILL);
    waitpid(middle.tid, NULL, __WALL);
    CALL(h, SYS_wait4, middle.tid, 0, __WALL, 0);
    errno = copy < 0 ? -copy : 0;
    return copy < 0 ? -1 : 0;
}

void let_job_go(struct dump *d)
{
    for (size_t i = 0; i < d->count; i++) {
        struct dumped_process *s = &d->processes[i];
        if (s->room)
            CALL(&s->threads[0], SYS_munmap, s->room, ROOM);
        for (size_t j = 0; j < s->count; j++)
            if (s->threads[j].call_at)
                tracee_close(&s->threads[j]);
    }
    for (size_t i = 0; i < d->count; i++) {
        for (size_t j = 0; j < d->processes[i].count; j++)
            tracee_release(&d->processes[i].threads[j]);
        d->processes[i].count = 0;
    }
    unpin_cpu();
    mapping_go();
}

void drop_copies(struct dump *d)
{
    for (size_t i = 0; i < d->count; i++) {
        if (d->processes[i].self_writer)
            self_writer_end(d, &d->processes[i]);
        pid_t copy = d->processes[i].copy.tid;
        if (!copy)
            continue;
        kill(copy, SIGKILL);
        waitpid(copy, NULL, __WALL);
        d->processes[i].copy.tid = 0;
    }
}

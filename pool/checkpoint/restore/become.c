/* Turns a process that runs the keeper's code into a process of the job: restores its memory, threads and registers
 * from outside, in these steps. A room (a page of code that makes calls, pages for arguments) outside the old and the
 * new memory; the vdso aside; all old memory unmapped; new areas, contents, protection; the vdso at its place; the
 * memory layout (PR_SET_MM_MAP); our file descriptors closed; threads, each with the state that only it can set; rights
 * dropped; timers, signals; the room unmapped; registers.
 *
 * All calls are injected into the stopped process, so that all contents go straight to their place. restore.c calls it
 * for each process. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "restore/parts.h"

#define STASH (64 * PAGE)
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#define LOWEST 0x10000000ul

struct range {
    uint64_t start, end;
    char name[16];
};

static int set_call_failure(struct failure *f, const char *call, const char *text, long result)
{
    errno = (int)-result;
    return set_failure(f, call, text);
}

static bool is_error(long result) { return result < 0 && result > -4096; }

static size_t own_areas(pid_t pid, struct range **all)
{
    char path[64], line[4500];
    size_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "re");
    *all = NULL;
    while (maps && fgets(line, sizeof line, maps)) {
        struct range r = {0};
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %15s", &r.start, &r.end, r.name) < 2 || r.start >= 1ull << 47)
            continue;
        struct range *more = realloc(*all, (count + 1) * sizeof *more);
        if (!more)
            break;
        *all = more;
        more[count++] = r;
    }
    if (maps)
        fclose(maps);
    return count;
}

/* An address range that overlaps neither the process's present memory nor its restored memory. */
static uint64_t free_place(const struct restoring *r, uint32_t row, const struct range *own, size_t count,
                           uint64_t size, uint64_t at)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < count; i++)
            if (at < own[i].end && own[i].start < at + size) {
                at = own[i].end;
                moved = true;
            }
        EACH(r->image, areas, area, a)
            if (a->owner == row && at < a->end && a->start < at + size) {
                at = a->end;
                moved = true;
            }
    }
    return at;
}

static int make_room(struct restoring *r, uint32_t row, struct restored_process *b, const struct range *own,
                     size_t count, struct failure *f)
{
    struct tracee *h = &b->threads[0];
    uint64_t at = free_place(r, row, own, count, PAGE + ROOM + STASH, LOWEST);
    long done = CALL(h, SYS_mmap, at, PAGE + ROOM, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (is_error(done) || tracee_write(h->tid, at, call_code, CALL_SIZE) < 0)
        return set_call_failure(f, "mmap", "room in a new process", done);
    done = CALL(h, SYS_mprotect, at, PAGE, PROT_READ | PROT_EXEC);
    if (is_error(done))
        return set_call_failure(f, "mprotect", "room in a new process", done);
    h->call_at = at;
    b->room = at + PAGE;
    b->stash = at + PAGE + ROOM;
    return 0;
}

/* Unregisters rseq: the kernel writes to it whenever the thread is moved to another CPU, and its memory will be
 * unmapped. */
static void forget_rseq(struct tracee *h)
{
    struct rseq_place place;
    if (tracee_rseq(h, &place) == 0 && place.at)
        CALL(h, SYS_rseq, place.at, place.size, 1 /* RSEQ_FLAG_UNREGISTER */, place.signature);
}

static bool is_special(const struct range *a)
{
    return strcmp(a->name, "[vdso]") == 0 || strncmp(a->name, "[vvar", 5) == 0;
}

static int clear_memory(struct restored_process *b, struct range *own, size_t count, struct failure *f)
{
    struct tracee *h = &b->threads[0];
    uint64_t stash = b->stash;
    long done = 0;
    for (size_t i = 0; i < count && !is_error(done); i++)
        if (is_special(&own[i])) {
            uint64_t size = own[i].end - own[i].start;
            done = CALL(h, SYS_mremap, own[i].start, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, stash);
            own[i].start = stash;
            own[i].end = stash += size;
        }
    for (size_t i = 0; i < count && !is_error(done); i++)
        if (!is_special(&own[i]))
            done = CALL(h, SYS_munmap, own[i].start, own[i].end - own[i].start);
    return is_error(done) ? set_call_failure(f, "munmap", "the keeper's memory", done) : 0;
}

static bool has_contents(const struct restoring *r, const struct area *a)
{
    return r->filled[a - (struct area *)r->image->areas.rows] > 0;
}

/* Flags for mmap. Droppable memory (Linux 6.11) is neither private nor shared. */
static uint32_t area_flags(const struct area *a, int fd)
{
    const uint32_t known = MAP_PRIVATE | MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_NORESERVE;
    if (a->advice & ADVICE_DROP)
        return MAP_DROPPABLE | MAP_ANONYMOUS;
    return a->flags & known & ~(fd < 0 ? 0u : (uint32_t)MAP_ANONYMOUS);
}

/* Attaches the segment at any address, and moves the mapped part of it to its place. */
static int attach_sysv(const struct restoring *r, const struct area *a, struct tracee *h, struct failure *f)
{
    const struct file *memory = (struct file *)r->image->files.rows + a->file;
    uint64_t size = a->end - a->start, whole = (memory->size + PAGE - 1) & ~(PAGE - 1);
    long at = a->offset > whole || size > whole - a->offset
                  ? -EINVAL
                  : CALL(h, SYS_shmat, memory->number, 0,
                         (a->prot & PROT_WRITE ? 0 : SHM_RDONLY) | (a->prot & PROT_EXEC ? SHM_EXEC : 0)),
         done = at;
    if (!is_error(done))
        done = CALL(h, SYS_mremap, at + (long)a->offset, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, a->start);
    if (!is_error(done) && a->offset)
        done = CALL(h, SYS_munmap, at, a->offset);
    if (!is_error(done) && a->offset + size < whole)
        done = CALL(h, SYS_munmap, at + (long)(a->offset + size), whole - a->offset - size);
    if (!is_error(done) && !(a->prot & PROT_READ))
        done = CALL(h, SYS_mprotect, a->start, size, a->prot);
    return is_error(done) ? set_call_failure(f, "shmat", "System V shared memory", done) : 0;
}

/* The kernel makes huge pages when memory is first written, and only where that was asked before. Memory of which the
 * image has little would take more room so. */
static bool wants_huge_pages(const struct restoring *r, const struct area *a)
{
    return a->advice & ADVICE_HUGE && r->filled[a - (struct area *)r->image->areas.rows] >= (a->end - a->start) / 2;
}

static int map_areas(struct restoring *r, uint32_t row, struct restored_process *b, struct failure *f)
{
    EACH(r->image, areas, area, a) {
        if (a->owner != row || a->kind == AREA_VDSO || a->kind == AREA_VVAR)
            continue;
        if (a->kind == AREA_SYSV) {
            if (attach_sysv(r, a, &b->threads[0], f))
                return -1;
            continue;
        }
        int fd = a->file == NOBODY ? -1 : r->opened[a->file];
        int prot = (int)a->prot | (a->flags & MAP_SHARED || !has_contents(r, a) ? 0 : PROT_READ | PROT_WRITE);
        long done = CALL(&b->threads[0], SYS_mmap, a->start, a->end - a->start, prot,
                         area_flags(a, fd) | MAP_FIXED_NOREPLACE, fd, fd < 0 ? 0 : a->offset);
        if (is_error(done))
            return set_call_failure(f, "mmap",
                                    fd < 0
                                        ? "memory of the job"
                                        : image_string(r->image, ((struct file *)r->image->files.rows)[a->file].path),
                                    done);
        if (wants_huge_pages(r, a))
            CALL(&b->threads[0], SYS_madvise, a->start, a->end - a->start, MADV_HUGEPAGE);
    }
    return 0;
}

static void advise_area(struct tracee *h, const struct area *a)
{
    static const struct {
        uint32_t bit;
        int advice;
    } known[] = {{ADVICE_HUGE, MADV_HUGEPAGE},         {ADVICE_NO_HUGE, MADV_NOHUGEPAGE},
                 {ADVICE_NO_FORK, MADV_DONTFORK},      {ADVICE_NO_DUMP, MADV_DONTDUMP},
                 {ADVICE_WIPE, MADV_WIPEONFORK},       {ADVICE_RANDOM, MADV_RANDOM},
                 {ADVICE_SEQUENTIAL, MADV_SEQUENTIAL}, {ADVICE_MERGEABLE, MADV_MERGEABLE}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (a->advice & known[i].bit)
            CALL(h, SYS_madvise, a->start, a->end - a->start, known[i].advice);
    if (a->advice & ADVICE_LOCKED) /* fails beyond the job's limit */
        CALL(h, SYS_mlock2, a->start, a->end - a->start, a->advice & ADVICE_ON_FAULT ? MLOCK_ONFAULT : 0);
}

static int protect_areas(struct restoring *r, uint32_t row, struct restored_process *b, struct failure *f)
{
    EACH(r->image, areas, area, a) {
        if (a->owner != row || a->kind == AREA_VDSO || a->kind == AREA_VVAR)
            continue;
        if (!(a->flags & MAP_SHARED) && (~a->prot & (PROT_READ | PROT_WRITE)) && has_contents(r, a)) {
            long done = CALL(&b->threads[0], SYS_mprotect, a->start, a->end - a->start, a->prot);
            if (is_error(done))
                return set_call_failure(f, "mprotect", "memory of the job", done);
        }
        if (a->advice & ADVICE_DROP)
            CALL(&b->threads[0], SYS_madvise, a->start, a->end - a->start, MADV_DONTNEED);
        else if (a->advice)
            advise_area(&b->threads[0], a);
    }
    EACH(r->image, guards, guard, g) {
        long done =
            g->owner == row ? CALL(&b->threads[0], SYS_madvise, g->start, g->end - g->start, MADV_GUARD_INSTALL) : 0;
        if (is_error(done))
            return set_call_failure(f, "madvise", "guard pages of the job", done);
    }
    return 0;
}

static int move_special(struct restored_process *b, const struct range *own, size_t count, uint64_t by,
                        struct failure *f)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t size = own[i].end - own[i].start;
        long done = is_special(&own[i]) ? CALL(&b->threads[0], SYS_mremap, own[i].start, size, size,
                                               MREMAP_MAYMOVE | MREMAP_FIXED, own[i].start + by)
                                        : 0;
        if (is_error(done))
            return set_call_failure(f, "mremap", "vdso", done);
    }
    return 0;
}

/* The job had another kernel's vdso: its bytes stay, and its functions jump to this kernel's vdso, which is moved to
 * free memory after the room. */
static int redirect_vdso(struct restoring *r, uint32_t row, struct restored_process *b, const struct range *own,
                         size_t count, const struct area *old, const struct range *new, const void *bytes,
                         struct failure *f)
{
    static unsigned char changed[STASH];
    struct tracee *h = &b->threads[0];
    uint64_t size = old->end - old->start, place = free_place(r, row, own, count, STASH, b->stash + STASH);
    if (size > sizeof changed ||
        vdso_redirect(r, old, bytes, new->end - new->start, new->start - b->stash + place, changed, f))
        return size > sizeof changed ? set_failure(f, "restore", "vdso") : -1;
    long done = CALL(h, SYS_mmap, old->start, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (!is_error(done) && tracee_write(h->tid, old->start, changed, size) < 0)
        done = -EFAULT;
    if (!is_error(done))
        done = CALL(h, SYS_mprotect, old->start, size, old->prot);
    return is_error(done) ? set_call_failure(f, "mmap", "vdso", done)
                          : move_special(b, own, count, place - b->stash, f);
}

/* Restores the vdso (the kernel's page of code) at its address: libraries have pointers into it. */
static int place_vdso(struct restoring *r, uint32_t row, struct restored_process *b, const struct range *own,
                      size_t count, struct failure *f)
{
    static unsigned char here[STASH];
    const struct area *old = NULL;
    const struct range *new = NULL;
    EACH(r->image, areas, area, a)
        if (a->owner == row && a->kind == AREA_VDSO)
            old = a;
    for (size_t i = 0; i < count; i++)
        if (strcmp(own[i].name, "[vdso]") == 0)
            new = &own[i];
    if (!old)
        return 0;
    uint64_t size = old->end - old->start;
    if (!new || new->end - new->start > sizeof here ||
        tracee_read(b->threads[0].tid, new->start, here, new->end - new->start) < 0) {
        errno = ENOEXEC;
        return set_failure(f, "restore", "the kernel's own code page (vdso)\nthis kernel has none");
    }
    bool same = new->end - new->start == size && !(settings.without & ABLE_SAME_VDSO);
    EACH(r->image, extents, extent, e)
        if (same && e->file == NOBODY && e->owner == row && e->at >= old->start && e->at + e->size <= old->end) {
            const char *was = extent_read(&r->in, e);
            same = was && memcmp(here + (e->at - old->start), was, e->size) == 0;
        }
    return same ? move_special(b, own, count, old->start - new->start, f)
                : redirect_vdso(r, row, b, own, count, old, new, here, f);
}

static int set_layout(struct restoring *r, uint32_t row, struct restored_process *b, struct failure *f)
{
    const struct process *p = (struct process *)r->image->processes.rows + row;
    struct tracee *h = &b->threads[0];
    const struct layout *l = &p->layout;
    struct prctl_mm_map map = {l->start_code,  l->end_code,
                               l->start_data,  l->end_data,
                               l->start_brk,   l->brk,
                               l->start_stack, l->arg_start,
                               l->arg_end,     l->env_start,
                               l->env_end,     (void *)(uintptr_t)(b->room + 4096),
                               p->auxv.size,   (uint32_t)r->programs[row]};
    if (tracee_write(h->tid, b->room, &map, sizeof map) < 0 ||
        (p->auxv.size && tracee_write(h->tid, b->room + 4096, image_bytes(r->image, p->auxv), p->auxv.size) < 0))
        return set_failure(f, "write", "room in a new process");
    long done = CALL(h, SYS_prctl, PR_SET_MM, PR_SET_MM_MAP, b->room, sizeof map, 0);
    return is_error(done) ? set_call_failure(f, "prctl", "the layout of memory", done) : 0;
}

static int make_threads(struct restoring *r, uint32_t row, struct restored_process *b, struct failure *f)
{
    struct {
        struct clone_args args;
        pid_t tid;
    } place;
    EACH(r->image, threads, thread, t) {
        if (t->owner != row || t->tid == b->threads[0].tid)
            continue;
        struct tracee *more = realloc(b->threads, (b->count + 1) * sizeof *more);
        if (!more)
            return set_failure(f, "malloc", "threads");
        b->threads = more;
        memset(&place, 0, sizeof place);
        place.args.flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
        place.args.set_tid = b->room + offsetof(__typeof__(place), tid);
        place.args.set_tid_size = 1;
        place.tid = t->tid;
        if (tracee_write(more[0].tid, b->room, &place, sizeof place) < 0)
            return set_failure(f, "write", "room in a new process");
        pid_t tid = tracee_clone3(&more[0], &more[b->count], b->room, sizeof place.args);
        if (tid < 0)
            return set_call_failure(f, "clone", "a thread under its number", tid);
        b->count++;
    }
    return 0;
}

static int drop_rights(struct restoring *r, struct tracee *h, uint64_t room, struct failure *f)
{
    const struct start *s = r->job->start;
    uint32_t keep = (uint32_t)rights_kept(r->job);
    struct {
        struct __user_cap_header_struct head;
        struct __user_cap_data_struct sets[2];
    } caps = {{_LINUX_CAPABILITY_VERSION_3, 0}, {{0}}};
    long done = 0;
    if (s->flags & FLAG_GROUPS) {
        if (s->groups * sizeof(uint32_t) > ROOM ||
            (s->groups && tracee_write(h->tid, room, r->job->groups, s->groups * sizeof(uint32_t)) < 0))
            return set_failure(f, "setgroups", "");
        done = CALL(h, SYS_setgroups, s->groups, room);
    }
    if (!is_error(done) && s->gid != getgid())
        done = CALL(h, SYS_setresgid, s->gid, s->gid, s->gid);
    if (!is_error(done) && s->uid != getuid())
        done = CALL(h, SYS_setresuid, s->uid, s->uid, s->uid);
    if (!is_error(done))
        done = CALL(h, SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (keep && tracee_write(h->tid, room, &caps, sizeof caps) == 0 && CALL(h, SYS_capget, room, room + 8) == 0 &&
        tracee_read(h->tid, room, &caps, sizeof caps) == 0)
        keep &= caps.sets[0].permitted;
    memset(caps.sets, 0, sizeof caps.sets);
    caps.sets[0].permitted = caps.sets[0].effective = keep;
    if (!is_error(done) && tracee_write(h->tid, room, &caps, sizeof caps) < 0)
        done = -EFAULT;
    if (!is_error(done))
        done = CALL(h, SYS_capset, room, room + 8);
    return is_error(done) ? set_call_failure(f, "setuid", "the job's rights", done) : 0;
}

static int install_filter(struct restoring *r, struct tracee *h, uint64_t room, struct failure *f)
{
    size_t count;
    const void *code = filter_code(r->job, &count);
    struct {
        uint16_t length, pad[3];
        uint64_t code;
    } program = {(uint16_t)count, {0}, room + 64};
    if (!code)
        return 0;
    if (count * 8 > ROOM - 64 || tracee_write(h->tid, room, &program, sizeof program) < 0 ||
        tracee_write(h->tid, room + 64, code, count * 8) < 0)
        return set_failure(f, "seccomp", "");
    long done = CALL(h, SYS_prctl, PR_SET_SECCOMP, 2 /* SECCOMP_MODE_FILTER */, room);
    return is_error(done) ? set_call_failure(f, "seccomp", "", done) : 0;
}

static int restore_thread(const struct thread *t, struct tracee *h, uint64_t room, struct failure *f)
{
    struct {
        uint64_t at;
        int32_t flags, pad;
        uint64_t size;
    } stack = {t->alt_at, t->alt_size ? (int32_t)t->alt_flags : SS_DISABLE, 0,
               t->alt_size}; /* a sanitized keeper has one */
    long done = 0;
    tracee_write(h->tid, room, t->name, sizeof t->name);
    CALL(h, SYS_prctl, PR_SET_NAME, room);
    if (t->slack)
        CALL(h, SYS_prctl, PR_SET_TIMERSLACK, t->slack);
    CALL(h, SYS_set_tid_address, t->clear_tid);
    CALL(h, SYS_set_robust_list, t->robust, t->robust ? t->robust_size : 24);
    if (tracee_write(h->tid, room, &stack, sizeof stack) < 0)
        return set_failure(f, "write", "room in a new process");
    done = CALL(h, SYS_sigaltstack, room, 0);
    if (is_error(done))
        return set_call_failure(f, "sigaltstack", "", done);
    if (t->rseq_at)
        done = CALL(h, SYS_rseq, t->rseq_at, t->rseq_size, 0, t->rseq_signature);
    return is_error(done) ? set_call_failure(f, "rseq", "", done) : 0;
}

/* The thread sets it itself, with its own rights. If those do not allow it, the thread runs with the default policy. */
static void set_policy(const struct thread *t, struct tracee *h, uint64_t room)
{
    struct sched_param param = {t->priority};
    if (t->policy != SCHED_OTHER && tracee_write(h->tid, room, &param, sizeof param) == 0)
        CALL(h, SYS_sched_setscheduler, h->tid, t->policy, room);
}

/* The hard limit that the machine sets, as for a job that starts (keeper/exec.c). A job may have lowered its limits,
 * and no image raises them. */
static uint64_t most_of(const struct start *s, int which)
{
    switch (which) {
    case RLIMIT_CPU:
        return s->cpu == UNLIMITED ? UNLIMITED : s->cpu + 5;
    case RLIMIT_CORE:
        return s->core;
    case RLIMIT_FSIZE:
        return s->fsize;
    case RLIMIT_NOFILE:
        return s->nofile;
    case RLIMIT_NPROC:
        return s->uid != getuid() ? s->processes : UNLIMITED;
    default:
        return UNLIMITED;
    }
}

/* The process sets them itself: its user may differ from the keeper's. */
static void set_limits(struct restoring *r, const struct process *p, struct tracee *h, uint64_t room)
{
    for (int i = 0; i < 16; i++) {
        uint64_t most = most_of(r->job->start, i);
        struct rlimit now, wanted = {p->limits[i][0], p->limits[i][1]};
        if (prlimit(h->tid, (__rlimit_resource_t)i, NULL, &now) < 0 && getrlimit((__rlimit_resource_t)i, &now) < 0)
            continue;
        if (wanted.rlim_max > now.rlim_max)
            wanted.rlim_max = now.rlim_max;
        if (most != UNLIMITED && wanted.rlim_max > most)
            wanted.rlim_max = most;
        if (wanted.rlim_cur > wanted.rlim_max)
            wanted.rlim_cur = wanted.rlim_max;
        if (tracee_write(h->tid, room, &wanted, sizeof wanted) == 0)
            CALL(h, SYS_prlimit64, 0, i, room, 0);
    }
}

static const struct thread *thread_row(const struct image *image, uint32_t row, pid_t tid)
{
    EACH(image, threads, thread, t)
        if (t->owner == row && t->tid == tid)
            return t;
    return NULL;
}

static int restore_attributes(struct restoring *r, uint32_t row, struct restored_process *b, struct failure *f)
{
    const struct process *p = (struct process *)r->image->processes.rows + row;
    struct tracee *leader = &b->threads[0];
    for (size_t i = 0; i < b->count; i++)
        if (restore_thread(thread_row(r->image, row, b->threads[i].tid), &b->threads[i], b->room, f) ||
            drop_rights(r, &b->threads[i], b->room, f))
            return -1;
    for (size_t i = 0; i < b->count; i++)
        set_policy(thread_row(r->image, row, b->threads[i].tid), &b->threads[i], b->room);
    if (p->death_signal)
        CALL(leader, SYS_prctl, PR_SET_PDEATHSIG, p->death_signal);
    if (p->flags & PROCESS_SUBREAPER)
        CALL(leader, SYS_prctl, PR_SET_CHILD_SUBREAPER, 1);
    if (p->flags & PROCESS_NO_THP)
        CALL(leader, SYS_prctl, PR_SET_THP_DISABLE, 1, 0, 0, 0);
    CALL(leader, SYS_prctl, PR_SET_DUMPABLE, !(p->flags & PROCESS_NO_DUMP));
    if (signals_restore(r, row, b->threads, b->count, b->room, f))
        return -1;
    set_limits(r, p, leader, b->room);
    attributes_restore_process(p, leader, b->room);
    file_settings_restore_owners(r, row, leader, b->room);
    for (size_t i = 0; i < b->count; i++)
        if (attributes_restore_thread(r, thread_row(r->image, row, b->threads[i].tid), &b->threads[i], b->room, f))
            return -1;
    for (size_t i = 0; i < (p->mapped ? 1 : b->count); i++)
        if (install_filter(r, &b->threads[i], b->room, f))
            return -1;
    return p->mapped ? mapping_restore_filter(r, row, leader, b->room, f) : 0;
}

/* The last injected call unmaps the instruction that makes it: the thread is stopped before it executes another. */
static int restore_registers(struct restoring *r, uint32_t row, struct restored_process *b, struct failure *f)
{
    struct user_regs_struct *all = calloc(b->count, sizeof *all);
    for (size_t i = 0; all && i < b->count; i++) {
        const struct thread *t = thread_row(r->image, row, b->threads[i].tid);
        if (t->registers.size != sizeof *all) {
            free(all);
            errno = EBADMSG;
            return set_failure(f, "read", "registers");
        }
        memcpy(&all[i], image_bytes(r->image, t->registers), sizeof *all);
        timeouts_restore(t, &b->threads[i], b->room, &all[i]);
    }
    long done = !all ? -ENOMEM : CALL(&b->threads[0], SYS_munmap, b->room - PAGE, PAGE + ROOM + STASH);
    if (is_error(done))
        return set_call_failure(f, "munmap", "room in a new process", done);
    proc_files_seek(r, row, &b->threads[0]);
    int left = 0;
    for (size_t i = 0; i < b->count && !left; i++) {
        const struct thread *t = thread_row(r->image, row, b->threads[i].tid);
        left = tracee_become(&b->threads[i], &all[i], image_bytes(r->image, t->xstate), t->xstate.size, t->mask);
    }
    free(all);
    return left < 0 ? set_failure(f, "ptrace", "registers") : 0;
}

int become_process(struct restoring *r, uint32_t row, struct restored_process *b, struct failure *f)
{
    struct tracee *h = &b->threads[0];
    struct range *own;
    size_t count = own_areas(h->tid, &own);
    if (!thread_row(r->image, row, h->tid)) {
        errno = EBADMSG;
        return set_failure(f, "read", "threads");
    }
    int done = make_room(r, row, b, own, count, f);
    if (!done) {
        forget_rseq(h);
        CALL(h, SYS_set_robust_list, 0, 24);
    }
    if (done || clear_memory(b, own, count, f) || map_areas(r, row, b, f) || fill_memory(r, row, h, f) ||
        protect_areas(r, row, b, f) || place_vdso(r, row, b, own, count, f) || set_layout(r, row, b, f))
        done = -1;
    free(own);
    if (done)
        return -1;
    long closed = CALL(h, SYS_close_range, r->base, ~0u, 0);
    if (is_error(closed))
        return set_call_failure(f, "close", "descriptors of the keeper", closed);
    return locks_of_process(r, row, h, b->room, f) || make_threads(r, row, b, f) || restore_attributes(r, row, b, f) ||
                   proc_files_open(r, row, &b->threads[0], b->room, f) || restore_registers(r, row, b, f)
               ? -1
               : 0;
}

/* Watches of inotify: finds the names of watched files, and restores the watches with the same numbers. The kernel
 * reports inode and file system of a watched file, not its name. The name is searched among the files that the job has
 * open or mapped, its current directories, their parent directories, and in its own trees. A name is right if a watch
 * of ours on it shows the same inode and file system. Unread events cannot be restored: the job is frozen at a moment
 * when it has read all of them (dump/quiet_moment.c), or refused. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state/state.h"

#define NAMES_MOST 200000u /* names examined in its trees while it is frozen */
#define FILLER IN_DELETE_SELF
#define KEPT (IN_ALL_EVENTS | IN_EXCL_UNLINK | IN_ONESHOT)

struct sought {
    uint64_t inode;
    uint32_t device, row; /* device: in the kernel's encoding; row: of the image's table */
};
struct search {
    struct dump *d;
    struct table sought; /* sorted by inode */
    uint32_t left, names;
    int probe; /* an inotify of ours */
};

static int by_inode(const void *a, const void *b)
{
    const struct sought *x = a, *y = b;
    return (x->inode > y->inode) - (x->inode < y->inode);
}

static int by_number(const void *a, const void *b)
{
    const struct inotify_watch *x = a, *y = b;
    return x->file != y->file ? (x->file > y->file) - (x->file < y->file)
                              : (x->number > y->number) - (x->number < y->number);
}

static bool parse(const char *line, struct inotify_watch *w, struct sought *s)
{
    unsigned number, device, mask;
    unsigned long inode;
    if (sscanf(line, "inotify wd:%x ino:%lx sdev:%x mask:%x", &number, &inode, &device, &mask) != 4)
        return false;
    w->number = (int32_t)number;
    w->mask = mask & KEPT;
    s->inode = inode;
    s->device = device;
    return true;
}

static struct inotify_watch *row_at(struct search *z, const struct sought *s)
{
    return (struct inotify_watch *)z->d->image.inotify.rows + s->row;
}

/* Adds a watch of ours on the path, and reads the inode and device that it shows. */
static bool shown(struct search *z, const char *path, uint32_t how, struct sought *s)
{
    char name[64], line[512];
    struct inotify_watch w;
    int number = inotify_add_watch(z->probe, path, FILLER | how);
    bool found = false;
    if (number < 0)
        return false;
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", z->probe);
    FILE *f = fopen(name, "re");
    while (f && !found && fgets(line, sizeof line, f))
        found = parse(line, &w, s) && w.number == number;
    if (f)
        fclose(f);
    inotify_rm_watch(z->probe, number);
    return found;
}

/* Examines a path with that inode; `target`: the row of an open file if the path has no name of its own. */
static void offer(struct search *z, const char *path, uint64_t inode, uint32_t target)
{
    struct sought *all = z->sought.rows, is;
    uint32_t low = 0, high = z->sought.count;
    bool asked = false;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (all[middle].inode < inode)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < z->sought.count && all[low].inode == inode; low++) {
        if (row_at(z, &all[low])->path.size || row_at(z, &all[low])->target != NOBODY)
            continue;
        if (!asked && !shown(z, path, target == NOBODY ? IN_DONT_FOLLOW : 0, &is))
            return;
        asked = true;
        if (is.inode != inode || is.device != all[low].device)
            continue;
        struct span text = target == NOBODY ? image_text(&z->d->image, path) : (struct span){0};
        row_at(z, &all[low])->path = text;
        row_at(z, &all[low])->target = target;
        z->left--;
    }
}

/* Examines a path and all its parent directories. */
static void offer_path(struct search *z, const char *name)
{
    char path[4200];
    struct stat st;
    copy_text(path, sizeof path, name);
    for (char *slash; z->left && path[0] == '/'; *slash = 0) {
        if (lstat(path, &st) == 0)
            offer(z, path, st.st_ino, NOBODY);
        slash = strrchr(path, '/');
        if (slash == path) {
            if (lstat("/", &st) == 0)
                offer(z, "/", st.st_ino, NOBODY);
            return;
        }
    }
}

static void offer_open(struct search *z)
{
    struct image *image = &z->d->image;
    char link[64], name[4200];
    for (size_t i = 0; i < z->d->count && z->left; i++) {
        snprintf(link, sizeof link, "/proc/%d/cwd", z->d->processes[i].pid);
        ssize_t n = readlink(link, name, sizeof name - 1);
        name[n < 0 ? 0 : n] = 0;
        offer_path(z, name);
    }
    for (uint32_t i = 0; i < image->files.count && z->left; i++) {
        const struct file *f = (struct file *)image->files.rows + i;
        const struct sample *sample = (struct sample *)z->d->samples.rows + i;
        if (f->kind == FILE_PLAIN || f->kind == FILE_MAPPED) {
            copy_text(name, sizeof name, image_string(image, f->path));
            offer_path(z, name);
        } else if (f->kind == FILE_MEMORY && sample->fd >= 0) {
            snprintf(link, sizeof link, "/proc/%d/fd/%d", sample->pid, sample->fd);
            offer(z, link, f->inode, i);
        }
    }
}

/* Lists directories breadth-first, so that of a tree that is too large at least the top is examined. */
static void offer_tree(struct search *z, const char *top)
{
    struct table directories = {.size = sizeof(char *)};
    struct stat root, st;
    char path[4200];
    if (!*top || lstat(top, &root) < 0)
        return;
    *(char **)table_add(&directories) = strdup(top);
    for (uint32_t i = 0; i < directories.count; i++) {
        char *directory = ((char **)directories.rows)[i];
        int fd = directory && z->left && z->names < NAMES_MOST
                     ? open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                     : -1;
        DIR *dir = fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == root.st_dev ? fdopendir(fd) : NULL;
        for (struct dirent *e; dir && z->left && z->names++ < NAMES_MOST && (e = readdir(dir));) {
            if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
                snprintf(path, sizeof path, "%s/%s", strcmp(directory, "/") ? directory : "", e->d_name) >=
                    (int)sizeof path)
                continue;
            offer(z, path, e->d_ino, NOBODY);
            if (e->d_type == DT_DIR || e->d_type == DT_UNKNOWN)
                *(char **)table_add(&directories) = strdup(path);
        }
        if (dir)
            closedir(dir);
        else if (fd >= 0)
            close(fd);
        free(directory);
    }
    free(directories.rows);
}

static bool has_read(struct dump *d, const struct sample *sample)
{
    int waiting = 0;
    for (size_t i = 0; i < d->count; i++) {
        struct dumped_process *s = &d->processes[i];
        if (s->pid == sample->pid && s->room && CALL(&s->threads[0], SYS_ioctl, sample->fd, FIONREAD, s->room) == 0)
            tracee_read(s->pid, s->room, &waiting, sizeof waiting);
    }
    return !waiting;
}

static void list_watches(struct search *z, uint32_t file)
{
    struct dump *d = z->d;
    const struct sample *sample = (struct sample *)d->samples.rows + file;
    char name[64];
    if (!has_read(d, sample))
        add_unsupported(d, "descriptor %d of process %d is an inotify with unread events (let the program read them)",
                        sample->fd, sample->pid);
    snprintf(name, sizeof name, "fdinfo/%d", sample->fd);
    char *text = proc_whole(sample->pid, name);
    for (char *line = text ? strtok(text, "\n") : NULL; line; line = strtok(NULL, "\n")) {
        struct inotify_watch w = {.file = file, .target = NOBODY};
        struct sought s;
        if (!parse(line, &w, &s))
            continue;
        if (w.number < 1 || w.number > INOTIFY_MOST) {
            add_unsupported(
                d, "descriptor %d of process %d is an inotify that has had more than %u watches (open a new one)",
                sample->fd, sample->pid, INOTIFY_MOST);
            continue;
        }
        s.row = d->image.inotify.count;
        *(struct inotify_watch *)table_add(&d->image.inotify) = w;
        *(struct sought *)table_add(&z->sought) = s;
    }
}

void inotify_join(struct dump *d)
{
    struct search z = {.d = d, .sought = {.size = sizeof(struct sought)}};
    for (uint32_t i = 0; i < d->image.files.count; i++)
        if (((struct file *)d->image.files.rows)[i].kind == FILE_INOTIFY)
            list_watches(&z, i);
    if (!z.sought.count)
        return;
    z.left = z.sought.count;
    z.probe = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    qsort(z.sought.rows, z.sought.count, sizeof(struct sought), by_inode);
    offer_open(&z);
    offer_tree(&z, scratch_path(d->job));
    offer_tree(&z, "/tmp");
    char link[64], name[4200];
    for (size_t i = 0; i < d->count && z.left; i++) {
        snprintf(link, sizeof link, "/proc/%d/cwd", d->processes[i].pid);
        ssize_t n = readlink(link, name, sizeof name - 1);
        name[n < 0 ? 0 : n] = 0;
        offer_tree(&z, name);
    }
    EACH(&d->image, inotify, inotify_watch, w) {
        const struct sample *sample = (struct sample *)d->samples.rows + w->file;
        if (!w->path.size && w->target == NOBODY)
            add_unsupported(d,
                            "descriptor %d of process %d watches a file that is neither open nor in the job's "
                            "directories, by inotify (watch files there)",
                            sample->fd, sample->pid);
    }
    qsort(d->image.inotify.rows, d->image.inotify.count, sizeof(struct inotify_watch), by_number);
    if (z.probe >= 0)
        close(z.probe);
    free(z.sought.rows);
}

/* The kernel numbers watches upwards. The numbers in between are used for a file that nobody else watches, and removed;
 * each removal queues an event, which is read. */
static int count_to(int fd, int filler, int32_t *last, int32_t number)
{
    char path[64], told[4096];
    snprintf(path, sizeof path, "/proc/self/fd/%d", filler);
    for (int waiting = 0; *last < number; waiting = 0) {
        *last = inotify_add_watch(fd, path, FILLER);
        if (*last < 0 || inotify_rm_watch(fd, *last) < 0)
            return -1;
        while (ioctl(fd, FIONREAD, &waiting) == 0 && waiting && (*last == number || waiting > (int)sizeof told / 2))
            if (read(fd, told, sizeof told) <= 0)
                return -1;
    }
    return 0;
}

static int restore_watch(struct restoring *r, const struct inotify_watch *w, int filler, int32_t *last,
                         struct failure *f)
{
    char path[4200];
    int fd = r->opened[w->file];
    if (w->target != NOBODY)
        snprintf(path, sizeof path, "/proc/self/fd/%d", r->opened[w->target]);
    else
        moved_path(r->image, r->job, image_string(r->image, w->path), path, sizeof path);
    if (count_to(fd, filler, last, w->number - 1))
        return set_failure(f, "watch", path);
    *last = inotify_add_watch(fd, path, w->mask | (w->target == NOBODY ? IN_DONT_FOLLOW : 0));
    if (*last >= 0 && *last != w->number)
        errno = EBADMSG;
    return *last != w->number ? set_failure(f, "watch", path) : 0;
}

/* Called last, when we change the job's files no more, so that it gets no events of ours. Runs with the job's
 * rights. */
int inotify_restore(struct restoring *r, struct failure *f)
{
    struct failure back;
    int32_t last = 0;
    uint32_t file = NOBODY;
    if (!r->image->inotify.count)
        return 0;
    for (uint32_t i = 0; i < r->image->files.count; i++)
        if (((struct file *)r->image->files.rows)[i].kind == FILE_MAPPED && r->opened[i] >= 0)
            close(r->opened[i]);
    for (uint32_t i = 0; i < r->image->processes.count; i++)
        if (r->programs[i] >= 0)
            close(r->programs[i]);
    if (rights_as_job(r->job, true, f))
        return -1;
    int filler = memfd_create("", MFD_CLOEXEC), done = filler < 0 ? set_failure(f, "memfd_create", "") : 0;
    EACH(r->image, inotify, inotify_watch, w) {
        if (w->file != file)
            last = 0;
        file = w->file;
        done = done || restore_watch(r, w, filler, &last, f) ? -1 : 0;
    }
    if (filler >= 0)
        close(filler);
    return rights_as_job(r->job, false, done ? &back : f) || done ? -1 : 0;
}

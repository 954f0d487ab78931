/* An unpacked image as a job's root: a directory of this machine, read-only, replaces the system's own tree. The root
 * is a small file system into which each entry of the directory is mounted, so that /dev, /proc, /tmp and the scratch
 * directory exist even if the image lacks them. The directory is opened with the job's rights: a user cannot see, by
 * naming it, a directory that he may not enter. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "sandbox/sandbox.h"

/* Mount point of the image while its entries are mounted into the root. */
#define IMAGE ".image"

/* The job has its own of these, whatever the image has there. */
static const char *const own[] = {"dev", "proc", "sys", "tmp", "job"};
/* The machine's files replace the image's: without them the job resolves no host names. */
static const char *const resolving[] = {"etc/resolv.conf", "etc/hosts"};

static bool is_own(const char *name)
{
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0)
            return true;
    return false;
}

/* Directories of the machine that are no images: programs listen on sockets there, which a job could reach by name. */
static const char *const machine_trees[] = {"/run", "/dev"};
static const char *const machine_directories[] = {"/", "/tmp", "/var", "/var/tmp"};

static bool is_machines(const char *real)
{
    for (size_t i = 0; i < sizeof machine_trees / sizeof *machine_trees; i++)
        if (path_is_under(real, machine_trees[i]))
            return true;
    for (size_t i = 0; i < sizeof machine_directories / sizeof *machine_directories; i++)
        if (strcmp(real, machine_directories[i]) == 0)
            return true;
    return false;
}

/* Whether the image contains, or lies in, a directory that is hidden from jobs: the node's own, or other jobs'. */
static bool holds_hidden(const struct job *job, int directory)
{
    char name[64], real[4096], hidden[4096], own_place[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", directory);
    ssize_t n = readlink(name, real, sizeof real - 1);
    if (n <= 0)
        return true;
    real[n] = 0;
    /* the node names it without symbolic links, and its jobs see nothing around it */
    if (job->start->flags & FLAG_KEPT_ROOT)
        return strcmp(real, job->root) != 0;
    bool scratch = *job->scratch && realpath(job->scratch, own_place) && path_is_under(real, own_place);
    for (uint32_t i = 0; i <= job->start->hides; i++) {
        const char *path = i < job->start->hides ? job->hide[i] : settings.directory;
        if (!realpath(path, hidden))
            continue;
        if (path_is_under(hidden, real) || (path_is_under(real, hidden) && !scratch))
            return true;
    }
    return !scratch && is_machines(real);
}

/* /proc and /sys are no images: through the host's /proc a job reaches other processes' files. */
static bool is_files(int directory)
{
    struct statfs found;
    return fstatfs(directory, &found) == 0 && found.f_type != PROC_SUPER_MAGIC && found.f_type != SYSFS_MAGIC;
}

/* Without the mounts below the directory, which are not part of the image. */
int image_take(const struct job *job, struct failure *f)
{
    struct mount_attr quiet = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    if (rights_as_job(job, true, f))
        return -1;
    int directory = open(job->root, O_PATH | O_DIRECTORY | O_CLOEXEC), err = errno;
    if (rights_as_job(job, false, f))
        return -1;
    errno = err;
    if (directory < 0)
        return set_failure(f, "open image", job->root);
    if (!is_files(directory) || holds_hidden(job, directory)) {
        close(directory);
        errno = EPERM;
        return set_failure(f, "open image", job->root);
    }
    int tree = (int)syscall(SYS_open_tree, directory, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    close(directory);
    if (tree < 0)
        return set_failure(f, "open_tree", job->root);
    if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &quiet, sizeof quiet) < 0)
        return set_failure(f, "mount_setattr", job->root);
    return tree;
}

static int bind(const char *from, const char *to, struct failure *f)
{
    return mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0 ? set_failure(f, "bind", to) : 0;
}

/* Mounts an entry of the image, which its user may change at any time. It follows no symbolic link at either end: a
 * name replaced by a link since the check would lead out of the image, to files that are hidden from the job. */
static int show_path(int from_links, const char *from, const char *to, struct failure *f)
{
    unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (unsigned)from_links;
    int tree = (int)syscall(SYS_open_tree, AT_FDCWD, from, flags);
    if (tree < 0)
        return set_failure(f, "open_tree", from);
    int done = syscall(SYS_move_mount, tree, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH) < 0
                   ? set_failure(f, "move_mount", to)
                   : 0;
    close(tree);
    return done;
}

static int show_entry(const char *name, struct failure *f)
{
    char from[300], link[4096];
    struct stat st;
    snprintf(from, sizeof from, IMAGE "/%.250s", name);
    if (lstat(from, &st) < 0)
        return set_failure(f, "stat", from);
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(from, link, sizeof link - 1);
        link[n < 0 ? 0 : n] = 0;
        return symlink(link, name) < 0 ? set_failure(f, "symlink", name) : 0;
    }
    if (S_ISDIR(st.st_mode))
        return mkdir(name, 0755) < 0 ? set_failure(f, "mkdir", name) : show_path(AT_SYMLINK_NOFOLLOW, from, name, f);
    if (!S_ISREG(st.st_mode))
        return 0;
    int fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0)
        return set_failure(f, "create", name);
    close(fd);
    return show_path(AT_SYMLINK_NOFOLLOW, from, name, f);
}

static int show_all(struct failure *f)
{
    DIR *all = opendir(IMAGE);
    int done = all ? 0 : set_failure(f, "open", "the image");
    for (struct dirent *e; !done && all && (e = readdir(all));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, IMAGE) && !is_own(e->d_name))
            done = show_entry(e->d_name, f);
    if (all)
        closedir(all);
    return done;
}

/* The target must be a regular file of the image: a link in the image may lead anywhere. */
static int show_resolving(struct failure *f)
{
    for (size_t i = 0; i < sizeof resolving / sizeof *resolving; i++) {
        char from[64];
        struct stat st;
        snprintf(from, sizeof from, "/%s", resolving[i]);
        if (lstat("etc", &st) < 0 || !S_ISDIR(st.st_mode) || lstat(resolving[i], &st) < 0 || !S_ISREG(st.st_mode))
            continue;
        if (access(from, R_OK) == 0 && show_path(0, from, resolving[i], f))
            return -1;
    }
    return 0;
}

static int build_root(int image, struct failure *f)
{
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (mkdir(own[i], 0755) < 0)
            return set_failure(f, "mkdir", own[i]);
    if (mkdir(IMAGE, 0755) < 0 || syscall(SYS_move_mount, image, "", AT_FDCWD, IMAGE, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return set_failure(f, "move_mount", "the image");
    if (show_all(f) || show_resolving(f) || bind("/dev", "dev", f) || bind("/proc", "proc", f))
        return -1;
    if (access("/sys", F_OK) == 0 && bind("/sys", "sys", f))
        return -1;
    return umount2(IMAGE, MNT_DETACH) < 0 || rmdir(IMAGE) < 0 ? set_failure(f, "umount", "the image") : 0;
}

int image_enter(int image, struct failure *f)
{
    int old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (old < 0 || mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") < 0 || chdir("/tmp") < 0)
        return set_failure(f, "mount", "the image's root");
    int done = build_root(image, f);
    close(image);
    if (done)
        return -1;
    if (syscall(SYS_pivot_root, ".", ".") < 0)
        return set_failure(f, "pivot_root", "the image's root");
    /* Both roots are now mounted on top of each other; this unmounts the old one (pivot_root(2)). */
    if (fchdir(old) < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return set_failure(f, "umount", "the old root");
    close(old);
    return 0;
}

int image_close(struct failure *f)
{
    struct mount_attr a = {.attr_set = MOUNT_ATTR_RDONLY};
    return syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &a, sizeof a) < 0 ? set_failure(f, "mount_setattr", "/") : 0;
}

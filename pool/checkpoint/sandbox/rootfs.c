/* The file tree of isolation `full`: the system's directories, read-only, and a few devices; no user's files. The fork
 * server builds it once, in a mount namespace of its own. A job gets a copy of that namespace and adds its scratch
 * directory (at /job), /tmp and /proc (namespaces.c): copying a namespace of some twenty mounts is cheaper than
 * building it. Not shown: home directories, /root, /srv, /mnt, /media, and /var and /run except for the files that name
 * resolution needs. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox/sandbox.h"

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

static const char *const shown[] = {
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/gnu",
    "/sys",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/var/lib/texmf",
    "/var/cache/fontconfig",
};
static const char *const devices[] = {
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
};
/* Places of accelerators. Only mount points are made here; a job sees the accelerators that its slot was assigned. */
static const char *const accelerators[][2] = {{"/dev", "nvidia"}, {"/dev", "kfd"}, {"/dev/dri", "renderD"}};
static const char *const links[][2] = {
    {"/proc/self/fd", "dev/fd"}, {"fd/0", "dev/stdin"}, {"fd/1", "dev/stdout"}, {"fd/2", "dev/stderr"},
    {"pts/ptmx", "dev/ptmx"},    {"/tmp", "dev/shm"},   {"/tmp", "var/tmp"},    {"/run", "var/run"},
};

/* Makes the directories of an absolute path below `at`, with or without its last part. */
int make_path(int at, const char *path, bool last, struct failure *f)
{
    char part[4096];
    size_t length = strlen(path);
    if (length >= sizeof part) {
        errno = ENAMETOOLONG;
        return set_failure(f, "mkdir", path);
    }
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && (path[i] || !last))
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (part[i - 1] != '/' && mkdirat(at, part + 1, 0755) < 0 && errno != EEXIST && errno != EROFS)
            return set_failure(f, "mkdir", part);
    }
    return 0;
}

static int lock_down(const char *path, uint64_t attributes)
{
    struct mount_attr a = {.attr_set = attributes};
    return (int)syscall(SYS_mount_setattr, AT_FDCWD, path, AT_RECURSIVE, &a, sizeof a);
}

static int make_file(const char *path)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    return fd < 0 ? -1 : close(fd);
}

/* Shows one path of the host, if it exists, always with the mounts below it: in a user namespace the kernel refuses to
 * uncover files under a mount that it did not make. */
static int show_path(const char *path, uint64_t attributes, struct failure *f)
{
    struct stat st, there;
    char target[4096], link[4096];
    if (lstat(path, &st) < 0)
        return 0;
    if (snprintf(target, sizeof target, ".%s", path) >= (int)sizeof target || make_path(AT_FDCWD, path, false, f))
        return set_failure(f, "show", path);
    if (lstat(target, &there) == 0 && !S_ISDIR(there.st_mode))
        return 0;
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(path, link, sizeof link - 1);
        link[n < 0 ? 0 : n] = 0;
        return symlink(link, target) < 0 && errno != EEXIST ? set_failure(f, "symlink", path) : 0;
    }
    if (S_ISDIR(st.st_mode) ? mkdir(target, 0755) < 0 && errno != EEXIST && errno != EROFS : make_file(target) < 0)
        return set_failure(f, "create", path);
    if (mount(path, target, NULL, MS_BIND | MS_REC, NULL) < 0)
        return set_failure(f, "bind", path);
    return lock_down(target, attributes) < 0 ? set_failure(f, "mount_setattr", path) : 0;
}

bool is_accelerator(const char *path)
{
    const char *name = strrchr(path, '/');
    for (size_t i = 0; name && i < sizeof accelerators / sizeof *accelerators; i++) {
        const char *directory = accelerators[i][0], *prefix = accelerators[i][1];
        if (strncmp(path, directory, strlen(directory)) == 0 && path + strlen(directory) == name &&
            strncmp(name + 1, prefix, strlen(prefix)) == 0)
            return true;
    }
    return false;
}

static int places_for(const char *directory, const char *prefix, struct failure *f)
{
    char target[512];
    DIR *all = opendir(directory);
    struct dirent *e;
    int done = 0;
    while (all && done == 0 && (e = readdir(all))) {
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 || e->d_type != DT_CHR)
            continue;
        snprintf(target, sizeof target, ".%s/%.250s", directory, e->d_name);
        if (make_path(AT_FDCWD, target + 1, false, f) || make_file(target) < 0)
            done = set_failure(f, "create", target);
    }
    if (all)
        closedir(all);
    return done;
}

static int fill_tree(struct failure *f)
{
    const uint64_t quiet = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    static const char *const made[] = {"dev", "dev/pts", "proc", "tmp", "run", "var", "home", "root", "job"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        if (mkdir(made[i], 0755) < 0)
            return set_failure(f, "mkdir", made[i]);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (symlink(links[i][0], links[i][1]) < 0)
            return set_failure(f, "symlink", links[i][1]);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (show_path(shown[i], quiet, f))
            return -1;
    for (size_t i = 0; i < settings.shows; i++)
        if (show_path(settings.show[i], settings.show_writable[i] ? quiet & ~(uint64_t)MOUNT_ATTR_RDONLY : quiet, f))
            return -1;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (show_path(devices[i], MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, f))
            return -1;
    for (size_t i = 0; i < sizeof accelerators / sizeof *accelerators; i++)
        if (places_for(accelerators[i][0], accelerators[i][1], f))
            return -1;
    /* A job's own /proc is mounted over the host's. In a user namespace the kernel allows a new /proc only if a fully
     * visible one is already there (mount_too_revealing in fs/namespace.c). */
    if (mount("/proc", "proc", NULL, MS_BIND | MS_REC, NULL) < 0)
        return set_failure(f, "bind", "/proc");
    return 0;
}

static int build_tree(struct failure *f)
{
    int old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *here = settings.directory; /* by name, since DIRECTORY belongs to the namespace that was left */
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", here, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=4m") < 0)
        return set_failure(f, "mount", "tmpfs");
    if (chdir(here) < 0)
        return set_failure(f, "chdir", "tmpfs");
    if (fill_tree(f))
        return -1;
    int writable = (int)syscall(SYS_open_tree, AT_FDCWD, ".", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (writable < 0 || dup3(writable, ROOT_RW, O_CLOEXEC) < 0 || close(writable) < 0)
        return set_failure(f, "open_tree", "tmpfs");
    if (syscall(SYS_pivot_root, ".", ".") < 0)
        return set_failure(f, "pivot_root", here);
    /* Both roots are now mounted on top of each other; this unmounts the old one (pivot_root(2)). */
    if (fchdir(old) < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return set_failure(f, "umount", "the old root");
    close(old);
    struct mount_attr a = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID};
    if (syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &a, sizeof a) < 0)
        return set_failure(f, "mount_setattr", "/");
    return 0;
}

int root_build(struct failure *f)
{
    int host = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (host < 0)
        return set_failure(f, "open", "/proc/self/ns/mnt");
    if (unshare(CLONE_NEWNS) < 0) {
        close(host);
        return set_failure(f, "unshare", "mount namespace");
    }
    int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC),
        done = own < 0 ? set_failure(f, "open", "namespace") : build_tree(f);
    if (own >= 0 && dup3(own, ROOT, O_CLOEXEC) >= 0)
        close(own);
    if (setns(host, CLONE_NEWNS) < 0)
        done = set_failure(f, "setns", "the host's mount namespace");
    close(host);
    return done;
}

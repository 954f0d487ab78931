/* Finds the mapped file to which a name leads, as the calling process would. The kernel walks the directory part, from
 * the process's own root or directory; a file is identified by the device and inode of its directory and its last name.
 * Symbolic links in the last name are followed here, because their targets need not exist. A process that changes a
 * name in memory during the call deceives only itself: this is no security check. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mapped_files/parts.h"

#define NAME_SIZE 4096u /* bytes of a path, at most */
#define LINKS_MOST 40

/* The check costs half as much as an answer, so it is made only if some process may have another root. */
static bool own_root(pid_t tid)
{
    char path[64];
    struct stat st;
    if (!over->roots)
        return true;
    snprintf(path, sizeof path, "/proc/%d/root", tid);
    return stat(path, &st) == 0 && st.st_dev == over->root_device && st.st_ino == over->root_inode;
}

/* The path that leads to the same file from this process. */
static bool seen_from_here(const struct notification *q, int directory, const char *path, char *out, size_t size)
{
    int n;
    if (*path != '/')
        n = directory == AT_FDCWD ? snprintf(out, size, "/proc/%d/cwd/%s", q->tid, path)
                                  : snprintf(out, size, "/proc/%d/fd/%d/%s", q->tid, directory, path);
    else if (strncmp(path, "/proc/self/", 11) == 0 && q->tgid)
        n = snprintf(out, size, "/proc/%d/%s", q->tgid, path + 11);
    else if (strncmp(path, "/proc/thread-self/", 18) == 0 && q->tgid)
        n = snprintf(out, size, "/proc/%d/task/%d/%s", q->tgid, q->tid, path + 18);
    else
        n = own_root(q->tid) ? snprintf(out, size, "%s", path) : snprintf(out, size, "/proc/%d/root%s", q->tid, path);
    return n > 0 && (size_t)n < size;
}

static bool is_known(uint32_t member, const char *last)
{
    for (uint32_t i = 0; i < over->end_count; i++)
        if (over->ends[i].mapped && over->ends[i].member == member && strcmp(over->ends[i].last, last) == 0)
            return true;
    return false;
}

static bool match(uint32_t member, const char *last, const char *directory, struct found *found)
{
    struct stat st;
    bool any = false;
    if (!is_known(member, last) || stat(directory, &st) < 0)
        return false;
    found->device = st.st_dev;
    for (uint32_t i = 0; i < over->end_count; i++) {
        struct end *e = &over->ends[i];
        if (!e->mapped || e->member != member || e->device != st.st_dev || e->directory != st.st_ino ||
            strcmp(e->last, last))
            continue;
        found->way[e->way] = e;
        any = true;
    }
    return any;
}

/* A name in /proc/PID/fd leads to the file that is open there. */
static bool by_descriptor(const char *path, uint32_t member, struct found *found)
{
    int pid, number, used = 0;
    if (sscanf(path, "/proc/%d/fd/%d%n", &pid, &number, &used) != 2 || path[used])
        return false;
    struct end *e = end_at(pid, number);
    if (!e || !e->mapped || e->member != member)
        return false;
    found->way[e->way] = e;
    return true;
}

bool find_named(const struct notification *q, int directory, const char *path, bool follow, struct found *found)
{
    char name[2 * NAME_SIZE], link[NAME_SIZE], target[NAME_SIZE];
    memset(found, 0, sizeof *found);
    if (!*path || strlen(path) >= sizeof link)
        return false;
    if (strncmp(path, "/dev/fd/", 8) == 0 && path[8])
        snprintf(target, sizeof target, "/proc/self/fd/%.20s", path + 8);
    else
        strcpy(target, path);
    for (int links = 0; links < LINKS_MOST; links++) {
        if (!seen_from_here(q, directory, target, name, sizeof name))
            return false;
        if (by_descriptor(name, q->member, found))
            return true;
        char *slash = strrchr(name, '/');
        char last[256];
        if (strlen(slash + 1) >= sizeof last || !slash[1] || strcmp(slash + 1, ".") == 0 ||
            strcmp(slash + 1, "..") == 0)
            return false;
        strcpy(last, slash + 1);
        slash[1] = 0; /* keeps the slash, so that a symbolic link to the directory is followed */
        if (match(q->member, last, name, found))
            return true;
        if (!follow)
            return false;
        slash[1] = *last;
        ssize_t n = readlink(name, link, sizeof link - 1);
        slash[1] = 0;
        if (n <= 0)
            return false;
        link[n] = 0;
        if (*link == '/') {
            strcpy(target, link);
        } else { /* relative to the link's directory, whose name is valid here */
            if (snprintf(target, sizeof target, "%s%s", name, link) >= (int)sizeof target)
                return false;
        }
    }
    return false;
}

/* Which mapped file a name leads to, as the process that uses it would find it.
 *
 * The directory part is walked by the kernel from the process's own root or directory; a file is the directory's device
 * and inode and its last name. The last name is followed through symbolic links here, because what they lead to need
 * not exist. Whoever changes a name in memory while it is looked at deceives only itself: this is no fence. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mapped_files/parts.h"

#define NAME_SIZE 4096u /* what a name takes at most */
#define LINKS_MOST 40

/* To look costs as much as half an answer: only when somebody may have another one. */
static bool own_root(pid_t tid)
{
    char path[64];
    struct stat st;
    if (!over->roots)
        return true;
    snprintf(path, sizeof path, "/proc/%d/root", tid);
    return stat(path, &st) == 0 && st.st_dev == over->root_device && st.st_ino == over->root_inode;
}

/* The name as this process would have to say it. */
static bool seen_from_here(const struct question *q, int directory, const char *path, char *out, size_t size)
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

static bool known(uint32_t member, const char *last)
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
    if (!known(member, last) || stat(directory, &st) < 0)
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

/* A descriptor's own name leads to what it is. */
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

bool find_named(const struct question *q, int directory, const char *path, bool follow, struct found *found)
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
        slash[1] = 0; /* with the slash, so that the last of it is followed */
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
        } else { /* counts from where the link lies, which is a name that holds here */
            if (snprintf(target, sizeof target, "%s%s", name, link) >= (int)sizeof target)
                return false;
        }
    }
    return false;
}

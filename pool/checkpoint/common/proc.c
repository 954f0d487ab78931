/* Readers of /proc. This file has the only parser of stat lines. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/common.h"

bool proc_text(pid_t pid, const char *name, char *text, size_t size)
{
    char path[96];
    snprintf(path, sizeof path, "/proc/%d/%.64s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t got = 0;
    for (ssize_t n; got < size - 1 && (n = read(fd, text + got, size - 1 - got)) > 0;)
        got += (size_t)n;
    close(fd);
    text[got] = 0;
    return got > 0;
}

uint64_t proc_field(pid_t pid, const char *name, const char *field, int base)
{
    char text[8192], wanted[64];
    snprintf(wanted, sizeof wanted, "\n%.60s:", field);
    text[0] = '\n';
    if (!proc_text(pid, name, text + 1, sizeof text - 1))
        return 0;
    char *at = strstr(text, wanted);
    return at ? strtoull(at + strlen(wanted), NULL, base) : 0;
}

/* Fields are counted after the process name, which may contain any character, brackets and spaces too. */
static bool parse_stat(char *text, struct stat_line *s)
{
    char *at = strrchr(text, ')');
    if (!at || !at[1] || !at[2])
        return false;
    unsigned long f[53] = {0};
    s->state = at[2];
    at += 3;
    for (int i = 4; i <= 52 && *at; i++)
        f[i] = strtoul(at, &at, 10); /* a negative number wraps, and is cast back */
    s->parent = (int)f[4], s->group = (int)f[5], s->session = (int)f[6], s->nice = (int)f[19], s->threads = (int)f[20];
    s->user = f[14], s->system = f[15], s->waited_user = f[16], s->waited_system = f[17], s->rss_pages = f[24];
    s->start_code = f[26], s->end_code = f[27], s->start_stack = f[28], s->processor = (int)f[39];
    s->start_data = f[45], s->end_data = f[46], s->start_brk = f[47], s->arg_start = f[48], s->arg_end = f[49];
    s->terminal = (uint32_t)f[7];
    s->born = f[22];
    s->env_start = f[50], s->env_end = f[51], s->exit_code = (uint32_t)f[52];
    return true;
}

bool stat_read_at(int proc, pid_t task, struct stat_line *s)
{
    char path[32], text[2048];
    memset(s, 0, sizeof *s);
    snprintf(path, sizeof path, "%d/stat", task);
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0 && parse_stat(text, s);
}

bool stat_read(pid_t pid, struct stat_line *s)
{
    char text[2048];
    memset(s, 0, sizeof *s);
    return proc_text(pid, "stat", text, sizeof text) && parse_stat(text, s);
}

bool thread_stat_read(pid_t pid, pid_t tid, struct stat_line *s)
{
    char name[64], text[2048];
    memset(s, 0, sizeof *s);
    snprintf(name, sizeof name, "task/%d/stat", tid);
    return proc_text(pid, name, text, sizeof text) && parse_stat(text, s);
}

size_t numbers_in(const char *directory, pid_t **all)
{
    size_t count = 0, room = 0;
    DIR *dir = opendir(directory);
    *all = NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9')
            continue;
        if (count == room) {
            pid_t *more = realloc(*all, (room = room ? room * 2 : 64) * sizeof **all);
            if (!more)
                break;
            *all = more;
        }
        (*all)[count++] = (pid_t)atol(e->d_name);
    }
    if (dir)
        closedir(dir);
    return count;
}

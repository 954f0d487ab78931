/* The core files of ranks. The kernel writes all of one directory to one name; each gets its node's and rank's number.
 *
 * A rank that crashes while another one's core is being written takes the name away from it: the kernel unlinks the
 * older file first. So the file that is there may be another rank's. It says whose it is (NT_PRPSINFO, core(5)).
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/procfs.h>
#include <unistd.h>

#include "ranker.h"

/* The process whose core file this is; 0: unknown. The kernel writes NT_PRSTATUS first and NT_PRPSINFO behind it. */
static pid_t core_of(int fd)
{
    ElfW(Ehdr) head;
    ElfW(Phdr) notes;
    ElfW(Nhdr) note;
    struct elf_prpsinfo info;
    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
        return 0;
    if (pread(fd, &notes, sizeof notes, (off_t)head.e_phoff) != (ssize_t)sizeof notes || notes.p_type != PT_NOTE)
        return 0;
    off_t at = (off_t)notes.p_offset;
    for (int i = 0; i < 4 && pread(fd, &note, sizeof note, at) == (ssize_t)sizeof note; i++) {
        off_t data = at + (off_t)sizeof note + ((note.n_namesz + 3) & ~3U);
        if (note.n_type == NT_PRPSINFO && note.n_descsz == sizeof info)
            return pread(fd, &info, sizeof info, data) == (ssize_t)sizeof info ? info.pr_pid : 0;
        at = data + ((note.n_descsz + 3) & ~3U);
    }
    return 0;
}

/* A kill now would leave half a core file. */
bool writes_core(pid_t pid)
{
    char path[40], text[4096], *line;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    line = strstr(text, "\nCoreDumping:");
    return line && atoi(line + strlen("\nCoreDumping:")) == 1;
}

/* core, or core.PID where the kernel adds it, in the directory where the ranks were started. */
void name_core(const struct rank *r, pid_t pid)
{
    char names[2][32] = {"core", ""}, target[64];
    snprintf(names[1], sizeof names[1], "core.%d", (int)pid);
    if (me.count == 1)
        snprintf(target, sizeof target, "core.%d", me.part);
    else
        snprintf(target, sizeof target, "core.%d.%d", me.part, r->number);
    for (int i = 0; i < 2; i++) {
        int fd = open(names[i], O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        bool own = fd >= 0 && core_of(fd) == pid;
        if (fd >= 0)
            close(fd);
        if (!own)
            continue;
        if (rename(names[i], target) < 0)
            say("the core file of rank %d keeps its name: %s", r->number, strerror(errno));
        return;
    }
}

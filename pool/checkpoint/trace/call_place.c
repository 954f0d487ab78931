/* Finds a system call instruction in a process. trace/tracee.c makes the process execute it for injected calls. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "trace/trace.h"

/* Searches the vdso first, then all executable memory. */
uint64_t find_syscall_instruction(pid_t pid)
{
    static unsigned char code[1 << 16];
    char path[64], line[512];
    uint64_t found = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "re");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char perms[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, perms) != 3 || perms[0] != 'r' || perms[2] != 'x')
            continue;
        bool vdso = strstr(line, "[vdso]") != NULL;
        for (unsigned long at = start; at < end && at < start + (1ul << 22) && (!found || vdso); at += sizeof code) {
            size_t size = end - at < sizeof code ? end - at : sizeof code;
            unsigned char *hit =
                tracee_read(pid, at, code, size) == 0 ? memmem(code, size, call_code, CALL_SIZE) : NULL;
            if (!hit)
                continue;
            found = at + (uint64_t)(hit - code);
            if (vdso) {
                fclose(maps);
                return found;
            }
        }
    }
    if (maps)
        fclose(maps);
    return found;
}

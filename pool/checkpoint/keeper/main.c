/* The program `keeper`. `keeper fork-server DIR` is the fork server of one startd (fork_server.c); each keeper is a
 * fork of it. Policy is the node's (pool/starter): it says what may run, for how long, and when it must go. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keeper/keeper.h"

static int usage(void)
{
    fputs("usage: keeper fork-server DIRECTORY [--show DIR]... [--without ABILITIES]\n"
          "(started by a startd, with a socket to it as descriptor 3)\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc < 3 || strcmp(argv[1], "fork-server") != 0)
        return usage();
    char **show = calloc((size_t)argc, sizeof *show);
    bool *writable = calloc((size_t)argc, sizeof *writable);
    if (!show || !writable)
        return 1;
    for (int i = 3; i < argc; i += 2) {
        if (i + 1 == argc)
            return usage();
        if (strcmp(argv[i], "--show") == 0 || strcmp(argv[i], "--show-rw") == 0) {
            writable[settings.shows] = strcmp(argv[i], "--show-rw") == 0;
            show[settings.shows++] = argv[i + 1];
        } else if (strcmp(argv[i], "--without") == 0)
            settings.without = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else
            return usage();
    }
    settings.show = show;
    settings.show_writable = writable;
    return fork_server(argv[2]);
}

/* Declarations that the files of this folder share. */
#ifndef POOL_RESTORE_PARTS_H
#define POOL_RESTORE_PARTS_H

#include "restore/restore.h"
#include "state/state.h"

enum { BORN = 0, READY = 1, BROKEN = 2 };
struct restore_shared { /* shared with the job's processes while they run the keeper's code */
    uint32_t all_there, helping; /* helping: the helpers' pid is in use */
    uint32_t joined[1 << 16]; /* number of processes that have joined the group that the process of this row makes */
    uint32_t state[1 << 16];
    struct failure failure;
};

/* open_files.c */
int files_reopen(struct restoring *r, struct failure *f);

/* memory.c */
int areas_filled(struct restoring *r, struct failure *f);
int fill_memory(struct restoring *r, uint32_t row, struct tracee *h, struct failure *f);

/* fork_tree.c: forks the processes; they still run the keeper's code */
int fork_all_processes(struct restoring *r, struct failure *f);

/* vdso.c */
int vdso_redirect(struct restoring *r, const struct area *old, const void *new, size_t new_size, uint64_t new_at,
                  void *room, struct failure *f);

/* become.c: turns one of them into a process of the job */
struct restored_process {
    struct tracee *threads;
    size_t count;
    uint64_t room, stash;
};
int become_process(struct restoring *r, uint32_t row, struct restored_process *b, struct failure *f);

#endif

/* A job on its way back: what restore.c, open_files.c, fork_tree.c and become.c share. */
#ifndef POOL_RESTORING_H
#define POOL_RESTORING_H

#include "state/state.h"

enum { BORN = 0, READY = 1, BROKEN = 2 };
struct cradle { /* shared with the job's processes while they are keeper's code */
    uint32_t all_there, helping; /* helping: the number of helpers is in use */
    uint32_t joined[1 << 16];    /* members of the group that the process of this row makes */
    uint32_t state[1 << 16];
    struct failure failure;
};

struct birth;
struct restoring {
    struct image *image;
    const struct job *job;
    int base, end;       /* end: of the pipe that tells the keeper */
    int pages[SOURCES];  /* descriptors, or -1 */
    uint64_t sizes[SOURCES];
    const char *mapped[SOURCES]; /* or NULL */
    uint64_t *filled; /* for each area: bytes of it that the image holds */
    int *opened, *spare, *programs; /* descriptors for each row of files, of files, of processes */
    struct cradle *cradle;
    struct birth *births; /* of each process */
    int64_t clocked_ns; /* the monotonic clock when the job's were set */
    pid_t helper; /* an id that nobody in the image has */
};

/* open_files.c */
void moved_path(const struct image *image, const struct job *job, const char *path, char *to, size_t size);
int lift(int fd, int base);
int open_again(int fd, int flags); /* another open file of it */
int file_changed(struct failure *f, const char *path, const char *how); /* -1, and says so */
int files_reopen(struct restoring *r, struct failure *f);

/* image/chunks.c; NULL: it cannot be read, or is damaged */
void chunks_map(struct restoring *r);
const char *chunk_look(struct restoring *r, uint32_t chunk, char *buffer); /* where it is mapped, or in the buffer */
const char *chunk_read(struct restoring *r, uint32_t chunk, char *buffer);
const char *extent_read(struct restoring *r, const struct extent *e); /* until the next is */

/* memory.c */
int areas_filled(struct restoring *r, struct failure *f);
int refill(struct restoring *r, uint32_t row, struct held *h, struct failure *f);

/* restore.c: of a while that was left when the job's clocks were read, what is left now; never 0 */
uint64_t left_now(const struct restoring *r, uint64_t left_ns);

/* state/proc_files.c */
bool selves_has(const struct image *image, const struct file *row);
int selves_open(struct restoring *r, uint32_t owner, struct held *h, uint64_t room, struct failure *f);
void selves_seek(struct restoring *r, uint32_t owner, struct held *h);

/* state/sockets.c */
int socket_pair(struct restoring *r, uint32_t at, const struct file *row, struct failure *f);
int socket_named(struct restoring *r, const struct file *row, struct failure *f);
int sockets_connect(struct restoring *r, struct failure *f);
void sockets_shut(struct restoring *r);

/* state/process_attributes.c */
int attributes_nice(const struct restoring *r, uint32_t row);
int attributes_put_thread(const struct restoring *r, const struct thread *t, struct held *h, uint64_t room, struct failure *f);
void attributes_put_process(const struct process *p, struct held *h, uint64_t room);

/* state/file_settings.c */
void file_settings_put_owners(const struct restoring *r, uint32_t row, struct held *h, uint64_t room);
int file_settings_seal(struct restoring *r, struct failure *f);

/* state/terminals.c */
int pty_restore(struct restoring *r, uint32_t at, const struct file *row, struct failure *f);
void pty_shut(struct restoring *r);
int pty_control(const struct restoring *r, const struct process *p);
int pty_foreground(const struct restoring *r, const struct process *p);

/* state/named_pipes.c */
int fifo_restore(struct restoring *r, uint32_t at, const struct file *row, struct failure *f);

/* state/signals.c */
int signals_put(const struct restoring *r, uint32_t row, struct held *threads, size_t count, uint64_t room, struct failure *f);

/* state/timerfd.c */
int timerfd_restore(const struct file *row);
int timerfds_start(const struct restoring *r, struct failure *f);

/* state/inotify.c */
int inotify_put(struct restoring *r, struct failure *f);

/* state/epoll.c */
int epoll_restore(const struct restoring *r, uint32_t row, bool placed);

/* state/pidfd.c */
bool pidfd_lives(const struct file *row);
int pidfd_restore(struct restoring *r, const struct file *row, struct failure *f);
int pidfd_place(const struct restoring *r, uint32_t row);

/* state/removed_files.c */
int removed_restore(struct restoring *r, uint32_t at, const struct file *row, struct failure *f);

/* state/file_locks.c */
int locks_of_files(struct restoring *r, struct failure *f);
int locks_of_process(struct restoring *r, uint32_t row, struct held *h, uint64_t room, struct failure *f);

/* state/mapped_files_restore.c */
int mapping_revive(struct restoring *r, struct failure *f);
int mapping_dress(struct restoring *r, uint32_t row, struct held *leader, uint64_t room, struct failure *f);

/* state/sysv_ipc.c */
int sysv_restore(struct restoring *r, struct failure *f);
void sysv_remove(const struct restoring *r);

/* state/tmp_directory.c */
int tmp_put(struct restoring *r, struct failure *f);

/* fork_tree.c: the tree of processes, still of the keeper's code */
pid_t fork_as(pid_t pid, int group, uint64_t flags);
int revive_all(struct restoring *r, struct failure *f);

/* vdso.c */
int vdso_lead(struct restoring *r, const struct area *old, const void *new, size_t new_size, uint64_t new_at, void *room, struct failure *f);

/* state/timeouts.c */
void waits_go_on(const struct thread *t, struct held *h, uint64_t room, struct user_regs_struct *r);

/* become.c: one of them becomes what it was */
struct body {
    struct held *threads;
    size_t count;
    uint64_t room, stash;
};
int transplant(struct restoring *r, uint32_t row, struct body *b, struct failure *f);

#endif

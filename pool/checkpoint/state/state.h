/* The kernel's state of a job, saved and restored: each file here has both sides of one kind of it. */
#ifndef POOL_STATE_H
#define POOL_STATE_H

#include "image/image.h"
#include "sandbox/sandbox.h"
#include "trace/trace.h"

#define ROOM 65536ul /* of the page that is mapped into a held process for arguments */

struct dumped_process { /* one process of the job while it is dumped */
    pid_t pid;
    uint32_t row; /* in the image */
    struct tracee *threads; /* the first is the leader */
    size_t count;
    pid_t unheld; /* a thread that lives and could not be asked to stop; 0: none */
    struct tracee copy; /* tid 0: none */
    uint64_t room; /* address of ROOM bytes in it */
    struct self_writer *hands; /* of the copy, or NULL */
};

struct sample { /* where an open file was met first */
    pid_t pid;
    int fd;
};

struct part { /* of memory that processes share, already taken */
    uint64_t start, end;
    uint32_t file;
};

struct removed { /* an area of a process that is mapped privately of a file without a name */
    uint32_t owner;
    uint64_t start, device, inode;
};

struct planned_fork; /* fork_plan.h */
struct restore_shared; /* restore/parts.h */
struct restoring { /* a job on its way back */
    struct image *image;
    const struct job *job;
    int base, end; /* end: of the pipe that tells the keeper */
    struct image_reader in;
    uint64_t *filled; /* for each area: bytes of it that the image holds */
    int *opened, *spare, *programs; /* descriptors for each row of files, of files, of processes */
    struct restore_shared *restore_shared;
    struct planned_fork *births; /* of each process */
    int64_t clocked_ns; /* the monotonic clock when the job's were set */
    pid_t helper; /* an id that nobody in the image has */
};

struct tracking; /* dump/parts.h */
struct dump {
    struct image image;
    struct image_writer out;
    struct tracking *tracking;
    struct dumped_process *subjects;
    size_t count;
    struct table waits; /* what threads waited for before they were stopped (timeouts.c) */
    struct table taken; /* struct part */
    struct table removed; /* struct removed */
    struct table samples; /* one for each row of image.files; fd -1 when only mapped */
    struct table order; /* those of them that have a descriptor, in the kernel's order of open files */
    char reasons[TEXT]; /* lines: what cannot be saved */
    uint32_t reason_count;
    uint64_t carried; /* bytes */
    uint64_t spent_us[2]; /* by copies: in user mode, and in the kernel */
    uint64_t held_since; /* 0: the job runs */
    int64_t clocked_ns; /* the monotonic clock when the job's were read */
    const struct job *job;
    struct failure failure;
    uint64_t mark; /* by which home notes the moment; 0: it does not */
    bool carry; /* libraries and programs too */
    bool no_sync; /* nothing need be on the disk */
    bool background; /* nobody waits for what is done now */
};

void add_unsupported(struct dump *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* process_attributes.c */
void attributes_of_process(struct dumped_process *s, struct process *p);
void attributes_of_thread(struct dump *d, struct dumped_process *s, struct tracee *h, struct thread *t);
void attributes_table(struct dump *d, pid_t pid, pid_t tid); /* refuses a thread's own descriptor table */

/* file_settings.c */
void file_settings_save(struct dump *d);

/* timeouts.c */
int timeouts_try(void); /* whether the kernel tells it at all: 0, or -1 and errno */
void timeouts_note(struct dump *d); /* before the stop, of the processes that are listed */
void timeouts_save(struct dump *d, pid_t pid, pid_t tid, struct user_regs_struct *r, struct thread *t);

/* open_files.c */
char *proc_whole(pid_t pid, const char *name); /* however long it is; until the next; NULL: nothing */
int descriptors_save(struct dump *d, struct dumped_process *s);
uint32_t file_mapped(struct dump *d, pid_t pid, const char *path, uint64_t device, uint64_t inode);
void files_peers(struct dump *d);
int files_contents(struct dump *d); /* of pipes, memory files and deleted ones */
bool is_fifo(const struct file *f); /* a named pipe, open */
uint64_t file_sum(int fd);
int descriptor_borrow(const struct sample *sample); /* the open file itself, not another one of its name; -1: it cannot
                                                       be had */
int files_open(struct image *image, const struct job *job, int base, int *opened, struct failure *f);

bool file_place(const struct dump *d, pid_t pid, int compare, uintptr_t what, uint32_t *place); /* in `order` */

struct met { /* an open file, at a descriptor of somebody's */
    uint32_t row, flags; /* row NOBODY: it was refused */
    bool fresh; /* it was not met before */
    const char *text; /* its fdinfo, until the next */
};
int file_met(struct dump *d, pid_t pid, int number, struct met *met);

/* mapped_files_save.c: the supervisor of mapped files, as who makes a checkpoint sees it */
int mapping_settle(struct dump *d); /* it stands still, and has told what it knows; without mapped files nothing is done
                                     */
int mapping_give_back(struct dump *d); /* calls that wait at it, of who was asked to stop */
int mapping_held(struct dump *d); /* everybody has stopped */
void mapping_run(void); /* it goes on */
void mapping_go(void); /* and what it told is forgotten */
bool mapping_is(uint64_t inode); /* an end of a mapped file, with whole reads and writes */
uint32_t mapping_member(struct tracee *h); /* 1 and the index of whose mapped files it has; 0: none */
int mapping_save(struct dump *d);

/* sockets.c */
bool socket_save(struct dump *d, struct file *f, pid_t pid, int number, uint64_t inode, bool *told);
void sockets_join(struct dump *d);
int socket_contents(struct dump *d, uint32_t row);

/* inotify.c */
void inotify_join(struct dump *d);

/* epoll.c */
void epoll_save(struct dump *d, uint32_t row, const char *text); /* text: its fdinfo */
void epoll_join(struct dump *d);

/* pidfd.c */
uint64_t pidfd_process(const char *text);
void pidfd_join(struct dump *d);

/* removed_files.c */
bool removed_is(const char *link, char *name);
bool removed_save(struct dump *d, struct file *f, pid_t pid, int number, const char *name);
uint32_t removed_directory(struct dump *d, const char *link, const char *path);

/* terminals.c */
bool pty_save(struct dump *d, struct file *f, pid_t pid, int number, const char *name, dev_t device,
              bool *known); /* known: it has a row */
void pty_join(struct dump *d);
int pty_contents(struct dump *d, uint32_t row);

/* timerfd.c */
void timerfd_save(struct file *f, pid_t pid, int number, const char *text); /* text: its fdinfo */

/* file_locks.c */
void locks_save(struct dump *d, struct dumped_process *s, uint32_t file, int number, const char *text, bool fresh);

/* tmp_directory.c */
int tmp_save(struct dump *d);

/* sysv_ipc.c */
int sysv_save(struct dump *d); /* while everything stands still */

/* scratch_directory.c */
int scratch_save(struct dump *d, int directory); /* while everything stands still */

/* signals.c */
int signals_save(struct dump *d, struct dumped_process *s);
int signals_thread(struct dump *d, struct dumped_process *s, struct tracee *h, struct thread *t);

/* clocks.c */
uint64_t since_clocks(const struct dump *d); /* ns since the job's clocks were read */
uint64_t left_now(const struct restoring *r,
                  uint64_t left_ns); /* of a while that was left then, what is left now; never 0 */

/* reopen.c */
void moved_path(const struct image *image, const struct job *job, const char *path, char *to, size_t size);
int lift(int fd, int base);
int open_again(int fd, int flags); /* another open file of it */
int file_changed(struct failure *f, const char *path, const char *how); /* -1, and says so */

/* job_processes.c */
int members_save(struct dump *d);
void members_remote_pipes(struct dump *d, char held[PIPES_MOST + 1]);
int members_load(struct job *job, const struct image *image);

/* proc_files.c */
bool proc_file_is(const struct image *image, const struct file *row);
int proc_files_open(struct restoring *r, uint32_t owner, struct tracee *h, uint64_t room, struct failure *f);
void proc_files_seek(struct restoring *r, uint32_t owner, struct tracee *h);

/* sockets.c */
int socket_pair(struct restoring *r, uint32_t at, const struct file *row, struct failure *f);
int socket_named(struct restoring *r, const struct file *row, struct failure *f);
int sockets_connect(struct restoring *r, struct failure *f);
void sockets_shut(struct restoring *r);

/* process_attributes.c */
int attributes_nice(const struct restoring *r, uint32_t row);
int attributes_put_thread(const struct restoring *r, const struct thread *t, struct tracee *h, uint64_t room,
                          struct failure *f);
void attributes_put_process(const struct process *p, struct tracee *h, uint64_t room);

/* file_settings.c */
void file_settings_put_owners(const struct restoring *r, uint32_t row, struct tracee *h, uint64_t room);
int file_settings_seal(struct restoring *r, struct failure *f);

/* terminals.c */
int pty_restore(struct restoring *r, uint32_t at, const struct file *row, struct failure *f);
void pty_shut(struct restoring *r);
int pty_control(const struct restoring *r, const struct process *p);
int pty_foreground(const struct restoring *r, const struct process *p);

/* named_pipes.c */
int fifo_restore(struct restoring *r, uint32_t at, const struct file *row, struct failure *f);

/* signals.c */
int signals_put(const struct restoring *r, uint32_t row, struct tracee *threads, size_t count, uint64_t room,
                struct failure *f);

/* timerfd.c */
int timerfd_restore(const struct file *row);
int timerfds_start(const struct restoring *r, struct failure *f);

/* inotify.c */
int inotify_put(struct restoring *r, struct failure *f);

/* epoll.c */
int epoll_restore(const struct restoring *r, uint32_t row, bool placed);

/* pidfd.c */
bool pidfd_lives(const struct file *row);
int pidfd_restore(struct restoring *r, const struct file *row, struct failure *f);
int pidfd_place(const struct restoring *r, uint32_t row);

/* removed_files.c */
int removed_restore(struct restoring *r, uint32_t at, const struct file *row, struct failure *f);

/* file_locks.c */
int locks_of_files(struct restoring *r, struct failure *f);
int locks_of_process(struct restoring *r, uint32_t row, struct tracee *h, uint64_t room, struct failure *f);

/* mapped_files_restore.c */
int mapping_restore(struct restoring *r, struct failure *f);
int mapping_restore_filter(struct restoring *r, uint32_t row, struct tracee *leader, uint64_t room, struct failure *f);

/* sysv_ipc.c */
int sysv_restore(struct restoring *r, struct failure *f);
void sysv_remove(const struct restoring *r);

/* tmp_directory.c */
const char *tmp_without_place(const struct restoring *r);
int tmp_put(struct restoring *r, struct failure *f);

/* timeouts.c */
void timeouts_restore(const struct thread *t, struct tracee *h, uint64_t room, struct user_regs_struct *r);

#endif

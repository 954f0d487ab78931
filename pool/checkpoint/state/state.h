/* The kernel state of a job, saved and restored. Each file of this folder has both sides of one kind of state. */
#ifndef POOL_STATE_H
#define POOL_STATE_H

#include <sys/stat.h>

#include "image/image.h"
#include "sandbox/sandbox.h"
#include "trace/trace.h"

#define ROOM 65536ul /* size of the memory that is mapped into a stopped process for arguments */

struct dumped_process { /* one process of the job during a dump */
    pid_t pid;
    uint32_t row; /* in the image */
    struct tracee *threads; /* the first is the thread group leader */
    size_t count;
    pid_t unseized; /* a running thread that could not be stopped; 0: none */
    struct tracee copy; /* tid 0: none */
    uint64_t room; /* address of ROOM bytes in it */
    struct self_writer *self_writer; /* of the copy, or NULL */
};

struct sample { /* the process and descriptor by which an open file was met first */
    pid_t pid;
    int fd;
};

struct part { /* of shared memory, already saved */
    uint64_t start, end;
    uint32_t file;
};

struct removed { /* a private mapping of a file without a name */
    uint32_t owner;
    uint64_t start, device, inode;
};

struct planned_fork; /* fork_plan.h */
struct restore_shared; /* restore/parts.h */
struct restoring { /* a job during a restore */
    struct image *image;
    const struct job *job;
    int base, end; /* end: of the pipe that reports to the keeper */
    struct image_reader in;
    uint64_t *filled; /* for each area: the number of its bytes in the image */
    int *opened, *spare, *programs; /* file descriptors for each row of files, of files, of processes */
    struct restore_shared *restore_shared;
    struct planned_fork *fork_plan; /* one for each process */
    int64_t clocked_ns; /* monotonic clock at the moment when the job's clocks were set */
    pid_t helper; /* a pid that no process of the image has */
};

struct tracking; /* dump/parts.h */
struct dump {
    struct image image;
    struct image_writer out;
    struct tracking *tracking;
    struct dumped_process *processes;
    size_t count;
    struct table waits; /* system calls in which threads waited before the freeze (timeouts.c) */
    struct table taken; /* struct part */
    struct table removed; /* struct removed */
    struct table samples; /* one for each row of image.files; fd -1 if it is only mapped */
    struct table order; /* rows with a file descriptor, in the kernel's order of open files */
    char reasons[TEXT]; /* one line for each thing that cannot be saved */
    uint32_t reason_count;
    uint64_t carried; /* bytes */
    uint64_t spent_us[2]; /* CPU time of copies: in user mode, and in the kernel */
    uint64_t held_since; /* 0: the job runs */
    int64_t clocked_ns; /* monotonic clock at the moment when the job's clocks were read */
    const struct job *job;
    struct failure failure;
    uint64_t mark; /* number of the checkpoint's moment in the submit side's journal; 0: none */
    bool carry; /* include libraries and programs */
    bool no_sync; /* nothing is synchronised to disk */
    bool background; /* written beside the running job; nobody waits for it */
};

void add_unsupported(struct dump *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* process_attributes.c */
void attributes_of_process(struct dumped_process *s, struct process *p);
void attributes_of_thread(struct dump *d, struct dumped_process *s, struct tracee *h, struct thread *t);
void attributes_table(struct dump *d, pid_t pid, pid_t tid); /* refuses a thread with its own descriptor table */

/* file_settings.c */
void file_settings_save(struct dump *d);

/* timeouts.c */
int timeouts_try(void); /* whether the kernel reports it: 0, or -1 and errno */
void timeouts_note(struct dump *d); /* before the freeze, for the listed processes */
void timeouts_save(struct dump *d, pid_t pid, pid_t tid, struct user_regs_struct *r, struct thread *t);

/* connecting.c */
void connecting_save(struct dump *d, struct tracee *h, const struct user_regs_struct *r, const struct thread *t);
void connecting_settle(struct dump *d); /* when the sockets are saved */

/* open_files.c */
char *proc_whole(pid_t pid, const char *name); /* of any length; valid until the next call; NULL: empty */
int descriptors_save(struct dump *d, struct dumped_process *s);
uint32_t file_mapped(struct dump *d, pid_t pid, const char *path, uint64_t device, uint64_t inode);
/* for a file whose name was removed: another name in the same directory */
bool file_other_name(const char *name, const struct stat *wanted, char *other, size_t size);
void files_peers(struct dump *d);
int files_contents(struct dump *d); /* of pipes, memory files and removed files */
bool is_fifo(const struct file *f); /* an open named pipe */
uint64_t file_sum(int fd);
int descriptor_borrow(const struct sample *sample); /* the open file itself, not a new one; -1: not possible */
int files_open(struct image *image, const struct job *job, int base, int *opened, struct failure *f);

bool file_place(const struct dump *d, pid_t pid, int compare, uintptr_t what, uint32_t *place); /* in `order` */

struct met { /* an open file, found at a process's descriptor */
    uint32_t row, flags; /* row NOBODY: it was refused */
    bool fresh; /* not met before */
    const char *text; /* its fdinfo, valid until the next call */
};
int file_met(struct dump *d, pid_t pid, int number, struct met *met);

/* mapped_files_save.c: the dumper's side of the supervisor of mapped files */
int mapping_settle(struct dump *d); /* pauses it and reads its state; does nothing without mapped files */
int mapping_give_back(struct dump *d); /* returns the calls that wait at it, of threads that were asked to stop */
int mapping_held(struct dump *d); /* all threads have stopped */
void mapping_run(void); /* it continues */
void mapping_go(void); /* it continues, and its state is dropped */
bool mapping_is(uint64_t inode); /* an end of a mapped file, whose reads and writes are never short */
uint32_t mapping_member(struct tracee *h); /* 1 + the index of the member whose mapped files it has; 0: none */
int mapping_save(struct dump *d);

/* sockets.c */
bool socket_save(struct dump *d, struct file *f, pid_t pid, int number, uint64_t inode, bool *told);
bool socket_reset_save(struct dump *d, struct file *f, int fd, uint64_t inode);
void sockets_join(struct dump *d);
int socket_contents(struct dump *d, uint32_t row);

/* inet_save.c: TCP and UDP */
bool inet_network_is_own(void); /* the job's network namespace is not the machine's */
bool inet_save(struct dump *d, struct file *f, pid_t pid, int number, bool *told);
int inet_contents(struct dump *d);
void inet_let_go(void); /* before the job continues */

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
int sysv_save(struct dump *d); /* while everything is frozen */

/* scratch_directory.c */
int scratch_save(struct dump *d, int directory); /* while everything is frozen */

/* signals.c */
int signals_save(struct dump *d, struct dumped_process *s);
int signals_thread(struct dump *d, struct dumped_process *s, struct tracee *h, struct thread *t);

/* clocks.c */
uint64_t since_clocks(const struct dump *d); /* ns since the job's clocks were read */
uint64_t left_now(const struct restoring *r,
                  uint64_t left_ns); /* the part of a remaining time that is left now; never 0 */

/* reopen.c */
void moved_path(const struct image *image, const struct job *job, const char *path, char *to, size_t size);
int lift(int fd, int base);
int open_again(int fd, int flags); /* a new open file of the same file */
int file_changed(struct failure *f, const char *path, const char *how); /* -1, with a failure */

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

/* inet_restore.c */
int inet_socket(const struct restoring *r, const struct file *row, struct failure *f); /* with the job's rights */
int inet_restore(struct restoring *r, struct failure *f); /* with the keeper's */
bool inet_fits(const struct image *image);

/* process_attributes.c */
int attributes_nice(const struct restoring *r, uint32_t row);
int attributes_restore_thread(const struct restoring *r, const struct thread *t, struct tracee *h, uint64_t room,
                              struct failure *f);
void attributes_restore_process(const struct process *p, struct tracee *h, uint64_t room);

/* file_settings.c */
void file_settings_restore_owners(const struct restoring *r, uint32_t row, struct tracee *h, uint64_t room);
int file_settings_seal(struct restoring *r, struct failure *f);

/* terminals.c */
int pty_restore(struct restoring *r, uint32_t at, const struct file *row, struct failure *f);
void pty_shut(struct restoring *r);
int pty_control(const struct restoring *r, const struct process *p);
int pty_foreground(const struct restoring *r, const struct process *p);

/* named_pipes.c */
int fifo_restore(struct restoring *r, uint32_t at, const struct file *row, struct failure *f);

/* signals.c */
int signals_restore(const struct restoring *r, uint32_t row, struct tracee *threads, size_t count, uint64_t room,
                    struct failure *f);

/* timerfd.c */
int timerfd_restore(const struct file *row);
int timerfds_start(const struct restoring *r, struct failure *f);

/* inotify.c */
int inotify_restore(struct restoring *r, struct failure *f);

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
int tmp_restore(struct restoring *r, struct failure *f);

/* timeouts.c */
void timeouts_restore(const struct thread *t, struct tracee *h, uint64_t room, struct user_regs_struct *r);

#endif

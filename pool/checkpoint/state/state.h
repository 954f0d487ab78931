/* What the parts of dump and restore know of each other. */
#ifndef POOL_ENGINE_H
#define POOL_ENGINE_H

#include "image/image.h"
#include "trace/trace.h"
#include "common/common.h"

#define ROOM 65536ul /* of the page that is mapped into a held process for arguments */

struct subject { /* one process of the job while it is dumped */
    pid_t pid;
    uint32_t row;          /* in the image */
    struct held *threads;  /* the first is the leader */
    size_t count;
    pid_t unheld;          /* a thread that lives and could not be asked to stop; 0: none */
    struct held copy;      /* tid 0: none */
    uint64_t room;         /* address of ROOM bytes in it */
    struct hands *hands;   /* of the copy, or NULL */
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

struct stretch {
    uint64_t start, end;
};
struct ranges { /* one after the other */
    struct stretch *all;
    size_t count, room;
};
struct tracked { /* a process whose writes are noted, as the keeper knows it */
    pid_t pid;
    uint64_t born;
    int fd;
};
struct trail { /* since an image: what the keeper keeps for the next one */
    uint64_t id; /* of the image */
    struct tracked *all;
    size_t count;
    int hand;    /* the dumper's end of a pair, by which it hands over the new list */
    bool wary;   /* one has ended without a word: processes may bear marks that are not in the list */
};
struct watched { /* the same while an image is made */
    pid_t pid;
    int fd;
    uint64_t born;
    bool fresh, sound, lost, plain; /* not watched before; what follows is right; to be watched no more; never watched */
    struct ranges written, clean;
};

struct outcome;
struct dump {
    struct image image;
    struct subject *subjects;
    size_t count;
    struct table waits;   /* what threads waited for before they were stopped (timeouts.c) */
    struct table taken;   /* struct part */
    struct table removed; /* struct removed */
    struct table samples; /* one for each row of image.files; fd -1 when only mapped */
    struct table order;   /* those of them that have a descriptor, in the kernel's order of open files */
    char reasons[TEXT];   /* lines: what cannot be saved */
    uint32_t reason_count;
    int directory, pages, more; /* descriptors; more: of the second file of pages, or -1 */
    uint64_t pages_size, more_size;
    bool open;            /* more may be put into the last chunk */
    uint32_t moved;       /* chunks before it are in `pages` */
    const struct trail *trail;
    size_t watched_count;
    struct watched *watched;
    uint64_t taken_over;  /* bytes of the image before */
    uint64_t carried;     /* bytes */
    uint64_t spent_us[2]; /* by copies: in user mode, and in the kernel */
    uint64_t held_since;  /* 0: the job runs */
    int64_t clocked_ns;   /* the monotonic clock when the job's were read */
    const struct job *job;
    struct failure failure;
    uint64_t mark; /* by which home notes the moment; 0: it does not */
    bool carry;           /* libraries and programs too */
    bool loose;           /* nothing need be on the disk */
    bool behind;          /* nobody waits for what is done now */
};

void refuse(struct dump *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* dump/freeze.c, dump/processes.c: processes and threads */
struct stat_line {
    int parent, group, session, threads, nice;
    char state;
    uint32_t terminal;
    uint32_t exit_code;
    uint64_t born;
    uint64_t start_code, end_code, start_stack, start_data, end_data, start_brk, arg_start, arg_end, env_start, env_end;
};
bool stat_read(pid_t pid, struct stat_line *s);
size_t numbers_in(const char *directory, pid_t **all); /* names that are numbers, to be freed */
bool proc_text(pid_t pid, const char *name, char *text, size_t size);
uint64_t proc_field(pid_t pid, const char *name, const char *field, int base);
int family_stop(struct dump *d);      /* holds every thread of every process */
int family_list(struct dump *d);      /* without holding: for `examine` */
bool family_traced(struct dump *d, struct subject *s); /* refuses it where another process of the job holds it, as a debugger does */
void family_forget(struct dump *d);   /* those found, when nobody is held */
int family_state(struct dump *d, struct subject *s); /* what is known of process and threads but memory and files */
void family_go(struct dump *d);
uint64_t find_call(pid_t pid);         /* a system call instruction in it; 0: none */
int family_copy(struct subject *s);   /* makes the frozen copy */
void family_drop(struct dump *d);     /* ends the copies */

/* dump/dump.c: since the job's clocks were read, in ns */
uint64_t since_clocks(const struct dump *d);

/* process_attributes.c */
void attributes_of_process(struct subject *s, struct process *p);
void attributes_of_thread(struct dump *d, struct subject *s, struct held *h, struct thread *t);
void attributes_table(struct dump *d, pid_t pid, pid_t tid); /* refuses a thread's own descriptor table */

/* file_settings.c */
void file_settings_save(struct dump *d);

/* timeouts.c */
void waits_note(struct dump *d); /* before the stop */
void waits_save(struct dump *d, pid_t pid, pid_t tid, struct user_regs_struct *r, struct thread *t);

/* dump/memory.c */
int memory_areas(struct dump *d, struct subject *s);
void memory_join(struct dump *d);
int memory_shared(struct dump *d, struct subject *s); /* while everything stands still */
int memory_left_out(struct dump *d, struct subject *s); /* of the copy: taken from the process itself */
int memory_write(struct dump *d, struct subject *s, pid_t from);

/* dump/pages.c */
int pages_put(struct dump *d, uint32_t owner, uint32_t file, uint64_t at, const void *data, size_t size);
void pages_plan(struct dump *d, uint32_t owner, uint64_t start, uint64_t end); /* written by: */
int pages_write(struct dump *d, struct subject *s, pid_t from); /* all that was planned */
size_t pages_take(int mem, uint64_t at, void *to, size_t size);

/* trace/userfault.c: a userfaultfd of a held process, used from outside */
int faults_open(struct held *h, uint64_t features); /* -1: the kernel has none, or not with these */
bool faults_take(int fd, uint64_t start, uint64_t end); /* what is missing there is ours to give */
void faults_leave(int fd, uint64_t start, uint64_t end);
size_t faults_give(int fd, uint64_t at, const void *contents, size_t size); /* up to a page that it cannot, and errno */

/* dump/dirty_tracking.c */
int track_before(struct dump *d, bool stop, struct outcome *o);
void track_held(struct dump *d, bool stop);
const struct watched *track_of(struct dump *d, pid_t pid);
uint64_t track_clean(const struct watched *w, uint64_t at, uint64_t end, uint64_t *next);
const struct stretch *ranges_from(const struct ranges *r, uint64_t at);
void track_hand(struct dump *d);
void trail_take(struct trail *trail, int from, uint64_t id);

/* dump/parent_image.c */
void earlier_open(struct dump *d, int directory);
const struct image *earlier_image(void);
void earlier_begin(struct dump *d, const struct subject *s);
void earlier_plan(struct dump *d, uint32_t owner, uint64_t start, uint64_t end);
void earlier_finish(struct dump *d, uint32_t owner);
void earlier_close(struct dump *d, int directory);

/* dump/carried_files.c */
int carry_all(struct dump *d, int directory); /* what is mapped of files that another machine may lack */

/* image/workers.c: how many may work at a time; work that is shared out among processes. A unit of it: 0 or -1 and `f`. */
#define SLOWEST 200000 /* bytes in a millisecond, a tenth of what is usual */
#define MUCH (16ul << 20) /* bytes for which more than one are begun */
int crew_most(void);
typedef int unit_work(void *what, uint32_t unit, char *buffer, struct failure *f);
int crew_run(unit_work *work, void *what, uint32_t units, uint64_t bytes, bool behind, struct failure *f); /* behind: all others */

/* open_files.c */
char *proc_whole(pid_t pid, const char *name); /* however long it is; until the next; NULL: nothing */
int descriptors_save(struct dump *d, struct subject *s);
uint32_t file_mapped(struct dump *d, pid_t pid, const char *path, uint64_t device, uint64_t inode);
void files_peers(struct dump *d);
int files_contents(struct dump *d); /* of pipes, memory files and deleted ones */
bool is_fifo(const struct file *f); /* a named pipe, open */
uint64_t file_sum(int fd);
int descriptor_borrow(const struct sample *sample); /* the open file itself, not another one of its name; -1: it cannot be had */
int files_open(struct image *image, const struct job *job, int base, int *opened, struct failure *f);

bool file_place(const struct dump *d, pid_t pid, int compare, uintptr_t what, uint32_t *place); /* in `order` */

struct met { /* an open file, at a descriptor of somebody's */
    uint32_t row, flags; /* row NOBODY: it was refused */
    bool fresh;          /* it was not met before */
    const char *text;    /* its fdinfo, until the next */
};
int file_met(struct dump *d, pid_t pid, int number, struct met *met);

/* mapped_files_save.c: the supervisor of mapped files, as who makes a checkpoint sees it */
int mapping_settle(struct dump *d); /* it stands still, and has told what it knows; without mapped files nothing is done */
int mapping_give_back(struct dump *d); /* calls that wait at it, of who was asked to stop */
int mapping_held(struct dump *d);   /* everybody has stopped */
void mapping_run(void);             /* it goes on */
void mapping_go(void);              /* and what it told is forgotten */
bool mapping_is(uint64_t inode);    /* an end of a mapped file, with whole reads and writes */
uint32_t mapping_member(struct held *h); /* 1 and the index of whose mapped files it has; 0: none */
int mapping_save(struct dump *d);

/* dump/partial_io.c */
int calls_whole(struct dump *d);

/* sockets.c */
bool socket_save(struct dump *d, struct file *f, pid_t pid, int number, uint64_t inode, bool *told);
void sockets_join(struct dump *d);
int socket_contents(struct dump *d, uint32_t row);

/* inotify.c */
int inotify_stop(struct dump *d, struct outcome *o); /* waits_note and family_stop, at a moment when the job has read what it was told */
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
bool pty_save(struct dump *d, struct file *f, pid_t pid, int number, const char *name, dev_t device, bool *known); /* known: it has a row */
void pty_join(struct dump *d);
int pty_contents(struct dump *d, uint32_t row);

/* timerfd.c */
void timerfd_save(struct file *f, pid_t pid, int number, const char *text); /* text: its fdinfo */

/* file_locks.c */
void locks_save(struct dump *d, struct subject *s, uint32_t file, int number, const char *text, bool fresh);

/* tmp_directory.c */
int tmp_save(struct dump *d);

/* sysv_ipc.c */
int sysv_save(struct dump *d); /* while everything stands still */

/* scratch_directory.c */
int scratch_save(struct dump *d, int directory); /* while everything stands still */

/* signals.c */
int signals_save(struct dump *d, struct subject *s);
int signals_thread(struct dump *d, struct subject *s, struct held *h, struct thread *t);

/* keeper/job_processes.c */
int members_save(struct dump *d);
void members_crossings(struct dump *d, struct outcome *o);
int members_load(struct job *job, const struct image *image);

/* dump/dump.c: each in a process of its own */
struct outcome { /* shared with the keeper */
    uint32_t done; /* 1: dumped, 2: refused, 3: failed */
    uint32_t processes;
    uint32_t let_go; /* the job runs, while its image is still written */
    uint64_t spent_us[2]; /* as in struct dump */
    uint64_t bytes, standstill_us, took_us, id; /* id: of an image since which writes are noted, or 0 */
    struct failure failure;
    char reasons[TEXT], held[PIPES_MOST + 1]; /* held: the text of CHECKPOINTED (common/messages.h) */
};
void dump_job(int directory, uint64_t how, const struct job *job, const struct trail *trail, struct outcome *o); /* how: enum checkpoint */

/* keeper/dumper.c */
bool checkpoint_running(void);
bool checkpoint_holds(void); /* the job: it may not be suspended yet */
pid_t checkpoint_dumper(void);
bool checkpoint_made(void); /* the last one */
void checkpoint_forget(void); /* another job comes */
void checkpoint_begin(int directory, uint64_t how, uint64_t sequence, const struct job *job, uint32_t cell);
void checkpoint_look(uint64_t number, uint32_t cell); /* tells when the job runs again */
void checkpoint_spent(uint64_t us[2]); /* adds what is none of the job's, of what those took that ended */
bool checkpoint_reaped(pid_t pid, uint64_t number, uint32_t cell);

/* restore/restore.c */
int restore_start(struct job *job, int directory, int group, int *pipe_end, pid_t *restorer, struct failure *f);

#endif

/* A thread of the job held still, and made to do system calls. */
#ifndef POOL_TRACE_H
#define POOL_TRACE_H

#include <linux/types.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

struct held { /* one stopped thread */
    pid_t tid;
    int stopped;  /* by which signal of job control, before we came; 0: by none */
    bool still;   /* it has stopped when it was asked to */
    bool bound;   /* it dies with us */
    bool lost;    /* it died while it was held */
    struct user_regs_struct now, saved; /* saved: with which it goes on */
    uint64_t call_at, mask;       /* of a system call instruction; signals it blocked */
    bool gathered;
    cpu_set_t processors; /* where it may run, when it is gathered */
};

/* tracee.c */
int held_seize(struct held *h, pid_t tid);  /* asks it to stop */
int held_await(struct held *h);             /* until it has */
int held_poll(struct held *h);              /* 1 when it has, 0 not yet, -1 it is gone */
int held_bind(struct held *h);              /* from now on it dies with who holds it */
int held_open(struct held *h, uint64_t call_at); /* binds it, blocks signals, notes registers; then `held_call` may be used */
void held_close(struct held *h);            /* puts registers and mask back */
int held_leave(struct held *h, uint64_t start, uint64_t end); /* runs it until it is out of some code */
void held_release(struct held *h);          /* lets it go */
void held_gather(void);  /* who calls stays on one processor, the same each time; those it holds from then on do, until they are let go */
bool held_scatter(void); /* who calls does so no more; false: it did not */
long held_call(struct held *h, long number, ...); /* -errno as the kernel says; six arguments must be given */
#define CALL(h, number, ...) CALL_(h, number, __VA_ARGS__, 0ul, 0ul, 0ul, 0ul, 0ul, 0ul)
#define CALL_(h, number, a, b, c, d, e, f, ...) \
    held_call(h, number, (unsigned long)(a), (unsigned long)(b), (unsigned long)(c), (unsigned long)(d), (unsigned long)(e), (unsigned long)(f))
long held_begin(struct held *h, long number, const unsigned long a[6]); /* and interrupts it; what it says to that */
int held_run(struct held *h, struct user_regs_struct *r); /* lets it run there, held yet, until something stops it */
int held_on(struct held *h); /* and on, without what has stopped it */
int held_read(pid_t pid, uint64_t at, void *to, size_t size);
int held_write(pid_t pid, uint64_t at, const void *from, size_t size);
pid_t held_clone(struct held *h, struct held *child, unsigned long flags); /* a copy that is held too, or -errno */
pid_t held_clone3(struct held *h, struct held *child, uint64_t arguments, size_t size);
int held_state(struct held *h, struct user_regs_struct *r, void *xstate, size_t *size);
int held_become(struct held *h, const struct user_regs_struct *r, const void *xstate, size_t size, uint64_t mask);
struct rseq_place { /* struct ptrace_rseq_configuration */
    uint64_t at;
    uint32_t size, signature, flags, pad;
};
int held_rseq(struct held *h, struct rseq_place *place);
int held_pending(struct held *h, bool shared, uint64_t place, void *info);

/* call_place.c */
uint64_t find_call(pid_t pid); /* a system call instruction in it; 0: none */

/* x86_64.c: all that depends on the processor */
#define CALL_SIZE 2 /* bytes of the system call instruction */
extern const unsigned char call_code[CALL_SIZE];
void regs_call(struct user_regs_struct *r, uint64_t call_at, long number, const unsigned long a[6]);
void regs_enter(struct user_regs_struct *r, uint64_t code, uint64_t stack, uint64_t argument);
long regs_asked(const struct user_regs_struct *r, unsigned long a[6]); /* the system call that was interrupted, or is to be done */
void regs_ask(struct user_regs_struct *r, long number); /* another one */
void regs_give(struct user_regs_struct *r, const unsigned long a[6]); /* other arguments */
void regs_answer(struct user_regs_struct *r, long result); /* it is done */
long regs_result(const struct user_regs_struct *r);
void regs_settle(struct user_regs_struct *r, bool for_image); /* an interrupted system call is done again */
uint64_t regs_place(const struct user_regs_struct *r); /* of the next instruction */
/* A read or write that returned less than it was asked for: its arguments, and how much it moved. */
bool regs_partial(const struct user_regs_struct *r, long *number, uint64_t arguments[3], uint64_t *moved);
/* Code that makes the call for the rest, returns the sum, and goes on where the registers say; they then lead to it. */
#define REST_SIZE 64u
void regs_rest(struct user_regs_struct *r, unsigned char code[REST_SIZE], uint64_t code_at, uint64_t from, uint64_t count);
#define JUMP_SIZE 12u
void jump_to(unsigned char *code, uint64_t to);
bool regs_foreign(const struct user_regs_struct *r); /* 32-bit code */
void features(uint64_t into[8]);
const char *features_missing(const uint64_t had[8]); /* NULL when this machine has all */

/* userfault.c: a userfaultfd of a held process, used from outside */
int faults_open(struct held *h, uint64_t features); /* -1: the kernel has none, or not with these */
bool faults_take(int fd, uint64_t start, uint64_t end); /* what is missing there is ours to give */
void faults_leave(int fd, uint64_t start, uint64_t end);
size_t faults_give(int fd, uint64_t at, const void *contents, size_t size); /* up to a page that it cannot, and errno */

#endif

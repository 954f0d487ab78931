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

struct tracee { /* one stopped thread */
    pid_t tid;
    int stopped; /* by which signal of job control, before we came; 0: by none */
    bool still; /* it has stopped when it was asked to */
    bool bound; /* it dies with us */
    bool lost; /* it died while it was held */
    struct user_regs_struct now, saved; /* saved: with which it goes on */
    uint64_t call_at, mask; /* of a system call instruction; signals it blocked */
    bool gathered;
    cpu_set_t processors; /* where it may run, when it is gathered */
};

/* tracee.c */
int tracee_seize(struct tracee *h, pid_t tid); /* asks it to stop */
int tracee_await(struct tracee *h); /* until it has */
int tracee_poll(struct tracee *h); /* 1 when it has, 0 not yet, -1 it is gone */
int tracee_bind(struct tracee *h); /* from now on it dies with who holds it */
int tracee_open(struct tracee *h,
                uint64_t call_at); /* binds it, blocks signals, notes registers; then `tracee_call` may be used */
void tracee_close(struct tracee *h); /* puts registers and mask back */
int tracee_leave(struct tracee *h, uint64_t start, uint64_t end); /* runs it until it is out of some code */
void tracee_release(struct tracee *h); /* lets it go */
void pin_cpu(void); /* who calls stays on one processor, the same each time; those it holds from then on do, until they
                       are let go */
bool unpin_cpu(void); /* who calls does so no more; false: it did not */
long tracee_call(struct tracee *h, long number, ...); /* -errno as the kernel says; six arguments must be given */
#define CALL(h, number, ...) CALL_(h, number, __VA_ARGS__, 0ul, 0ul, 0ul, 0ul, 0ul, 0ul)
#define CALL_(h, number, a, b, c, d, e, f, ...) \
    tracee_call(h, number, (unsigned long)(a), (unsigned long)(b), (unsigned long)(c), (unsigned long)(d), \
                (unsigned long)(e), (unsigned long)(f))
long tracee_begin(struct tracee *h, long number,
                  const unsigned long a[6]); /* and interrupts it; what it says to that */
int tracee_run(struct tracee *h,
               struct user_regs_struct *r); /* lets it run there, held yet, until something stops it */
int tracee_on(struct tracee *h); /* and on, without what has stopped it */
int tracee_read(pid_t pid, uint64_t at, void *to, size_t size);
int tracee_write(pid_t pid, uint64_t at, const void *from, size_t size);
pid_t tracee_clone(struct tracee *h, struct tracee *child,
                   unsigned long flags); /* a copy that is held too, or -errno */
pid_t tracee_clone3(struct tracee *h, struct tracee *child, uint64_t arguments, size_t size);
int tracee_state(struct tracee *h, struct user_regs_struct *r, void *xstate, size_t *size);
int tracee_become(struct tracee *h, const struct user_regs_struct *r, const void *xstate, size_t size, uint64_t mask);
struct rseq_place { /* struct ptrace_rseq_configuration */
    uint64_t at;
    uint32_t size, signature, flags, pad;
};
int tracee_rseq(struct tracee *h, struct rseq_place *place);
int tracee_pending(struct tracee *h, bool shared, uint64_t place, void *info);

/* call_place.c */
uint64_t find_syscall_instruction(pid_t pid); /* a system call instruction in it; 0: none */

/* x86_64.c: all that depends on the processor */
#define CALL_SIZE 2 /* bytes of the system call instruction */
extern const unsigned char call_code[CALL_SIZE];
void regs_call(struct user_regs_struct *r, uint64_t call_at, long number, const unsigned long a[6]);
void regs_enter(struct user_regs_struct *r, uint64_t code, uint64_t stack, uint64_t argument);
long regs_asked(const struct user_regs_struct *r,
                unsigned long a[6]); /* the system call that was interrupted, or is to be done */
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
void regs_rest(struct user_regs_struct *r, unsigned char code[REST_SIZE], uint64_t code_at, uint64_t from,
               uint64_t count);
#define JUMP_SIZE 12u
void jump_to(unsigned char *code, uint64_t to);
bool regs_foreign(const struct user_regs_struct *r); /* 32-bit code */
void features(uint64_t into[8]);
const char *features_missing(const uint64_t had[8]); /* NULL when this machine has all */

/* userfault.c: a userfaultfd of a held process, used from outside */
int userfault_open(struct tracee *h, uint64_t features); /* -1: the kernel has none, or not with these */
bool userfault_register(int fd, uint64_t start, uint64_t end); /* what is missing there is ours to give */
void userfault_unregister(int fd, uint64_t start, uint64_t end);
size_t userfault_copy(int fd, uint64_t at, const void *contents,
                      size_t size); /* up to a page that it cannot, and errno */

#endif

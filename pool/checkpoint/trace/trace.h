/* A stopped thread of the job (a tracee), and the system calls injected into it. */
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
    int stopped; /* the job control signal that had stopped it before us; 0: none */
    bool still; /* it has reached the stop that we asked for */
    bool bound; /* it dies with its tracer */
    bool lost; /* it died while we held it */
    struct user_regs_struct now, saved; /* saved: the registers with which it continues */
    uint64_t call_at, mask; /* call_at: address of a system call instruction; mask: signals that it blocked */
    bool pinned;
    cpu_set_t processors; /* its CPU affinity before it was pinned */
};

/* tracee.c */
int tracee_seize(struct tracee *h, pid_t tid); /* asks the thread to stop */
int tracee_await(struct tracee *h); /* waits until it has stopped */
int tracee_poll(struct tracee *h); /* 1: it has stopped, 0: not yet, -1: it is gone */
int tracee_bind(struct tracee *h); /* from now on it dies with its tracer */
/* binds it, blocks its signals, saves its registers; required before `tracee_call` */
int tracee_open(struct tracee *h, uint64_t call_at);
void tracee_close(struct tracee *h); /* restores registers and signal mask */
/* single-steps it until it has left the code in this range */
int tracee_leave(struct tracee *h, uint64_t start, uint64_t end);
void tracee_release(struct tracee *h); /* detaches; the thread runs on */
/* pins the caller to one CPU, the same each time; tracees that are bound from now on are pinned too, until released */
void pin_cpu(void);
bool unpin_cpu(void); /* ends it for the caller; false: it was not pinned */
/* the kernel's result, -errno for errors; six arguments must be given */
long tracee_call(struct tracee *h, long number, ...);
#define CALL(h, number, ...) CALL_(h, number, __VA_ARGS__, 0ul, 0ul, 0ul, 0ul, 0ul, 0ul)
#define CALL_(h, number, a, b, c, d, e, f, ...) \
    tracee_call(h, number, (unsigned long)(a), (unsigned long)(b), (unsigned long)(c), (unsigned long)(d), \
                (unsigned long)(e), (unsigned long)(f))
long tracee_begin(struct tracee *h, long number,
                  const unsigned long a[6]); /* starts a call, interrupts it, and returns its result */
/* continues it with these registers, still traced, until something stops it */
int tracee_run(struct tracee *h, struct user_regs_struct *r);
int tracee_on(struct tracee *h); /* continues it without the signal that stopped it */
int tracee_read(pid_t pid, uint64_t at, void *to, size_t size);
int tracee_write(pid_t pid, uint64_t at, const void *from, size_t size);
pid_t tracee_clone(struct tracee *h, struct tracee *child,
                   unsigned long flags); /* a copy that is traced too, or -errno */
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
uint64_t find_syscall_instruction(pid_t pid); /* address of a system call instruction in the process; 0: none */

/* x86_64.c: everything that depends on the processor */
#define CALL_SIZE 2 /* bytes of the system call instruction */
extern const unsigned char call_code[CALL_SIZE];
void regs_call(struct user_regs_struct *r, uint64_t call_at, long number, const unsigned long a[6]);
void regs_enter(struct user_regs_struct *r, uint64_t code, uint64_t stack, uint64_t argument);
long regs_asked(const struct user_regs_struct *r,
                unsigned long a[6]); /* the system call that was interrupted or is about to run, and its arguments */
void regs_ask(struct user_regs_struct *r, long number); /* replaces the number of that call */
void regs_give(struct user_regs_struct *r, const unsigned long a[6]); /* replaces its arguments */
void regs_answer(struct user_regs_struct *r, long result); /* skips the call and returns this result */
long regs_result(const struct user_regs_struct *r);
void regs_settle(struct user_regs_struct *r, bool for_image); /* makes an interrupted system call restart */
uint64_t regs_place(const struct user_regs_struct *r); /* address of the next instruction */
/* True for a read or write that returned less than it was asked for: its arguments, and how much it moved. */
bool regs_partial(const struct user_regs_struct *r, long *number, uint64_t arguments[3], uint64_t *moved);
/* Code that makes the call for the remaining bytes, returns the sum, and jumps back to the old instruction. The
 * registers then point to this code. */
#define REST_SIZE 64u
void regs_rest(struct user_regs_struct *r, unsigned char code[REST_SIZE], uint64_t code_at, uint64_t from,
               uint64_t count);
#define JUMP_SIZE 12u
void jump_to(unsigned char *code, uint64_t to);
bool regs_foreign(const struct user_regs_struct *r); /* 32-bit code */
void features(uint64_t into[8]);
const char *features_missing(const uint64_t had[8]); /* NULL: this machine has all of them */

/* userfault.c: a userfaultfd of a stopped process, used from outside */
int userfault_open(struct tracee *h, uint64_t features); /* -1: the kernel has none, or not with these features */
bool userfault_register(int fd, uint64_t start, uint64_t end); /* from now on we supply its missing pages */
void userfault_unregister(int fd, uint64_t start, uint64_t end);
size_t userfault_copy(int fd, uint64_t at, const void *contents,
                      size_t size); /* stops at the first page that cannot be copied, with errno */

#endif

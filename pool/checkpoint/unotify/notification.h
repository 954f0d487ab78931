/* A system call notification of the kernel to a supervisor (seccomp_unotify(2)), and its answer. */
#ifndef POOL_NOTIFICATION_H
#define POOL_NOTIFICATION_H

#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/common.h"

struct notification {
    int listener;
    uint32_t member;
    pid_t tid, tgid; /* tgid: set by know_process */
    struct seccomp_notif *notif;
    struct seccomp_notif_resp *answer;
    bool answered; /* already answered with a file descriptor, or left unanswered because the job ends */
};

void notification_listen(int listener);
bool notification_receive(struct notification *q, int listener,
                          uint32_t member); /* one at a time; false: the call is gone */
void notification_answer(struct notification *q);
int notification_add_fd(struct notification *q, int fd, int number, uint32_t how,
                        bool on_exec_closed); /* installs a file descriptor in the process */

bool notification_valid(const struct notification *q);
void know_process(struct notification *q);
void answer_value(struct notification *q, int64_t value);
void answer_error(struct notification *q, int err);
void answer_pass(struct notification *q); /* the kernel executes the call */

bool text_of(const struct notification *q, uint64_t address, char *text, size_t size);
bool bytes_to(const struct notification *q, uint64_t address, const void *from, size_t size);
bool bytes_of(const struct notification *q, uint64_t address, void *to, size_t size);
int take_from(pid_t pid, int number);
void rights_of_job(const struct job *job);

#endif

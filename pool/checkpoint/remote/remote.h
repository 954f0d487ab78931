/* Remote system calls, the job's side: the file server, and the keeper's end of it. */
#ifndef POOL_REMOTE_H
#define POOL_REMOTE_H

#include "common/common.h"

#define REMOTE_TREES 64
#define REMOTE_READ_MOST (1u << 20) /* bytes of one read or write request of the kernel */

struct remote_control { /* the server's ends of two sockets */
    int control, settle;
};

/* control.c, in the keeper */
int remote_control_open(struct remote_control *server, struct failure *f);
void remote_control_close(void); /* in the server */
int remote_control_tops(const struct job *job, struct failure *f);
void remote_control_cut(void); /* ends all waits for answers about the trees, where the kernel allows it */
void remote_stream(int fd);
int remote_fd(void); /* for poll; -1: none */
bool remote_heard(void); /* false: the server is gone */
bool remote_over(void); /* whether all that the job wrote is on the submit side; the first call requests the report */
int remote_settle(const struct job *job, uint64_t mark, struct failure *f); /* in the dumper */

/* server.c; devices: the file descriptors for the trees' requests; tellers: for what the kernel is told unasked; NULL:
 * instead of the kernel a supervisor asks, who is told nothing */
_Noreturn void remote_serve(const struct job *job, const int devices[], const int tellers[],
                            struct remote_control ends);

#endif

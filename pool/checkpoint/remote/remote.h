/* Remote system calls, the job's side: the file server and the keeper's end of it. */
#ifndef POOL_REMOTE_H
#define POOL_REMOTE_H

#include "common/common.h"

#define REMOTE_TREES 64
#define REMOTE_READ_MOST (1u << 20) /* bytes of one read or write of the kernel's */

struct remote_control { /* the server's ends of two sockets */
    int control, settle;
};

/* control.c, in the keeper */
int remote_control_open(struct remote_control *server, struct failure *f);
void remote_control_close(void); /* in the server */
int remote_control_tops(const struct job *job, struct failure *f);
void remote_stream(int fd);
int remote_fd(void); /* to be polled; -1: none */
bool remote_heard(void); /* false when the server is gone */
bool remote_over(void); /* all that the job wrote is on the submit side; asks for it when it is first called */
int remote_settle(const struct job *job, uint64_t mark, struct failure *f); /* in the dumper */

/* server.c; devices: what each tree is asked by */
_Noreturn void remote_serve(const struct job *job, const int devices[], bool notified, struct remote_control ends);

#endif

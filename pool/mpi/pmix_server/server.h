/* The PMIx server of one part of an MPI job: a helper of the ranker (pool/mpi/ranker), started by it and gone with it.
 *
 *     main.c      options, the library, and the messages of the ranker
 *     describe.c  the job, as the library wants it described
 *     calls.c     the library's calls into its host: each becomes a message to the ranker
 *     talk.c      messages to and from the ranker
 *
 * It is a program of its own, since the library has threads and is opened at run time, and the ranker is static and has
 * neither. The ranker starts the ranks, carries what they give each other in a fence to the other parts, and judges how
 * the job ends.
 */
#ifndef SERVER_H
#define SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../ranker/frames.h"
#include "abi.h"

struct job {
    const char *name; /* the namespace */
    const char *directory; /* for the library's files; made and removed by us */
    char shared[80]; /* the same for the shared memory of the ranks */
    const char *layout;
    int part, parts;
    int first, count, size; /* ranks: the first of this part, how many it has, how many the job has */
    int application;
};

extern struct job job;
extern struct library pmix;

/* talk.c: from any thread */
void tell(enum kind kind, const void *body, size_t size);
void tell_rank(enum kind kind, int local, const void *more, size_t size);
_Noreturn void cannot(const char *format, ...) __attribute__((format(printf, 1, 2)));
char hear(char **body, size_t *size); /* the next message; 0: the ranker is gone */

/* describe.c */
void describe_job(void);

/* calls.c */
extern struct host_calls host_calls;
void fence_data(const char *data, size_t size);
void fence_complete(void);

#endif

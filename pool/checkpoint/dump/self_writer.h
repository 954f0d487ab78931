/* The writers of a frozen copy, as pages.c uses them. */
#ifndef POOL_SELF_WRITER_H
#define POOL_SELF_WRITER_H

#include "dump/parts.h"
#include "dump/self_writer_code.h"

struct self_writer {
    struct tracee second, *running[WRITERS];
    int memory; /* file descriptor of the shared memory of the write job */
    struct write_job *write_job; /* that memory */
    size_t size;
    uint64_t there; /* its address in the copy */
    int files[WRITERS]; /* file descriptor numbers in the copy */
};

void self_writer_prepare(struct dump *d, struct dumped_process *s); /* before the job may be stopped again */
bool self_writer_run(struct dumped_process *s);
void self_writer_await(struct self_writer *self_writer, uint64_t ms); /* waits until all have stopped, at most `ms` */
void self_writer_end(struct dump *d,
                     struct dumped_process *s); /* ends them and the copy: they write nothing after this */

#endif

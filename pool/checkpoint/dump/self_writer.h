/* The hands of a frozen copy, as who has something for them to write sees them. */
#ifndef POOL_HANDS_H
#define POOL_HANDS_H

#include "dump/parts.h"
#include "dump/self_writer_code.h"

struct self_writer {
    struct tracee second, *running[HANDS];
    int memory; /* descriptor of the errand's */
    struct write_job *write_job; /* room for it */
    size_t size;
    uint64_t there; /* where the copy has it */
    int files[HANDS]; /* what the copy knows them as */
};

void self_writer_prepare(struct dump *d,
                         struct dumped_process *s); /* before anybody may make the job stand still again */
bool self_writer_run(struct dumped_process *s);
void self_writer_await(struct self_writer *hands, uint64_t ms); /* until all have stopped, no longer than that */
void self_writer_end(struct dump *d,
                     struct dumped_process *s); /* and of the copy: nothing is written by them behind this */

#endif

/* The hands of a frozen copy, as who has something for them to write sees them. */
#ifndef POOL_HANDS_H
#define POOL_HANDS_H

#include "dump/parts.h"
#include "dump/self_writer_code.h"

struct hands {
    struct held second, *running[HANDS];
    int memory;             /* descriptor of the errand's */
    struct errand *errand;  /* room for it */
    size_t size;
    uint64_t there;         /* where the copy has it */
    int files[HANDS];       /* what the copy knows them as */
};

void hands_prepare(struct dump *d, struct subject *s); /* before anybody may make the job stand still again */
bool hands_run(struct subject *s);
void hands_await(struct hands *hands, uint64_t ms); /* until all have stopped, no longer than that */
void hands_end(struct dump *d, struct subject *s);  /* and of the copy: nothing is written by them behind this */

#endif

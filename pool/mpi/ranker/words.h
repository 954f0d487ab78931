/* The words `key=value` of one request. PMI-1 and PMI-2 write them in different ways: pmi1.c and pmi2.c split them. */
#ifndef WORDS_H
#define WORDS_H

#include <stdbool.h>

enum { WORDS_MOST = 64 };

struct words {
    int count;
    const char *key[WORDS_MOST], *value[WORDS_MOST]; /* they point into the request */
};

bool add_word(struct words *w, const char *key, const char *value); /* false: there are too many */
const char *word(const struct words *w, const char *key); /* the first value of the key, or NULL */

#endif

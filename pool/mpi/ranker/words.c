/* The words `key=value` of one request. */
#include "words.h"

#include <stddef.h>
#include <string.h>

bool add_word(struct words *w, const char *key, const char *value)
{
    if (w->count == WORDS_MOST)
        return false;
    w->key[w->count] = key;
    w->value[w->count++] = value;
    return true;
}

const char *word(const struct words *w, const char *key)
{
    for (int i = 0; i < w->count; i++)
        if (strcmp(w->key[i], key) == 0)
            return w->value[i];
    return NULL;
}

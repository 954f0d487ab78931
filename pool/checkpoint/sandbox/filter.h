/* The tables of the system-call filter; see filter.c. */
#ifndef POOL_FILTER_H
#define POOL_FILTER_H

#include <stddef.h>

enum verdict { REFUSED, ABSENT, NESTED, ABSENT_UNLESS_NESTED, OTHERS, FAULTS_OF_USERS, NO_USER_NAMESPACE, NO_VSOCK };

struct call {
    int number; /* negative: the table lacks this call */
    enum verdict verdict;
};

/* calls_32: of 32-bit programs, NULL if the machine has none */
extern const struct call *const calls_native, *const calls_32;
extern const size_t calls_native_count, calls_32_count;

#endif

/* The part of PMIx's binary interface that a server needs: PMIx standard 4.1, chapters 3 and 16. It is the same in
 * OpenPMIx 3 to 6. tests/mpi/test_pmix.py compares it with the headers of Debian's libpmix-dev.
 *
 * It is declared here because the library is opened where the job runs (dlopen): a machine on which the package is
 * built need not have it, and a program may bring its own.
 */
#ifndef ABI_H
#define ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KEY_SIZE = 512, NAMESPACE_SIZE = 256 };
enum { OLDEST_VERSION = 3, NEWEST_VERSION = 6 };

typedef int status_t;
enum { SUCCESS = 0, NO_MEMORY = -32, NOT_SUPPORTED = -47, OPERATION_SUCCEEDED = -157 };

#define ANY_RANK (UINT32_MAX - 1)

struct process {
    char name_space[NAMESPACE_SIZE];
    uint32_t rank;
};

enum type { TYPE_STRING = 3, TYPE_UINT16 = 13, TYPE_UINT32 = 14, TYPE_INFO = 24, TYPE_ARRAY = 39, TYPE_RANK = 40 };

struct array {
    uint16_t type;
    size_t size;
    void *items;
};

struct value {
    uint16_t type;
    union {
        char *string;
        uint16_t uint16;
        uint32_t uint32;
        struct array *array;
        uint64_t room[3];
    } data;
};

struct info {
    char key[KEY_SIZE];
    uint32_t flags;
    struct value value;
};

typedef void done_t(status_t status, void *given);
typedef void release_t(void *given);
typedef void fence_done_t(status_t status, const char *data, size_t size, void *given, release_t *release,
                          void *to_release);

/* The calls of the library into its host, in this order. Those that we do not serve are NULL: the library refuses them.
 */
struct host_calls {
    status_t (*client_connected)(const struct process *, void *object, done_t *, void *given);
    status_t (*client_finalized)(const struct process *, void *object, done_t *, void *given);
    status_t (*abort)(const struct process *, void *object, int code, const char *text, struct process *, size_t count,
                      done_t *, void *given);
    status_t (*fence)(const struct process *, size_t count, const struct info *, size_t infos, char *data, size_t size,
                      fence_done_t *, void *given);
    status_t (*direct_modex)(const struct process *, const struct info *, size_t infos, fence_done_t *, void *given);
    void *publish, *lookup, *unpublish;
    status_t (*spawn)(const struct process *, const struct info *, size_t infos, const void *programs, size_t count,
                      void *done, void *given);
    void *connect, *disconnect, *register_events, *deregister_events, *listener;
    void *others[64]; /* of later versions of the standard */
};

/* The library's own functions. */
struct library {
    const char *(*version)(void);
    const char *(*error_string)(status_t);
    status_t (*server_init)(struct host_calls *, struct info *, size_t infos);
    status_t (*server_finalize)(void);
    status_t (*generate_regex)(const char *nodes, char **regex);
    status_t (*generate_ppn)(const char *ranks, char **regex);
    status_t (*register_namespace)(const char *name, int local, struct info *, size_t infos, done_t *, void *given);
    status_t (*register_client)(const struct process *, uid_t, gid_t, void *object, done_t *, void *given);
    status_t (*setup_fork)(const struct process *, char ***environment);
};

#endif

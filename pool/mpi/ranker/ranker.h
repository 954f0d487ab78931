/* The ranker: starts the ranks of one part of an MPI job and serves PMI to them.
 *
 *     main.c    options and the loop
 *     ranks.c   forks ranks, binds them to processors and GPUs, and learns how each ended
 *     core.c    the core files of ranks, which all lie in one directory
 *     pmi1.c    PMI-1, the lines of Flux RFC 13; pmi2.c: PMI-2; serve.c: what both have in common;
 *               words.c: the words of one request
 *     store.c   the key-value store
 *     pmix.c    PMIx, of Open MPI: by a helper of its own (pool/mpi/pmix_server), which finds the library of PMIx
 *     launch.c  Open MPI without PMIx, whose mpirun starts the ranks itself
 *     tree.c    the links to the rankers of other parts, and the barrier over all parts
 *     outcome.c how the job ends, and what its user reads about it
 *
 * Everything that a rank sends is checked, and bounded in size: a rank is the user's program. The rankers of other
 * parts belong to the same job and user; what they send is checked for its form, so that an error there is named here.
 *
 * Only one request of a rank is under way at a time (RFC 13 calls it lock-step): an answer that does not fit into the
 * socket's buffer is a rank that does not read its answers, and ends the job.
 */
#ifndef RANKER_H
#define RANKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "frames.h"

enum {
    RANKS_MOST = 4096, /* in one part */
    PARTS_MOST = 65536, /* of one job */
    CHILDREN_MOST = 1024, /* links to parts below */
    KEY_MOST = 64, /* with its end, as hydra says it */
    VALUE_MOST = 1024, /* with its end */
    NAME_MOST = 256, /* with its end */
    LINE_MOST = 65536, /* of a rank: MPI_Comm_spawn sends arguments */
    SPAWN_MOST = 1 << 20, /* bytes of one request to spawn */
    PUTS_MOST = 256 * 1024, /* bytes that one rank may put */
    STORE_MOST = 256 << 20, /* bytes of all keys and values */
    TEXT_MOST = 400, /* of a message for the user */
    LAUNCH_MOST = 65536, /* of what mpirun runs on another machine */
};

/* One of the job's processes of this part. */
enum stage { STARTED, SPOKE, FINALIZED };

struct rank {
    pid_t pid; /* 0: it has ended */
    int fd; /* our end of its socket; -1: closed */
    int number;
    enum stage stage;
    int version; /* of PMI: 1 or 2 */
    bool in_barrier;
    bool ended_well; /* with exit code 0 */
    int64_t gone_at; /* when it closed its socket without MPI_Finalize, us since 1970: it is about to end; 0: not so */
    char *waits_for; /* the attribute of this node that it waits for, PMI-2 */
    char thread[32]; /* PMI-2's thrid of the request that is not answered yet */
    size_t put_bytes;
    size_t spawn_bytes; /* of a request to spawn that is not complete; 0: none */
    int spawns, spawns_sent;
    long judged_at; /* PMIx: it exited with 0, and its server may yet say that it has finalized; 0: not so */
    char *variables; /* PMIx: NAME=VALUE, zero, and so on */
    size_t variables_size;
    char *line; /* not complete yet */
    size_t used, room;
};

struct bytes {
    char *at;
    size_t used, room;
};

/* A pair of pipes to another part's ranker; or the socket to the PMIx server. */
struct link {
    int in, out; /* -1: closed */
    bool in_barrier; /* of a link to a part below: all its ranks are */
    bool done; /* its ranks have all ended well */
    bool heard_end; /* it has said how the job ends, and none of its ranks is left */
    char *got;
    size_t used, room;
    char *unsent;
    size_t unsent_used, unsent_room;
    struct bytes given; /* in the fence under way, not complete yet */
};

enum how { ENDS_WELL, ENDS_WITH_CODE, ENDS_BY_SIGNAL };

struct ranker {
    int part, parts;
    int first, count, size; /* ranks: the first of this part, how many it has, how many the job has */
    int appnum;
    const char *name; /* of the key-value store; unique for each start of the job */
    const char *mapping, *layout;
    const char *status; /* the file that says how far the ranks are; NULL for none */
    char **argv;
    struct rank *ranks;
    struct link up; /* in -1: this is part 0 */
    struct link *below;
    int below_count;
    /* How it ends. */
    bool over;
    enum how how;
    int code; /* or signal */
    bool from_afar; /* another part's rank has ended the job */
    bool own_named; /* a rank of this part that has ended by itself */
    int64_t ended_at; /* by the clock of the machine where it was seen; us since 1970 */
    char text[TEXT_MOST];
    bool changed; /* since the status was written */
    bool refused_spawn;
    /* PMIx: the program of its server; NULL where we speak PMI. */
    const char *pmix, *pmix_library;
    struct link server;
    pid_t server_pid;
    bool server_ready;
    bool fenced; /* once: until then the ranks that have called MPI_Init are in it */
    struct bytes gathered; /* what this part and those below give in a fence; on its way down: what all give */
    /* Open MPI without PMIx: the program mpirun; NULL where we start the ranks. Then `ranks` is one process: mpirun, or
     * its daemon.
     */
    const char *mpirun;
    int agents; /* the socket of mpirun's agents; -1: none */
    bool launched; /* mpirun or its daemon */
    bool silent_part; /* the ranks of another part have ended without MPI */
};

extern struct ranker me;

/* outcome.c */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void end_job(enum how how, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
void end_by_rank(const struct rank *r, enum how how, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void end_from_afar(enum how how, int code, int64_t at, const char *text);
void write_status(void);
_Noreturn void leave(void);

/* ranks.c */
int start_ranks(void);
void reap_ranks(void);
void signal_ranks(int signal);
bool ranks_left(void);
long judge_ranks(void); /* milliseconds until one is to be judged; -1: none is */

/* pmix.c */
int start_pmix(void);
void stop_pmix(void);
bool take_from_server(char kind, const char *body, size_t size);
void pmix_variables(const struct rank *r);
void pmix_release(void);

/* core.c */
bool writes_core(pid_t pid);
void name_core(const struct rank *r, pid_t pid);

/* launch.c */
int agent_main(int argc, char **argv);
int start_launcher(void);
void agent_readable(void);
void launch(char *command);
bool launcher_left(void);
int ranks_of(int part); /* main.c */
long now_ms(void); /* main.c */
int64_t us_of_day(void); /* since 1970 */

/* serve.c */
bool rank_is_heard(const struct rank *r);
void rank_readable(struct rank *r);
bool answer(struct rank *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
void broke_rules(struct rank *r, const char *how);
bool put_allowed(struct rank *r, const char *key, const char *value, const char **why);
void enter_barrier(struct rank *r);
void release_ranks(void);
void refuse_spawn(struct rank *r);
void aborted(struct rank *r, const char *code, const char *message);
int first_who_spoke(void);
void look_for_silent(void);

/* pmi1.c, pmi2.c: one whole request, which they may change; its end is a zero. */
void pmi1_request(struct rank *r, char *text);
void pmi2_request(struct rank *r, char *text);
void pmi1_released(struct rank *r);
void pmi2_released(struct rank *r);

/* store.c */
const char *store_get(const char *key);
int store_put(const char *key, const char *value, bool own); /* -1: it is there already; -2: no room */
const char *node_get(const char *key);
int node_put(const char *key, const char *value);
void each_own(void (*f)(const char *key, const char *value)); /* put by this part or below, not sent yet */

/* tree.c */
bool make_room(char **at, size_t *room, size_t wanted);
void send_to(struct link *l, enum kind kind, const void *body, size_t size);
bool take_gather(struct link *l, const char *body, size_t size);
void take_given(struct link *l);
void send_gathered(struct link *l);
bool number_of(const char *text, long least, long most, long *number);
int link_open(struct link *l, const char *text);
bool link_readable(struct link *l); /* whether it was */
void link_writable(struct link *l);
void barrier_changed(void);
void tell_end(void);
void tell_done(bool spoke);
void tell_launch(uint32_t part, const char *command);
bool unsent_left(void);
bool answers_left(void);

#endif

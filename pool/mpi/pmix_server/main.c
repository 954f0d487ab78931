/* Options, the library, and the messages of the ranker. See server.h.
 *
 *     pmix_server LIBRARY|auto DIRECTORY LAYOUT PARTS PART FIRST COUNT SIZE APPLICATION
 *
 * The environment variable POOLNODE_MPI_NAME has the namespace: other users, who can read a command line, need not know
 * it. POOLNODE_MPI_SHARED has the path of the ranks' directory for shared memory: the starter, which chose it, removes
 * it where the server could not. Descriptor 3 is a socket to the ranker. When the ranker closes it, the job has ended.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server.h"

struct job job;
struct library pmix;

static void find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    if (!found)
        cannot("this machine's PMIx library has no %s: it is too old", name);
    memcpy(function, &found, sizeof found);
}

static void open_library(const char *path)
{
    const char *name = strcmp(path, "auto") == 0 ? "libpmix.so.2" : path;
    void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL); /* its own components look for its symbols */
    if (!library)
        cannot("there is no PMIx library here (%.180s): install Debian's libpmix2, or write mpi = mpirun", dlerror());
    find(library, "PMIx_Get_version", &pmix.version);
    find(library, "PMIx_Error_string", &pmix.error_string);
    find(library, "PMIx_server_init", &pmix.server_init);
    find(library, "PMIx_server_finalize", &pmix.server_finalize);
    find(library, "PMIx_generate_regex", &pmix.generate_regex);
    find(library, "PMIx_generate_ppn", &pmix.generate_ppn);
    find(library, "PMIx_server_register_nspace", &pmix.register_namespace);
    find(library, "PMIx_server_register_client", &pmix.register_client);
    find(library, "PMIx_server_setup_fork", &pmix.setup_fork);
    const char *version = pmix.version(), *digit = version + strcspn(version, "0123456789");
    int major = atoi(digit);
    if (major < OLDEST_VERSION || major > NEWEST_VERSION)
        cannot("this machine's PMIx library is version %.20s, and this pool knows %d to %d", digit, OLDEST_VERSION,
               NEWEST_VERSION);
}

static void start_server(void)
{
    struct info infos[4] = {0};
    char host[32];
    static const char *const directories[] = {"pmix.srvr.tmpdir", "pmix.sys.tmpdir"};
    for (int i = 0; i < 2; i++) {
        strcpy(infos[i].key, directories[i]);
        infos[i].value.type = TYPE_STRING;
        infos[i].value.data.string = (char *)job.directory;
    }
    snprintf(host, sizeof host, "poolnode%d", job.part);
    strcpy(infos[2].key, "pmix.hname");
    infos[2].value.type = TYPE_STRING;
    infos[2].value.data.string = host;
    status_t status = pmix.server_init(&host_calls, infos, 3);
    if (status != SUCCESS)
        cannot("the PMIx library cannot serve: %s", pmix.error_string(status));
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about, (void)kind, (void)where;
    remove(path);
    return 0;
}

/* The ranks' directory for shared memory. Where it cannot be made, they look for a place themselves. */
static void make_shared_directory(void)
{
    const char *chosen = getenv("POOLNODE_MPI_SHARED");
    if (chosen && strlen(chosen) < sizeof job.shared) {
        strcpy(job.shared, chosen);
        if (mkdir(job.shared, 0700) < 0)
            job.shared[0] = 0;
        return;
    }
    strcpy(job.shared, "/dev/shm/poolnode-pmix-XXXXXX");
    if (!mkdtemp(job.shared))
        job.shared[0] = 0;
}

static void serve(void)
{
    char *body, kind;
    size_t size;
    while ((kind = hear(&body, &size)))
        if (kind == GATHER)
            fence_data(body, size);
        else if (kind == BARRIER)
            fence_complete();
}

int main(int argc, char **argv)
{
    if (argc != 10)
        return 125;
    job = (struct job){.name = getenv("POOLNODE_MPI_NAME"),
                       .directory = argv[2],
                       .layout = argv[3],
                       .parts = atoi(argv[4]),
                       .part = atoi(argv[5]),
                       .first = atoi(argv[6]),
                       .count = atoi(argv[7]),
                       .size = atoi(argv[8]),
                       .application = atoi(argv[9])};
    if (!job.name)
        return 125;
    open_library(argv[1]);
    if (mkdir(job.directory, 0700) < 0)
        cannot("cannot make the directory %.150s for PMIx: %s", job.directory, strerror(errno));
    make_shared_directory();
    start_server();
    describe_job();
    tell(READY, NULL, 0);
    serve();
    nftw(job.directory, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    if (job.shared[0])
        nftw(job.shared, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    _exit(0); /* what the library holds, the kernel frees */
}

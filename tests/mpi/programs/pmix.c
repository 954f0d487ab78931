/* pmix SIZE FENCES: a client of PMIx without MPI. Each rank gives SIZE bytes in each fence, and checks those of all. */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(pmix_status_t status, const char *what)
{
    if (status == PMIX_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", what, PMIx_Error_string(status));
    exit(3);
}

static uint32_t size_of_job(const char *name)
{
    pmix_proc_t all;
    pmix_value_t *value;
    PMIX_LOAD_PROCID(&all, name, PMIX_RANK_WILDCARD);
    must(PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &value), "size");
    return value->data.uint32;
}

int main(int argc, char **argv)
{
    pmix_proc_t me, other;
    pmix_info_t collect;
    pmix_value_t *got;
    bool yes = true;
    size_t size = argc > 1 ? strtoul(argv[1], NULL, 10) : 10;
    int fences = argc > 2 ? atoi(argv[2]) : 1;
    char *text = malloc(size + 1);
    must(PMIx_Init(&me, NULL, 0), "init");
    uint32_t count = size_of_job(me.nspace);
    PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    for (int fence = 0; fence < fences; fence++) {
        char key[32];
        pmix_value_t value = {.type = PMIX_STRING, .data.string = text};
        snprintf(key, sizeof key, "given%d", fence);
        memset(text, 'a' + (int)(me.rank % 26), size);
        text[size] = 0;
        must(PMIx_Put(PMIX_GLOBAL, key, &value), "put");
        must(PMIx_Commit(), "commit");
        PMIX_LOAD_PROCID(&other, me.nspace, PMIX_RANK_WILDCARD);
        must(PMIx_Fence(&other, 1, &collect, 1), "fence");
        for (uint32_t rank = 0; rank < count; rank++) {
            PMIX_LOAD_PROCID(&other, me.nspace, rank);
            must(PMIx_Get(&other, key, NULL, 0, &got), "get");
            if (strlen(got->data.string) != size || got->data.string[size / 2] != (char)('a' + rank % 26))
                return 4;
        }
    }
    printf("rank %u of %u\n", me.rank, count);
    must(PMIx_Finalize(NULL, 0), "finalize");
    return 0;
}

/* PMI-2 by a library's own client. The functions are declared here: no header comes with the library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int PMI2_Init(int *spawned, int *size, int *rank, int *appnum);
int PMI2_Finalize(void);
int PMI2_Job_GetId(char *id, int size);
int PMI2_KVS_Put(const char *key, const char *value);
int PMI2_KVS_Fence(void);
int PMI2_KVS_Get(const char *id, int from, const char *key, char *value, int room, int *length);
int PMI2_Info_PutNodeAttr(const char *name, const char *value);
int PMI2_Info_GetNodeAttr(const char *name, char *value, int room, int *found, int wait);
int PMI2_Info_GetJobAttr(const char *name, char *value, int room, int *found);

static void must(int done, const char *what)
{
    if (done) {
        fprintf(stderr, "%s: %d\n", what, done);
        exit(9);
    }
}

int main(void)
{
    int spawned, size, rank, appnum, length, found, right = 0;
    char id[256], key[64], value[1024], wanted[64], node[64];
    must(PMI2_Init(&spawned, &size, &rank, &appnum), "init");
    must(PMI2_Job_GetId(id, sizeof id), "id");
    sprintf(key, "k%d", rank);
    sprintf(value, "v;of;%d;", rank);
    must(PMI2_KVS_Put(key, value), "put");
    must(PMI2_KVS_Fence(), "fence");
    for (int other = 0; other < size; other++) {
        sprintf(key, "k%d", other);
        sprintf(wanted, "v;of;%d;", other);
        must(PMI2_KVS_Get(id, other, key, value, sizeof value, &length), "get");
        right += strcmp(value, wanted) == 0;
    }
    sprintf(value, "%d", rank);
    if (strcmp(getenv("MPI_LOCALRANKID"), "0") == 0)
        must(PMI2_Info_PutNodeAttr("node", value), "put node");
    must(PMI2_Info_GetNodeAttr("node", node, sizeof node, &found, 1) || !found, "get node");
    must(PMI2_Info_GetJobAttr("nothing", value, sizeof value, &found) || found, "get job");
    printf("rank %d of %d has %d values, of its node %s\n", rank, size, right, node);
    must(PMI2_Finalize(), "finalize");
    return 0;
}

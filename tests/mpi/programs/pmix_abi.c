/* Compiles only if pool/mpi/pmix_server/abi.h is as the headers of PMIx are. */
#include <pmix_server.h>

#include <sys/types.h>

#include "../../../pool/mpi/pmix_server/abi.h"

#define SAME(mine, theirs) _Static_assert((mine) == (theirs), #theirs)

SAME(KEY_SIZE, PMIX_MAX_KEYLEN + 1);
SAME(NAMESPACE_SIZE, PMIX_MAX_NSLEN + 1);
SAME(sizeof(struct process), sizeof(pmix_proc_t));
SAME(offsetof(struct process, rank), offsetof(pmix_proc_t, rank));
SAME(sizeof(struct info), sizeof(pmix_info_t));
SAME(offsetof(struct info, flags), offsetof(pmix_info_t, flags));
SAME(offsetof(struct info, value), offsetof(pmix_info_t, value));
SAME(sizeof(struct value), sizeof(pmix_value_t));
SAME(offsetof(struct value, data), offsetof(pmix_value_t, data));
SAME(sizeof(struct array), sizeof(pmix_data_array_t));
SAME(offsetof(struct array, size), offsetof(pmix_data_array_t, size));
SAME(offsetof(struct array, items), offsetof(pmix_data_array_t, array));
SAME(TYPE_STRING, PMIX_STRING);
SAME(TYPE_UINT16, PMIX_UINT16);
SAME(TYPE_UINT32, PMIX_UINT32);
SAME(TYPE_INFO, PMIX_INFO);
SAME(TYPE_ARRAY, PMIX_DATA_ARRAY);
SAME(TYPE_RANK, PMIX_PROC_RANK);
SAME(ANY_RANK, PMIX_RANK_WILDCARD);
SAME(SUCCESS, PMIX_SUCCESS);
SAME(NO_MEMORY, PMIX_ERR_NOMEM);
SAME(NOT_SUPPORTED, PMIX_ERR_NOT_SUPPORTED);
SAME(OPERATION_SUCCEEDED, PMIX_OPERATION_SUCCEEDED);
SAME(offsetof(struct host_calls, abort), offsetof(pmix_server_module_t, abort));
SAME(offsetof(struct host_calls, fence), offsetof(pmix_server_module_t, fence_nb));
SAME(offsetof(struct host_calls, direct_modex), offsetof(pmix_server_module_t, direct_modex));
SAME(offsetof(struct host_calls, spawn), offsetof(pmix_server_module_t, spawn));
SAME(offsetof(struct host_calls, others), offsetof(pmix_server_module_t, notify_event));
_Static_assert(sizeof(struct host_calls) >= sizeof(pmix_server_module_t), "room for all calls");

int main(void) { return 0; }

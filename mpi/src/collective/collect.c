// Which way a collective call with memory on GPUs goes: from GPU to GPU, or staged. Then the MPI works on
// images of it in the host's memory. That is right whatever the other ranks have, since the MPI hears the same
// of all of them.

#include <stdlib.h>

#include "collective.h"

// MPI_Reduce_local by a kernel, where both places are on a GPU. Says whether it was.
static bool reduce_on_gpu(const struct call *call, int *error) {
    int element = element_of(call->in.type), operation = operation_of(call->op);
    if (call->what != COLLECTIVE_Reduce_local || !causeway_comm_reduces(element, operation)) return false;
    if (!causeway_comm_on_gpu(call->out.address) || !causeway_comm_on_gpu(call->in.address)) return false;
    if (call->in.count <= 0) return false;
    int done = causeway_comm_reduce_local(call->out.address, call->in.address, (uint64_t)call->in.count,
                                          element, operation);
    // The kernel takes no such address.
    if (done > 0) return false;
    *error = done == 0 ? MPI_SUCCESS : raise_error(call->comm, name_of(call), causeway_comm_error());
    return true;
}

static int check_call(const struct call *call, enum form form) {
    // Without a GPU the MPI sees the places itself.
    int error = causeway_comm_has_driver() ? check_aliasing(call) : MPI_SUCCESS;
    return error == MPI_SUCCESS ? check_consistency(call, form) : error;
}

// What the program has begun on memory in the default streams comes before a call.
static void sync_buffers(const struct call *call) {
    const void *addresses[] = {call->out.address, call->in.address};
    for (int at = 0; at < 2; at++)
        if (causeway_comm_on_gpu(addresses[at])) causeway_comm_sync_memory(addresses[at]);
}

int run_collective(const struct call *call) {
    int error = check_call(call, BLOCKING);
    if (error != MPI_SUCCESS) return error;
    if (causeway_comm_has_driver()) sync_buffers(call);
    finish_fetches();
    struct choice choice = {.algorithm = CAUSEWAY_COMM_CALL_NO_KERNEL};
    if (call->what == COLLECTIVE_Reduce_local && reduce_on_gpu(call, &error)) return error;
    if (call->what != COLLECTIVE_Reduce_local && run_on_gpus(call, &choice, &error)) {
        if (error == MPI_SUCCESS) count_for_report(call, &choice);
        return error;
    }
    struct staging *staging = stage(call, &error);
    if (error != MPI_SUCCESS) return error;
    if (staging == NULL) return invoke(call, BLOCKING, MPI_INFO_NULL, NULL);
    count_for_report(call, &choice);
    fill_staging(staging);
    error = invoke(&staging->call, BLOCKING, MPI_INFO_NULL, NULL);
    if (error != MPI_SUCCESS) {
        drop_staging(staging);
        return error;
    }
    error = end_staging(staging, true);
    if (error != MPI_SUCCESS) PMPI_Comm_call_errhandler(call->comm, error);
    return error;
}

int run_nonblocking(const struct call *call, MPI_Request *request) {
    int error = check_call(call, NON_BLOCKING);
    if (error != MPI_SUCCESS) return error;
    struct staging *staging = stage(call, &error);
    if (error != MPI_SUCCESS) return error;
    if (staging == NULL) return invoke(call, NON_BLOCKING, MPI_INFO_NULL, request);
    struct operation *operation;
    error = start_request(&operation, request);
    if (error != MPI_SUCCESS) {
        drop_staging(staging);
        return error;
    }
    error = start_collective(operation, staging, MPI_REQUEST_NULL, call->comm);
    if (error != MPI_SUCCESS) drop_request(request);
    return error;
}

int make_persistent(const struct call *call, MPI_Info info, MPI_Request *request) {
    int error = check_call(call, PERSISTENT);
    if (error != MPI_SUCCESS) return error;
    struct staging *staging = stage(call, &error);
    if (error != MPI_SUCCESS) return error;
    if (staging == NULL) return invoke(call, PERSISTENT, info, request);
    MPI_Request inner;
    // MPICH 4.0.2 copies what a rank has for itself here already.
    fill_staging(staging);
    error = invoke(&staging->call, PERSISTENT, info, &inner);
    if (error == MPI_SUCCESS) error = make_collective(staging, inner, call->comm, request);
    if (error != MPI_SUCCESS) drop_staging(staging);
    return error;
}

// Collective calls whose memory on GPUs is staged: the MPI works on images of it in the host's memory. That
// is right whatever the other ranks have, since the MPI hears the same of all of them.

#include <stdlib.h>

#include "collective.h"

struct staging {
    // What the program calls, and what the MPI is called with.
    struct call user, call;
    struct image *out, *in;
    // What is wrong with it, as soon as something is.
    int error;
};

static void drop(struct staging *staging) {
    drop_image(staging->out);
    drop_image(staging->in);
    free(staging);
}

static const char NO_MEMORY[] = "memory of the host to stage this call's memory on a GPU cannot be had";

// What a call needs, or null: it has no memory on a GPU here, or there is an error.
static struct staging *stage(const struct call *call, int *error) {
    struct layout out, in;
    struct staging *staging = NULL;
    *error = MPI_SUCCESS;
    if (mpi_takes_gpus()) return NULL;
    *error = lay_out(call, &out, &in);
    if (*error == MPI_SUCCESS) {
        staging = calloc(1, sizeof *staging);
        if (staging == NULL) *error = MPI_ERR_NO_MEM;
    }
    if (staging != NULL) {
        staging->user = staging->call = *call;
        staging->out = make_image(&call->out, &out, error);
        if (*error == MPI_SUCCESS) staging->in = make_image(&call->in, &in, error);
        if (staging->out != NULL) staging->call.out.address = address_of(staging->out);
        if (staging->in != NULL) staging->call.in.address = address_of(staging->in);
        if (*error != MPI_SUCCESS || (staging->out == NULL && staging->in == NULL)) {
            drop(staging);
            staging = NULL;
        }
    }
    free(out.blocks);
    free(in.blocks);
    if (*error == MPI_ERR_NO_MEM) *error = raise_error(call->comm, name_of(call), NO_MEMORY);
    if (*error == MPI_ERR_TYPE) *error = raise_error(call->comm, name_of(call), NO_RUNS);
    return staging;
}

// A copy that fails is an error of this rank. It takes part in the call all the same: the others wait for it.
static void fill(struct staging *staging) {
    const char *words = staging->out != NULL ? fill_image(staging->out) : NULL;
    if (words == NULL && staging->in != NULL) words = fill_image(staging->in);
    staging->error = words == NULL ? MPI_SUCCESS : error_code(name_of(&staging->call), words);
}

static void empty(struct staging *staging) {
    const char *words = staging->in != NULL ? empty_image(staging->in) : NULL;
    if (words != NULL) staging->error = error_code(name_of(&staging->call), words);
}

int end_staging(struct staging *staging, bool is_last) {
    if (staging->error == MPI_SUCCESS) empty(staging);
    int error = staging->error;
    if (is_last) drop(staging);
    return error;
}

int start_staging(struct operation *operation) {
    struct staging *staging = operation->staging;
    fill(staging);
    explain(&staging->user, &(struct taken){.way = CAUSEWAY_COMM_CALL_LATER});
    if (operation->inner != MPI_REQUEST_NULL) return PMPI_Start(&operation->inner);
    return invoke(&staging->call, NON_BLOCKING, MPI_INFO_NULL, &operation->inner);
}

void drop_staging(struct staging *staging) {
    drop(staging);
}

// MPI_Reduce_local by a kernel, where both places are on a GPU. Says whether it was.
static bool reduce_on_gpu(const struct call *call, int *error) {
    int element = element_of(call->in.type), operation = operation_of(call->op);
    if (call->what != COLLECTIVE_Reduce_local || !causeway_comm_reduces(element, operation)) return false;
    if (!causeway_comm_on_gpu(call->out.address) || !causeway_comm_on_gpu(call->in.address)) return false;
    if (call->in.count <= 0) return false;
    int done = causeway_comm_reduce_local(call->out.address, call->in.address, (uint64_t)call->in.count,
                                          element, operation);
    *error = done == 0 ? MPI_SUCCESS : raise_error(call->comm, name_of(call), causeway_comm_error());
    return true;
}

int collect(const struct call *call) {
    int error = check_places(call);
    if (error == MPI_SUCCESS) error = check(call, BLOCKING);
    if (error != MPI_SUCCESS) return error;
    finish_fetches();
    struct taken taken = {.way = CAUSEWAY_COMM_CALL_NO_KERNEL};
    if (call->what == COLLECTIVE_Reduce_local && reduce_on_gpu(call, &error)) return error;
    if (call->what != COLLECTIVE_Reduce_local && collect_directly(call, &taken, &error)) {
        if (error == MPI_SUCCESS) explain(call, &taken);
        return error;
    }
    struct staging *staging = stage(call, &error);
    if (error != MPI_SUCCESS) return error;
    if (staging == NULL) return invoke(call, BLOCKING, MPI_INFO_NULL, NULL);
    explain(call, &taken);
    fill(staging);
    error = invoke(&staging->call, BLOCKING, MPI_INFO_NULL, NULL);
    if (error != MPI_SUCCESS) {
        drop(staging);
        return error;
    }
    error = end_staging(staging, true);
    if (error != MPI_SUCCESS) PMPI_Comm_call_errhandler(call->comm, error);
    return error;
}

int collect_later(const struct call *call, MPI_Request *request) {
    int error = check_places(call);
    if (error == MPI_SUCCESS) error = check(call, NON_BLOCKING);
    if (error != MPI_SUCCESS) return error;
    struct staging *staging = stage(call, &error);
    if (error != MPI_SUCCESS) return error;
    if (staging == NULL) return invoke(call, NON_BLOCKING, MPI_INFO_NULL, request);
    struct operation *operation;
    error = start_request(&operation, request);
    if (error != MPI_SUCCESS) {
        drop(staging);
        return error;
    }
    error = start_collective(operation, staging, MPI_REQUEST_NULL, call->comm);
    if (error != MPI_SUCCESS) drop_request(request);
    return error;
}

int collect_often(const struct call *call, MPI_Info info, MPI_Request *request) {
    int error = check_places(call);
    if (error == MPI_SUCCESS) error = check(call, PERSISTENT);
    if (error != MPI_SUCCESS) return error;
    struct staging *staging = stage(call, &error);
    if (error != MPI_SUCCESS) return error;
    if (staging == NULL) return invoke(call, PERSISTENT, info, request);
    MPI_Request inner;
    // MPICH 4.0.2 copies what a rank has for itself here already.
    fill(staging);
    error = invoke(&staging->call, PERSISTENT, info, &inner);
    if (error == MPI_SUCCESS) error = make_collective(staging, inner, call->comm, request);
    if (error != MPI_SUCCESS) drop(staging);
    return error;
}

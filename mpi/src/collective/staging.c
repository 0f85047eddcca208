// What stands in memory of the host for a call's memory on GPUs, while the MPI makes the call.

#include <stdlib.h>

#include "collective.h"

void drop_staging(struct staging *staging) {
    drop_staging_buffer(staging->out);
    drop_staging_buffer(staging->in);
    free(staging);
}

static const char NO_MEMORY[] = "memory of the host to stage this call's memory on a GPU cannot be had";

struct staging *stage(const struct call *call, int *error) {
    struct layout out, in;
    struct staging *staging = NULL;
    *error = MPI_SUCCESS;
    if (mpi_is_gpu_aware() || !causeway_comm_has_driver()) return NULL;
    *error = lay_out(call, &out, &in);
    if (*error == MPI_SUCCESS) {
        staging = calloc(1, sizeof *staging);
        if (staging == NULL) *error = MPI_ERR_NO_MEM;
    } else if (*error != MPI_ERR_NO_MEM) {
        // The MPI tells what is wrong with a call.
        *error = MPI_SUCCESS;
    }
    if (staging != NULL) {
        staging->call = *call;
        staging->name = name_of(call);
        if (causeway_comm_explains()) staging->bytes = bytes_of_layouts(&out, &in);
        staging->out = make_staging_buffer(&call->out, &out, error);
        if (*error == MPI_SUCCESS) staging->in = make_staging_buffer(&call->in, &in, error);
        if (staging->out != NULL) staging->call.out.address = address_of(staging->out);
        if (staging->in != NULL) staging->call.in.address = address_of(staging->in);
        if (*error != MPI_SUCCESS || (staging->out == NULL && staging->in == NULL)) {
            drop_staging(staging);
            staging = NULL;
        }
    }
    free(out.blocks);
    free(in.blocks);
    if (*error == MPI_ERR_NO_MEM) *error = raise_error(call->comm, name_of(call), NO_MEMORY);
    if (*error == MPI_ERR_TYPE) *error = raise_error(call->comm, name_of(call), NO_RUNS);
    return staging;
}

void fill_staging(struct staging *staging) {
    const char *message = staging->out != NULL ? fill_staging_buffer(staging->out) : NULL;
    if (message == NULL && staging->in != NULL) message = fill_staging_buffer(staging->in);
    staging->error = message == NULL ? MPI_SUCCESS : error_code(staging->name, message);
}

static void empty(struct staging *staging) {
    const char *message = staging->in != NULL ? flush_staging_buffer(staging->in) : NULL;
    if (message != NULL) staging->error = error_code(staging->name, message);
}

int end_staging(struct staging *staging, bool is_last) {
    if (staging->error == MPI_SUCCESS) empty(staging);
    int error = staging->error;
    if (is_last) drop_staging(staging);
    return error;
}

bool has_byte_count(const struct staging *staging) {
    return staging->is_file;
}

int start_staging(struct operation *operation) {
    struct staging *staging = operation->staging;
    fill_staging(staging);
    // The program may have freed the types.
    if (causeway_comm_explains())
        causeway_comm_count_call(staging->name, CAUSEWAY_COMM_CALL_NONBLOCKING, 0, false, staging->bytes);
    if (operation->inner != MPI_REQUEST_NULL) return PMPI_Start(&operation->inner);
    return invoke(&staging->call, NON_BLOCKING, MPI_INFO_NULL, &operation->inner);
}

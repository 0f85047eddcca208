// The request that a user has of an operation: a generalised one, which the MPI waits for and frees as any
// other.

#include <stdlib.h>

#include "operation.h"

// The MPI calls this in the thread that waits for the request or asks about it, before it frees the request.
static int query_request(void *data, MPI_Status *status) {
    const struct operation *operation = data;
    fill_status(operation, status);
    if (operation->error != MPI_SUCCESS) mark_queried(operation->handle);
    return MPI_SUCCESS;
}

static int free_request(void *operation) {
    free(operation);
    return MPI_SUCCESS;
}

// A send is not cancelled: the receiver may have word of it.
void cancel(struct operation *operation) {
    lock();
    if (operation->kind == RECEIVE && !operation->inner_done) PMPI_Cancel(&operation->inner);
    unlock();
}

bool cancel_now(MPI_Request request) {
    lock();
    struct operation *operation = operation_with(request);
    if (operation != NULL) cancel(operation);
    unlock();
    return operation != NULL;
}

// What is under way is cancelled by cancel_now. The MPI calls this for what has ended: under MPICH 4.0.2 with
// MPI_THREAD_MULTIPLE a call of MPI_Cancel in here would end the process.
static int cancel_request(void *operation, int is_complete) {
    (void)operation, (void)is_complete;
    return MPI_SUCCESS;
}

int start_request(struct operation **operation, MPI_Request *request) {
    *operation = calloc(1, sizeof **operation);
    if (*operation == NULL) return MPI_ERR_NO_MEM;
    int error = PMPI_Grequest_start(query_request, free_request, cancel_request, *operation, request);
    if (error != MPI_SUCCESS)
        free(*operation);
    else
        (*operation)->handle = *request;
    return error;
}

void drop_request(MPI_Request *request) {
    PMPI_Grequest_complete(*request);
    PMPI_Request_free(request);
}

bool free_later(MPI_Request request) {
    lock();
    struct operation *operation = operation_with(request);
    if (operation != NULL) operation->is_freed = true;
    unlock();
    return operation != NULL;
}

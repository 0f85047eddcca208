// How sends from a GPU begin, and receives, which may bring what lies on a GPU.
//
// The rule of matching is told in docs/src/concepts/messages.md.

#include <limits.h>
#include <stdlib.h>

#include "operation.h"

// The MPI's calls, with counts as long as it takes them.

static int mpi_isend(enum mode mode, const void *buffer, MPI_Count count, MPI_Datatype type, int to, int tag,
                     MPI_Comm comm, MPI_Request *request) {
#if MPI_VERSION >= 4
    switch (mode) {
    case SYNCHRONOUS: return PMPI_Issend_c(buffer, count, type, to, tag, comm, request);
    case READY: return PMPI_Irsend_c(buffer, count, type, to, tag, comm, request);
    default: return PMPI_Isend_c(buffer, count, type, to, tag, comm, request);
    }
#else
    switch (mode) {
    case SYNCHRONOUS: return PMPI_Issend(buffer, (int)count, type, to, tag, comm, request);
    case READY: return PMPI_Irsend(buffer, (int)count, type, to, tag, comm, request);
    default: return PMPI_Isend(buffer, (int)count, type, to, tag, comm, request);
    }
#endif
}

static int mpi_irecv(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                     MPI_Request *request) {
#if MPI_VERSION >= 4
    return PMPI_Irecv_c(buffer, count, type, source, tag, comm, request);
#else
    return PMPI_Irecv(buffer, (int)count, type, source, tag, comm, request);
#endif
}

static int mpi_imrecv(void *buffer, MPI_Count count, MPI_Datatype type, MPI_Message *message,
                      MPI_Request *request) {
#if MPI_VERSION >= 4
    return PMPI_Imrecv_c(buffer, count, type, message, request);
#else
    return PMPI_Imrecv(buffer, (int)count, type, message, request);
#endif
}

static void set_user(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type,
                     MPI_Comm comm) {
    operation->comm = comm;
    operation->user = buffer;
    operation->count = count;
    operation->type = type;
    operation->room = bytes_of(count, type);
    operation->contiguous = is_contiguous(type);
    operation->inner = MPI_REQUEST_NULL;
}

int start_send(struct operation *operation, enum mode mode, const void *buffer, MPI_Count count,
               MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    operation->kind = SEND;
    set_user(operation, (void *)buffer, count, type, comm);
    operation->on_gpu = to != MPI_PROC_NULL && is_on_gpu(buffer, type);
    operation->bytes = operation->room;
    int error;
    const char *words = take_gaps_out(operation);
    if (!operation->on_gpu) {
        error = mpi_isend(mode, buffer, count, type, to, tag, comm, &operation->inner);
    } else if (words != NULL) {
        give_back(operation);
        return raise_error(comm, "a send from a GPU", words);
    } else {
        buffer = operation->user;
        count = operation->count;
        type = operation->type;
        int peer = job_rank(comm, to);
        if (peer >= 0 && causeway_comm_is_offered((uint32_t)peer, buffer, operation->bytes))
            operation->offer =
                causeway_comm_offer((uint32_t)peer, buffer, operation->bytes, operation->descriptor);
        if (operation->offer != 0) {
            operation->is_short = mode != SYNCHRONOUS && causeway_comm_is_short(operation->bytes);
            error = mpi_isend(mode, operation->descriptor, sizeof operation->descriptor, MPI_BYTE, to, tag,
                              comm, &operation->inner);
        } else {
            if (!replace_memory(operation, operation->bytes))
                return raise_error(comm, "a send from a GPU",
                                   "memory to copy the message into cannot be had");
            long start = now();
            if (causeway_comm_copy(operation->memory, buffer, operation->bytes) != 0) {
                give_back(operation);
                return raise_error(comm, "a send from a GPU", causeway_comm_error());
            }
            if (causeway_comm_is_short(operation->bytes)) copied_in = now() - start;
            error = mpi_isend(mode, operation->memory, count, type, to, tag, comm, &operation->inner);
        }
    }
    if (error == MPI_SUCCESS)
        add_operation(operation);
    else
        give_back(operation);
    return error;
}

// What is needed to bring elements to their places at the end: the program may free the type before. Types of
// the host's memory whose runs cannot be had are unpacked by the MPI.
static const char *prepare_elements(struct operation *operation) {
    if (operation->on_gpu) return take_gaps_out(operation);
    if (in_job && !operation->contiguous) operation->runs = hold_runs(operation->type);
    return NULL;
}

// What a receive gives the MPI: the user's memory, where that is the host's, has no gaps, and has room for a
// descriptor. All is received as bytes, since a descriptor need not be as long as a number of the program's
// elements: MPICH 4.0.2 asserts that of a message to the rank itself.
static int prepare_receive(struct operation *operation, void **buffer, MPI_Count *count, MPI_Datatype *type) {
    const char *words = prepare_elements(operation);
    if (words != NULL) return raise_error(operation->comm, "a receive into a GPU", words);
    *buffer = operation->user;
    *count = operation->count;
    *type = operation->type;
    bool is_short = in_job && operation->room < CAUSEWAY_COMM_DESCRIPTOR;
    bool has_gaps = in_job && !operation->contiguous;
    bool fits = operation->room <= INT_MAX || MPI_VERSION >= 4;
    if (in_job && operation->contiguous && fits) {
        *count = (MPI_Count)operation->room;
        *type = MPI_BYTE;
    }
    if (!operation->on_gpu && !is_short && !has_gaps) return MPI_SUCCESS;
    uint64_t room = is_short ? CAUSEWAY_COMM_DESCRIPTOR : operation->room;
    if (has_gaps && room > INT_MAX && MPI_VERSION < 4)
        return raise_error(operation->comm, "a receive", "more than 2 GiB with gaps: receive less at a time");
    if (!replace_memory(operation, room))
        return raise_error(operation->comm, "a receive", "memory to receive the message in cannot be had");
    *buffer = operation->memory;
    if (is_short || has_gaps) {
        *count = (MPI_Count)room;
        *type = MPI_BYTE;
    }
    return MPI_SUCCESS;
}

int start_receive(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type, int source,
                  int tag, MPI_Comm comm) {
    operation->kind = RECEIVE;
    set_user(operation, buffer, count, type, comm);
    if (source == MPI_PROC_NULL) {
        int error = mpi_irecv(buffer, count, type, source, tag, comm, &operation->inner);
        if (error == MPI_SUCCESS) add_operation(operation);
        return error;
    }
    operation->on_gpu = is_on_gpu(buffer, type);
    if (operation->on_gpu) causeway_comm_settle(buffer);
    // Another thread's probe must not come between the look into the list and the receive.
    lock();
    struct kept *kept = in_job ? take_kept(comm, source, tag) : NULL;
    int error;
    if (kept != NULL) {
        error = start_kept(operation, buffer, count, type, comm, kept);
    } else {
        error = prepare_receive(operation, &buffer, &count, &type);
        if (error == MPI_SUCCESS)
            error = mpi_irecv(buffer, count, type, source, tag, comm, &operation->inner);
        if (error == MPI_SUCCESS)
            add_operation(operation);
        else
            give_back(operation);
    }
    unlock();
    return error;
}

int start_kept(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type, MPI_Comm comm,
               struct kept *kept) {
    operation->kind = RECEIVE;
    set_user(operation, buffer, count, type, comm);
    operation->on_gpu = is_on_gpu(buffer, type);
    if (operation->on_gpu) causeway_comm_settle(buffer);
    int error = MPI_SUCCESS;
    if (kept->is_received) {
        const char *words = prepare_elements(operation);
        if (words != NULL) operation->error = error_code("a receive into a GPU", words);
        operation->status = kept->status;
        operation->inner_done = true;
        arrive(operation, kept->bytes, sizeof kept->bytes);
    } else {
        error = prepare_receive(operation, &buffer, &count, &type);
        if (error == MPI_SUCCESS) error = mpi_imrecv(buffer, count, type, &kept->message, &operation->inner);
    }
    if (error == MPI_SUCCESS)
        add_operation(operation);
    else
        give_back(operation);
    free(kept);
    return error;
}

int start_collective(struct operation *operation, struct staging *staging, MPI_Request inner, MPI_Comm comm) {
    operation->kind = COLLECTIVE;
    operation->comm = comm;
    operation->staging = staging;
    operation->inner = inner;
    int error = start_staging(operation);
    if (error == MPI_SUCCESS)
        add_operation(operation);
    else if (operation->persistent == NULL)
        drop_staging(staging);
    return error;
}

// The calls that send and receive.

#include <limits.h>
#include <stdlib.h>

#include "shim.h"

static int send_and_wait(enum mode mode, const void *buffer, MPI_Count count, MPI_Datatype type, int to,
                         int tag, MPI_Comm comm) {
    struct operation operation = {.handle = MPI_REQUEST_NULL};
    int error = start_send(&operation, mode, buffer, count, type, to, tag, comm);
    return error == MPI_SUCCESS ? finish(&operation, MPI_STATUS_IGNORE) : error;
}

static int send_later(enum mode mode, const void *buffer, MPI_Count count, MPI_Datatype type, int to, int tag,
                      MPI_Comm comm, MPI_Request *request) {
    struct operation *operation;
    int error = start_request(&operation, request);
    if (error != MPI_SUCCESS) return error;
    error = start_send(operation, mode, buffer, count, type, to, tag, comm);
    if (error != MPI_SUCCESS) drop_request(request);
    return error;
}

const char *copy_from_gpu(void *to, const void *from, uint64_t bytes, MPI_Datatype type) {
    if (is_contiguous(type)) return causeway_comm_copy(to, from, bytes) == 0 ? NULL : causeway_comm_error();
    struct runs *runs = hold_runs(type);
    if (runs == NULL) return NO_RUNS;
    const char *words = copy_runs(runs, (void *)from, to, bytes, true);
    drop_runs(runs);
    return words;
}

// MPI_Bsend returns before anybody receives, so the bytes go with the MPI, out of its buffer.
static int send_copied(const void *buffer, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                       MPI_Request *request) {
    uint64_t bytes = bytes_of(count, type);
    void *copy = malloc(bytes + 1);
    if (copy == NULL) return raise_error(comm, "MPI_Bsend from a GPU", "memory for a copy cannot be had");
    int error;
    const char *words = copy_from_gpu(copy, buffer, bytes, type);
    // The bytes lie one behind the other now.
    if (!is_contiguous(type)) {
        count = (MPI_Count)bytes;
        type = MPI_BYTE;
    }
    if (words == NULL && bytes > INT_MAX && type == MPI_BYTE) words = "more than 2 GiB: send less at a time";
    if (words != NULL)
        error = raise_error(comm, "MPI_Bsend from a GPU", words);
    else if (request != NULL)
        error = PMPI_Ibsend(copy, (int)count, type, to, tag, comm, request);
    else
        error = PMPI_Bsend(copy, (int)count, type, to, tag, comm);
    free(copy);
    int peer = job_rank(comm, to);
    if (peer >= 0) causeway_comm_count_copied((uint32_t)peer, bytes);
    return error;
}

int start_buffered(struct operation *operation, const void *buffer, MPI_Count count, MPI_Datatype type,
                   int to, int tag, MPI_Comm comm) {
    operation->kind = SEND;
    operation->comm = comm;
    operation->bytes = bytes_of(count, type);
    int error = send_copied(buffer, count, type, to, tag, comm, &operation->inner);
    if (error == MPI_SUCCESS) add_operation(operation);
    return error;
}

#define SEND_CALL(name, mode, number)                                                           \
    EXPORT int MPI_##name(const void *buffer, number count, MPI_Datatype type, int to, int tag, \
                          MPI_Comm comm) {                                                      \
        if (under_way == 0 && !is_on_gpu(buffer, type))                                         \
            return PMPI_##name(buffer, count, type, to, tag, comm);                             \
        return send_and_wait(mode, buffer, count, type, to, tag, comm);                         \
    }
#define ISEND_CALL(name, mode, number)                                                                 \
    EXPORT int MPI_##name(const void *buffer, number count, MPI_Datatype type, int to, int tag,        \
                          MPI_Comm comm, MPI_Request *request) {                                       \
        if (!is_on_gpu(buffer, type)) return PMPI_##name(buffer, count, type, to, tag, comm, request); \
        return send_later(mode, buffer, count, type, to, tag, comm, request);                          \
    }
#define BSEND_CALLS(suffix, number)                                                                     \
    EXPORT int MPI_Bsend##suffix(const void *buffer, number count, MPI_Datatype type, int to, int tag,  \
                                 MPI_Comm comm) {                                                       \
        if (!is_on_gpu(buffer, type)) return PMPI_Bsend##suffix(buffer, count, type, to, tag, comm);    \
        return send_copied(buffer, count, type, to, tag, comm, NULL);                                   \
    }                                                                                                   \
    EXPORT int MPI_Ibsend##suffix(const void *buffer, number count, MPI_Datatype type, int to, int tag, \
                                  MPI_Comm comm, MPI_Request *request) {                                \
        if (!is_on_gpu(buffer, type))                                                                   \
            return PMPI_Ibsend##suffix(buffer, count, type, to, tag, comm, request);                    \
        return send_copied(buffer, count, type, to, tag, comm, request);                                \
    }

static int receive(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                   MPI_Status *status) {
    struct operation operation = {.handle = MPI_REQUEST_NULL, .is_blocking = true};
    int error = start_receive(&operation, buffer, count, type, source, tag, comm);
    return error == MPI_SUCCESS ? finish(&operation, status) : error;
}

static int receive_later(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                         MPI_Request *request) {
    struct operation *operation;
    int error = start_request(&operation, request);
    if (error != MPI_SUCCESS) return error;
    error = start_receive(operation, buffer, count, type, source, tag, comm);
    if (error != MPI_SUCCESS) drop_request(request);
    return error;
}

#define RECEIVE_CALLS(suffix, number)                                                                \
    EXPORT int MPI_Recv##suffix(void *buffer, number count, MPI_Datatype type, int source, int tag,  \
                                MPI_Comm comm, MPI_Status *status) {                                 \
        if (!in_job && under_way == 0 && !is_on_gpu(buffer, type))                                   \
            return PMPI_Recv##suffix(buffer, count, type, source, tag, comm, status);                \
        return receive(buffer, count, type, source, tag, comm, status);                              \
    }                                                                                                \
    EXPORT int MPI_Irecv##suffix(void *buffer, number count, MPI_Datatype type, int source, int tag, \
                                 MPI_Comm comm, MPI_Request *request) {                              \
        if (!in_job && !is_on_gpu(buffer, type))                                                     \
            return PMPI_Irecv##suffix(buffer, count, type, source, tag, comm, request);              \
        return receive_later(buffer, count, type, source, tag, comm, request);                       \
    }

SEND_CALL(Send, STANDARD, int)
SEND_CALL(Ssend, SYNCHRONOUS, int)
SEND_CALL(Rsend, READY, int)
ISEND_CALL(Isend, STANDARD, int)
ISEND_CALL(Issend, SYNCHRONOUS, int)
ISEND_CALL(Irsend, READY, int)
BSEND_CALLS(, int)
RECEIVE_CALLS(, int)

#if MPI_VERSION >= 4
SEND_CALL(Send_c, STANDARD, MPI_Count)
SEND_CALL(Ssend_c, SYNCHRONOUS, MPI_Count)
SEND_CALL(Rsend_c, READY, MPI_Count)
ISEND_CALL(Isend_c, STANDARD, MPI_Count)
ISEND_CALL(Issend_c, SYNCHRONOUS, MPI_Count)
ISEND_CALL(Irsend_c, READY, MPI_Count)
BSEND_CALLS(_c, MPI_Count)
RECEIVE_CALLS(_c, MPI_Count)
#endif

// Point-to-point calls: blocking and non-blocking sends and receives.

#include <limits.h>
#include <stdlib.h>

#include "operation/plain.h"

static int send_and_wait(enum mode mode, const void *buffer, MPI_Count count, MPI_Datatype type, int to,
                         int tag, MPI_Comm comm) {
    struct operation operation = {.handle = MPI_REQUEST_NULL, .is_blocking = true};
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

static const char BUFFERED_CALL[] = "MPI_Bsend from a GPU";

// MPI_Bsend returns before the message is received, so its bytes are sent with the MPI, from its buffer.
// Copies the bytes into a buffer for the MPI. Returns an error that has been raised.
static int copy_buffered(void *to, const void *buffer, MPI_Count count, MPI_Datatype type, int peer,
                         MPI_Comm comm) {
    uint64_t bytes = bytes_of(count, type);
    const char *message = to == NULL ? "cannot allocate memory for a copy of the message" : NULL;
    // MPICH 4.0.2 truncates the number of bytes in MPI_Bsend_c, too.
    if (bytes > INT_MAX) message = "more than 2 GiB: send less at a time";
    int error = message == NULL ? check_type(type, comm) : MPI_SUCCESS;
    if (error != MPI_SUCCESS) return error;
    if (message == NULL) message = copy_elements((void *)buffer, count, type, to, true);
    if (message != NULL) return raise_error(comm, BUFFERED_CALL, message);
    int of_job = job_rank(comm, peer);
    if (of_job >= 0) causeway_comm_count_copied((uint32_t)of_job, bytes);
    return MPI_SUCCESS;
}

static int send_buffered(const void *buffer, MPI_Count count, MPI_Datatype type, int to, int tag,
                         MPI_Comm comm) {
    uint64_t bytes = bytes_of(count, type);
    void *copy = bytes <= INT_MAX ? malloc(bytes + 1) : NULL;
    int error = copy_buffered(copy, buffer, count, type, to, comm);
    if (error == MPI_SUCCESS) error = PMPI_Bsend(copy, (int)bytes, MPI_BYTE, to, tag, comm);
    free(copy);
    return error;
}

int start_buffered(struct operation *operation, const void *buffer, MPI_Count count, MPI_Datatype type,
                   int to, int tag, MPI_Comm comm) {
    operation->kind = SEND;
    operation->comm = comm;
    operation->bytes = bytes_of(count, type);
    // The MPI may read it until the send is complete.
    operation->copy = operation->bytes <= INT_MAX ? malloc(operation->bytes + 1) : NULL;
    int error = copy_buffered(operation->copy, buffer, count, type, to, comm);
    if (error == MPI_SUCCESS)
        error =
            PMPI_Ibsend(operation->copy, (int)operation->bytes, MPI_BYTE, to, tag, comm, &operation->inner);
    if (error == MPI_SUCCESS) {
        add_operation(operation);
    } else {
        free(operation->copy);
        operation->copy = NULL;
    }
    return error;
}

static int send_buffered_later(const void *buffer, MPI_Count count, MPI_Datatype type, int to, int tag,
                               MPI_Comm comm, MPI_Request *request) {
    struct operation *operation;
    int error = start_request(&operation, request);
    if (error != MPI_SUCCESS) return error;
    error = start_buffered(operation, buffer, count, type, to, tag, comm);
    if (error != MPI_SUCCESS) drop_request(request);
    return error;
}

#define SEND_CALL(name, later, mode, number)                                                    \
    EXPORT int MPI_##name(const void *buffer, number count, MPI_Datatype type, int to, int tag, \
                          MPI_Comm comm) {                                                      \
        if (in_flight == 0 && is_quick(mode, count, type) && !is_on_gpu(buffer, count, type))   \
            return PMPI_##name(buffer, count, type, to, tag, comm);                             \
        if (in_flight == 0 && !is_on_gpu(buffer, count, type)) {                                \
            MPI_Request request;                                                                \
            int error = PMPI_##later(buffer, count, type, to, tag, comm, &request);             \
            return error == MPI_SUCCESS ? wait_for(&request, MPI_STATUS_IGNORE) : error;        \
        }                                                                                       \
        return send_and_wait(mode, buffer, count, type, to, tag, comm);                         \
    }
#define ISEND_CALL(name, mode, number)                                                          \
    EXPORT int MPI_##name(const void *buffer, number count, MPI_Datatype type, int to, int tag, \
                          MPI_Comm comm, MPI_Request *request) {                                \
        if (!is_on_gpu(buffer, count, type))                                                    \
            return PMPI_##name(buffer, count, type, to, tag, comm, request);                    \
        return send_later(mode, buffer, count, type, to, tag, comm, request);                   \
    }
#define BSEND_CALLS(suffix, number)                                                                         \
    EXPORT int MPI_Bsend##suffix(const void *buffer, number count, MPI_Datatype type, int to, int tag,      \
                                 MPI_Comm comm) {                                                           \
        if (!is_on_gpu(buffer, count, type)) return PMPI_Bsend##suffix(buffer, count, type, to, tag, comm); \
        return send_buffered(buffer, count, type, to, tag, comm);                                           \
    }                                                                                                       \
    EXPORT int MPI_Ibsend##suffix(const void *buffer, number count, MPI_Datatype type, int to, int tag,     \
                                  MPI_Comm comm, MPI_Request *request) {                                    \
        if (!is_on_gpu(buffer, count, type))                                                                \
            return PMPI_Ibsend##suffix(buffer, count, type, to, tag, comm, request);                        \
        return send_buffered_later(buffer, count, type, to, tag, comm, request);                            \
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

// Nothing comes from MPI_PROC_NULL. The MPI's own call also says whether the communicator was revoked, which
// Open MPI's non-blocking one leaves out.
#define RECEIVE_CALLS(suffix, number)                                                                \
    EXPORT int MPI_Recv##suffix(void *buffer, number count, MPI_Datatype type, int source, int tag,  \
                                MPI_Comm comm, MPI_Status *status) {                                 \
        if (source == MPI_PROC_NULL ||                                                               \
            (in_flight == 0 && !is_received_as_bytes(type) && !is_on_gpu(buffer, count, type)))      \
            return PMPI_Recv##suffix(buffer, count, type, source, tag, comm, status);                \
        int error;                                                                                   \
        if (receive_plain(buffer, count, type, source, tag, comm, status, &error)) return error;     \
        return receive(buffer, count, type, source, tag, comm, status);                              \
    }                                                                                                \
    EXPORT int MPI_Irecv##suffix(void *buffer, number count, MPI_Datatype type, int source, int tag, \
                                 MPI_Comm comm, MPI_Request *request) {                              \
        if (!is_received_as_bytes(type) && !is_on_gpu(buffer, count, type))                          \
            return PMPI_Irecv##suffix(buffer, count, type, source, tag, comm, request);              \
        int error;                                                                                   \
        if (start_plain(buffer, count, type, source, tag, comm, request, &error)) return error;      \
        return receive_later(buffer, count, type, source, tag, comm, request);                       \
    }

SEND_CALL(Send, Isend, STANDARD, int)
SEND_CALL(Ssend, Issend, SYNCHRONOUS, int)
SEND_CALL(Rsend, Irsend, READY, int)
ISEND_CALL(Isend, STANDARD, int)
ISEND_CALL(Issend, SYNCHRONOUS, int)
ISEND_CALL(Irsend, READY, int)
BSEND_CALLS(, int)
RECEIVE_CALLS(, int)

#if MPI_VERSION >= 4
SEND_CALL(Send_c, Isend_c, STANDARD, MPI_Count)
SEND_CALL(Ssend_c, Issend_c, SYNCHRONOUS, MPI_Count)
SEND_CALL(Rsend_c, Irsend_c, READY, MPI_Count)
ISEND_CALL(Isend_c, STANDARD, MPI_Count)
ISEND_CALL(Issend_c, SYNCHRONOUS, MPI_Count)
ISEND_CALL(Irsend_c, READY, MPI_Count)
BSEND_CALLS(_c, MPI_Count)
RECEIVE_CALLS(_c, MPI_Count)
#endif

// Matched probes, and receives of what they found.
//
// A message that is as long as a descriptor is taken out to be looked into, so there is no MPI_Message of it
// any more. The user gets one of a message of nothing that this rank sends to itself, which stands for it.

#include <stdlib.h>

#include "shim.h"

struct stand_in {
    MPI_Message message;
    // The send's.
    MPI_Request request;
    struct unexpected *unexpected;
    struct stand_in *next;
};

static struct stand_in *first;

static MPI_Message stand_in_for(struct unexpected *unexpected) {
    struct stand_in *stand_in = malloc(sizeof *stand_in);
    if (stand_in == NULL) abort();
    PMPI_Isend(NULL, 0, MPI_BYTE, 0, 0, self_comm(), &stand_in->request);
    PMPI_Mprobe(0, 0, self_comm(), &stand_in->message, MPI_STATUS_IGNORE);
    stand_in->unexpected = unexpected;
    stand_in->next = first;
    first = stand_in;
    return stand_in->message;
}

static struct unexpected *take_stand_in(MPI_Message *message) {
    struct stand_in **at = &first;
    while (*at != NULL && (*at)->message != *message) at = &(*at)->next;
    struct stand_in *stand_in = *at;
    if (stand_in == NULL) return NULL;
    struct unexpected *unexpected = stand_in->unexpected;
    *at = stand_in->next;
    PMPI_Mrecv(NULL, 0, MPI_BYTE, message, MPI_STATUS_IGNORE);
    // MPICH 4.0.2 uses the request until here: where it was freed before, another thread's took its place, and was told of
    // the end of this message of nothing.
    PMPI_Wait(&stand_in->request, MPI_STATUS_IGNORE);
    free(stand_in);
    return unexpected;
}

// The message that was looked at is taken out by its source and tag: another one of any source may come at any time.
EXPORT int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
                       MPI_Status *status) {
    progress();
    if (!in_job || source == MPI_PROC_NULL) return PMPI_Improbe(source, tag, comm, flag, message, status);
    MPI_Status found;
    struct unexpected *unexpected = NULL;
    lock();
    int error = probe_locked(source, tag, comm, flag, &found);
    if (error == MPI_SUCCESS && *flag) {
        unexpected = take_unexpected(comm, found.MPI_SOURCE, found.MPI_TAG);
        if (unexpected == NULL) error = receive_next(found.MPI_SOURCE, found.MPI_TAG, comm, &unexpected);
    }
    *flag = unexpected != NULL;
    if (unexpected != NULL) {
        fill_probed_status(unexpected, status);
        *message = unexpected->is_received ? stand_in_for(unexpected) : unexpected->message;
        if (!unexpected->is_received) free(unexpected);
    }
    unlock();
    return error;
}

EXPORT int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status) {
    if (!in_job && in_flight == 0) return PMPI_Mprobe(source, tag, comm, message, status);
    int flag = 0, error = MPI_SUCCESS;
    for (int round = 0; error == MPI_SUCCESS && !flag; round++) {
        if (round > 0) pause_for(round);
        error = MPI_Improbe(source, tag, comm, &flag, message, status);
    }
    return error;
}

// What stands for a message, or the message itself where it goes into a GPU. Null where the MPI receives it.
static struct unexpected *unexpected_of(MPI_Message *message, const void *buffer, MPI_Count count, MPI_Datatype type) {
    if (*message == MPI_MESSAGE_NULL || *message == MPI_MESSAGE_NO_PROC) return NULL;
    lock();
    struct unexpected *unexpected = take_stand_in(message);
    unlock();
    if (unexpected == NULL && is_on_gpu(buffer, count, type)) {
        unexpected = calloc(1, sizeof *unexpected);
        if (unexpected == NULL) abort();
        unexpected->comm = error_comm();
        unexpected->message = *message;
        *message = MPI_MESSAGE_NULL;
    }
    return unexpected;
}

static int receive_unexpected(struct unexpected *unexpected, void *buffer, MPI_Count count, MPI_Datatype type,
                        MPI_Status *status) {
    struct operation operation = {.handle = MPI_REQUEST_NULL, .is_blocking = true};
    int error = start_unexpected(&operation, buffer, count, type, unexpected->comm, unexpected);
    return error == MPI_SUCCESS ? finish(&operation, status) : error;
}

static int start_receive_unexpected(struct unexpected *unexpected, void *buffer, MPI_Count count, MPI_Datatype type,
                              MPI_Request *request) {
    struct operation *operation;
    int error = start_request(&operation, request);
    if (error != MPI_SUCCESS) return error;
    error = start_unexpected(operation, buffer, count, type, unexpected->comm, unexpected);
    if (error != MPI_SUCCESS) drop_request(request);
    return error;
}

#define MATCHED_CALLS(suffix, number)                                                                  \
    EXPORT int MPI_Mrecv##suffix(void *buffer, number count, MPI_Datatype type, MPI_Message *message,  \
                                 MPI_Status *status) {                                                 \
        struct unexpected *unexpected = unexpected_of(message, buffer, count, type);                                                  \
        if (unexpected == NULL) return PMPI_Mrecv##suffix(buffer, count, type, message, status);             \
        return receive_unexpected(unexpected, buffer, count, type, status);                                        \
    }                                                                                                  \
    EXPORT int MPI_Imrecv##suffix(void *buffer, number count, MPI_Datatype type, MPI_Message *message, \
                                  MPI_Request *request) {                                              \
        struct unexpected *unexpected = unexpected_of(message, buffer, count, type);                                                  \
        if (unexpected == NULL) return PMPI_Imrecv##suffix(buffer, count, type, message, request);           \
        return start_receive_unexpected(unexpected, buffer, count, type, request);                                 \
    }

MATCHED_CALLS(, int)
#if MPI_VERSION >= 4
MATCHED_CALLS(_c, MPI_Count)
#endif

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
    struct kept *kept;
    struct stand_in *next;
};

static struct stand_in *first;

static MPI_Message stand_in_for(struct kept *kept) {
    struct stand_in *stand_in = malloc(sizeof *stand_in);
    if (stand_in == NULL) abort();
    PMPI_Isend(NULL, 0, MPI_BYTE, 0, 0, own_comm(), &stand_in->request);
    PMPI_Mprobe(0, 0, own_comm(), &stand_in->message, MPI_STATUS_IGNORE);
    stand_in->kept = kept;
    stand_in->next = first;
    first = stand_in;
    return stand_in->message;
}

static struct kept *take_stand_in(MPI_Message *message) {
    struct stand_in **at = &first;
    while (*at != NULL && (*at)->message != *message) at = &(*at)->next;
    struct stand_in *stand_in = *at;
    if (stand_in == NULL) return NULL;
    struct kept *kept = stand_in->kept;
    *at = stand_in->next;
    PMPI_Mrecv(NULL, 0, MPI_BYTE, message, MPI_STATUS_IGNORE);
    // MPICH 4.0.2 uses the request until here: where it was freed before, another thread's took its place, and was told of
    // the end of this message of nothing.
    PMPI_Wait(&stand_in->request, MPI_STATUS_IGNORE);
    free(stand_in);
    return kept;
}

// The message that was looked at is taken out by its source and tag: another one of any source may come at any time.
EXPORT int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
                       MPI_Status *status) {
    progress();
    if (!in_job || source == MPI_PROC_NULL) return PMPI_Improbe(source, tag, comm, flag, message, status);
    MPI_Status found;
    struct kept *kept = NULL;
    lock();
    int error = look(source, tag, comm, flag, &found);
    if (error == MPI_SUCCESS && *flag) {
        kept = take_kept(comm, found.MPI_SOURCE, found.MPI_TAG);
        if (kept == NULL) error = take_next(found.MPI_SOURCE, found.MPI_TAG, comm, &kept);
    }
    *flag = kept != NULL;
    if (kept != NULL) {
        tell_kept(kept, status);
        *message = kept->is_received ? stand_in_for(kept) : kept->message;
        if (!kept->is_received) free(kept);
    }
    unlock();
    return error;
}

EXPORT int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status) {
    if (!in_job && under_way == 0) return PMPI_Mprobe(source, tag, comm, message, status);
    int flag = 0, error = MPI_SUCCESS;
    for (int turn = 0; error == MPI_SUCCESS && !flag; turn++) {
        if (turn > 0) pause_for(turn);
        error = MPI_Improbe(source, tag, comm, &flag, message, status);
    }
    return error;
}

// What stands for a message, or the message itself where it goes into a GPU. Null where the MPI receives it.
static struct kept *kept_of(MPI_Message *message, const void *buffer, MPI_Count count, MPI_Datatype type) {
    if (*message == MPI_MESSAGE_NULL || *message == MPI_MESSAGE_NO_PROC) return NULL;
    lock();
    struct kept *kept = take_stand_in(message);
    unlock();
    if (kept == NULL && is_on_gpu(buffer, count, type)) {
        kept = calloc(1, sizeof *kept);
        if (kept == NULL) abort();
        kept->comm = error_comm();
        kept->message = *message;
        *message = MPI_MESSAGE_NULL;
    }
    return kept;
}

static int receive_kept(struct kept *kept, void *buffer, MPI_Count count, MPI_Datatype type,
                        MPI_Status *status) {
    struct operation operation = {.handle = MPI_REQUEST_NULL, .is_blocking = true};
    int error = start_kept(&operation, buffer, count, type, kept->comm, kept);
    return error == MPI_SUCCESS ? finish(&operation, status) : error;
}

static int receive_kept_later(struct kept *kept, void *buffer, MPI_Count count, MPI_Datatype type,
                              MPI_Request *request) {
    struct operation *operation;
    int error = start_request(&operation, request);
    if (error != MPI_SUCCESS) return error;
    error = start_kept(operation, buffer, count, type, kept->comm, kept);
    if (error != MPI_SUCCESS) drop_request(request);
    return error;
}

#define MATCHED_CALLS(suffix, number)                                                                  \
    EXPORT int MPI_Mrecv##suffix(void *buffer, number count, MPI_Datatype type, MPI_Message *message,  \
                                 MPI_Status *status) {                                                 \
        struct kept *kept = kept_of(message, buffer, count, type);                                                  \
        if (kept == NULL) return PMPI_Mrecv##suffix(buffer, count, type, message, status);             \
        return receive_kept(kept, buffer, count, type, status);                                        \
    }                                                                                                  \
    EXPORT int MPI_Imrecv##suffix(void *buffer, number count, MPI_Datatype type, MPI_Message *message, \
                                  MPI_Request *request) {                                              \
        struct kept *kept = kept_of(message, buffer, count, type);                                                  \
        if (kept == NULL) return PMPI_Imrecv##suffix(buffer, count, type, message, request);           \
        return receive_kept_later(kept, buffer, count, type, request);                                 \
    }

MATCHED_CALLS(, int)
#if MPI_VERSION >= 4
MATCHED_CALLS(_c, MPI_Count)
#endif

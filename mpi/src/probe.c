// Probes, matched probes, and receives of matched messages.
//
// A probe must read a message that is as long as a descriptor. It receives that message, with all earlier
// messages of the same rank, and queues them as unexpected messages for later receives (rule 5 in
// docs/src/concepts/messages.md).

#include <stdlib.h>

#include "operation/operation.h"
#include "probe.h"

static int unexpected_count;

// The first matching unexpected message, or null. A negative number matches any there: of MPI_PROC_NULL there
// is no message, and other negative numbers are errors, which the MPI reports.
static struct unexpected *find_unexpected(MPI_Comm comm, int source, int tag, bool is_removed) {
    bool is_any_source = source == MPI_ANY_SOURCE, is_any_tag = tag == MPI_ANY_TAG;
    if ((source < 0 && !is_any_source) || (tag < 0 && !is_any_tag)) return NULL;
    return causeway_comm_take_unexpected(comm_id(comm), is_any_source ? -1 : source, is_any_tag ? -1 : tag,
                                         is_removed);
}

bool has_unexpected(void) {
    return __atomic_load_n(&unexpected_count, __ATOMIC_RELAXED) > 0;
}

struct unexpected *take_unexpected(MPI_Comm comm, int source, int tag) {
    if (!has_unexpected()) return NULL;
    struct unexpected *unexpected = find_unexpected(comm, source, tag, true);
    if (unexpected != NULL) __atomic_sub_fetch(&unexpected_count, 1, __ATOMIC_RELAXED);
    return unexpected;
}

static uint64_t length_of(const MPI_Status *status) {
    MPI_Count length = 0;
    PMPI_Get_elements_x(status, MPI_BYTE, &length);
    return (uint64_t)length;
}

int receive_next(int source, int tag, MPI_Comm comm, struct unexpected **received) {
    *received = NULL;
    struct unexpected *unexpected = calloc(1, sizeof *unexpected);
    if (unexpected == NULL) abort();
    int flag = 0, error = PMPI_Improbe(source, tag, comm, &flag, &unexpected->message, &unexpected->status);
    if (error != MPI_SUCCESS || !flag) {
        free(unexpected);
        return error;
    }
    unexpected->comm = comm;
    unexpected->payload = length_of(&unexpected->status);
    if (unexpected->payload == CAUSEWAY_COMM_DESCRIPTOR) {
        PMPI_Mrecv(unexpected->bytes, CAUSEWAY_COMM_DESCRIPTOR, MPI_BYTE, &unexpected->message,
                   MPI_STATUS_IGNORE);
        unexpected->is_received = true;
        causeway_comm_classify(unexpected->bytes, CAUSEWAY_COMM_DESCRIPTOR, UINT64_MAX, &unexpected->payload);
    }
    *received = unexpected;
    return MPI_SUCCESS;
}

// Receives the next message of a rank and queues it.
static struct unexpected *queue_next(MPI_Comm comm, int source) {
    struct unexpected *unexpected = NULL;
    if (receive_next(source, MPI_ANY_TAG, comm, &unexpected) != MPI_SUCCESS || unexpected == NULL)
        return NULL;
    __atomic_add_fetch(&unexpected_count, 1, __ATOMIC_RELAXED);
    causeway_comm_queue_unexpected(comm_id(comm), unexpected->status.MPI_SOURCE, unexpected->status.MPI_TAG,
                                   unexpected);
    return unexpected;
}

void fill_probed_status(const struct unexpected *unexpected, MPI_Status *status) {
    copy_status(&unexpected->status, status);
    if (status != MPI_STATUS_IGNORE && unexpected->is_received)
        PMPI_Status_set_elements_x(status, MPI_BYTE, (MPI_Count)unexpected->payload);
}

int probe_locked(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status) {
    struct unexpected *unexpected = find_unexpected(comm, source, tag, false);
    MPI_Status found;
    if (unexpected == NULL) {
        int error = PMPI_Iprobe(source, tag, comm, flag, &found);
        if (error != MPI_SUCCESS || !*flag) return error;
        if (length_of(&found) != CAUSEWAY_COMM_DESCRIPTOR) {
            copy_status(&found, status);
            return MPI_SUCCESS;
        }
        do {
            unexpected = queue_next(comm, found.MPI_SOURCE);
        } while (unexpected != NULL && unexpected->status.MPI_TAG != found.MPI_TAG);
    }
    *flag = unexpected != NULL;
    if (unexpected != NULL) fill_probed_status(unexpected, status);
    return MPI_SUCCESS;
}

EXPORT int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status) {
    progress();
    if (!in_job) return PMPI_Iprobe(source, tag, comm, flag, status);
    lock();
    int error = probe_locked(source, tag, comm, flag, status);
    unlock();
    return error;
}

EXPORT int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status) {
    if (!in_job && in_flight == 0) return PMPI_Probe(source, tag, comm, status);
    int flag = 0, error = MPI_SUCCESS;
    for (int round = 0; error == MPI_SUCCESS && !flag; round++) {
        if (round > 0) pause_for(round);
        error = MPI_Iprobe(source, tag, comm, &flag, status);
    }
    return error;
}

// Matched probes. After a message as long as a descriptor has been received there is no MPI_Message of it any
// more. The user gets that of an empty message which this rank sends to itself, and which stands for it.

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
    // MPICH 4.0.2 uses the request until here: if it was freed before, another thread's got its handle, and
    // the completion of this empty message.
    PMPI_Wait(&stand_in->request, MPI_STATUS_IGNORE);
    free(stand_in);
    return unexpected;
}

// Messages that a probe has matched and whose bytes the MPI has, with their communicators: a message does not
// tell its own, whose error handler is called if it cannot be received.

struct matched {
    MPI_Message message;
    MPI_Comm comm;
    struct matched *next;
};

static struct matched *first_matched;

// Removes a message, and returns its communicator: another one if no probe of the interposer has matched it.
// Needs the lock.
static MPI_Comm take_matched(MPI_Message message) {
    struct matched **at = &first_matched;
    while (*at != NULL && (*at)->message != message) at = &(*at)->next;
    struct matched *matched = *at;
    if (matched == NULL) return error_comm();
    MPI_Comm comm = matched->comm;
    *at = matched->next;
    free(matched);
    return comm;
}

static void add_matched(MPI_Message message, MPI_Comm comm) {
    // The program may have received an earlier one of this handle in a way that is not seen here.
    take_matched(message);
    struct matched *matched = malloc(sizeof *matched);
    if (matched == NULL) abort();
    *matched = (struct matched){message, comm, first_matched};
    first_matched = matched;
}

// The same for a probe that the MPI has made alone.
static int note_matched(MPI_Message message, MPI_Comm comm) {
    if (message == MPI_MESSAGE_NULL || message == MPI_MESSAGE_NO_PROC) return MPI_SUCCESS;
    lock();
    add_matched(message, comm);
    unlock();
    return MPI_SUCCESS;
}

// The probed message is received by its source and tag: another one of any source may arrive at any time.
EXPORT int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
                       MPI_Status *status) {
    progress();
    if (!in_job || source == MPI_PROC_NULL) {
        int made = PMPI_Improbe(source, tag, comm, flag, message, status);
        return made == MPI_SUCCESS && *flag ? note_matched(*message, comm) : made;
    }
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
        if (!unexpected->is_received) {
            add_matched(*message, comm);
            free(unexpected);
        }
    }
    unlock();
    return error;
}

EXPORT int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status) {
    if (!in_job && in_flight == 0) {
        int made = PMPI_Mprobe(source, tag, comm, message, status);
        return made == MPI_SUCCESS ? note_matched(*message, comm) : made;
    }
    int flag = 0, error = MPI_SUCCESS;
    for (int round = 0; error == MPI_SUCCESS && !flag; round++) {
        if (round > 0) pause_for(round);
        error = MPI_Improbe(source, tag, comm, &flag, message, status);
    }
    return error;
}

// Whether the MPI may receive a matched message with the program's arguments: it is no descriptor.
static bool is_mpis(const void *buffer, MPI_Count count, MPI_Datatype type) {
    if (count < 0 || type == MPI_DATATYPE_NULL) return true;
    if (buffer == NULL && count > 0 && is_predefined(type)) return true;
    return !is_on_gpu(buffer, count, type) && (is_contiguous(type) || !is_received_as_bytes(type));
}

// The unexpected message of a handle, or one that the interposer must receive. Null if the MPI receives it.
static struct unexpected *unexpected_of(MPI_Message *message, const void *buffer, MPI_Count count,
                                        MPI_Datatype type) {
    if (*message == MPI_MESSAGE_NULL || *message == MPI_MESSAGE_NO_PROC) return NULL;
    lock();
    struct unexpected *unexpected = take_stand_in(message);
    MPI_Comm comm = unexpected == NULL ? take_matched(*message) : unexpected->comm;
    unlock();
    if (unexpected == NULL && !is_mpis(buffer, count, type)) {
        unexpected = calloc(1, sizeof *unexpected);
        if (unexpected == NULL) abort();
        unexpected->comm = comm;
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

static int start_receive_unexpected(struct unexpected *unexpected, void *buffer, MPI_Count count,
                                    MPI_Datatype type, MPI_Request *request) {
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
        struct unexpected *unexpected = unexpected_of(message, buffer, count, type);                   \
        if (unexpected == NULL) return PMPI_Mrecv##suffix(buffer, count, type, message, status);       \
        return receive_unexpected(unexpected, buffer, count, type, status);                            \
    }                                                                                                  \
    EXPORT int MPI_Imrecv##suffix(void *buffer, number count, MPI_Datatype type, MPI_Message *message, \
                                  MPI_Request *request) {                                              \
        struct unexpected *unexpected = unexpected_of(message, buffer, count, type);                   \
        if (unexpected == NULL) return PMPI_Imrecv##suffix(buffer, count, type, message, request);     \
        return start_receive_unexpected(unexpected, buffer, count, type, request);                     \
    }

MATCHED_CALLS(, int)
#if MPI_VERSION >= 4
MATCHED_CALLS(_c, MPI_Count)
#endif

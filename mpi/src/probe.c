// The calls that look for messages.
//
// What is as long as a descriptor has to be looked into. It is taken out of the MPI's queue, with all that
// came before it from the same rank, and kept for the receives to come (rule 5 in
// docs/src/concepts/messages.md).

#include <stdlib.h>

#include "shim.h"

// -1 for any.
static int any_source(int source) {
    return source == MPI_ANY_SOURCE ? -1 : source;
}

static int any_tag(int tag) {
    return tag == MPI_ANY_TAG ? -1 : tag;
}

static int unexpected_count;

bool has_unexpected(void) {
    return __atomic_load_n(&unexpected_count, __ATOMIC_RELAXED) > 0;
}

struct unexpected *take_unexpected(MPI_Comm comm, int source, int tag) {
    if (!has_unexpected()) return NULL;
    struct unexpected *unexpected = causeway_comm_take_unexpected(comm_id(comm), any_source(source), any_tag(tag), 1);
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
        PMPI_Mrecv(unexpected->bytes, CAUSEWAY_COMM_DESCRIPTOR, MPI_BYTE, &unexpected->message, MPI_STATUS_IGNORE);
        unexpected->is_received = true;
        causeway_comm_classify(unexpected->bytes, CAUSEWAY_COMM_DESCRIPTOR, UINT64_MAX, &unexpected->payload);
    }
    *received = unexpected;
    return MPI_SUCCESS;
}

// Takes the next message of a rank out and keeps it.
static struct unexpected *queue_next(MPI_Comm comm, int source) {
    struct unexpected *unexpected = NULL;
    if (receive_next(source, MPI_ANY_TAG, comm, &unexpected) != MPI_SUCCESS || unexpected == NULL) return NULL;
    __atomic_add_fetch(&unexpected_count, 1, __ATOMIC_RELAXED);
    causeway_comm_queue_unexpected(comm_id(comm), unexpected->status.MPI_SOURCE, unexpected->status.MPI_TAG, unexpected);
    return unexpected;
}

void fill_probed_status(const struct unexpected *unexpected, MPI_Status *status) {
    copy_status(&unexpected->status, status);
    if (status != MPI_STATUS_IGNORE && unexpected->is_received)
        PMPI_Status_set_elements_x(status, MPI_BYTE, (MPI_Count)unexpected->payload);
}

int probe_locked(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status) {
    struct unexpected *unexpected = causeway_comm_take_unexpected(comm_id(comm), any_source(source), any_tag(tag), 0);
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

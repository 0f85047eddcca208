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

static int kept_count;

bool has_kept(void) {
    return __atomic_load_n(&kept_count, __ATOMIC_RELAXED) > 0;
}

struct kept *take_kept(MPI_Comm comm, int source, int tag) {
    if (!has_kept()) return NULL;
    struct kept *kept = causeway_comm_take_unexpected(number_of(comm), any_source(source), any_tag(tag), 1);
    if (kept != NULL) __atomic_sub_fetch(&kept_count, 1, __ATOMIC_RELAXED);
    return kept;
}

static uint64_t length_of(const MPI_Status *status) {
    MPI_Count length = 0;
    PMPI_Get_elements_x(status, MPI_BYTE, &length);
    return (uint64_t)length;
}

int take_next(int source, int tag, MPI_Comm comm, struct kept **taken) {
    *taken = NULL;
    struct kept *kept = calloc(1, sizeof *kept);
    if (kept == NULL) abort();
    int flag = 0, error = PMPI_Improbe(source, tag, comm, &flag, &kept->message, &kept->status);
    if (error != MPI_SUCCESS || !flag) {
        free(kept);
        return error;
    }
    kept->comm = comm;
    kept->payload = length_of(&kept->status);
    if (kept->payload == CAUSEWAY_COMM_DESCRIPTOR) {
        PMPI_Mrecv(kept->bytes, CAUSEWAY_COMM_DESCRIPTOR, MPI_BYTE, &kept->message, MPI_STATUS_IGNORE);
        kept->is_received = true;
        causeway_comm_classify(kept->bytes, CAUSEWAY_COMM_DESCRIPTOR, UINT64_MAX, &kept->payload);
    }
    *taken = kept;
    return MPI_SUCCESS;
}

// Takes the next message of a rank out and keeps it.
static struct kept *keep_next(MPI_Comm comm, int source) {
    struct kept *kept = NULL;
    if (take_next(source, MPI_ANY_TAG, comm, &kept) != MPI_SUCCESS || kept == NULL) return NULL;
    __atomic_add_fetch(&kept_count, 1, __ATOMIC_RELAXED);
    causeway_comm_queue_unexpected(number_of(comm), kept->status.MPI_SOURCE, kept->status.MPI_TAG, kept);
    return kept;
}

void tell_kept(const struct kept *kept, MPI_Status *status) {
    copy_status(&kept->status, status);
    if (status != MPI_STATUS_IGNORE && kept->is_received)
        PMPI_Status_set_elements_x(status, MPI_BYTE, (MPI_Count)kept->payload);
}

int look(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status) {
    struct kept *kept = causeway_comm_take_unexpected(number_of(comm), any_source(source), any_tag(tag), 0);
    MPI_Status found;
    if (kept == NULL) {
        int error = PMPI_Iprobe(source, tag, comm, flag, &found);
        if (error != MPI_SUCCESS || !*flag) return error;
        if (length_of(&found) != CAUSEWAY_COMM_DESCRIPTOR) {
            copy_status(&found, status);
            return MPI_SUCCESS;
        }
        do {
            kept = keep_next(comm, found.MPI_SOURCE);
        } while (kept != NULL && kept->status.MPI_TAG != found.MPI_TAG);
    }
    *flag = kept != NULL;
    if (kept != NULL) tell_kept(kept, status);
    return MPI_SUCCESS;
}

EXPORT int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status) {
    progress();
    if (!in_job) return PMPI_Iprobe(source, tag, comm, flag, status);
    lock();
    int error = look(source, tag, comm, flag, status);
    unlock();
    return error;
}

EXPORT int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status) {
    if (!in_job && under_way == 0) return PMPI_Probe(source, tag, comm, status);
    int flag = 0, error = MPI_SUCCESS;
    for (int turn = 0; error == MPI_SUCCESS && !flag; turn++) {
        if (turn > 0) pause_for(turn);
        error = MPI_Iprobe(source, tag, comm, &flag, status);
    }
    return error;
}

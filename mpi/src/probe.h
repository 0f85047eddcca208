// Unexpected messages: those that a probe, or a receive, has taken out of the MPI's queue.
#ifndef CAUSEWAY_PROBE_H
#define CAUSEWAY_PROBE_H

#include "interposer.h"

// An unexpected message: a probe has removed it from the MPI's queue.
struct unexpected {
    MPI_Comm comm;
    MPI_Message message;
    MPI_Status status;
    // The received bytes, if it is as long as a descriptor.
    bool is_received;
    unsigned char bytes[CAUSEWAY_COMM_DESCRIPTOR];
    uint64_t payload;
};

// Copies a status, except for the error: calls that return one error leave that unchanged.
static inline void copy_status(const MPI_Status *from, MPI_Status *to) {
    if (to == MPI_STATUS_IGNORE) return;
    int error = to->MPI_ERROR;
    *to = *from;
    to->MPI_ERROR = error;
}
// Whether there are unexpected messages.
bool has_unexpected(void);
// Removes the first matching unexpected message, or returns null.
struct unexpected *take_unexpected(MPI_Comm comm, int source, int tag);
// Probes once. Needs the lock.
int probe_locked(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status);
// Receives the first matching message of the MPI's queue, and reads a descriptor; null if there is none.
// Returns an error of the MPI. Needs the lock.
int receive_next(int source, int tag, MPI_Comm comm, struct unexpected **received);
// Fills the status of such a message for the program.
void fill_probed_status(const struct unexpected *unexpected, MPI_Status *status);

#endif

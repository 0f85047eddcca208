// Persistent requests of messages and collective calls.
#ifndef CAUSEWAY_PERSISTENT_H
#define CAUSEWAY_PERSISTENT_H

#include "operation/operation.h"

// Number of completed messages of persistent requests that have not been reported to the user.
extern int unreported_count;
// Reports the completion of a persistent request's message, for the last time or not. Whether there was one.
bool complete_persistent(MPI_Request handle, MPI_Status *status, bool is_last, struct operation *ended);
// A persistent request of a collective call, which takes ownership of the staging if there is no error.
int make_collective(struct staging *staging, MPI_Request inner, MPI_Comm comm, MPI_Request *request);
// The staging of such a request, which is replaced by the MPI's, and whether the call is in flight; null for
// any other one.
struct staging *staging_with(MPI_Request *request, bool *is_active);
// Frees a persistent request. Whether it is one of these.
bool free_persistent(MPI_Request request);

#endif

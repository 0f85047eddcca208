// Errors of operations whose requests the user waits for. The MPI, which frees the request, does not know them.

#include <stdlib.h>

#include "operation.h"

struct failure *failures;
// Its address is this thread's mark.
static __thread char mark;

void add_failure(MPI_Request handle, MPI_Comm comm, int error, bool is_raised) {
    struct failure *failure = malloc(sizeof *failure);
    if (failure == NULL) abort();
    lock();
    *failure = (struct failure){handle, comm, error, is_raised, NULL, failures};
    failures = failure;
    unlock();
}

void mark_queried(MPI_Request handle) {
    lock();
    struct failure *failure = failures;
    // An older one of this handle was marked when its request was one.
    while (failure != NULL && failure->handle != handle) failure = failure->next;
    if (failure != NULL) failure->queried_by = &mark;
    unlock();
}

bool take_failure(MPI_Request handle, struct failure *found) {
    lock();
    struct failure **at = &failures;
    while (*at != NULL && ((*at)->handle != handle || (*at)->queried_by != &mark)) at = &(*at)->next;
    struct failure *failure = *at;
    if (failure != NULL) {
        *at = failure->next;
        *found = *failure;
        free(failure);
    }
    unlock();
    return failure != NULL;
}

void drop_failure(MPI_Request handle) {
    struct failure discarded;
    if (failures == NULL) return;
    mark_queried(handle);
    take_failure(handle, &discarded);
}

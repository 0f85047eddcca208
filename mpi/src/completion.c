// The calls that wait for requests and ask about them.
//
// Every request is one that the MPI knows, so that it waits for all of them; in between the operations under
// way move on. What the MPI does not know is the error of an operation.

#include <stdlib.h>
#include <string.h>

#include "shim.h"

// Whether there is nothing but the MPI's own.
static bool is_idle(void) {
    return under_way == 0 && failures == NULL && unheard == 0;
}

// What there is to hear of a request that has come to its end. Says whether that is an error.
static bool take_end(MPI_Request handle, MPI_Status *status, struct failure *found) {
    if (failures != NULL && take_failure(handle, found)) return true;
    struct operation ended;
    if (unheard == 0 || !hear_persistent(handle, status, true, &ended)) return false;
    *found = (struct failure){handle, ended.comm, ended.error, ended.is_raised, NULL, NULL};
    return ended.error != MPI_SUCCESS;
}

// A request has come to its end: whether that was an error.
static int settle(MPI_Request handle, MPI_Status *status) {
    struct failure failure;
    if (!take_end(handle, status, &failure)) return MPI_SUCCESS;
    if (status != MPI_STATUS_IGNORE) status->MPI_ERROR = failure.error;
    if (!failure.is_raised) PMPI_Comm_call_errhandler(failure.comm, failure.error);
    return failure.error;
}

// The same for some of an array: those of these indices, or the first ones where there are none.
static int settle_all(int count, const int *indices, const MPI_Request *handles, MPI_Status *statuses) {
    struct failure failure = {.comm = MPI_COMM_NULL};
    if (failures == NULL && unheard == 0) return MPI_SUCCESS;
    bool has_status = statuses != MPI_STATUSES_IGNORE, has_failed = false;
    for (int at = 0; at < count && has_status; at++) statuses[at].MPI_ERROR = MPI_SUCCESS;
    for (int at = 0; at < count; at++) {
        MPI_Status *status = has_status ? &statuses[at] : MPI_STATUS_IGNORE;
        if (!take_end(handles[indices == NULL ? at : indices[at]], status, &failure)) continue;
        if (has_status) statuses[at].MPI_ERROR = failure.error;
        has_failed = true;
    }
    if (!has_failed) return MPI_SUCCESS;
    PMPI_Comm_call_errhandler(failure.comm, MPI_ERR_IN_STATUS);
    return MPI_ERR_IN_STATUS;
}

// A copy of the handles: the MPI takes those away whose requests it frees.
static MPI_Request *copy_of(int count, const MPI_Request *requests) {
    MPI_Request *copy = calloc((size_t)(count > 0 ? count : 1), sizeof *copy);
    if (copy == NULL) abort();
    if (count > 0) memcpy(copy, requests, sizeof *copy * (size_t)count);
    return copy;
}

EXPORT int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    if (is_idle()) return PMPI_Wait(request, status);
    MPI_Request handle = *request;
    int error = wait_for(request, status);
    return error == MPI_SUCCESS ? settle(handle, status) : error;
}

EXPORT int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    if (is_idle()) return PMPI_Test(request, flag, status);
    MPI_Request handle = *request;
    progress();
    int error = PMPI_Test(request, flag, status);
    return error == MPI_SUCCESS && *flag ? settle(handle, status) : error;
}

// Waits for one after the other: MPICH 4.0.2 has errors for MPI_Testall of persistent collective requests.
static int wait_all(int count, MPI_Request *requests, MPI_Status *statuses) {
    MPI_Request *handles = copy_of(count, requests);
    int *errors = calloc((size_t)(count > 0 ? count : 1), sizeof *errors);
    if (errors == NULL) abort();
    bool has_status = statuses != MPI_STATUSES_IGNORE, has_failed = false;
    for (int at = 0; at < count; at++) {
        errors[at] = wait_for(&requests[at], has_status ? &statuses[at] : MPI_STATUS_IGNORE);
        has_failed |= errors[at] != MPI_SUCCESS;
    }
    int error = settle_all(count, NULL, handles, statuses);
    // The MPI has called the error handler for its own.
    for (int at = 0; at < count && has_failed && has_status; at++)
        if (error == MPI_SUCCESS || errors[at] != MPI_SUCCESS) statuses[at].MPI_ERROR = errors[at];
    free(errors);
    free(handles);
    return has_failed ? MPI_ERR_IN_STATUS : error;
}

static int test_all(int count, MPI_Request *requests, int *flag, MPI_Status *statuses) {
    MPI_Request *handles = copy_of(count, requests);
    progress();
    int error = PMPI_Testall(count, requests, flag, statuses);
    if (error == MPI_SUCCESS && *flag) error = settle_all(count, NULL, handles, statuses);
    free(handles);
    return error;
}

EXPORT int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses) {
    if (is_idle()) return PMPI_Waitall(count, requests, statuses);
    return wait_all(count, requests, statuses);
}

EXPORT int MPI_Testall(int count, MPI_Request *requests, int *flag, MPI_Status *statuses) {
    if (is_idle()) return PMPI_Testall(count, requests, flag, statuses);
    return test_all(count, requests, flag, statuses);
}

static int test_any(int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status, bool waits) {
    MPI_Request *handles = copy_of(count, requests);
    int error = MPI_SUCCESS;
    *flag = 0;
    for (int turn = 0; error == MPI_SUCCESS && !*flag && (waits || turn == 0); turn++) {
        if (turn > 0) pause_for(turn);
        progress();
        error = PMPI_Testany(count, requests, index, flag, status);
    }
    if (error == MPI_SUCCESS && *flag && *index != MPI_UNDEFINED) error = settle(handles[*index], status);
    free(handles);
    return error;
}

EXPORT int MPI_Waitany(int count, MPI_Request *requests, int *index, MPI_Status *status) {
    int flag;
    if (is_idle()) return PMPI_Waitany(count, requests, index, status);
    return test_any(count, requests, index, &flag, status, true);
}

EXPORT int MPI_Testany(int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status) {
    if (is_idle()) return PMPI_Testany(count, requests, index, flag, status);
    return test_any(count, requests, index, flag, status, false);
}

static int test_some(int count, MPI_Request *requests, int *ended, int *indices, MPI_Status *statuses,
                     bool waits) {
    MPI_Request *handles = copy_of(count, requests);
    int error = MPI_SUCCESS;
    *ended = 0;
    for (int turn = 0; error == MPI_SUCCESS && *ended == 0 && (waits || turn == 0); turn++) {
        if (turn > 0) pause_for(turn);
        progress();
        error = PMPI_Testsome(count, requests, ended, indices, statuses);
    }
    if (error == MPI_SUCCESS && *ended != MPI_UNDEFINED)
        error = settle_all(*ended, indices, handles, statuses);
    free(handles);
    return error;
}

EXPORT int MPI_Waitsome(int count, MPI_Request *requests, int *ended, int *indices, MPI_Status *statuses) {
    if (is_idle()) return PMPI_Waitsome(count, requests, ended, indices, statuses);
    return test_some(count, requests, ended, indices, statuses, true);
}

EXPORT int MPI_Testsome(int count, MPI_Request *requests, int *ended, int *indices, MPI_Status *statuses) {
    if (is_idle()) return PMPI_Testsome(count, requests, ended, indices, statuses);
    return test_some(count, requests, ended, indices, statuses, false);
}

EXPORT int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status) {
    progress();
    int error = PMPI_Request_get_status(request, flag, status);
    struct operation ended;
    if (error == MPI_SUCCESS && *flag && unheard > 0) hear_persistent(request, status, false, &ended);
    return error;
}

EXPORT int MPI_Request_free(MPI_Request *request) {
    if (!free_later(*request) && !free_persistent(*request)) {
        forget_failure(*request);
        return PMPI_Request_free(request);
    }
    *request = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}

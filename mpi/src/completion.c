// Completion of requests: MPI_Wait, MPI_Test and their relatives.
//
// Every request is known to the MPI, which waits for all of them; in between, the operations in flight make
// progress. The MPI does not know the error of an operation.

#include <stdlib.h>
#include <string.h>

#include "operation/plain.h"
#include "persistent.h"
#include "probe.h"

// Whether all requests are the MPI's own. An operation that another thread completes is in flight until its
// result can be reported: both under the lock.
static bool is_idle(void) {
    lock();
    bool is_idle = in_flight == 0 && failures == NULL && unreported_count == 0 && plain_count == 0;
    unlock();
    return is_idle;
}

// Reports a completed request; `left` is what the call has left of it. Whether that is an error.
static bool take_end(MPI_Request handle, MPI_Request left, MPI_Status *status, struct failure *found) {
    if (failures != NULL && take_failure(handle, found)) return true;
    struct operation ended;
    // The MPI frees others than persistent ones, and the handle may be that of another thread's by now.
    if (left != handle || unreported_count == 0 || !complete_persistent(handle, status, true, &ended))
        return false;
    *found = (struct failure){handle, ended.comm, ended.error, ended.is_raised, NULL, NULL};
    return ended.error != MPI_SUCCESS;
}

// A request has completed: whether that was an error.
static int complete(MPI_Request handle, MPI_Request left, MPI_Status *status) {
    struct failure failure;
    if (!take_end(handle, left, status, &failure)) return MPI_SUCCESS;
    if (status != MPI_STATUS_IGNORE) status->MPI_ERROR = failure.error;
    if (!failure.is_raised) PMPI_Comm_call_errhandler(failure.comm, failure.error);
    return failure.error;
}

// The same for some of an array: those of these indices, or the first ones if there are none.
static int complete_all(int count, const int *indices, const MPI_Request *handles,
                        const MPI_Request *requests, MPI_Status *statuses) {
    struct failure failure = {.comm = MPI_COMM_NULL};
    if (failures == NULL && unreported_count == 0) return MPI_SUCCESS;
    bool has_status = statuses != MPI_STATUSES_IGNORE, has_failed = false;
    for (int at = 0; at < count && has_status; at++) statuses[at].MPI_ERROR = MPI_SUCCESS;
    for (int at = 0; at < count; at++) {
        MPI_Status *status = has_status ? &statuses[at] : MPI_STATUS_IGNORE;
        int index = indices == NULL ? at : indices[at];
        if (!take_end(handles[index], requests[index], status, &failure)) continue;
        if (has_status) statuses[at].MPI_ERROR = failure.error;
        has_failed = true;
    }
    if (!has_failed) return MPI_SUCCESS;
    PMPI_Comm_call_errhandler(failure.comm, MPI_ERR_IN_STATUS);
    return MPI_ERR_IN_STATUS;
}

// A copy of the handles: the MPI overwrites those whose requests it frees.
static MPI_Request *copy_of(int count, const MPI_Request *requests) {
    MPI_Request *copy = calloc((size_t)(count > 0 ? count : 1), sizeof *copy);
    if (copy == NULL) abort();
    if (count > 0) memcpy(copy, requests, sizeof *copy * (size_t)count);
    return copy;
}

// A call of the MPI has returned this error for a plain receive, which may still be in flight: fills the
// status of the message, and returns the error.
static int complete_plain(struct plain *plain, bool has_ended, MPI_Status *found, MPI_Status *status,
                          int error) {
    if (!has_ended) return error;
    MPI_Comm comm = plain->comm;
    if (error != MPI_SUCCESS) {
        drop_plain(plain);
    } else {
        error = end_plain(plain, found);
        if (error != MPI_SUCCESS) PMPI_Comm_call_errhandler(comm, error);
    }
    copy_status(found, status);
    return error;
}

// Whether the MPI has completed one in such a call. If that has an error, a persistent request is inactive
// again.
static bool is_over(const struct plain *plain, MPI_Request request, bool flag, int error) {
    return request == MPI_REQUEST_NULL || (plain->is_persistent && (flag || error != MPI_SUCCESS));
}

// Polls one that the MPI does not know to be in flight.
static int test_apart(struct plain *plain, int *flag, MPI_Status *status) {
    MPI_Status found;
    progress();
    poll_plain(plain, flag, &found);
    return complete_plain(plain, *flag, &found, status, MPI_SUCCESS);
}

static int wait_plain(struct plain *plain, MPI_Request *request, MPI_Status *status) {
    MPI_Status found;
    if (plain->is_apart) {
        int flag = 0, error = MPI_SUCCESS;
        for (int round = 0; !flag; round++) {
            if (round > 0) pause_for(round);
            error = test_apart(plain, &flag, status);
        }
        return error;
    }
    bool is_alone = in_flight == 0 && plain_count == 1;
    int error = is_alone ? PMPI_Wait(request, &found) : wait_for(request, &found);
    return complete_plain(plain, is_over(plain, *request, true, error), &found, status, error);
}

static int test_plain(struct plain *plain, MPI_Request *request, int *flag, MPI_Status *status) {
    MPI_Status found;
    if (plain->is_apart) return test_apart(plain, flag, status);
    progress();
    int error = PMPI_Test(request, flag, &found);
    return complete_plain(plain, is_over(plain, *request, *flag, error), &found, status, error);
}

// The plain receives of an array, and statuses for them if the program has none.
struct plains {
    int count;
    struct plain **list;
    MPI_Status *statuses;
};

static struct plains plains_of(int count, const MPI_Request *requests) {
    struct plains plains = {0, NULL, NULL};
    if (plain_count == 0 || count <= 0) return plains;
    plains = (struct plains){count, calloc((size_t)count, sizeof *plains.list), NULL};
    plains.statuses = calloc((size_t)count, sizeof *plains.statuses);
    if (plains.list == NULL || plains.statuses == NULL) abort();
    for (int at = 0; at < count; at++) plains.list[at] = plain_with(requests[at]);
    return plains;
}

// The first of them that is apart, and has completed or has not; -1 if there is none.
static int find_apart(const struct plains *plains, bool has_ended) {
    for (int at = 0; apart_count > 0 && at < plains->count; at++) {
        struct plain *plain = plains->list[at];
        int flag;
        if (plain == NULL || !plain->is_apart) continue;
        poll_plain(plain, &flag, MPI_STATUS_IGNORE);
        if (flag == has_ended) return at;
    }
    return -1;
}

// Whether the MPI has completed one whose request stays.
static bool has_rested(const struct plain *plain, bool all, int error, int own) {
    return plain->is_persistent && (error == MPI_ERR_IN_STATUS ? own != MPI_ERR_PENDING : all);
}

// Completes those that the MPI has completed, among the requests of the call or, with indices, among those
// that it reported; `all` says that it has completed all of these. The status of each is at its index among
// them. Returns the error of the call, or MPI_ERR_IN_STATUS.
static int end_plains(struct plains *plains, const MPI_Request *requests, const int *indices, int ended,
                      bool all, MPI_Status *statuses, int error) {
    bool has_failed = false;
    MPI_Comm comm = MPI_COMM_NULL;
    for (int entry = 0; entry < ended && plains->list != NULL; entry++) {
        int at = indices == NULL ? entry : indices[entry];
        struct plain *plain = plains->list[at];
        if (plain == NULL) continue;
        int own = error == MPI_ERR_IN_STATUS ? statuses[entry].MPI_ERROR : error;
        if (requests[at] != MPI_REQUEST_NULL && !has_rested(plain, all, error, own)) continue;
        plains->list[at] = NULL;
        comm = plain->comm;
        if (own != MPI_SUCCESS) {
            drop_plain(plain);
            continue;
        }
        own = end_plain(plain, &statuses[entry]);
        if (own == MPI_SUCCESS) continue;
        for (int other = 0; other < ended && !has_failed && error == MPI_SUCCESS; other++)
            statuses[other].MPI_ERROR = MPI_SUCCESS;
        statuses[entry].MPI_ERROR = own;
        has_failed = true;
    }
    if (has_failed) PMPI_Comm_call_errhandler(comm, MPI_ERR_IN_STATUS);
    return has_failed ? MPI_ERR_IN_STATUS : error;
}

// Frees the list. Those that the MPI has completed with an error are dropped.
static void drop_plains(struct plains *plains, const MPI_Request *requests) {
    for (int at = 0; at < plains->count; at++)
        if (plains->list[at] != NULL && requests[at] == MPI_REQUEST_NULL) drop_plain(plains->list[at]);
    free(plains->list);
    free(plains->statuses);
}

EXPORT int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    if (is_idle()) return PMPI_Wait(request, status);
    struct plain *plain = plain_with(*request);
    if (plain != NULL) return wait_plain(plain, request, status);
    MPI_Request handle = *request;
    int error = wait_for(request, status);
    return error == MPI_SUCCESS ? complete(handle, *request, status) : error;
}

EXPORT int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    if (is_idle()) return PMPI_Test(request, flag, status);
    struct plain *plain = plain_with(*request);
    if (plain != NULL) return test_plain(plain, request, flag, status);
    MPI_Request handle = *request;
    progress();
    int error = PMPI_Test(request, flag, status);
    return error == MPI_SUCCESS && *flag ? complete(handle, *request, status) : error;
}

// For one that is no plain receive.
static int wait_other(MPI_Request *request, MPI_Status *status) {
    // Polling takes longer than a wait, and nothing of this rank needs it.
    return in_flight == 0 && plain_count == 0 ? PMPI_Wait(request, status) : wait_for(request, status);
}

enum { FEW = 64 };

// Plain receives of an array, and their indices in it.
struct few_plains {
    int count, indices[FEW];
    struct plain *list[FEW];
    MPI_Request requests[FEW];
};

// Whether these are all plain receives in flight, and nothing else needs progress of this rank.
static bool find_all_plains(int count, const MPI_Request *requests, struct few_plains *found) {
    found->count = 0;
    if (in_flight > 0 || apart_count > 0 || plain_count > FEW) return false;
    for (int at = 0; at < count && found->count < FEW; at++) {
        struct plain *plain = plain_with(requests[at]);
        if (plain == NULL) continue;
        found->indices[found->count] = at;
        found->list[found->count] = plain;
        found->requests[found->count++] = requests[at];
    }
    return found->count == plain_count && plain_count > 1;
}

// The MPI waits for these: to poll one after the other takes longer. A message of each is seen when it comes,
// so no sender of a descriptor waits in vain.
static void wait_for_plains(struct few_plains *plains, MPI_Request *requests, MPI_Status *statuses,
                            int *errors) {
    int ended, indices[FEW];
    MPI_Status found[FEW];
    while (plains->count > 0) {
        int error = PMPI_Waitsome(plains->count, plains->requests, &ended, indices, found);
        // The caller waits for each of them, and gets the error again.
        if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS) return;
        for (int entry = 0; entry < ended; entry++) {
            int plain = indices[entry], at = plains->indices[plain];
            int own = error == MPI_ERR_IN_STATUS ? found[entry].MPI_ERROR : MPI_SUCCESS;
            MPI_Status *status = statuses != MPI_STATUSES_IGNORE ? &statuses[at] : MPI_STATUS_IGNORE;
            requests[at] = plains->requests[plain];
            errors[at] = complete_plain(plains->list[plain], true, &found[entry], status, own);
            plains->list[plain] = NULL;
        }
        int left = 0;
        for (int plain = 0; plain < plains->count; plain++) {
            if (plains->list[plain] == NULL) continue;
            plains->indices[left] = plains->indices[plain];
            plains->list[left] = plains->list[plain];
            plains->requests[left++] = plains->requests[plain];
        }
        plains->count = left;
    }
}

// Waits for one after the other: MPICH 4.0.2 has errors for MPI_Testall of persistent collective requests.
// Plain receives come first: behind them the MPI waits for its sends by itself.
static int wait_each(int count, MPI_Request *requests, MPI_Status *statuses, int *errors) {
    enum { NOT_YET = -1 };
    bool has_status = statuses != MPI_STATUSES_IGNORE, has_failed = false;
    struct few_plains plains;
    for (int at = 0; at < count; at++) errors[at] = NOT_YET;
    if (find_all_plains(count, requests, &plains)) wait_for_plains(&plains, requests, statuses, errors);
    for (int at = 0; at < count && plain_count > 0; at++) {
        MPI_Status *status = has_status ? &statuses[at] : MPI_STATUS_IGNORE;
        struct plain *plain = errors[at] == NOT_YET ? plain_with(requests[at]) : NULL;
        if (plain != NULL) errors[at] = wait_plain(plain, &requests[at], status);
    }
    for (int at = 0; at < count; at++) {
        MPI_Status *status = has_status ? &statuses[at] : MPI_STATUS_IGNORE;
        if (errors[at] == NOT_YET) errors[at] = wait_other(&requests[at], status);
        has_failed |= errors[at] != MPI_SUCCESS;
    }
    return has_failed ? MPI_ERR_IN_STATUS : MPI_SUCCESS;
}

static int wait_all(int count, MPI_Request *requests, MPI_Status *statuses) {
    int few[FEW], *errors = count <= FEW ? few : calloc((size_t)count, sizeof *errors);
    if (errors == NULL) abort();
    // Without operations, of which the MPI does not know the errors, there is nothing to report besides.
    bool has_operations = in_flight > 0 || failures != NULL || unreported_count > 0;
    MPI_Request *handles = has_operations ? copy_of(count, requests) : NULL;
    int failed = wait_each(count, requests, statuses, errors);
    int error = has_operations ? complete_all(count, NULL, handles, requests, statuses) : MPI_SUCCESS;
    // The MPI has called the error handler for its own.
    for (int at = 0; at < count && failed != MPI_SUCCESS && statuses != MPI_STATUSES_IGNORE; at++)
        if (error == MPI_SUCCESS || errors[at] != MPI_SUCCESS) statuses[at].MPI_ERROR = errors[at];
    if (errors != few) free(errors);
    free(handles);
    return failed != MPI_SUCCESS ? failed : error;
}

static int test_all(int count, MPI_Request *requests, int *flag, MPI_Status *statuses) {
    MPI_Request *handles = copy_of(count, requests);
    struct plains plains = plains_of(count, requests);
    MPI_Status *found = plains.list != NULL && statuses == MPI_STATUSES_IGNORE ? plains.statuses : statuses;
    progress();
    *flag = 0;
    bool is_waiting = find_apart(&plains, false) >= 0;
    int error = is_waiting ? MPI_SUCCESS : PMPI_Testall(count, requests, flag, found);
    bool has_ended = error == MPI_SUCCESS && *flag;
    error = end_plains(&plains, requests, NULL, count, *flag, found, error);
    if (has_ended && error == MPI_SUCCESS) error = complete_all(count, NULL, handles, requests, statuses);
    drop_plains(&plains, requests);
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
    struct plains plains = plains_of(count, requests);
    MPI_Status *found = plains.list != NULL && status == MPI_STATUS_IGNORE ? plains.statuses : status;
    int error = MPI_SUCCESS;
    *flag = 0;
    for (int round = 0; error == MPI_SUCCESS && !*flag && (waits || round == 0); round++) {
        if (round > 0) pause_for(round);
        progress();
        *index = find_apart(&plains, true);
        *flag = *index >= 0;
        if (!*flag) error = PMPI_Testany(count, requests, index, flag, found);
        // The others are inactive, but for one that the MPI does not know.
        if (*flag && *index == MPI_UNDEFINED && find_apart(&plains, false) >= 0) *flag = 0;
    }
    if (error == MPI_SUCCESS && *flag && *index != MPI_UNDEFINED) {
        struct plain *plain = plains.list != NULL ? plains.list[*index] : NULL;
        if (plain != NULL) plains.list[*index] = NULL;
        error = plain != NULL ? complete_plain(plain, true, found, found, error)
                              : complete(handles[*index], requests[*index], status);
    } else if (error != MPI_SUCCESS && plains.list != NULL && *index >= 0 && *index < count) {
        // Its request stays, and is inactive.
        struct plain *plain = plains.list[*index];
        if (plain != NULL && plain->is_persistent) drop_plain(plain);
    }
    drop_plains(&plains, requests);
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
    struct plains plains = plains_of(count, requests);
    MPI_Status *found = plains.list != NULL && statuses == MPI_STATUSES_IGNORE ? plains.statuses : statuses;
    int error = MPI_SUCCESS;
    *ended = 0;
    for (int round = 0; error == MPI_SUCCESS && *ended == 0 && (waits || round == 0); round++) {
        if (round > 0) pause_for(round);
        progress();
        int apart = find_apart(&plains, true);
        *ended = apart >= 0;
        if (apart >= 0) indices[0] = apart;
        if (apart < 0) error = PMPI_Testsome(count, requests, ended, indices, found);
        if (*ended == MPI_UNDEFINED && find_apart(&plains, false) >= 0) *ended = 0;
    }
    bool has_ended = error == MPI_SUCCESS && *ended != MPI_UNDEFINED;
    if (*ended != MPI_UNDEFINED) error = end_plains(&plains, requests, indices, *ended, true, found, error);
    if (has_ended && error == MPI_SUCCESS) error = complete_all(*ended, indices, handles, requests, statuses);
    drop_plains(&plains, requests);
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
    struct plain *plain = plain_with(request);
    if (plain != NULL) {
        poll_plain(plain, flag, status);
        return MPI_SUCCESS;
    }
    int error = PMPI_Request_get_status(request, flag, status);
    struct operation ended;
    if (error == MPI_SUCCESS && *flag && unreported_count > 0)
        complete_persistent(request, status, false, &ended);
    return error;
}

EXPORT int MPI_Request_free(MPI_Request *request) {
    int error;
    if (free_persistent_plain(request, &error)) return error;
    struct plain *plain = plain_with(*request);
    if (plain != NULL) return free_plain(plain, request);
    if (!free_later(*request) && !free_persistent(*request)) {
        drop_failure(*request);
        return PMPI_Request_free(request);
    }
    *request = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}

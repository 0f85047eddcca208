// Calls that have not come to their end: when may the program look at what they brought?

#include "on_gpu.h"

#include <pthread.h>
#include <string.h>

struct pending {
    MPI_Request request;
    bool is_persistent, is_active;
    struct moved *out, *in;
    struct pending *next;
};

static struct pending *first;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void remember(MPI_Request request, int error, bool is_persistent, struct moved *out, struct moved *in) {
    if (out == NULL && in == NULL) return;
    if (error != MPI_SUCCESS || request == MPI_REQUEST_NULL) {
        end_moved(out);
        end_moved(in);
        return;
    }
    struct pending *pending = malloc(sizeof *pending);
    if (pending == NULL) abort();
    pthread_mutex_lock(&mutex);
    *pending = (struct pending){request, is_persistent, !is_persistent, out, in, first};
    first = pending;
    pthread_mutex_unlock(&mutex);
}

static struct pending **find(MPI_Request request) {
    struct pending **at = &first;
    while (*at != NULL && (*at)->request != request) at = &(*at)->next;
    return at;
}

// The program hears that a request has come to its end.
static void end(MPI_Request request) {
    pthread_mutex_lock(&mutex);
    struct pending **at = find(request), *pending = *at;
    if (pending != NULL && !pending->is_active) pending = NULL;
    if (pending != NULL && !pending->is_persistent) *at = pending->next;
    if (pending != NULL) pending->is_active = false;
    pthread_mutex_unlock(&mutex);
    if (pending == NULL) return;
    bring_down(pending->in);
    if (pending->is_persistent) return;
    drop_moved(pending->out);
    drop_moved(pending->in);
    free(pending);
}

static MPI_Request *copy_of(int count, const MPI_Request *requests) {
    MPI_Request *copy = malloc(sizeof *copy * (size_t)(count > 0 ? count : 1));
    if (copy == NULL) abort();
    if (count > 0) memcpy(copy, requests, sizeof *copy * (size_t)count);
    return copy;
}

// Those of some requests that have ended, by what is left of them.
static void end_all(int count, MPI_Request *handles, const MPI_Request *requests, int error) {
    for (int at = 0; at < count; at++)
        if (handles[at] != MPI_REQUEST_NULL && (error == MPI_SUCCESS || requests[at] != handles[at]))
            end(handles[at]);
    free(handles);
}

EXPORT int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    MPI_Request handle = *request;
    int error = NEXT(MPI_Wait)(request, status);
    end(handle);
    return error;
}

EXPORT int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    MPI_Request handle = *request;
    int error = NEXT(MPI_Test)(request, flag, status);
    if (error != MPI_SUCCESS || *flag) end(handle);
    return error;
}

EXPORT int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses) {
    MPI_Request *handles = copy_of(count, requests);
    int error = NEXT(MPI_Waitall)(count, requests, statuses);
    end_all(count, handles, requests, error);
    return error;
}

EXPORT int MPI_Testall(int count, MPI_Request *requests, int *flag, MPI_Status *statuses) {
    MPI_Request *handles = copy_of(count, requests);
    int error = NEXT(MPI_Testall)(count, requests, flag, statuses);
    end_all(error == MPI_SUCCESS && !*flag ? 0 : count, handles, requests, error);
    return error;
}

EXPORT int MPI_Waitany(int count, MPI_Request *requests, int *index, MPI_Status *status) {
    MPI_Request *handles = copy_of(count, requests);
    int error = NEXT(MPI_Waitany)(count, requests, index, status);
    if (*index >= 0 && *index < count) end(handles[*index]);
    free(handles);
    return error;
}

EXPORT int MPI_Testany(int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status) {
    MPI_Request *handles = copy_of(count, requests);
    int error = NEXT(MPI_Testany)(count, requests, index, flag, status);
    if (*flag && *index >= 0 && *index < count) end(handles[*index]);
    free(handles);
    return error;
}

static void end_some(int count, MPI_Request *handles, int ended, const int *indices) {
    for (int at = 0; ended != MPI_UNDEFINED && at < ended && at < count; at++) end(handles[indices[at]]);
    free(handles);
}

EXPORT int MPI_Waitsome(int count, MPI_Request *requests, int *ended, int *indices, MPI_Status *statuses) {
    MPI_Request *handles = copy_of(count, requests);
    int error = NEXT(MPI_Waitsome)(count, requests, ended, indices, statuses);
    end_some(count, handles, *ended, indices);
    return error;
}

EXPORT int MPI_Testsome(int count, MPI_Request *requests, int *ended, int *indices, MPI_Status *statuses) {
    MPI_Request *handles = copy_of(count, requests);
    int error = NEXT(MPI_Testsome)(count, requests, ended, indices, statuses);
    end_some(count, handles, *ended, indices);
    return error;
}

EXPORT int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status) {
    int error = NEXT(MPI_Request_get_status)(request, flag, status);
    pthread_mutex_lock(&mutex);
    struct pending *pending = *find(request);
    if (error == MPI_SUCCESS && *flag && pending != NULL && pending->is_active) bring_down(pending->in);
    pthread_mutex_unlock(&mutex);
    return error;
}

EXPORT int MPI_Request_free(MPI_Request *request) {
    pthread_mutex_lock(&mutex);
    struct pending **at = find(*request), *pending = *at;
    if (pending != NULL) *at = pending->next;
    pthread_mutex_unlock(&mutex);
    int error = NEXT(MPI_Request_free)(request);
    // Of one that is under way nobody hears of the end: its memory stays.
    if (pending != NULL && !pending->is_active) {
        drop_moved(pending->out);
        drop_moved(pending->in);
    }
    free(pending);
    return error;
}

static void start(MPI_Request request) {
    pthread_mutex_lock(&mutex);
    struct pending *pending = *find(request);
    if (pending != NULL) pending->is_active = true;
    pthread_mutex_unlock(&mutex);
    if (pending == NULL) return;
    bring_up(pending->out);
    bring_up(pending->in);
}

EXPORT int MPI_Start(MPI_Request *request) {
    start(*request);
    return NEXT(MPI_Start)(request);
}

EXPORT int MPI_Startall(int count, MPI_Request *requests) {
    for (int at = 0; at < count; at++) start(requests[at]);
    return NEXT(MPI_Startall)(count, requests);
}

EXPORT int MPI_Finalize(void) {
    write_report();
    return NEXT(MPI_Finalize)();
}

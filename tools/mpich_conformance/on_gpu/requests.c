// Calls that have not come to their end: when may the program look at what they brought?

#include "on_gpu.h"

#include <pthread.h>

struct pending {
    MPI_Request request;
    bool is_persistent, is_active;
    struct moved *out, *in;
    // Of a one-sided call.
    MPI_Win window;
    int target;
    // Of a partitioned message.
    size_t part_bytes;
    struct pending *next;
};

static struct pending *first;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void add(struct pending added, int error) {
    struct moved *out = added.out, *in = added.in;
    if (out == NULL && in == NULL) return;
    if (error != MPI_SUCCESS || added.request == MPI_REQUEST_NULL) {
        end_moved(out);
        end_moved(in);
        return;
    }
    struct pending *pending = malloc(sizeof *pending);
    if (pending == NULL) abort();
    pthread_mutex_lock(&mutex);
    *pending = added;
    pending->next = first;
    first = pending;
    pthread_mutex_unlock(&mutex);
}

void remember(MPI_Request request, int error, bool is_persistent, struct moved *out, struct moved *in) {
    add((struct pending){request, is_persistent, !is_persistent, out, in, MPI_WIN_NULL, 0, 0, NULL}, error);
}

void remember_access(MPI_Request request, int error, MPI_Win window, int target, struct moved *out,
                     struct moved *in) {
    add((struct pending){request, false, true, out, in, window, target, 0, NULL}, error);
}

static struct pending **find(MPI_Request request) {
    struct pending **at = &first;
    while (*at != NULL && (*at)->request != request) at = &(*at)->next;
    return at;
}

// Takes out what belongs to requests that are waited for, or asked about: as soon as one has ended, its
// handle may be another thread's. Persistent requests keep theirs, and stay.
static struct pending **take(int count, const MPI_Request *requests) {
    struct pending **taken = calloc((size_t)(count > 0 ? count : 1), sizeof *taken);
    if (taken == NULL) abort();
    pthread_mutex_lock(&mutex);
    for (int at = 0; at < count; at++) {
        struct pending **place = find(requests[at]);
        taken[at] = *place;
        if (taken[at] != NULL && !taken[at]->is_persistent) *place = taken[at]->next;
    }
    pthread_mutex_unlock(&mutex);
    return taken;
}

// The program hears that a request has come to its end.
static void end(struct pending *pending) {
    if (pending == NULL || !pending->is_active) return;
    pending->is_active = false;
    bring_down(pending->in);
    if (pending->is_persistent) return;
    drop_moved(pending->out);
    drop_moved(pending->in);
    free(pending);
}

static void put_back(struct pending *pending) {
    if (pending == NULL || pending->is_persistent) return;
    pthread_mutex_lock(&mutex);
    pending->next = first;
    first = pending;
    pthread_mutex_unlock(&mutex);
}

// Those of some requests that have ended: all of them, those whose handles are gone where there was an error,
// or none.
static void end_all(int count, struct pending **taken, const MPI_Request *requests, int error, bool is_done) {
    for (int at = 0; at < count; at++) {
        bool has_ended =
            error == MPI_SUCCESS ? is_done : taken[at] != NULL && requests[at] != taken[at]->request;
        if (has_ended)
            end(taken[at]);
        else
            put_back(taken[at]);
    }
    free(taken);
}

// Those of these indices.
static void end_some(int count, struct pending **taken, int ended, const int *indices) {
    for (int at = 0; ended != MPI_UNDEFINED && at < ended; at++) {
        if (indices[at] < 0 || indices[at] >= count) continue;
        end(taken[indices[at]]);
        taken[indices[at]] = NULL;
    }
    for (int at = 0; at < count; at++) put_back(taken[at]);
    free(taken);
}

EXPORT int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    struct pending **taken = take(1, request);
    int error = NEXT(MPI_Wait)(request, status);
    end_all(1, taken, request, MPI_SUCCESS, true);
    return error;
}

EXPORT int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    struct pending **taken = take(1, request);
    int error = NEXT(MPI_Test)(request, flag, status);
    end_all(1, taken, request, MPI_SUCCESS, error != MPI_SUCCESS || *flag);
    return error;
}

EXPORT int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses) {
    struct pending **taken = take(count, requests);
    int error = NEXT(MPI_Waitall)(count, requests, statuses);
    end_all(count, taken, requests, error, true);
    return error;
}

EXPORT int MPI_Testall(int count, MPI_Request *requests, int *flag, MPI_Status *statuses) {
    struct pending **taken = take(count, requests);
    int error = NEXT(MPI_Testall)(count, requests, flag, statuses);
    end_all(count, taken, requests, error, *flag);
    return error;
}

EXPORT int MPI_Waitany(int count, MPI_Request *requests, int *index, MPI_Status *status) {
    struct pending **taken = take(count, requests);
    int error = NEXT(MPI_Waitany)(count, requests, index, status);
    end_some(count, taken, 1, index);
    return error;
}

EXPORT int MPI_Testany(int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status) {
    struct pending **taken = take(count, requests);
    int error = NEXT(MPI_Testany)(count, requests, index, flag, status);
    end_some(count, taken, *flag ? 1 : 0, index);
    return error;
}

EXPORT int MPI_Waitsome(int count, MPI_Request *requests, int *ended, int *indices, MPI_Status *statuses) {
    struct pending **taken = take(count, requests);
    int error = NEXT(MPI_Waitsome)(count, requests, ended, indices, statuses);
    end_some(count, taken, *ended, indices);
    return error;
}

EXPORT int MPI_Testsome(int count, MPI_Request *requests, int *ended, int *indices, MPI_Status *statuses) {
    struct pending **taken = take(count, requests);
    int error = NEXT(MPI_Testsome)(count, requests, ended, indices, statuses);
    end_some(count, taken, *ended, indices);
    return error;
}

void remember_parts(MPI_Request request, int error, size_t bytes, struct moved *out, struct moved *in) {
    add((struct pending){request, true, false, out, in, MPI_WIN_NULL, 0, bytes, NULL}, error);
}

// The program may write to the buffers, and hears of their requests later, if at all.
void end_requests(MPI_Win window, int target) {
    struct pending *ended = NULL;
    pthread_mutex_lock(&mutex);
    for (struct pending **at = &first; *at != NULL;) {
        struct pending *pending = *at;
        if (pending->window != window || (target != ALL && pending->target != target)) {
            at = &pending->next;
            continue;
        }
        *at = pending->next;
        pending->next = ended;
        ended = pending;
    }
    pthread_mutex_unlock(&mutex);
    for (struct pending *next; ended != NULL; ended = next) {
        next = ended->next;
        end(ended);
    }
}

// Threads that bring the same buffer do so one after the other.
void bring_out(MPI_Request request, int first_part, int count) {
    pthread_mutex_lock(&mutex);
    struct pending *pending = *find(request);
    if (pending != NULL && pending->is_active)
        bring_up_part(pending->out, (size_t)first_part * pending->part_bytes,
                      (size_t)count * pending->part_bytes);
    pthread_mutex_unlock(&mutex);
}

void bring_in(MPI_Request request, int partition) {
    pthread_mutex_lock(&mutex);
    struct pending *pending = *find(request);
    if (pending != NULL && pending->is_active)
        bring_down_part(pending->in, (size_t)partition * pending->part_bytes, pending->part_bytes);
    pthread_mutex_unlock(&mutex);
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

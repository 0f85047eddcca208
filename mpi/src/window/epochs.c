// RMA epochs: when this rank may access the memory of another one. The MPI may open an epoch later than the
// call that requests it, at its first access: so this rank reads a byte, or the other rank sends a message
// that its epoch has started.

#include <stdlib.h>

#include "../datatype/datatype.h"
#include "../operation/operation.h"
#include "window.h"

// State of an epoch at a rank: the rank is locked, and a byte of it has been read; or this rank has called
// MPI_Win_start for it, and has received the message of its MPI_Win_post.
enum { LOCKED = 1, TOUCHED = 2, STARTED = 4, POSTED = 8 };

enum { POST_TAG = 0 };

// Reads a byte, so that the MPI grants the lock that this rank has requested.
static int touch(MPI_Win handle, int to, MPI_Aint at) {
    char byte;
    int error = PMPI_Get(&byte, 1, MPI_BYTE, to, at, 1, MPI_BYTE, handle);
    return error == MPI_SUCCESS ? PMPI_Win_flush(to, handle) : error;
}

// Waits for the message that a rank has called MPI_Win_post.
static int wait_for_post(struct window *window, int from) {
    MPI_Request request;
    int error = PMPI_Irecv(NULL, 0, MPI_BYTE, from, POST_TAG, window->comm, &request);
    if (error == MPI_SUCCESS) error = wait_for(&request, MPI_STATUS_IGNORE);
    if (error == MPI_SUCCESS) window->shares[from].state |= POSTED;
    return error;
}

int enter(struct window *window, int to) {
    struct share *share = &window->shares[to];
    int error = MPI_SUCCESS;
    pthread_mutex_lock(&window->mutex);
    if ((share->state & (LOCKED | TOUCHED)) == LOCKED) {
        error = touch(window->handle, to, share->mark);
        if (error == MPI_SUCCESS) share->state |= TOUCHED;
    } else if ((share->state & (STARTED | POSTED)) == STARTED) {
        error = wait_for_post(window, to);
    } else if (share->state == 0 && !window->is_fenced) {
        error = raise_code_in_window(window->handle, MPI_ERR_RMA_SYNC);
    }
    pthread_mutex_unlock(&window->mutex);
    return error;
}

int lock_target(struct window *window, int to, int kind) {
    // Of the threads of a process one has the lock.
    pthread_mutex_lock(&window->mutex);
    int error = PMPI_Win_lock(kind, to, 0, window->lock_window);
    if (error == MPI_SUCCESS) {
        error = touch(window->lock_window, to, 0);
        if (error != MPI_SUCCESS) PMPI_Win_unlock(to, window->lock_window);
    }
    if (error != MPI_SUCCESS) pthread_mutex_unlock(&window->mutex);
    return error;
}

int unlock_target(struct window *window, int to) {
    int error = PMPI_Win_unlock(to, window->lock_window);
    pthread_mutex_unlock(&window->mutex);
    return error;
}

// Waits for what the program's kernels write into this rank's memory, as far as they are in the default
// streams.
static void sync_window(const struct window *window) {
    if (window->is_on_gpu) causeway_comm_sync_memory(window->base);
}

// A window that is only the MPI's needs nothing.
void begin_fence(MPI_Win handle, int assertion) {
    struct window *window = find_window(handle);
    if (window == NULL) return;
    sync_window(window);
    // All ranks have made their calls, and what is in their memory is there.
    PMPI_Barrier(window->comm);
    window->is_fenced = (assertion & MPI_MODE_NOSUCCEED) == 0;
}

// Calls for each rank of a group that has a part in the window.
static void for_ranks(struct window *window, MPI_Group group, void visit(struct window *, int)) {
    MPI_Group all;
    int count = 0;
    PMPI_Group_size(group, &count);
    PMPI_Comm_group(window->comm, &all);
    for (int at = 0; at < count; at++) {
        int rank = MPI_UNDEFINED;
        PMPI_Group_translate_ranks(group, 1, &at, all, &rank);
        if (rank != MPI_UNDEFINED) visit(window, rank);
    }
    PMPI_Group_free(&all);
}

// A rank receives each message before it reports that its calls are complete, so the earlier one has been
// received.
static void send_post(struct window *window, int to) {
    MPI_Request *post_request = &window->shares[to].post_request;
    PMPI_Wait(post_request, MPI_STATUS_IGNORE);
    PMPI_Isend(NULL, 0, MPI_BYTE, to, POST_TAG, window->comm, post_request);
}

void end_posts(struct window *window) {
    for (int at = 0; at < window->ranks; at++) PMPI_Wait(&window->shares[at].post_request, MPI_STATUS_IGNORE);
}

// An epoch of another kind follows a fence where no call does.
static void note_start(struct window *window, int to) {
    window->is_fenced = false;
    window->shares[to].state |= STARTED;
}

EXPORT int MPI_Win_post(MPI_Group group, int assertion, MPI_Win w) {
    struct window *window = find_window(w);
    if (window != NULL) sync_window(window);
    int error = PMPI_Win_post(group, assertion, w);
    if (error == MPI_SUCCESS && window != NULL) for_ranks(window, group, send_post);
    return error;
}

EXPORT int MPI_Win_start(MPI_Group group, int assertion, MPI_Win w) {
    struct window *window = find_window(w);
    int error = PMPI_Win_start(group, assertion, w);
    if (error == MPI_SUCCESS && window != NULL) for_ranks(window, group, note_start);
    return error;
}

void end_start(MPI_Win handle) {
    struct window *window = find_window(handle);
    if (window == NULL) return;
    sync_window(window);
    pthread_mutex_lock(&window->mutex);
    // Each MPI_Win_post is received once.
    for (int at = 0; at < window->ranks; at++) {
        struct share *share = &window->shares[at];
        if ((share->state & (STARTED | POSTED)) == STARTED) wait_for_post(window, at);
        share->state &= (unsigned char)~(STARTED | POSTED);
    }
    pthread_mutex_unlock(&window->mutex);
}

// Nothing is accessed at MPI_PROC_NULL, and the MPI reports ranks that do not exist.
static void note_lock(struct window *window, int to, bool is_locked) {
    if (to < 0 || to >= window->ranks) return;
    if (is_locked) window->is_fenced = false;
    window->shares[to].state = is_locked ? LOCKED : 0;
}

static void note_all_locks(struct window *window, bool is_locked) {
    for (int at = 0; at < window->ranks; at++) note_lock(window, at, is_locked);
}

EXPORT int MPI_Win_lock(int kind, int to, int assertion, MPI_Win w) {
    struct window *window = find_window(w);
    int error = PMPI_Win_lock(kind, to, assertion, w);
    if (error == MPI_SUCCESS && window != NULL) note_lock(window, to, true);
    return error;
}

EXPORT int MPI_Win_lock_all(int assertion, MPI_Win w) {
    struct window *window = find_window(w);
    int error = PMPI_Win_lock_all(assertion, w);
    if (error == MPI_SUCCESS && window != NULL) note_all_locks(window, true);
    return error;
}

void end_lock(MPI_Win handle, int to) {
    struct window *window = find_window(handle);
    if (window == NULL) return;
    sync_window(window);
    note_lock(window, to, false);
}

void end_all_locks(MPI_Win handle) {
    struct window *window = find_window(handle);
    if (window == NULL) return;
    sync_window(window);
    note_all_locks(window, false);
}

EXPORT int MPI_Win_sync(MPI_Win w) {
    struct window *window = find_window(w);
    if (window != NULL) sync_window(window);
    return PMPI_Win_sync(w);
}

// Progress of operations in flight, and waits for their completion.

#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "../probe.h"
#include "plain.h"

int in_flight;
static struct operation *first;

long now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

// When a receiver has last fetched a short message.
static long fetched_at;
long copied_in;

void add_operation(struct operation *operation) {
    lock();
    operation->previous = NULL;
    operation->next = first;
    if (first != NULL) first->previous = operation;
    first = operation;
    __atomic_add_fetch(&in_flight, 1, __ATOMIC_RELAXED);
    unlock();
}

static void remove_operation(struct operation *operation) {
    if (operation->next != NULL) operation->next->previous = operation->previous;
    if (operation->previous != NULL) operation->previous->next = operation->next;
    if (first == operation) first = operation->next;
    __atomic_sub_fetch(&in_flight, 1, __ATOMIC_RELAXED);
}

// Of two halves, the one with the request may be over, and is then not in the list.
struct operation *operation_with(MPI_Request request) {
    for (struct operation *operation = first; operation != NULL; operation = operation->next) {
        if (operation->handle == request) return operation;
        struct operation *other = operation->other;
        if (other != NULL && other->handle == request) return other;
    }
    return NULL;
}

// Both halves are complete: returns the one with the request.
static struct operation *join_halves(struct operation *half) {
    struct operation *in = half->kind == RECEIVE ? half : half->other, *out = in->other;
    if (in->error == MPI_SUCCESS && out->error != MPI_SUCCESS) {
        in->error = out->error;
        in->is_raised = out->is_raised;
    }
    in->other = NULL;
    free(out);
    return in;
}

static void end(struct operation *operation) {
    remove_operation(operation);
    unpack_elements(operation);
    release_memory(operation);
    drop_copy(operation->copy, operation->copy_holder);
    operation->copy = operation->copy_holder = NULL;
    if (operation->other != NULL) {
        operation->done = true;
        if (!operation->other->done) return;
        operation = join_halves(operation);
    }
    if (operation->persistent == NULL && operation->handle == MPI_REQUEST_NULL) {
        // It is on the stack of the waiting thread, which returns as soon as it sees this.
        __atomic_store_n(&operation->done, true, __ATOMIC_RELEASE);
        return;
    }
    operation->done = true;
    if (operation->persistent != NULL) {
        operation->ended(operation->persistent, operation);
        free(operation);
        return;
    }
    MPI_Request handle = operation->handle;
    bool is_freed = operation->is_freed;
    // The completion of a request that the program has freed is not reported.
    if (operation->error != MPI_SUCCESS && !is_freed)
        add_failure(handle, operation->comm, operation->error, operation->is_raised);
    // The operation may be freed with its request.
    PMPI_Grequest_complete(handle);
    if (is_freed) PMPI_Request_free(&handle);
}

// Whether the receiver of a descriptor is late to fetch the message. It may be in a call of the MPI
// (MPI_Barrier), which makes no progress on fetches, and wait there for what this rank does after its send.
// A receiver that computes is not late: the sender waits long for a long message, whose copy takes memory
// and time. Here it waits as long as a receiver may take that is there; then crates/comm decides, by the
// message's length and by whether the receiver is in such a call. It waits for a short one as long as some
// copies would take; in that time the receiver may fetch others.
static bool is_late(struct operation *operation) {
    enum { OF_LONG_NS = 1000000, OF_SHORT_NS = 50000, COPIES = 3 };
    long at = now();
    if (operation->announced_at == 0) operation->announced_at = at;
    if (!operation->is_short) return at - operation->announced_at > OF_LONG_NS;
    long since = operation->announced_at > fetched_at ? operation->announced_at : fetched_at;
    return at - since > OF_SHORT_NS && at - since > COPIES * copied_in;
}

// Whether an operation in flight waits for a GPU or another process, and not for the MPI: then a sleep costs
// nothing.
static bool has_remote_wait;

// Whether a collective access to the same file has begun before this one, and is not complete. ROMIO confuses
// their messages if ranks test them in turns: MPICH 4.0.2 hangs, crashes or writes other bytes then, also
// with host memory. A program that waits for all of them has MPICH complete one after the other.
static bool has_older_access(const struct operation *operation) {
    if (operation->file == NULL) return false;
    for (const struct operation *older = operation->next; older != NULL; older = older->next)
        if (older->file == operation->file && !older->inner_done) return true;
    return false;
}

static void advance(struct operation *operation) {
    if (!operation->inner_done) {
        if (operation->is_watched || has_older_access(operation)) return;
        int flag = 0;
        int error = PMPI_Test(&operation->inner, &flag, &operation->status);
        if (error == MPI_SUCCESS && !flag) return;
        end_inner(operation, error);
    }
    if (operation->kind == SEND && operation->offer != 0 && operation->error == MPI_SUCCESS) {
        int state = causeway_comm_offer_state(operation->offer);
        if (state == 0 && is_late(operation)) {
            causeway_comm_detach(operation->offer);
            state = causeway_comm_offer_state(operation->offer);
        }
        if (state == 0) {
            has_remote_wait = true;
            return;
        }
        if (state < 0) operation->error = error_code("a send from a GPU", causeway_comm_error());
        if (operation->is_short) fetched_at = now();
    }
    if (operation->fetching != 0) {
        int state = causeway_comm_fetch_state(operation->fetching);
        if (state == 1) {
            has_remote_wait = true;
            return;
        }
        operation->fetching = 0;
        if (state < 0) operation->error = error_code("a receive from a GPU", causeway_comm_error());
    }
    end(operation);
}

void progress(void) {
    // Polling each of them takes longer than all else here, and mostly finds nothing.
    enum { POLL_ROUNDS = 256 };
    static unsigned round;
    if (plain_count > 0 && ++round % POLL_ROUNDS == 0) poll_plains();
    if (in_flight == 0) {
        has_remote_wait = false;
        return;
    }
    lock();
    has_remote_wait = false;
    for (struct operation *operation = first, *next; operation != NULL; operation = next) {
        next = operation->next;
        advance(operation);
    }
    unlock();
}

// Waits for the MPI's own messages do not sleep, as the MPI's do not.
void pause_for(int round) {
    if (round < 100) return;
    if (round < 400 || !has_remote_wait) {
        sched_yield();
        return;
    }
    struct timespec some = {0, round < 4000 ? 20000 : 200000};
    nanosleep(&some, NULL);
}

static bool is_fetching(const struct operation *operation) {
    return operation->fetching != 0;
}

static bool is_left(const struct operation *operation) {
    return operation->kind == RECEIVE && !operation->inner_done && !operation->is_freed;
}

static bool is_owed(const struct operation *operation) {
    return !is_left(operation);
}

// Makes progress at least once, and then as long as there are such operations.
static void finish_those(bool are_meant(const struct operation *)) {
    bool found = true;
    for (int round = 0; in_flight > 0 && found; round++) {
        if (round > 0) pause_for(round);
        progress();
        found = false;
        lock();
        for (struct operation *operation = first; operation != NULL && !found; operation = operation->next)
            found = are_meant(operation);
        unlock();
    }
}

void finish_fetches(void) {
    if (plain_count > 0) poll_plains();
    finish_those(is_fetching);
}

static bool has_left_receive(void) {
    lock();
    bool found = plain_count > 0;
    for (struct operation *operation = first; operation != NULL && !found; operation = operation->next)
        found = is_left(operation);
    unlock();
    return found;
}

bool enter_mpi(void) {
    finish_fetches();
    if (!in_job || (plain_count == 0 && in_flight == 0) || !has_left_receive()) return false;
    causeway_comm_begin_wait();
    return true;
}

int leave_mpi(bool has_entered, int error) {
    if (has_entered) causeway_comm_end_wait();
    return error;
}

void finish_all(void) {
    finish_those(is_owed);
}

int wait_for(MPI_Request *request, MPI_Status *status) {
    int flag = 0, error = PMPI_Test(request, &flag, status);
    for (int round = 0; error == MPI_SUCCESS && !flag; round++) {
        if (round > 0) pause_for(round);
        progress();
        error = PMPI_Test(request, &flag, status);
    }
    return error;
}

// If nothing else is in flight, the MPI waits. Whether it did.
static bool wait_in_mpi(struct operation *operation) {
    lock();
    bool is_alone =
        first == operation && operation->next == NULL && !operation->inner_done && plain_count == 0;
    operation->is_watched = is_alone;
    unlock();
    if (!is_alone) return false;
    int error = PMPI_Wait(&operation->inner, &operation->status);
    lock();
    operation->is_watched = false;
    end_inner(operation, error);
    unlock();
    return true;
}

int finish(struct operation *operation, MPI_Status *status) {
    operation->is_blocking = true;
    for (int round = 0; !__atomic_load_n(&operation->done, __ATOMIC_ACQUIRE); round++) {
        if (!wait_in_mpi(operation)) pause_for(round);
        progress();
    }
    fill_status(operation, status);
    if (operation->error != MPI_SUCCESS && !operation->is_raised)
        PMPI_Comm_call_errhandler(operation->comm, operation->error);
    return operation->error;
}

void fill_status(const struct operation *operation, MPI_Status *status) {
    if (status == MPI_STATUS_IGNORE) return;
    copy_status(&operation->status, status);
    PMPI_Status_set_elements_x(status, MPI_BYTE, (MPI_Count)operation->bytes);
    PMPI_Status_set_cancelled(status, operation->cancelled);
}

// Consistency check of collective calls (CAUSEWAY_COMM_CHECK=1): whether all ranks of a communicator make the
// same call.
//
// Before each call a rank sends the others what it is about to call, on a communicator that the program does
// not have. If they differ, or a rank makes no call, the call is an error that says so; without the check the
// MPI would hang, or mix up bytes.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../operation/operation.h"
#include "collective.h"

enum { TIMEOUT_S = 8, NAME = 40 };

// What a rank is about to call. -1 if a number does not matter, or may differ.
struct intent {
    char name[NAME];
    int64_t bytes;
    int64_t root;
};

static MPI_Comm check_comm = MPI_COMM_NULL;

void start_checking(void) {
    if (causeway_comm_checks()) PMPI_Comm_dup(MPI_COMM_WORLD, &check_comm);
}

void stop_checking(void) {
    if (check_comm != MPI_COMM_NULL) PMPI_Comm_free(&check_comm);
}

static long now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

// Writes the ranks that have not sent a message.
static void name_missing(const struct members *members, const MPI_Request *requests, char *message,
                         size_t size) {
    size_t length =
        (size_t)snprintf(message, size, "for %d s, no call on this communicator from rank", TIMEOUT_S);
    for (uint32_t at = 0; at < members->count && length < size; at++)
        if (requests[at] != MPI_REQUEST_NULL)
            length += (size_t)snprintf(message + length, size - length, " %u", at);
}

static bool differ(const struct intent *own, const struct intent *other, uint32_t rank, char *message,
                   size_t size) {
    if (strncmp(own->name, other->name, NAME) != 0)
        snprintf(message, size, "rank %u of the communicator calls %.*s", rank, NAME, other->name);
    else if (own->root != other->root)
        snprintf(message, size, "rank %u of the communicator passes root %ld, and this rank %ld", rank,
                 (long)other->root, (long)own->root);
    else if (own->bytes != other->bytes)
        snprintf(message, size, "rank %u of the communicator passes %ld bytes, and this rank %ld", rank,
                 (long)other->bytes, (long)own->bytes);
    else
        return false;
    return true;
}

static int compare(MPI_Comm comm, const struct members *members, const struct intent *own) {
    // Requests in flight when a rank gives up stay: the program ends.
    struct intent *others = calloc(members->count + 1, sizeof *others);
    MPI_Request *requests = calloc(2 * (size_t)members->count + 1, sizeof *requests);
    MPI_Status *statuses = calloc(2 * (size_t)members->count + 1, sizeof *statuses);
    if (others == NULL || requests == NULL || statuses == NULL) abort();
    int count = (int)members->count, length = (int)sizeof *own, done = 0;
    others[count] = *own;
    for (int at = 0; at < count; at++) {
        int rank = (int)members->ranks[at];
        PMPI_Irecv(&others[at], length, MPI_BYTE, rank, 0, check_comm, &requests[at]);
        PMPI_Isend(&others[count], length, MPI_BYTE, rank, 0, check_comm, &requests[count + at]);
    }
    long until = now_s() + TIMEOUT_S;
    for (int round = 0; !done; round++) {
        int index, flag;
        progress();
        PMPI_Testall(2 * count, requests, &done, statuses);
        if (done || now_s() <= until) {
            pause_for(done ? 0 : round);
            continue;
        }
        // Completed requests are removed, so that the message names the others.
        do PMPI_Testany(2 * count, requests, &index, &flag, MPI_STATUS_IGNORE);
        while (flag && index != MPI_UNDEFINED);
        char message[256];
        name_missing(members, requests, message, sizeof message);
        return raise_error(comm, own->name, message);
    }
    int error = MPI_SUCCESS;
    for (int at = 0; at < count && error == MPI_SUCCESS; at++) {
        char message[256];
        if (differ(own, &others[at], (uint32_t)at, message, sizeof message))
            error = raise_error(comm, own->name, message);
    }
    free(others);
    free(requests);
    free(statuses);
    return error;
}

static int check_intent(MPI_Comm comm, const struct intent *intent) {
    const struct members *members = members_of(comm);
    return members->is_supported ? compare(comm, members, intent) : MPI_SUCCESS;
}

int check_consistency(const struct call *call, enum form form) {
    if (check_comm == MPI_COMM_NULL || pattern_of(call) == LOCAL) return MPI_SUCCESS;
    const char *how = form == BLOCKING ? "" : form == NON_BLOCKING ? " (non-blocking)" : " (persistent)";
    struct intent intent = {.bytes = -1, .root = -1};
    snprintf(intent.name, NAME, "%s%s", name_of(call), how);
    const struct members *members = members_of(call->comm);
    // On an intercommunicator, lists of counts have other lengths.
    uint64_t bytes = members->is_supported ? bytes_known_to_all(call, members) : 0;
    if (bytes > 0 || length_of_call(call) == OF_COUNT) intent.bytes = (int64_t)bytes;
    if (has_root(call)) intent.root = call->root;
    return check_intent(call->comm, &intent);
}

EXPORT int MPI_Barrier(MPI_Comm comm) {
    struct intent intent = {"MPI_Barrier", -1, -1};
    int error = check_comm == MPI_COMM_NULL ? MPI_SUCCESS : check_intent(comm, &intent);
    if (error != MPI_SUCCESS) return error;
    bool has_entered = enter_mpi();
    return leave_mpi(has_entered, PMPI_Barrier(comm));
}

EXPORT int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request) {
    struct intent intent = {"MPI_Barrier (non-blocking)", -1, -1};
    int error = check_comm == MPI_COMM_NULL ? MPI_SUCCESS : check_intent(comm, &intent);
    return error == MPI_SUCCESS ? PMPI_Ibarrier(comm, request) : error;
}

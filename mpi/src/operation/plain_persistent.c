// Persistent plain receives, as plain.c has those that are not persistent.
//
// The program's request is that of the MPI, and stays so: a descriptor that it receives later is fetched by
// the call that completes it, too.

#include <stdlib.h>

#include "../probe.h"
#include "plain.h"

int apart_count, persistent_count;

bool make_plain(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                MPI_Request *request, int *error) {
    long long capacity = plain_capacity(buffer, count, type, source, comm);
    if (capacity < 0) return false;
    struct plain *plain = calloc(1, sizeof *plain);
    if (plain == NULL) abort();
    plain->user = buffer;
    plain->capacity = (uint64_t)capacity;
    plain->comm = comm;
    plain->source = source;
    plain->tag = tag;
    plain->is_persistent = true;
    *error = PMPI_Recv_init(is_short_plain(plain) ? plain->bytes : buffer,
                            (int)receive_buffer_bytes(plain->capacity), MPI_BYTE, source, tag, comm, request);
    if (*error != MPI_SUCCESS) {
        free(plain);
        return true;
    }
    lock();
    plain->request = *request;
    insert_plain(plain);
    add_to(&persistent_count, 1);
    unlock();
    return true;
}

// The program has freed one, and its message has completed.
static void forget(struct plain *plain) {
    PMPI_Request_free(&plain->request);
    free(plain);
}

// An operation has completed that received for one.
static void on_completion(void *owner, const struct operation *operation) {
    struct plain *plain = owner;
    plain->status = operation->status;
    fill_status(operation, &plain->status);
    plain->error = operation->error;
    plain->is_ended = true;
    if (plain->is_freed) forget(plain);
}

static struct operation *operation_for(struct plain *plain) {
    struct operation *operation = calloc(1, sizeof *operation);
    if (operation == NULL) abort();
    operation->handle = MPI_REQUEST_NULL;
    operation->persistent = plain;
    operation->ended = on_completion;
    return operation;
}

static int start_apart(struct plain *plain, struct unexpected *unexpected) {
    struct operation *operation = operation_for(plain);
    int error = start_unexpected(operation, plain->user, (MPI_Count)plain->capacity, MPI_BYTE, plain->comm,
                                 unexpected);
    if (error != MPI_SUCCESS) {
        free(operation);
        return error;
    }
    plain->is_apart = true;
    add_to(&apart_count, 1);
    return error;
}

bool restart_plain(MPI_Request *request, int *error) {
    if (persistent_count == 0) return false;
    lock();
    struct plain *plain = find_plain(*request);
    bool is_one = plain != NULL && plain->is_persistent;
    if (is_one && plain->is_active) {
        // The MPI reports that error; of one that is apart it does not know.
        *error = plain->is_apart ? MPI_ERR_REQUEST : PMPI_Start(request);
    } else if (is_one) {
        plain->is_ended = false;
        struct unexpected *unexpected = take_unexpected(plain->comm, plain->source, plain->tag);
        *error = unexpected != NULL ? start_apart(plain, unexpected) : PMPI_Start(request);
        plain->is_active = *error == MPI_SUCCESS;
        if (plain->is_active) add_to(&plain_count, 1);
    }
    unlock();
    return is_one;
}

bool free_persistent_plain(MPI_Request *request, int *error) {
    if (persistent_count == 0) return false;
    lock();
    struct plain *plain = find_plain(*request);
    bool is_one = plain != NULL && plain->is_persistent;
    *error = MPI_SUCCESS;
    if (is_one) {
        bool is_in_flight = plain->is_active && !plain->is_ended, is_apart = plain->is_apart;
        if (plain->is_active) drop_plain(plain);
        remove_plain(plain);
        add_to(&persistent_count, -1);
        // An operation completes it, if none does already.
        plain->is_freed = is_in_flight;
        if (is_in_flight && !is_apart) {
            struct operation *operation = operation_for(plain);
            operation->is_freed = true;
            convert_to_operation(plain, operation);
        }
        if (!is_in_flight) {
            *error = PMPI_Request_free(request);
            free(plain);
        }
        *request = MPI_REQUEST_NULL;
    }
    unlock();
    return is_one;
}

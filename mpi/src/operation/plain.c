// Plain receives: receives of host memory whose requests are the MPI's own, so a program without GPUs pays
// for no operation.
//
// Such a receive may still get a descriptor, from a rank that has a GPU: the call that completes it checks
// for that. Only then the message is fetched, so there are plain receives until this process has a driver or
// has received a descriptor.

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "../probe.h"
#include "plain.h"

int plain_count;
// A descriptor has been received.
static bool has_descriptor_arrived;

struct plain *plain_chains[1 << PLAIN_BITS];
// Free list.
static struct plain *unused;

struct plain *allocate_plain(void) {
    struct plain *plain = unused;
    if (plain != NULL)
        unused = plain->next;
    else if ((plain = malloc(sizeof *plain)) == NULL)
        abort();
    return plain;
}

void insert_plain(struct plain *plain) {
    struct plain **first = chain_of(plain->request);
    plain->next = *first;
    *first = plain;
}

void remove_plain(struct plain *plain) {
    struct plain **at = chain_of(plain->request);
    while (*at != plain) at = &(*at)->next;
    *at = plain->next;
}

void drop_plain(struct plain *plain) {
    lock();
    plain->is_active = false;
    add_to(&plain_count, -1);
    if (plain->is_apart) add_to(&apart_count, -1);
    plain->is_apart = false;
    if (!plain->is_persistent) {
        remove_plain(plain);
        plain->next = unused;
        unused = plain;
    }
    unlock();
}

bool is_short_plain(const struct plain *plain) {
    return receive_buffer_bytes(plain->capacity) > plain->capacity;
}

// The size of a predefined type without gaps, or -1: of others, queries of the MPI take long. Cached results
// stay valid, since such a type cannot be freed.
static int size_of(MPI_Datatype type) {
    enum { MAX_KNOWN_RANGES = 16 };
    static struct {
        MPI_Datatype type;
        int size;
    } known[MAX_KNOWN_RANGES];
    static int count;
    if (type == MPI_BYTE) return 1;
    for (int at = 0; at < count; at++)
        if (known[at].type == type) return known[at].size;
    if (type == MPI_DATATYPE_NULL || !is_predefined(type)) return -1;
    int size = 0;
    MPI_Aint lower, extent;
    PMPI_Type_size(type, &size);
    PMPI_Type_get_extent(type, &lower, &extent);
    if (lower != 0 || extent != size) size = -1;
    if (count < MAX_KNOWN_RANGES) {
        known[count].type = type;
        known[count++].size = size;
    }
    return size;
}

long long plain_capacity(const void *buffer, MPI_Count count, MPI_Datatype type, int source, MPI_Comm comm) {
    if (!in_job || has_descriptor_arrived || source == MPI_PROC_NULL || comm == MPI_COMM_NULL) return -1;
    if (count < 0 || (buffer == NULL && count > 0)) return -1;
    // If several threads call, one may wait in the MPI for what another one has to poll.
    if (may_have_threads() || causeway_comm_has_driver()) return -1;
    int size = size_of(type);
    if (size < 0) return -1;
    return count <= INT_MAX / (size > 0 ? size : 1) ? (long long)count * size : -1;
}

bool start_plain(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                 MPI_Request *request, int *error) {
    long long capacity = plain_capacity(buffer, count, type, source, comm);
    if (capacity < 0) return false;
    // Another thread's probe must not come between the search of the queue and the receive.
    lock();
    bool is_unexpected = has_unexpected();
    if (!is_unexpected) {
        struct plain *plain = allocate_plain();
        plain->user = buffer;
        plain->capacity = (uint64_t)capacity;
        plain->comm = comm;
        plain->is_active = true;
        plain->is_ended = plain->is_persistent = plain->is_apart = plain->is_freed = false;
        *error = PMPI_Irecv(is_short_plain(plain) ? plain->bytes : buffer,
                            (int)receive_buffer_bytes(plain->capacity), MPI_BYTE, source, tag, comm, request);
        plain->request = *request;
        if (*error == MPI_SUCCESS) {
            insert_plain(plain);
            add_to(&plain_count, 1);
        } else {
            plain->next = unused;
            unused = plain;
        }
    }
    unlock();
    return !is_unexpected;
}

// Delivers a message that needs more than the MPI does: a descriptor, or bytes for a buffer that is smaller
// than a descriptor.
static int arrive_plain(const struct plain *plain, MPI_Status *status) {
    struct operation operation = {
        .kind = RECEIVE, .is_blocking = true, .contiguous = true, .comm = plain->comm};
    operation.handle = MPI_REQUEST_NULL;
    operation.user = plain->user;
    operation.capacity = plain->capacity;
    operation.memory = is_short_plain(plain) ? (void *)plain->bytes : NULL;
    operation.status = *status;
    end_inner(&operation, MPI_SUCCESS);
    fill_status(&operation, status);
    return operation.error;
}

static int end(const struct plain *plain, MPI_Status *status) {
    int length = 0;
    PMPI_Get_count(status, MPI_BYTE, &length);
    if (length != CAUSEWAY_COMM_DESCRIPTOR &&
        (!is_short_plain(plain) || (uint64_t)length <= plain->capacity)) {
        int cancelled = 0;
        if (!is_short_plain(plain) || length <= 0) return MPI_SUCCESS;
        PMPI_Test_cancelled(status, &cancelled);
        if (!cancelled) memcpy(plain->user, plain->bytes, (size_t)length);
        return MPI_SUCCESS;
    }
    return arrive_plain(plain, status);
}

int end_plain(struct plain *plain, MPI_Status *status) {
    int error = plain->error;
    if (plain->is_ended)
        copy_status(&plain->status, status);
    else
        error = end(plain, status);
    drop_plain(plain);
    return error;
}

void poll_plain(struct plain *plain, int *flag, MPI_Status *status) {
    MPI_Status found;
    *flag = plain->is_ended;
    if (!plain->is_ended) {
        if (plain->is_apart) return;
        int has_ended = 0;
        if (PMPI_Request_get_status(plain->request, &has_ended, &found) != MPI_SUCCESS || !has_ended) return;
        plain->error = end(plain, &found);
        plain->status = found;
        plain->is_ended = true;
    }
    *flag = 1;
    copy_status(&plain->status, status);
}

void poll_plains(void) {
    lock();
    for (int chain = 0; chain < 1 << PLAIN_BITS && plain_count > 0; chain++)
        for (struct plain *plain = plain_chains[chain]; plain != NULL; plain = plain->next) {
            int flag;
            if (plain->is_active) poll_plain(plain, &flag, MPI_STATUS_IGNORE);
        }
    unlock();
}

void note_descriptor(void) {
    has_descriptor_arrived = true;
}

bool receive_plain(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                   MPI_Status *status, int *error) {
    long long capacity = in_flight == 0 ? plain_capacity(buffer, count, type, source, comm) : -1;
    // In a call of the MPI the others are not polled.
    if (capacity < 0 || plain_count > 0 || has_unexpected()) return false;
    struct plain plain = {.user = buffer, .capacity = (uint64_t)capacity, .comm = comm};
    MPI_Status found;
    *error = PMPI_Recv(is_short_plain(&plain) ? plain.bytes : buffer,
                       (int)receive_buffer_bytes(plain.capacity), MPI_BYTE, source, tag, comm, &found);
    if (*error != MPI_SUCCESS) return true;
    *error = end(&plain, &found);
    copy_status(&found, status);
    if (*error != MPI_SUCCESS) PMPI_Comm_call_errhandler(comm, *error);
    return true;
}

void convert_to_operation(const struct plain *plain, struct operation *operation) {
    operation->kind = RECEIVE;
    operation->comm = plain->comm;
    operation->user = plain->user;
    operation->contiguous = true;
    operation->capacity = plain->capacity;
    operation->type = MPI_BYTE;
    operation->count = (MPI_Count)plain->capacity;
    operation->memory = is_short_plain(plain) ? (void *)plain->bytes : NULL;
    operation->inner = plain->request;
    add_operation(operation);
}

int free_plain(struct plain *plain, MPI_Request *request) {
    if (plain->is_ended) {
        drop_plain(plain);
        return PMPI_Request_free(request);
    }
    // An operation completes it, and owns its memory.
    struct operation *operation;
    MPI_Request handle;
    int error = start_request(&operation, &handle);
    if (error != MPI_SUCCESS) return error;
    convert_to_operation(plain, operation);
    free_later(handle);
    lock();
    remove_plain(plain);
    add_to(&plain_count, -1);
    unlock();
    *request = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}

bool is_quick(enum mode mode, MPI_Count count, MPI_Datatype type) {
    // MPIs send so many bytes without waiting for their receiver (eager).
    enum { EAGER = 2048 };
    if (plain_count == 0) return true;
    if (may_have_threads() || mode == SYNCHRONOUS) return false;
    int size = size_of(type);
    return size >= 0 && count <= EAGER / (size > 0 ? size : 1);
}

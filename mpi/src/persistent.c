// Persistent requests.
//
// The user's request is one of the MPI: a receive of an empty message from this rank itself, on a
// communicator of this rank alone. When the message that it stands for completes, this rank sends itself that
// empty message, so the MPI waits for the request, restarts it and frees it as any other. Its status is
// filled when its completion is reported to the user.

#include <limits.h>
#include <stdlib.h>

#include "collective/staging.h"
#include "operation/plain.h"
#include "persistent.h"

struct persistent {
    MPI_Request handle;
    int own_tag;
    enum kind kind;
    enum mode mode;
    void *buffer;
    MPI_Count count;
    MPI_Datatype type;
    int peer, tag;
    MPI_Comm comm;
    // A request of the MPI for the same message, which is never started: with it the communicator stays valid
    // after the program has freed it. Of a collective call it is the one that is started.
    MPI_Request inner;
    // Of a collective call.
    struct staging *staging;
    // The message in flight.
    struct operation *operation;
    // One that has completed, but has not been reported to the user.
    bool has_ended;
    struct operation ended;
    // The user has freed the request.
    bool is_freed;
    struct persistent *next;
};

int unreported_count;

// Requests by their handles. Programs have thousands of them, and each start and each completion looks one
// up.

static struct persistent **buckets;
static size_t bucket_count, request_count;

static struct persistent **bucket_of(MPI_Request handle) {
    uint64_t mixed = (uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15;
    return &buckets[(mixed >> 32) & (bucket_count - 1)];
}

static struct persistent *find(MPI_Request handle) {
    struct persistent *persistent = bucket_count > 0 ? *bucket_of(handle) : NULL;
    while (persistent != NULL && persistent->handle != handle) persistent = persistent->next;
    return persistent;
}

static void insert_persistent(struct persistent *persistent) {
    struct persistent **bucket = bucket_of(persistent->handle);
    persistent->next = *bucket;
    *bucket = persistent;
}

// Reserves capacity for one more.
static void grow(void) {
    struct persistent **before = buckets;
    size_t count = bucket_count;
    if (++request_count <= count) return;
    bucket_count = count > 0 ? 2 * count : 64;
    buckets = calloc(bucket_count, sizeof(struct persistent *));
    if (buckets == NULL) abort();
    for (size_t at = 0; at < count; at++)
        for (struct persistent *each = before[at], *next; each != NULL; each = next) {
            next = each->next;
            insert_persistent(each);
        }
    free(before);
}

static void remove_persistent(struct persistent *persistent) {
    struct persistent **at = bucket_of(persistent->handle);
    while (*at != persistent) at = &(*at)->next;
    *at = persistent->next;
    request_count--;
}

// Tags that no request uses: released ones, and all after the last one.

static int *free_tags;
static size_t free_tag_count, free_tag_capacity;
static int last_tag;

// 0 if there is none left.
static int acquire_tag(void) {
    enum { MIN_TAG_UB = 32767 };
    if (free_tag_count > 0) return free_tags[--free_tag_count];
    int *bound = NULL, is_known = 0;
    PMPI_Comm_get_attr(self_comm(), MPI_TAG_UB, &bound, &is_known);
    return last_tag < (is_known ? *bound : MIN_TAG_UB) ? ++last_tag : 0;
}

static void release_tag(int tag) {
    if (free_tag_count == free_tag_capacity) {
        free_tag_capacity = free_tag_capacity > 0 ? 2 * free_tag_capacity : 64;
        free_tags = realloc(free_tags, free_tag_capacity * sizeof *free_tags);
        if (free_tags == NULL) abort();
    }
    free_tags[free_tag_count++] = tag;
}

// Makes a request, for which all but the MPI's part is known.
static int make(const struct persistent *what, MPI_Request *request) {
    struct persistent *persistent = malloc(sizeof *persistent);
    if (persistent == NULL) return MPI_ERR_NO_MEM;
    lock();
    *persistent = *what;
    int error = MPI_ERR_OTHER;
    persistent->own_tag = acquire_tag();
    if (persistent->own_tag > 0)
        error = PMPI_Recv_init(NULL, 0, MPI_BYTE, 0, persistent->own_tag, self_comm(), request);
    if (error == MPI_SUCCESS) {
        persistent->handle = *request;
        grow();
        insert_persistent(persistent);
    } else {
        if (persistent->own_tag > 0) release_tag(persistent->own_tag);
        free(persistent);
    }
    unlock();
    return error;
}

static void free_own_type(struct persistent *message) {
    if (message->kind != COLLECTIVE && !is_predefined(message->type)) free_type(&message->type);
}

// Makes such a request of the MPI, which checks the arguments.
static int make_inner(struct persistent *message) {
    // A count that is not an int is not one of the form for ints.
    int count = message->count > INT_MAX ? 1 : (int)message->count;
    return message->kind == RECEIVE ? PMPI_Recv_init(message->buffer, count, message->type, message->peer,
                                                     message->tag, message->comm, &message->inner)
                                    : PMPI_Send_init(message->buffer, count, message->type, message->peer,
                                                     message->tag, message->comm, &message->inner);
}

static int make_message(enum kind kind, enum mode mode, const void *buffer, MPI_Count count,
                        MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request *request) {
    struct persistent message = {.kind = kind,
                                 .mode = mode,
                                 .buffer = (void *)buffer,
                                 .count = count,
                                 .type = type,
                                 .peer = peer,
                                 .tag = tag,
                                 .comm = comm};
    int error = make_inner(&message);
    if (error != MPI_SUCCESS) return error;
    // The program may free the type before it starts the request.
    error = is_predefined(type) ? MPI_SUCCESS : PMPI_Type_dup(type, &message.type);
    if (error == MPI_SUCCESS && (error = make(&message, request)) != MPI_SUCCESS) free_own_type(&message);
    if (error != MPI_SUCCESS) PMPI_Request_free(&message.inner);
    return error;
}

int make_collective(struct staging *staging, MPI_Request inner, MPI_Comm comm, MPI_Request *request) {
    struct persistent call = {.kind = COLLECTIVE, .staging = staging, .inner = inner, .comm = comm};
    return make(&call, request);
}

struct staging *staging_with(MPI_Request *request, bool *is_active) {
    lock();
    struct persistent *persistent = find(*request);
    if (persistent != NULL && persistent->kind != COLLECTIVE) persistent = NULL;
    *is_active = persistent != NULL && persistent->operation != NULL && !persistent->operation->inner_done;
    if (persistent != NULL) *request = persistent->inner;
    struct staging *staging = persistent != NULL ? persistent->staging : NULL;
    unlock();
    return staging;
}

static void drop(struct persistent *persistent) {
    remove_persistent(persistent);
    release_tag(persistent->own_tag);
    PMPI_Request_free(&persistent->handle);
    PMPI_Request_free(&persistent->inner);
    if (persistent->kind == COLLECTIVE) drop_staging(persistent->staging);
    free_own_type(persistent);
    free(persistent);
}

static void end(void *owner, const struct operation *operation) {
    struct persistent *persistent = owner;
    persistent->operation = NULL;
    persistent->has_ended = true;
    persistent->ended = *operation;
    unreported_count++;
    PMPI_Send(NULL, 0, MPI_BYTE, 0, persistent->own_tag, self_comm());
    if (persistent->is_freed) {
        unreported_count--;
        PMPI_Wait(&persistent->handle, MPI_STATUS_IGNORE);
        drop(persistent);
    }
}

static int start(struct persistent *persistent) {
    int error = PMPI_Start(&persistent->handle);
    struct operation *operation = error == MPI_SUCCESS ? calloc(1, sizeof *operation) : NULL;
    if (operation == NULL) return error == MPI_SUCCESS ? MPI_ERR_NO_MEM : error;
    operation->handle = MPI_REQUEST_NULL;
    operation->persistent = persistent;
    operation->ended = end;
    persistent->operation = operation;
    if (persistent->kind == COLLECTIVE)
        error = start_collective(operation, persistent->staging, persistent->inner, persistent->comm);
    else if (persistent->mode == BUFFERED)
        error = start_buffered(operation, persistent->buffer, persistent->count, persistent->type,
                               persistent->peer, persistent->tag, persistent->comm);
    else if (persistent->kind == SEND)
        error = start_send(operation, persistent->mode, persistent->buffer, persistent->count,
                           persistent->type, persistent->peer, persistent->tag, persistent->comm);
    else
        error = start_receive(operation, persistent->buffer, persistent->count, persistent->type,
                              persistent->peer, persistent->tag, persistent->comm);
    if (error != MPI_SUCCESS) {
        operation->error = error;
        operation->is_raised = true;
        end(persistent, operation);
        free(operation);
    }
    return error;
}

bool complete_persistent(MPI_Request handle, MPI_Status *status, bool is_last, struct operation *ended) {
    lock();
    struct persistent *persistent = unreported_count > 0 ? find(handle) : NULL;
    bool has_ended = persistent != NULL && persistent->has_ended;
    if (has_ended) {
        *ended = persistent->ended;
        fill_status(ended, status);
        if (is_last) {
            persistent->has_ended = false;
            unreported_count--;
        }
    }
    unlock();
    return has_ended;
}

bool free_persistent(MPI_Request request) {
    lock();
    struct persistent *persistent = find(request);
    bool is_one = persistent != NULL;
    if (is_one && persistent->operation != NULL)
        persistent->is_freed = persistent->operation->is_freed = true;
    else if (is_one)
        drop(persistent);
    unlock();
    return is_one;
}

EXPORT int MPI_Start(MPI_Request *request) {
    int error;
    if (restart_plain(request, &error)) return error;
    lock();
    struct persistent *persistent = find(*request);
    error = persistent == NULL ? PMPI_Start(request) : start(persistent);
    unlock();
    return error;
}

EXPORT int MPI_Startall(int count, MPI_Request *requests) {
    int error = MPI_SUCCESS;
    for (int at = 0; at < count && error == MPI_SUCCESS; at++) error = MPI_Start(&requests[at]);
    return error;
}

EXPORT int MPI_Cancel(MPI_Request *request) {
    struct plain *plain = plain_with(*request);
    // It has received its message.
    if (plain != NULL && plain->is_apart) return MPI_SUCCESS;
    lock();
    struct persistent *persistent = find(*request);
    int error = MPI_SUCCESS;
    if (persistent == NULL)
        error = cancel_now(*request) ? MPI_SUCCESS : PMPI_Cancel(request);
    else if (persistent->operation != NULL)
        cancel(persistent->operation);
    unlock();
    return error;
}

#define SEND_INIT(name, mode, number)                                                           \
    EXPORT int MPI_##name(const void *buffer, number count, MPI_Datatype type, int to, int tag, \
                          MPI_Comm comm, MPI_Request *request) {                                \
        if (!is_on_gpu(buffer, count, type))                                                    \
            return PMPI_##name(buffer, count, type, to, tag, comm, request);                    \
        return make_message(SEND, mode, buffer, count, type, to, tag, comm, request);           \
    }
#define PERSISTENT_CALLS(suffix, number)                                                                 \
    SEND_INIT(Send_init##suffix, STANDARD, number)                                                       \
    SEND_INIT(Ssend_init##suffix, SYNCHRONOUS, number)                                                   \
    SEND_INIT(Rsend_init##suffix, READY, number)                                                         \
    SEND_INIT(Bsend_init##suffix, BUFFERED, number)                                                      \
    EXPORT int MPI_Recv_init##suffix(void *buffer, number count, MPI_Datatype type, int source, int tag, \
                                     MPI_Comm comm, MPI_Request *request) {                              \
        int error;                                                                                       \
        if ((!is_received_as_bytes(type) || source == MPI_PROC_NULL) && !is_on_gpu(buffer, count, type)) \
            return PMPI_Recv_init##suffix(buffer, count, type, source, tag, comm, request);              \
        if (make_plain(buffer, count, type, source, tag, comm, request, &error)) return error;           \
        return make_message(RECEIVE, STANDARD, buffer, count, type, source, tag, comm, request);         \
    }

PERSISTENT_CALLS(, int)
#if MPI_VERSION >= 4
PERSISTENT_CALLS(_c, MPI_Count)
#endif

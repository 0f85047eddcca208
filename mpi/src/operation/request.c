// Requests of operations: generalized requests, which the MPI waits for and frees as any other; their errors,
// which the MPI does not know; and the memory that an operation has besides the user's.

#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "operation.h"

// The MPI calls this in the thread that waits for the request or queries it, before it frees the request.
static int query_request(void *data, MPI_Status *status) {
    const struct operation *operation = data;
    fill_status(operation, status);
    if (operation->error != MPI_SUCCESS) mark_queried(operation->handle);
    return MPI_SUCCESS;
}

static int free_request(void *operation) {
    free(operation);
    return MPI_SUCCESS;
}

// A send is not cancelled: the receiver may have its descriptor.
void cancel(struct operation *operation) {
    lock();
    if (operation->kind == RECEIVE && !operation->inner_done) PMPI_Cancel(&operation->inner);
    unlock();
}

bool cancel_now(MPI_Request request) {
    lock();
    struct operation *operation = operation_with(request);
    if (operation != NULL) cancel(operation);
    unlock();
    return operation != NULL;
}

// cancel_now cancels operations in flight. The MPI calls this for completed ones: under MPICH 4.0.2 with
// MPI_THREAD_MULTIPLE a call of MPI_Cancel in here would end the process.
static int cancel_request(void *operation, int is_complete) {
    (void)operation, (void)is_complete;
    return MPI_SUCCESS;
}

int start_request(struct operation **operation, MPI_Request *request) {
    *operation = calloc(1, sizeof **operation);
    if (*operation == NULL) return MPI_ERR_NO_MEM;
    int error = PMPI_Grequest_start(query_request, free_request, cancel_request, *operation, request);
    if (error != MPI_SUCCESS)
        free(*operation);
    else
        (*operation)->handle = *request;
    return error;
}

void drop_request(MPI_Request *request) {
    PMPI_Grequest_complete(*request);
    PMPI_Request_free(request);
}

bool free_later(MPI_Request request) {
    lock();
    struct operation *operation = operation_with(request);
    if (operation != NULL) operation->is_freed = true;
    unlock();
    return operation != NULL;
}

// Errors of operations whose requests the user waits for.

struct failure *failures;
// Its address is this thread's mark.
static __thread char mark;

void add_failure(MPI_Request handle, MPI_Comm comm, int error, bool is_raised) {
    struct failure *failure = malloc(sizeof *failure);
    if (failure == NULL) abort();
    lock();
    *failure = (struct failure){handle, comm, error, is_raised, NULL, failures};
    failures = failure;
    unlock();
}

void mark_queried(MPI_Request handle) {
    lock();
    struct failure *failure = failures;
    // An older one of this handle was marked when its request existed.
    while (failure != NULL && failure->handle != handle) failure = failure->next;
    if (failure != NULL) failure->queried_by = &mark;
    unlock();
}

bool take_failure(MPI_Request handle, struct failure *found) {
    lock();
    struct failure **at = &failures;
    while (*at != NULL && ((*at)->handle != handle || (*at)->queried_by != &mark)) at = &(*at)->next;
    struct failure *failure = *at;
    if (failure != NULL) {
        *at = failure->next;
        *found = *failure;
        free(failure);
    }
    unlock();
    return failure != NULL;
}

void drop_failure(MPI_Request handle) {
    struct failure discarded;
    if (failures == NULL) return;
    mark_queried(handle);
    take_failure(handle, &discarded);
}

// Memory of an operation besides the user's: buffers for the MPI, and packed elements on a GPU.

// A receive into a GPU needs a buffer for the longest message, and mostly gets a descriptor: pages that are
// not touched cost nothing.
void *map_memory(uint64_t bytes) {
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void release_memory(struct operation *operation) {
    if (operation->runs != NULL) {
        causeway_comm_release(operation->holder);
        drop_runs(operation->runs);
        operation->runs = NULL;
        operation->holder = NULL;
    }
    if (operation->memory == NULL) return;
    if (operation->memory_bytes > 0) munmap(operation->memory, operation->memory_bytes);
    operation->memory = NULL;
}

void drop_copy(void *copy, void *holder) {
    if (holder != NULL)
        causeway_comm_release(holder);
    else
        free(copy);
}

bool replace_memory(struct operation *operation, uint64_t bytes) {
    if (bytes <= sizeof operation->descriptor) {
        operation->memory = operation->descriptor;
        operation->memory_bytes = 0;
    } else {
        operation->memory = map_memory(bytes);
        operation->memory_bytes = bytes;
    }
    return operation->memory != NULL;
}

const char *pack_elements(struct operation *operation) {
    if (!operation->on_gpu || operation->contiguous || operation->capacity == 0) return NULL;
    struct runs *runs = hold_runs(operation->type);
    if (runs == NULL) return NO_RUNS;
    void *typed = operation->user;
    void *packed = causeway_comm_allocate((char *)typed + first_of(operation->type), operation->capacity,
                                          &operation->holder);
    if (packed == NULL) {
        drop_runs(runs);
        return causeway_comm_error();
    }
    operation->runs = runs;
    operation->typed = typed;
    operation->user = packed;
    operation->count = (MPI_Count)operation->capacity;
    operation->type = MPI_BYTE;
    operation->contiguous = true;
    return operation->kind == SEND ? copy_runs(runs, typed, packed, operation->capacity, true) : NULL;
}

void unpack_elements(struct operation *operation) {
    if (operation->holder == NULL || operation->kind != RECEIVE || operation->error != MPI_SUCCESS) return;
    const char *message =
        copy_runs(operation->runs, operation->typed, operation->user, operation->bytes, false);
    if (message != NULL) operation->error = error_code("a receive into a GPU", message);
}

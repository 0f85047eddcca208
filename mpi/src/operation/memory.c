// The memory that an operation has besides the user's: what the MPI is given instead of it, and elements of a
// GPU that have gaps.

#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "operation.h"

// A receive into a GPU must have room for all that may come, and mostly gets a descriptor: pages that are not
// touched cost nothing.
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
    void *packed =
        causeway_comm_allocate((char *)typed + first_of(operation->type), operation->capacity, &operation->holder);
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

// Collective calls on memory anywhere, by way of pieces of the host's memory: while the MPI works on one, the
// next one is copied from the GPU, and the one before it to the GPU.

#include <stdlib.h>
#include <string.h>

#include "places.h"

enum { CHUNK_BYTES = 1 << 20, SLOTS = 2 };

// Elements from `first` on, as the MPI has them.
struct slot {
    MPI_Count first;
    int count;
    unsigned char *out, *in;
    void *out_holder, *in_holder;
    MPI_Request request;
};

unsigned char *allocate_chunk(const struct chunked *chunked, uint64_t bytes, void **holder) {
    const void *near = chunked->from != NULL ? chunked->from : chunked->to;
    unsigned char *memory = NULL;
    *holder = NULL;
    if (causeway_comm_on_gpu(near)) memory = causeway_comm_allocate_host(near, bytes, holder);
    if (memory == NULL) memory = malloc(bytes);
    if (memory == NULL) abort();
    return memory;
}

void release_chunk(unsigned char *memory, void *holder) {
    if (holder != NULL)
        causeway_comm_release_host(holder);
    else
        free(memory);
}

int copy_any(const struct chunked *chunked, void *to, const void *from, uint64_t bytes) {
    bool on_gpu = causeway_comm_on_gpu(to) || causeway_comm_on_gpu(from);
    if (!on_gpu) memmove(to, from, bytes);
    if (!on_gpu || causeway_comm_copy(to, from, bytes) == 0) return MPI_SUCCESS;
    return error_code(chunked->call, causeway_comm_error());
}

// Keeps the first error.
static void record_first_error(int *first, int error) {
    if (*first == MPI_SUCCESS) *first = error;
}

static bool sends(const struct chunked *chunked) {
    return chunked->what != COLLECTIVE_Bcast || chunked->rank == chunked->root;
}

static bool receives(const struct chunked *chunked) {
    return (chunked->what == COLLECTIVE_Bcast) == (chunked->rank != chunked->root);
}

// A copy that fails is this rank's error. It takes part in what the others wait for all the same.
static void start_chunk(const struct chunked *chunked, struct slot *slot, int *error) {
    const char *from = (const char *)chunked->from + (uint64_t)slot->first * chunked->extent;
    if (sends(chunked))
        record_first_error(error, copy_any(chunked, slot->out, from, (uint64_t)slot->count * chunked->extent));
    switch (chunked->what) {
    case COLLECTIVE_Bcast:
        record_first_error(error, PMPI_Ibcast(slot->out, slot->count, chunked->type, chunked->root, chunked->comm,
                                &slot->request));
        return;
    default:
        record_first_error(error, PMPI_Ireduce(slot->out, slot->in, slot->count, chunked->type, chunked->op, chunked->root,
                                 chunked->comm, &slot->request));
    }
}

static void complete_chunk(const struct chunked *chunked, struct slot *slot, int *error) {
    if (slot->count == 0) return;
    record_first_error(error, PMPI_Wait(&slot->request, MPI_STATUS_IGNORE));
    char *to = (char *)chunked->to + (uint64_t)slot->first * chunked->extent;
    const unsigned char *from = chunked->what == COLLECTIVE_Bcast ? slot->out : slot->in;
    if (receives(chunked) && *error == MPI_SUCCESS)
        record_first_error(error, copy_any(chunked, to, from, (uint64_t)slot->count * chunked->extent));
    slot->count = 0;
}

static MPI_Count elements_per_chunk(const struct chunked *chunked) {
    MPI_Count chunk_elements = (MPI_Count)(CHUNK_BYTES / chunked->extent);
    return chunk_elements < chunked->count ? chunk_elements : chunked->count;
}

int run_chunked(const struct chunked *chunked) {
    int error = MPI_SUCCESS;
    struct slot slots[SLOTS];
    MPI_Count chunk_elements = elements_per_chunk(chunked);
    uint64_t bytes = (uint64_t)chunk_elements * chunked->extent;
    for (int at = 0; at < SLOTS; at++) {
        struct slot *slot = &slots[at];
        *slot = (struct slot){.request = MPI_REQUEST_NULL};
        slot->out = allocate_chunk(chunked, bytes, &slot->out_holder);
        if (chunked->what != COLLECTIVE_Bcast) slot->in = allocate_chunk(chunked, bytes, &slot->in_holder);
    }
    int round = 0;
    for (MPI_Count first = 0; first < chunked->count; first += chunk_elements, round++) {
        MPI_Count remaining = chunked->count - first;
        struct slot *slot = &slots[round % SLOTS];
        slot->first = first;
        slot->count = (int)(remaining < chunk_elements ? remaining : chunk_elements);
        start_chunk(chunked, slot, &error);
        complete_chunk(chunked, &slots[(round + 1) % SLOTS], &error);
    }
    complete_chunk(chunked, &slots[(round + 1) % SLOTS], &error);
    for (int at = 0; at < SLOTS; at++) {
        release_chunk(slots[at].out, slots[at].out_holder);
        if (slots[at].in != NULL) release_chunk(slots[at].in, slots[at].in_holder);
    }
    return error;
}

int send_chunked(const struct chunked *chunked, int from, int to) {
    if ((chunked->rank != from && chunked->rank != to) || chunked->count == 0) return MPI_SUCCESS;
    if (from == to) {
        uint64_t bytes = (uint64_t)chunked->count * chunked->extent;
        return chunked->from == chunked->to ? MPI_SUCCESS
                                            : copy_any(chunked, chunked->to, chunked->from, bytes);
    }
    int error = MPI_SUCCESS;
    MPI_Count chunk_elements = elements_per_chunk(chunked);
    void *holder;
    unsigned char *chunk = allocate_chunk(chunked, (uint64_t)chunk_elements * chunked->extent, &holder);
    for (MPI_Count first = 0; first < chunked->count; first += chunk_elements) {
        MPI_Count remaining = chunked->count - first, count = remaining < chunk_elements ? remaining : chunk_elements;
        uint64_t offset = (uint64_t)first * chunked->extent, bytes = (uint64_t)count * chunked->extent;
        if (chunked->rank == from) {
            record_first_error(&error, copy_any(chunked, chunk, (const char *)chunked->from + offset, bytes));
            record_first_error(&error, PMPI_Send(chunk, (int)count, chunked->type, to, 0, chunked->comm));
        } else {
            record_first_error(&error, PMPI_Recv(chunk, (int)count, chunked->type, from, 0, chunked->comm,
                                   MPI_STATUS_IGNORE));
            if (error == MPI_SUCCESS)
                record_first_error(&error, copy_any(chunked, (char *)chunked->to + offset, chunk, bytes));
        }
    }
    release_chunk(chunk, holder);
    return error;
}

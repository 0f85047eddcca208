// Chunked collective calls through host memory, which copy a chunk from or to the GPU while the MPI transfers
// another one.

#include <stdlib.h>
#include <string.h>

#include "chunked.h"

// Chunked broadcast, reduction and send.

enum { CHUNK_BYTES = 1 << 20, SLOTS = 2 };

// Elements from `first` on, as the MPI has them.
struct slot {
    MPI_Count first;
    int count;
    unsigned char *out, *in;
    void *out_holder, *in_holder;
    MPI_Request request;
};

unsigned char *allocate_chunk(const struct chunked_call *chunked, uint64_t bytes, void **holder) {
    const void *gpu_address = chunked->from != NULL ? chunked->from : chunked->to;
    unsigned char *memory = NULL;
    *holder = NULL;
    if (causeway_comm_on_gpu(gpu_address)) memory = causeway_comm_allocate_host(gpu_address, bytes, holder);
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

int copy_any(const struct chunked_call *chunked, void *to, const void *from, uint64_t bytes) {
    bool on_gpu = causeway_comm_on_gpu(to) || causeway_comm_on_gpu(from);
    if (!on_gpu) memmove(to, from, bytes);
    if (!on_gpu || causeway_comm_copy(to, from, bytes) == 0) return MPI_SUCCESS;
    return error_code(chunked->call, causeway_comm_error());
}

// Records the first error.
static void record_first_error(int *first, int error) {
    if (*first == MPI_SUCCESS) *first = error;
}

static bool sends(const struct chunked_call *chunked) {
    return chunked->what != COLLECTIVE_Bcast || chunked->rank == chunked->root;
}

static bool receives(const struct chunked_call *chunked) {
    return (chunked->what == COLLECTIVE_Bcast) == (chunked->rank != chunked->root);
}

// A copy that fails is an error of this rank, which still takes part in what the others wait for.
static void start_chunk(const struct chunked_call *chunked, struct slot *slot, int *error) {
    const char *from = (const char *)chunked->from + (uint64_t)slot->first * chunked->extent;
    if (sends(chunked))
        record_first_error(error,
                           copy_any(chunked, slot->out, from, (uint64_t)slot->count * chunked->extent));
    switch (chunked->what) {
    case COLLECTIVE_Bcast:
        record_first_error(error, PMPI_Ibcast(slot->out, slot->count, chunked->type, chunked->root,
                                              chunked->comm, &slot->request));
        return;
    default:
        record_first_error(error, PMPI_Ireduce(slot->out, slot->in, slot->count, chunked->type, chunked->op,
                                               chunked->root, chunked->comm, &slot->request));
    }
}

static void complete_chunk(const struct chunked_call *chunked, struct slot *slot, int *error) {
    if (slot->count == 0) return;
    record_first_error(error, PMPI_Wait(&slot->request, MPI_STATUS_IGNORE));
    char *to = (char *)chunked->to + (uint64_t)slot->first * chunked->extent;
    const unsigned char *from = chunked->what == COLLECTIVE_Bcast ? slot->out : slot->in;
    if (receives(chunked) && *error == MPI_SUCCESS)
        record_first_error(error, copy_any(chunked, to, from, (uint64_t)slot->count * chunked->extent));
    slot->count = 0;
}

static MPI_Count elements_per_chunk(const struct chunked_call *chunked) {
    MPI_Count chunk_elements = (MPI_Count)(CHUNK_BYTES / chunked->extent);
    return chunk_elements < chunked->count ? chunk_elements : chunked->count;
}

int run_chunked(const struct chunked_call *chunked) {
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

int send_chunked(const struct chunked_call *chunked, int from, int to) {
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
        MPI_Count remaining = chunked->count - first,
                  count = remaining < chunk_elements ? remaining : chunk_elements;
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

// Chunked all-to-all exchange of the blocks that each rank has for each other one. A reduction uses it, too:
// each rank sends the others their elements, and reduces its own. So no element passes through a rank that it
// is not for, as it may in the MPI's own MPI_Reduce_scatter.

// Chunks are smaller if there are many ranks.
enum { MIN_CHUNK_BYTES = 64 << 10, MAX_CHUNK_BYTES = 1 << 20, MAX_STAGED_BYTES = 8 << 20 };

struct exchange {
    const struct chunked_call *chunked;
    uint32_t ranks;
    const struct rank_block *rank_blocks, *result;
    uint64_t chunk;
    int error;
};

// The chunks of all blocks that begin at the same byte.
struct exchange_slot {
    uint64_t first;
    bool is_used;
    // This rank's chunk, or those for all ranks; those of all ranks.
    unsigned char *out, *in;
    void *out_holder, *in_holder;
    int count;
    MPI_Request *requests;
};

static void record_exchange_error(struct exchange *exchange, int error) {
    if (exchange->error == MPI_SUCCESS) exchange->error = error;
}

static bool reduces(const struct exchange *exchange) {
    return exchange->result != NULL;
}

static uint64_t bytes_at(const struct exchange *exchange, uint32_t rank, uint64_t first) {
    uint64_t all = exchange->rank_blocks[rank].bytes;
    if (first >= all) return 0;
    return all - first < exchange->chunk ? all - first : exchange->chunk;
}

// Copies bytes of a block from the first one on into a chunk, or out of it.
static void copy_block_range(struct exchange *exchange, const struct rank_block *rank_block, uint64_t first,
                             uint64_t bytes, unsigned char *chunk, bool into_chunk) {
    for (uint32_t at = 0; at < rank_block->count && bytes > 0; at++) {
        const struct causeway_comm_range *range = &rank_block->ranges[at];
        if (first >= range->bytes) {
            first -= range->bytes;
            continue;
        }
        uint64_t some = range->bytes - first < bytes ? range->bytes - first : bytes;
        unsigned char *there = (unsigned char *)range->address + first;
        void *to = into_chunk ? chunk : there;
        record_exchange_error(exchange, copy_any(exchange->chunked, to, into_chunk ? there : chunk, some));
        chunk += some;
        bytes -= some;
        first = 0;
    }
}

static void start_sending(struct exchange *exchange, struct exchange_slot *slot, uint32_t to,
                          const void *chunk, uint64_t bytes) {
    const struct chunked_call *chunked = exchange->chunked;
    if (bytes == 0) return;
    MPI_Request *request = &slot->requests[slot->count++];
    *request = MPI_REQUEST_NULL;
    record_exchange_error(exchange, PMPI_Isend(chunk, (int)(bytes / chunked->extent), chunked->type, (int)to,
                                               0, chunked->comm, request));
}

static void start_receiving(struct exchange *exchange, struct exchange_slot *slot, uint32_t from,
                            uint64_t bytes) {
    const struct chunked_call *chunked = exchange->chunked;
    if (bytes == 0) return;
    MPI_Request *request = &slot->requests[slot->count++];
    *request = MPI_REQUEST_NULL;
    record_exchange_error(exchange,
                          PMPI_Irecv(slot->in + from * exchange->chunk, (int)(bytes / chunked->extent),
                                     chunked->type, (int)from, 0, chunked->comm, request));
}

// A copy that fails is an error of this rank, which still takes part in what the others wait for.
static void start_chunks(struct exchange *exchange, struct exchange_slot *slot, uint64_t first) {
    uint32_t me = (uint32_t)exchange->chunked->rank;
    uint64_t own_bytes = bytes_at(exchange, me, first);
    slot->first = first;
    slot->is_used = true;
    if (!reduces(exchange))
        copy_block_range(exchange, &exchange->rank_blocks[me], first, own_bytes, slot->out, true);
    // Each rank starts with a different one.
    for (uint32_t step = 1; step <= exchange->ranks; step++) {
        uint32_t peer = (me + step) % exchange->ranks;
        uint64_t peer_bytes = bytes_at(exchange, peer, first);
        unsigned char *chunk = slot->out;
        if (reduces(exchange)) {
            chunk += peer * exchange->chunk;
            copy_block_range(exchange, &exchange->rank_blocks[peer], first, peer_bytes, chunk, true);
        }
        if (peer == me) continue;
        start_receiving(exchange, slot, peer, reduces(exchange) ? own_bytes : peer_bytes);
        start_sending(exchange, slot, peer, chunk, reduces(exchange) ? peer_bytes : own_bytes);
    }
}

static void complete_chunks(struct exchange *exchange, struct exchange_slot *slot) {
    const struct chunked_call *chunked = exchange->chunked;
    uint32_t me = (uint32_t)chunked->rank;
    if (!slot->is_used) return;
    for (int at = 0; at < slot->count; at++)
        record_exchange_error(exchange, PMPI_Wait(&slot->requests[at], MPI_STATUS_IGNORE));
    slot->count = 0;
    slot->is_used = false;
    uint64_t own_bytes = bytes_at(exchange, me, slot->first);
    for (uint32_t peer = 0; peer < exchange->ranks && exchange->error == MPI_SUCCESS; peer++) {
        unsigned char *chunk = slot->in + peer * exchange->chunk;
        if (peer == me) continue;
        if (!reduces(exchange))
            copy_block_range(exchange, &exchange->rank_blocks[peer], slot->first,
                             bytes_at(exchange, peer, slot->first), chunk, false);
        else if (own_bytes > 0)
            record_exchange_error(exchange, PMPI_Reduce_local(chunk, slot->out + me * exchange->chunk,
                                                              (int)(own_bytes / chunked->extent),
                                                              chunked->type, chunked->op));
    }
    if (reduces(exchange) && exchange->error == MPI_SUCCESS)
        copy_block_range(exchange, exchange->result, slot->first, own_bytes, slot->out + me * exchange->chunk,
                         false);
}

int alltoall_chunked(const struct chunked_call *chunked, uint32_t ranks, const struct rank_block *rank_blocks,
                     const struct rank_block *result) {
    struct exchange exchange = {chunked, ranks, rank_blocks, result, MAX_STAGED_BYTES / ranks, MPI_SUCCESS};
    if (exchange.chunk > MAX_CHUNK_BYTES) exchange.chunk = MAX_CHUNK_BYTES;
    if (exchange.chunk < MIN_CHUNK_BYTES) exchange.chunk = MIN_CHUNK_BYTES;
    uint64_t max_bytes = 0;
    for (uint32_t rank = 0; rank < ranks; rank++)
        max_bytes = rank_blocks[rank].bytes > max_bytes ? rank_blocks[rank].bytes : max_bytes;
    if (exchange.chunk > max_bytes) exchange.chunk = max_bytes;
    exchange.chunk -= exchange.chunk % chunked->extent;
    struct exchange_slot slots[SLOTS];
    for (int at = 0; at < SLOTS; at++) {
        struct exchange_slot *slot = &slots[at];
        *slot = (struct exchange_slot){0};
        uint64_t own_bytes = reduces(&exchange) ? ranks * exchange.chunk : exchange.chunk;
        slot->out = allocate_chunk(chunked, own_bytes, &slot->out_holder);
        slot->in = allocate_chunk(chunked, ranks * exchange.chunk, &slot->in_holder);
        slot->requests = calloc(2 * (size_t)ranks, sizeof *slot->requests);
        if (slot->requests == NULL) abort();
    }
    int round = 0;
    for (uint64_t first = 0; first < max_bytes; first += exchange.chunk, round++) {
        start_chunks(&exchange, &slots[round % SLOTS], first);
        complete_chunks(&exchange, &slots[(round + 1) % SLOTS]);
    }
    complete_chunks(&exchange, &slots[(round + 1) % SLOTS]);
    for (int at = 0; at < SLOTS; at++) {
        release_chunk(slots[at].out, slots[at].out_holder);
        release_chunk(slots[at].in, slots[at].in_holder);
        free(slots[at].requests);
    }
    return exchange.error;
}

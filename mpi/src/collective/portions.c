// Memory that each rank has for each other one, exchanged by way of pieces of the host's memory: while the
// MPI moves one piece of all of them, the next one is copied from the GPU, and the one before it to the GPU.
//
// A reduction is made so, too: each rank sends the others their elements, and puts its own together. So no
// element passes through a rank that it is not for, as it may in the MPI's own MPI_Reduce_scatter.

#include <stdlib.h>

#include "places.h"

// Pieces are smaller where there are many ranks.
enum { MIN_CHUNK_BYTES = 64 << 10, MAX_CHUNK_BYTES = 1 << 20, MAX_STAGED_BYTES = 8 << 20, SLOTS = 2 };

struct exchange {
    const struct chunked *chunked;
    uint32_t ranks;
    const struct rank_block *rank_blocks, *result;
    uint64_t chunk;
    int error;
};

// The pieces of all portions that begin at the same byte.
struct slot {
    uint64_t first;
    bool is_used;
    // The own piece, or those for all ranks; those of all ranks.
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

// Copies bytes of a portion from the first one on into a piece, or out of it.
static void copy_block_range(struct exchange *exchange, const struct rank_block *rank_block, uint64_t first, uint64_t bytes,
                      unsigned char *chunk, bool into_chunk) {
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

static void start_sending(struct exchange *exchange, struct slot *slot, uint32_t to, const void *chunk,
                          uint64_t bytes) {
    const struct chunked *chunked = exchange->chunked;
    if (bytes == 0) return;
    MPI_Request *request = &slot->requests[slot->count++];
    *request = MPI_REQUEST_NULL;
    record_exchange_error(exchange, PMPI_Isend(chunk, (int)(bytes / chunked->extent), chunked->type, (int)to, 0, chunked->comm,
                           request));
}

static void start_receiving(struct exchange *exchange, struct slot *slot, uint32_t from, uint64_t bytes) {
    const struct chunked *chunked = exchange->chunked;
    if (bytes == 0) return;
    MPI_Request *request = &slot->requests[slot->count++];
    *request = MPI_REQUEST_NULL;
    record_exchange_error(exchange, PMPI_Irecv(slot->in + from * exchange->chunk, (int)(bytes / chunked->extent), chunked->type,
                           (int)from, 0, chunked->comm, request));
}

// A copy that fails is this rank's error. It takes part in what the others wait for all the same.
static void start_chunks(struct exchange *exchange, struct slot *slot, uint64_t first) {
    uint32_t me = (uint32_t)exchange->chunked->rank;
    uint64_t own_bytes = bytes_at(exchange, me, first);
    slot->first = first;
    slot->is_used = true;
    if (!reduces(exchange)) copy_block_range(exchange, &exchange->rank_blocks[me], first, own_bytes, slot->out, true);
    // Each rank begins with another one.
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

static void complete_chunks(struct exchange *exchange, struct slot *slot) {
    const struct chunked *chunked = exchange->chunked;
    uint32_t me = (uint32_t)chunked->rank;
    if (!slot->is_used) return;
    for (int at = 0; at < slot->count; at++) record_exchange_error(exchange, PMPI_Wait(&slot->requests[at], MPI_STATUS_IGNORE));
    slot->count = 0;
    slot->is_used = false;
    uint64_t own_bytes = bytes_at(exchange, me, slot->first);
    for (uint32_t peer = 0; peer < exchange->ranks && exchange->error == MPI_SUCCESS; peer++) {
        unsigned char *chunk = slot->in + peer * exchange->chunk;
        if (peer == me) continue;
        if (!reduces(exchange))
            copy_block_range(exchange, &exchange->rank_blocks[peer], slot->first, bytes_at(exchange, peer, slot->first), chunk,
                      false);
        else if (own_bytes > 0)
            record_exchange_error(exchange, PMPI_Reduce_local(chunk, slot->out + me * exchange->chunk, (int)(own_bytes / chunked->extent),
                                          chunked->type, chunked->op));
    }
    if (reduces(exchange) && exchange->error == MPI_SUCCESS)
        copy_block_range(exchange, exchange->result, slot->first, own_bytes, slot->out + me * exchange->chunk, false);
}

int alltoall_chunked(const struct chunked *chunked, uint32_t ranks, const struct rank_block *rank_blocks,
                       const struct rank_block *result) {
    struct exchange exchange = {chunked, ranks, rank_blocks, result, MAX_STAGED_BYTES / ranks, MPI_SUCCESS};
    if (exchange.chunk > MAX_CHUNK_BYTES) exchange.chunk = MAX_CHUNK_BYTES;
    if (exchange.chunk < MIN_CHUNK_BYTES) exchange.chunk = MIN_CHUNK_BYTES;
    uint64_t max_bytes = 0;
    for (uint32_t rank = 0; rank < ranks; rank++)
        max_bytes = rank_blocks[rank].bytes > max_bytes ? rank_blocks[rank].bytes : max_bytes;
    if (exchange.chunk > max_bytes) exchange.chunk = max_bytes;
    exchange.chunk -= exchange.chunk % chunked->extent;
    struct slot slots[SLOTS];
    for (int at = 0; at < SLOTS; at++) {
        struct slot *slot = &slots[at];
        *slot = (struct slot){0};
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

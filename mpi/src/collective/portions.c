// Memory that each rank has for each other one, exchanged by way of pieces of the host's memory: while the
// MPI moves one piece of all of them, the next one is copied from the GPU, and the one before it to the GPU.
//
// A reduction is made so, too: each rank sends the others their elements, and puts its own together. So no
// element passes through a rank that it is not for, as it may in the MPI's own MPI_Reduce_scatter.

#include <stdlib.h>

#include "places.h"

// Pieces are smaller where there are many ranks.
enum { MIN_PIECE_BYTES = 64 << 10, MAX_PIECE_BYTES = 1 << 20, ALL_PIECES = 8 << 20, SLOTS = 2 };

struct trade {
    const struct between *between;
    uint32_t ranks;
    const struct portion *portions, *result;
    uint64_t piece;
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

static void note(struct trade *trade, int error) {
    if (trade->error == MPI_SUCCESS) trade->error = error;
}

static bool reduces(const struct trade *trade) {
    return trade->result != NULL;
}

static uint64_t bytes_at(const struct trade *trade, uint32_t rank, uint64_t first) {
    uint64_t all = trade->portions[rank].bytes;
    if (first >= all) return 0;
    return all - first < trade->piece ? all - first : trade->piece;
}

// Copies bytes of a portion from the first one on into a piece, or out of it.
static void copy_part(struct trade *trade, const struct portion *portion, uint64_t first, uint64_t bytes,
                      unsigned char *piece, bool is_into_piece) {
    for (uint32_t at = 0; at < portion->count && bytes > 0; at++) {
        const struct causeway_comm_range *range = &portion->ranges[at];
        if (first >= range->bytes) {
            first -= range->bytes;
            continue;
        }
        uint64_t some = range->bytes - first < bytes ? range->bytes - first : bytes;
        unsigned char *there = (unsigned char *)range->address + first;
        void *to = is_into_piece ? piece : there;
        note(trade, copy_any(trade->between, to, is_into_piece ? there : piece, some));
        piece += some;
        bytes -= some;
        first = 0;
    }
}

static void start_sending(struct trade *trade, struct slot *slot, uint32_t to, const void *piece,
                          uint64_t bytes) {
    const struct between *between = trade->between;
    if (bytes == 0) return;
    MPI_Request *request = &slot->requests[slot->count++];
    *request = MPI_REQUEST_NULL;
    note(trade, PMPI_Isend(piece, (int)(bytes / between->extent), between->type, (int)to, 0, between->comm,
                           request));
}

static void start_receiving(struct trade *trade, struct slot *slot, uint32_t from, uint64_t bytes) {
    const struct between *between = trade->between;
    if (bytes == 0) return;
    MPI_Request *request = &slot->requests[slot->count++];
    *request = MPI_REQUEST_NULL;
    note(trade, PMPI_Irecv(slot->in + from * trade->piece, (int)(bytes / between->extent), between->type,
                           (int)from, 0, between->comm, request));
}

// A copy that fails is this rank's error. It takes part in what the others wait for all the same.
static void start_pieces(struct trade *trade, struct slot *slot, uint64_t first) {
    uint32_t me = (uint32_t)trade->between->rank;
    uint64_t own = bytes_at(trade, me, first);
    slot->first = first;
    slot->is_used = true;
    if (!reduces(trade)) copy_part(trade, &trade->portions[me], first, own, slot->out, true);
    // Each rank begins with another one.
    for (uint32_t step = 1; step <= trade->ranks; step++) {
        uint32_t peer = (me + step) % trade->ranks;
        uint64_t theirs = bytes_at(trade, peer, first);
        unsigned char *piece = slot->out;
        if (reduces(trade)) {
            piece += peer * trade->piece;
            copy_part(trade, &trade->portions[peer], first, theirs, piece, true);
        }
        if (peer == me) continue;
        start_receiving(trade, slot, peer, reduces(trade) ? own : theirs);
        start_sending(trade, slot, peer, piece, reduces(trade) ? theirs : own);
    }
}

static void end_pieces(struct trade *trade, struct slot *slot) {
    const struct between *between = trade->between;
    uint32_t me = (uint32_t)between->rank;
    if (!slot->is_used) return;
    for (int at = 0; at < slot->count; at++) note(trade, PMPI_Wait(&slot->requests[at], MPI_STATUS_IGNORE));
    slot->count = 0;
    slot->is_used = false;
    uint64_t own = bytes_at(trade, me, slot->first);
    for (uint32_t peer = 0; peer < trade->ranks && trade->error == MPI_SUCCESS; peer++) {
        unsigned char *piece = slot->in + peer * trade->piece;
        if (peer == me) continue;
        if (!reduces(trade))
            copy_part(trade, &trade->portions[peer], slot->first, bytes_at(trade, peer, slot->first), piece,
                      false);
        else if (own > 0)
            note(trade, PMPI_Reduce_local(piece, slot->out + me * trade->piece, (int)(own / between->extent),
                                          between->type, between->op));
    }
    if (reduces(trade) && trade->error == MPI_SUCCESS)
        copy_part(trade, trade->result, slot->first, own, slot->out + me * trade->piece, false);
}

int exchange_in_pieces(const struct between *between, uint32_t ranks, const struct portion *portions,
                       const struct portion *result) {
    struct trade trade = {between, ranks, portions, result, ALL_PIECES / ranks, MPI_SUCCESS};
    if (trade.piece > MAX_PIECE_BYTES) trade.piece = MAX_PIECE_BYTES;
    if (trade.piece < MIN_PIECE_BYTES) trade.piece = MIN_PIECE_BYTES;
    uint64_t longest = 0;
    for (uint32_t rank = 0; rank < ranks; rank++)
        longest = portions[rank].bytes > longest ? portions[rank].bytes : longest;
    if (trade.piece > longest) trade.piece = longest;
    trade.piece -= trade.piece % between->extent;
    struct slot slots[SLOTS];
    for (int at = 0; at < SLOTS; at++) {
        struct slot *slot = &slots[at];
        *slot = (struct slot){0};
        uint64_t own = reduces(&trade) ? ranks * trade.piece : trade.piece;
        slot->out = take_piece(between, own, &slot->out_holder);
        slot->in = take_piece(between, ranks * trade.piece, &slot->in_holder);
        slot->requests = calloc(2 * (size_t)ranks, sizeof *slot->requests);
        if (slot->requests == NULL) abort();
    }
    int turn = 0;
    for (uint64_t first = 0; first < longest; first += trade.piece, turn++) {
        start_pieces(&trade, &slots[turn % SLOTS], first);
        end_pieces(&trade, &slots[(turn + 1) % SLOTS]);
    }
    end_pieces(&trade, &slots[(turn + 1) % SLOTS]);
    for (int at = 0; at < SLOTS; at++) {
        give_back_piece(slots[at].out, slots[at].out_holder);
        give_back_piece(slots[at].in, slots[at].in_holder);
        free(slots[at].requests);
    }
    return trade.error;
}

// What does a call that only moves give each rank, and what does it take from each?

#include <string.h>

#include "collective.h"

// A side's block of a rank. It is nowhere where it has gaps: the rank cannot, and says so to the others.
static struct causeway_comm_range block_of(const struct call *call, const struct side *side, uint32_t rank) {
    MPI_Datatype type = side->types != NULL ? side->types[rank] : side->type;
    uint64_t bytes = bytes_of(count_at(call, side, (int)rank), type);
    if (bytes == 0) return (struct causeway_comm_range){NULL, 0};
    MPI_Aint before = (MPI_Aint)(rank * bytes);
    if (side->displacements != NULL) {
        MPI_Aint unit = side->types != NULL ? 1 : (MPI_Aint)bytes_of(1, type);
        before = displacement_at(call, side, (int)rank) * unit;
    }
    void *address = is_contiguous(type) ? (char *)side->address + before : NULL;
    return (struct causeway_comm_range){address, bytes};
}

// The root gives all others a block, or takes one from each; the others have one block.
static void lay_out_rooted(const struct call *call, uint32_t me, uint32_t ranks,
                           const struct side *of_root, const struct side *of_others,
                           struct causeway_comm_range *roots, struct causeway_comm_range *others) {
    uint32_t root = (uint32_t)call->root;
    if (me == root)
        for (uint32_t rank = 0; rank < ranks; rank++) roots[rank] = block_of(call, of_root, rank);
    others[root] = of_others->address == MPI_IN_PLACE ? roots[me] : block_of(call, of_others, 0);
}

void lay_out_moves(const struct call *call, uint32_t me, uint32_t ranks, struct moves *moves) {
    const struct side *in = &call->in, *out = &call->out;
    bool in_place = out->address == MPI_IN_PLACE;
    memset(moves->sends, 0, ranks * sizeof *moves->sends);
    memset(moves->receives, 0, ranks * sizeof *moves->receives);
    switch (call->what) {
    case COLLECTIVE_Gather:
    case COLLECTIVE_Gatherv: lay_out_rooted(call, me, ranks, in, out, moves->receives, moves->sends); return;
    case COLLECTIVE_Scatter:
    case COLLECTIVE_Scatterv: lay_out_rooted(call, me, ranks, out, in, moves->sends, moves->receives); return;
    case COLLECTIVE_Bcast:
        for (uint32_t rank = 0; rank < ranks && me == (uint32_t)call->root; rank++)
            moves->sends[rank] = block_of(call, in, 0);
        moves->receives[call->root] = block_of(call, in, 0);
        return;
    default: break;
    }
    bool is_each = call->what == COLLECTIVE_Alltoall || call->what == COLLECTIVE_Alltoallv ||
                   call->what == COLLECTIVE_Alltoallw;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct causeway_comm_range *sends = &moves->sends[rank];
        moves->receives[rank] = block_of(call, in, rank);
        if (!is_each)
            *sends = in_place ? block_of(call, in, me) : block_of(call, out, 0);
        else if (!in_place)
            *sends = block_of(call, out, rank);
        else
            // Nothing may be overwritten that has not been fetched: this rank cannot.
            *sends = (struct causeway_comm_range){NULL, 1};
    }
}

struct moves_summary summarize_moves(const struct moves *moves, uint32_t ranks) {
    struct moves_summary summary = {0};
    const struct causeway_comm_range *both[] = {moves->sends, moves->receives};
    for (int side = 0; side < 2; side++)
        for (uint32_t rank = 0; rank < ranks; rank++) {
            if (both[side][rank].bytes == 0) continue;
            if (causeway_comm_on_gpu(both[side][rank].address))
                summary.on_gpu = true;
            else
                summary.in_host = true;
            summary.bytes += both[side][rank].bytes;
        }
    return summary;
}

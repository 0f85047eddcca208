// Arguments of collective calls: the ranges that a rank sends to and receives from each rank, the elements
// and operations that kernels reduce, and aliased buffers.

#include <stddef.h>
#include <string.h>

#include "collective.h"

// Ranges that a call without a reduction sends to each rank, and receives from each.

// A side's block of a rank. Its address is null if it has gaps: the rank cannot make the call, and the others
// learn that.
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

// The root sends a block to all others, or receives one from each; the others have one block.
static void lay_out_rooted(const struct call *call, uint32_t me, uint32_t ranks, const struct side *of_root,
                           const struct side *of_others, struct causeway_comm_range *roots,
                           struct causeway_comm_range *others) {
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
    switch (pattern_of(call)) {
    case GATHER: lay_out_rooted(call, me, ranks, in, out, moves->receives, moves->sends); return;
    case SCATTER: lay_out_rooted(call, me, ranks, out, in, moves->sends, moves->receives); return;
    case BROADCAST:
        for (uint32_t rank = 0; rank < ranks && me == (uint32_t)call->root; rank++)
            moves->sends[rank] = block_of(call, in, 0);
        moves->receives[call->root] = block_of(call, in, 0);
        return;
    default: break;
    }
    bool is_each = pattern_of(call) == ALLTOALL;
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

// Predefined types and operations that kernels reduce.

static int signed_of(size_t bytes) {
    switch (bytes) {
    case 1: return CAUSEWAY_COMM_INT8;
    case 2: return CAUSEWAY_COMM_INT16;
    case 4: return CAUSEWAY_COMM_INT32;
    case 8: return CAUSEWAY_COMM_INT64;
    default: return 0;
    }
}

static int unsigned_of(size_t bytes) {
    return signed_of(bytes) + CAUSEWAY_COMM_UINT8 - CAUSEWAY_COMM_INT8;
}

int element_of(MPI_Datatype type) {
    // An MPI's handles need not be constants.
    const struct {
        MPI_Datatype type;
        int element;
    } known[] = {
        {MPI_FLOAT, CAUSEWAY_COMM_FLOAT32},
        {MPI_DOUBLE, CAUSEWAY_COMM_FLOAT64},
        {MPI_INT, signed_of(sizeof(int))},
        {MPI_LONG, signed_of(sizeof(long))},
        {MPI_LONG_LONG, signed_of(sizeof(long long))},
        {MPI_SHORT, signed_of(sizeof(short))},
        {MPI_SIGNED_CHAR, CAUSEWAY_COMM_INT8},
        {MPI_UNSIGNED, unsigned_of(sizeof(unsigned))},
        {MPI_UNSIGNED_LONG, unsigned_of(sizeof(unsigned long))},
        {MPI_UNSIGNED_LONG_LONG, unsigned_of(sizeof(unsigned long long))},
        {MPI_UNSIGNED_SHORT, unsigned_of(sizeof(unsigned short))},
        {MPI_UNSIGNED_CHAR, CAUSEWAY_COMM_UINT8},
        {MPI_INT8_T, CAUSEWAY_COMM_INT8},
        {MPI_INT16_T, CAUSEWAY_COMM_INT16},
        {MPI_INT32_T, CAUSEWAY_COMM_INT32},
        {MPI_INT64_T, CAUSEWAY_COMM_INT64},
        {MPI_UINT8_T, CAUSEWAY_COMM_UINT8},
        {MPI_UINT16_T, CAUSEWAY_COMM_UINT16},
        {MPI_UINT32_T, CAUSEWAY_COMM_UINT32},
        {MPI_UINT64_T, CAUSEWAY_COMM_UINT64},
        {MPI_AINT, signed_of(sizeof(MPI_Aint))},
        {MPI_OFFSET, signed_of(sizeof(MPI_Offset))},
        {MPI_COUNT, signed_of(sizeof(MPI_Count))},
        {MPI_BYTE, CAUSEWAY_COMM_UINT8},
        {MPI_C_BOOL, CAUSEWAY_COMM_UINT8},
        {MPI_C_FLOAT_COMPLEX, CAUSEWAY_COMM_COMPLEX64},
        {MPI_C_DOUBLE_COMPLEX, CAUSEWAY_COMM_COMPLEX128},
        {MPI_SHORT_INT, CAUSEWAY_COMM_SHORT_INT},
        {MPI_2INT, CAUSEWAY_COMM_INT_INT},
        {MPI_LONG_INT, sizeof(long) == 8 ? CAUSEWAY_COMM_LONG_INT : CAUSEWAY_COMM_INT_INT},
        {MPI_FLOAT_INT, CAUSEWAY_COMM_FLOAT_INT},
        {MPI_DOUBLE_INT, CAUSEWAY_COMM_DOUBLE_INT},
        {MPI_REAL, CAUSEWAY_COMM_FLOAT32},
        {MPI_DOUBLE_PRECISION, CAUSEWAY_COMM_FLOAT64},
        {MPI_INTEGER, CAUSEWAY_COMM_INT32},
        {MPI_COMPLEX, CAUSEWAY_COMM_COMPLEX64},
        {MPI_DOUBLE_COMPLEX, CAUSEWAY_COMM_COMPLEX128},
#ifdef MPIX_C_FLOAT16
        {MPIX_C_FLOAT16, CAUSEWAY_COMM_FLOAT16},
#endif
    };
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (known[at].type == type) return known[at].element;
    return 0;
}

int operation_of(MPI_Op op) {
    const MPI_Op known[] = {MPI_MAX, MPI_MIN, MPI_SUM,  MPI_PROD, MPI_LAND,   MPI_BAND,
                            MPI_LOR, MPI_BOR, MPI_LXOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC};
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (known[at] == op) return CAUSEWAY_COMM_MAX + (int)at;
    return 0;
}

// Aliased send and receive buffers: whether the MPI reports them as an error.
//
// The MPI cannot see them in a call of the interposer, which passes it two staging buffers (staging.c) or
// does not call it (direct.c). Which of these calls are errors differs from MPI to MPI, so the MPI is
// queried, by such a call on host memory and of this rank alone.

// The address of this rank's block of a side. Most sides have a block of every rank.
static const char *own_block_address(const struct call *call, const struct side *side, bool is_of_all,
                                     int rank) {
    if (!is_of_all) return side->address;
    MPI_Aint lower = 0, extent = 0;
    PMPI_Type_get_extent(side->type, &lower, &extent);
    MPI_Aint at = side->displacements != NULL ? displacement_at(call, side, rank)
                                              : (MPI_Aint)(rank * count_at(call, side, rank));
    return (const char *)((uintptr_t)side->address + (uintptr_t)(at * extent));
}

// Whether the block that this rank sends to itself is received at the same address. Among neighbours no block
// is of the rank itself.
static bool is_aliased(const struct call *call) {
    const struct side *out = &call->out, *in = &call->in;
    int rank = 0, is_inter = 0;
    bool out_of_all = false, in_of_all = false, has_types = in->types != NULL;
    if (out->address == MPI_IN_PLACE || in->address == MPI_IN_PLACE) return false;
    if (in->address == MPI_BOTTOM) return false;
    switch (pattern_of(call)) {
    case BROADCAST:
    case NEIGHBORS: return false;
    case GATHER:
    case ALLGATHER: in_of_all = true; break;
    case SCATTER: out_of_all = true; break;
    // If each rank receives a different block, the MPIs compare the whole buffers.
    case REDUCTION:
    case ALLTOALL:
    case LOCAL:
        if (out->address != in->address) return false;
    }
    if (call->comm == MPI_COMM_NULL || (!has_types && out->type == MPI_DATATYPE_NULL)) return false;
    if (PMPI_Comm_test_inter(call->comm, &is_inter) != MPI_SUCCESS || is_inter) return false;
    PMPI_Comm_rank(call->comm, &rank);
    if (has_root(call) && call->root != rank) return false;
    if (!has_types && out->type != in->type) return false;
    MPI_Count sent = count_at(call, out, rank), received = count_at(call, in, rank);
    if (sent != received || sent <= 0) return false;
    return own_block_address(call, out, out_of_all, rank) == own_block_address(call, in, in_of_all, rank);
}

// Makes such a call of the MPI, and returns its error.
static int query_mpi(const struct call *call) {
    int rank = 0, displacement = 0, numbers[2] = {0};
    PMPI_Comm_rank(call->comm, &rank);
    // Open MPI 4.1.4 lets one element pass.
    int count = count_at(call, &call->in, rank) > 1 ? 2 : 1;
    // MPICH 4.0.2 compares whether lists are the same ones.
    int counts[] = {count, count};
    MPI_Datatype types[] = {MPI_INT, MPI_INT};
    struct side side = {.address = numbers, .count = count, .type = MPI_INT};
    struct call query = {call->what, .out = side, .in = side, .op = MPI_SUM};
    const struct side *actual[] = {&call->out, &call->in};
    struct side *queried[] = {&query.out, &query.in};
    bool has_other_counts = call->out.counts != call->in.counts;
    bool has_other_types = call->out.types != call->in.types;
    for (int at = 0; at < 2; at++) {
        if (actual[at]->counts != NULL) queried[at]->counts = &counts[at > 0 && has_other_counts];
        if (actual[at]->types != NULL) queried[at]->types = &types[at > 0 && has_other_types];
        if (actual[at]->displacements != NULL) queried[at]->displacements = &displacement;
    }
    lock();
    query.comm = self_comm();
    int error = invoke(&query, BLOCKING, MPI_INFO_NULL, NULL);
    unlock();
    return error;
}

int check_aliasing(const struct call *call) {
    int error = is_aliased(call) ? query_mpi(call) : MPI_SUCCESS;
    if (error != MPI_SUCCESS) PMPI_Comm_call_errhandler(call->comm, error);
    return error;
}

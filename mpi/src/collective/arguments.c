// Arguments of collective calls: where the data of a rank are, what it sends to and receives from each rank, the elements and
// operations that kernels reduce, and aliased buffers.

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "collective.h"

// Layout: the blocks of each side, and whether the MPI reads or writes them.

// What a side has: nothing, elements of one count, as many for each rank, or what is listed for each rank.
enum shape { NONE, ONE, EACH, SUM, OWN, LIST };
// Who looks at it: every rank, the root, or those who are at the other end of the root.
enum role { ALL, ROOT, LEAF };
// For whom it is, where that is a list.
enum peers { RANKS, SOURCES, DESTINATIONS };

struct side_kind {
    enum shape shape;
    enum role role;
    enum peers peers;
};

struct kind_of_call {
    struct side_kind out, in;
    // The MPI may leave elements of the receive buffer as they are.
    bool may_stay;
};

static const struct kind_of_call KINDS[] = {
    [COLLECTIVE_Bcast] = {.in = {ONE, ALL, RANKS}},
    [COLLECTIVE_Reduce] = {{ONE, LEAF, RANKS}, {ONE, ROOT, RANKS}, false},
    [COLLECTIVE_Allreduce] = {{ONE, ALL, RANKS}, {ONE, ALL, RANKS}, false},
    [COLLECTIVE_Scan] = {{ONE, ALL, RANKS}, {ONE, ALL, RANKS}, false},
    // The first rank receives nothing.
    [COLLECTIVE_Exscan] = {{ONE, ALL, RANKS}, {ONE, ALL, RANKS}, true},
    [COLLECTIVE_Reduce_scatter] = {{SUM, ALL, RANKS}, {OWN, ALL, RANKS}, false},
    [COLLECTIVE_Reduce_scatter_block] = {{SUM, ALL, RANKS}, {ONE, ALL, RANKS}, false},
    [COLLECTIVE_Gather] = {{ONE, LEAF, RANKS}, {EACH, ROOT, RANKS}, false},
    [COLLECTIVE_Gatherv] = {{ONE, LEAF, RANKS}, {LIST, ROOT, RANKS}, false},
    [COLLECTIVE_Scatter] = {{EACH, ROOT, RANKS}, {ONE, LEAF, RANKS}, false},
    [COLLECTIVE_Scatterv] = {{LIST, ROOT, RANKS}, {ONE, LEAF, RANKS}, false},
    [COLLECTIVE_Allgather] = {{ONE, ALL, RANKS}, {EACH, ALL, RANKS}, false},
    [COLLECTIVE_Allgatherv] = {{ONE, ALL, RANKS}, {LIST, ALL, RANKS}, false},
    [COLLECTIVE_Alltoall] = {{EACH, ALL, RANKS}, {EACH, ALL, RANKS}, false},
    [COLLECTIVE_Alltoallv] = {{LIST, ALL, RANKS}, {LIST, ALL, RANKS}, false},
    [COLLECTIVE_Alltoallw] = {{LIST, ALL, RANKS}, {LIST, ALL, RANKS}, false},
    // There may be no neighbour in some direction.
    [COLLECTIVE_Neighbor_allgather] = {{ONE, ALL, DESTINATIONS}, {EACH, ALL, SOURCES}, true},
    [COLLECTIVE_Neighbor_allgatherv] = {{ONE, ALL, DESTINATIONS}, {LIST, ALL, SOURCES}, true},
    [COLLECTIVE_Neighbor_alltoall] = {{EACH, ALL, DESTINATIONS}, {EACH, ALL, SOURCES}, true},
    [COLLECTIVE_Neighbor_alltoallv] = {{LIST, ALL, DESTINATIONS}, {LIST, ALL, SOURCES}, true},
    [COLLECTIVE_Neighbor_alltoallw] = {{LIST, ALL, DESTINATIONS}, {LIST, ALL, SOURCES}, true},
    [COLLECTIVE_Reduce_local] = {{ONE, ALL, RANKS}, {ONE, ALL, RANKS}, true},
};

// What this rank is in a communicator, and to a call's root.
struct rank_info {
    MPI_Comm comm;
    int is_inter, rank, ranks, peers;
    bool is_root, is_leaf;
};

bool has_root(const struct call *call) {
    const struct kind_of_call *kind = &KINDS[call->what];
    return call->what == COLLECTIVE_Bcast || kind->out.role != ALL || kind->in.role != ALL;
}

static int rank_info_of(const struct call *call, struct rank_info *rank_info) {
    *rank_info = (struct rank_info){.comm = call->comm, .is_root = true, .is_leaf = true};
    if (call->what == COLLECTIVE_Reduce_local) return MPI_SUCCESS;
    int error = PMPI_Comm_test_inter(call->comm, &rank_info->is_inter);
    if (error == MPI_SUCCESS) error = PMPI_Comm_rank(call->comm, &rank_info->rank);
    if (error == MPI_SUCCESS) error = PMPI_Comm_size(call->comm, &rank_info->ranks);
    rank_info->peers = rank_info->ranks;
    if (error == MPI_SUCCESS && rank_info->is_inter) error = PMPI_Comm_remote_size(call->comm, &rank_info->peers);
    if (error != MPI_SUCCESS || !has_root(call)) return error;
    rank_info->is_root = rank_info->is_inter ? call->root == MPI_ROOT : call->root == rank_info->rank;
    rank_info->is_leaf = rank_info->is_inter ? call->root != MPI_ROOT && call->root != MPI_PROC_NULL : true;
    return MPI_SUCCESS;
}

static bool is_used_here(enum role role, const struct rank_info *rank_info) {
    return role == ALL || (role == ROOT ? rank_info->is_root : rank_info->is_leaf);
}

static int neighbours(const struct rank_info *rank_info, enum peers peers, int *count) {
    int topology, weighted, sources, destinations;
    int error = PMPI_Topo_test(rank_info->comm, &topology);
    if (error != MPI_SUCCESS) return error;
    switch (topology) {
    case MPI_CART:
        error = PMPI_Cartdim_get(rank_info->comm, count);
        *count *= 2;
        return error;
    case MPI_GRAPH: return PMPI_Graph_neighbors_count(rank_info->comm, rank_info->rank, count);
    case MPI_DIST_GRAPH:
        error = PMPI_Dist_graph_neighbors_count(rank_info->comm, &sources, &destinations, &weighted);
        *count = peers == SOURCES ? sources : destinations;
        return error;
    default: return MPI_ERR_TOPOLOGY;
    }
}

MPI_Count count_at(const struct call *call, const struct side *side, int at) {
    if (side->counts == NULL) return side->count;
    return call->is_large ? ((const MPI_Count *)side->counts)[at] : ((const int *)side->counts)[at];
}

MPI_Aint displacement_at(const struct call *call, const struct side *side, int at) {
    if (call->is_large || call->what == COLLECTIVE_Neighbor_alltoallw)
        return ((const MPI_Aint *)side->displacements)[at];
    return ((const int *)side->displacements)[at];
}

// The blocks of a list: one for each peer.
static int lay_out_list(const struct call *call, const struct side *side, struct layout *layout, int peers) {
    layout->blocks = calloc((size_t)peers + 1, sizeof *layout->blocks);
    if (layout->blocks == NULL) return MPI_ERR_NO_MEM;
    MPI_Aint lower, extent = 1;
    if (side->types == NULL) {
        int error = PMPI_Type_get_extent(side->type, &lower, &extent);
        if (error != MPI_SUCCESS) return error;
    }
    for (int at = 0; at < peers; at++) {
        MPI_Count count = count_at(call, side, at);
        if (count <= 0) continue;
        layout->blocks[layout->count++] = (struct block){
            .offset = displacement_at(call, side, at) * extent,
            .count = count,
            .type = side->types == NULL ? side->type : side->types[at],
        };
    }
    return MPI_SUCCESS;
}

static int lay_out_side(const struct call *call, const struct side *side, const struct side_kind *kind,
                        const struct rank_info *rank_info, struct layout *layout) {
    int peers = rank_info->peers;
    if (kind->shape == NONE || side->address == MPI_IN_PLACE || !is_used_here(kind->role, rank_info))
        return MPI_SUCCESS;
    if (kind->peers != RANKS) {
        int error = neighbours(rank_info, kind->peers, &peers);
        if (error != MPI_SUCCESS) return error;
    }
    if (kind->shape == LIST) return lay_out_list(call, side, layout, peers);
    MPI_Count count = 0;
    switch (kind->shape) {
    case EACH: count = side->count * peers; break;
    case OWN: count = count_at(call, side, rank_info->rank); break;
    case SUM:
        for (int at = 0; at < rank_info->ranks; at++) count += count_at(call, side, at);
        break;
    default: count = side->count; break;
    }
    if (count <= 0) return MPI_SUCCESS;
    layout->blocks = calloc(1, sizeof *layout->blocks);
    if (layout->blocks == NULL) return MPI_ERR_NO_MEM;
    layout->blocks[0] = (struct block){0, count, side->type};
    layout->count = 1;
    return MPI_SUCCESS;
}

int lay_out(const struct call *call, struct layout *out, struct layout *in) {
    const struct kind_of_call *kind = &KINDS[call->what];
    struct rank_info rank_info;
    *out = (struct layout){.is_read = true};
    *in = (struct layout){.is_written = true, .may_stay = kind->may_stay};
    int error = rank_info_of(call, &rank_info);
    if (error != MPI_SUCCESS) return error;
    struct side_kind received = kind->in;
    bool is_in_place = call->out.address == MPI_IN_PLACE && kind->out.shape != NONE;
    // What is sent in place lies in the receive buffer.
    if (is_in_place && kind->out.shape == SUM) received.shape = SUM;
    if (is_in_place) in->is_read = true;
    if (call->what == COLLECTIVE_Bcast) {
        in->is_read = rank_info.is_root;
        in->is_written = !rank_info.is_root;
        if (!rank_info.is_root && !rank_info.is_leaf) return MPI_SUCCESS;
    }
    error = lay_out_side(call, &call->out, &kind->out, &rank_info, out);
    if (error == MPI_SUCCESS) error = lay_out_side(call, &call->in, &received, &rank_info, in);
    return error;
}

// Ranges that a call without a reduction sends to each rank, and receives from each.

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
// The MPI cannot see them in a call of the interposer, which passes it two staging buffers (staging.c) or does not call it
// (intranode.c). Which of these calls are errors differs from MPI to MPI, so the MPI is asked, by such a call on host memory
// and of this rank alone.

// Where the bytes begin that a side has of this rank. Most sides are of all ranks.
static const char *own_block_address(const struct call *call, const struct side *side, bool is_of_all, int rank) {
    if (!is_of_all) return side->address;
    MPI_Aint lower = 0, extent = 0;
    PMPI_Type_get_extent(side->type, &lower, &extent);
    MPI_Aint at = side->displacements != NULL ? displacement_at(call, side, rank)
                                              : (MPI_Aint)(rank * count_at(call, side, rank));
    return (const char *)((uintptr_t)side->address + (uintptr_t)(at * extent));
}

// Whether what this rank gives itself is received where it is sent from. Among neighbours no block is of the
// rank itself.
static bool is_aliased(const struct call *call) {
    const struct side *out = &call->out, *in = &call->in;
    int rank = 0, is_inter = 0;
    bool out_of_all = false, in_of_all = false, has_types = in->types != NULL;
    if (out->address == MPI_IN_PLACE || in->address == MPI_IN_PLACE) return false;
    if (in->address == MPI_BOTTOM) return false;
    switch (call->what) {
    case COLLECTIVE_Bcast:
    case COLLECTIVE_Neighbor_allgather:
    case COLLECTIVE_Neighbor_allgatherv:
    case COLLECTIVE_Neighbor_alltoall:
    case COLLECTIVE_Neighbor_alltoallv:
    case COLLECTIVE_Neighbor_alltoallw: return false;
    case COLLECTIVE_Gather:
    case COLLECTIVE_Gatherv:
    case COLLECTIVE_Allgather:
    case COLLECTIVE_Allgatherv: in_of_all = true; break;
    case COLLECTIVE_Scatter:
    case COLLECTIVE_Scatterv: out_of_all = true; break;
    // Where each rank gets another block the MPIs look at the whole.
    default:
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

// Has the MPI make such a call, and gives its error.
static int ask(const struct call *call) {
    int rank = 0, displacement = 0, numbers[2] = {0};
    PMPI_Comm_rank(call->comm, &rank);
    // Open MPI 4.1.4 lets one element pass.
    int count = count_at(call, &call->in, rank) > 1 ? 2 : 1;
    // MPICH 4.0.2 looks whether lists are the same ones.
    int counts[] = {count, count};
    MPI_Datatype types[] = {MPI_INT, MPI_INT};
    struct side side = {.address = numbers, .count = count, .type = MPI_INT};
    struct call question = {call->what, .out = side, .in = side, .op = MPI_SUM};
    const struct side *given[] = {&call->out, &call->in};
    struct side *asked[] = {&question.out, &question.in};
    bool has_other_counts = call->out.counts != call->in.counts;
    bool has_other_types = call->out.types != call->in.types;
    for (int at = 0; at < 2; at++) {
        if (given[at]->counts != NULL) asked[at]->counts = &counts[at > 0 && has_other_counts];
        if (given[at]->types != NULL) asked[at]->types = &types[at > 0 && has_other_types];
        if (given[at]->displacements != NULL) asked[at]->displacements = &displacement;
    }
    lock();
    question.comm = self_comm();
    int error = invoke(&question, BLOCKING, MPI_INFO_NULL, NULL);
    unlock();
    return error;
}

int check_aliasing(const struct call *call) {
    int error = is_aliased(call) ? ask(call) : MPI_SUCCESS;
    if (error != MPI_SUCCESS) PMPI_Comm_call_errhandler(call->comm, error);
    return error;
}

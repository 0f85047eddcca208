// Layout of a collective call's data at this rank: the blocks of each side, and whether the MPI reads or
// writes them.

#include <stdlib.h>

#include "collective.h"

// Shape of a side: nothing, elements of one count, as many for each rank, or a list for each rank.
enum shape { NONE, ONE, EACH, SUM, OWN, LIST };
// The ranks that use it: every rank, the root, or the ranks that communicate with the root.
enum role { ALL, ROOT, LEAF };

struct side_kind {
    enum shape shape;
    enum role role;
};

struct kind_of_call {
    enum pattern pattern;
    enum length length;
    struct side_kind out, in;
    // The MPI may leave elements of the receive buffer as they are: the first rank of MPI_Exscan receives
    // nothing, and there may be no neighbour in some direction.
    bool may_stay;
};

// The sides in the table of calls. The peers of a rank are all ranks or, with the pattern NEIGHBORS, those.
#define SIDE_NONE {NONE, ALL}
#define SIDE_ONE {ONE, ALL}
#define SIDE_ONE_OF_LEAF {ONE, LEAF}
#define SIDE_ONE_OF_ROOT {ONE, ROOT}
#define SIDE_EACH {EACH, ALL}
#define SIDE_EACH_OF_ROOT {EACH, ROOT}
#define SIDE_SUM {SUM, ALL}
#define SIDE_OWN {OWN, ALL}
#define SIDE_LIST {LIST, ALL}
#define SIDE_LIST_OF_ROOT {LIST, ROOT}
#define MAY_STAY_ALL false
#define MAY_STAY_SOME true
#define KIND(name, lower, parameters, pattern, length, sent, received, written) \
    [COLLECTIVE_##name] = {pattern, OF_##length, SIDE_##sent, SIDE_##received, MAY_STAY_##written},
static const struct kind_of_call KINDS[] = {ALL_COLLECTIVE_CALLS(KIND)};

enum pattern pattern_of(const struct call *call) {
    return KINDS[call->what].pattern;
}

enum length length_of_call(const struct call *call) {
    return KINDS[call->what].length;
}

// This rank in a communicator, and in relation to the root of a call.
struct rank_info {
    MPI_Comm comm;
    int is_inter, rank, ranks, peers;
    bool is_root, is_leaf;
};

bool has_root(const struct call *call) {
    const struct kind_of_call *kind = &KINDS[call->what];
    return kind->pattern == BROADCAST || kind->out.role != ALL || kind->in.role != ALL;
}

static int rank_info_of(const struct call *call, struct rank_info *rank_info) {
    *rank_info = (struct rank_info){.comm = call->comm, .is_root = true, .is_leaf = true};
    if (pattern_of(call) == LOCAL) return MPI_SUCCESS;
    int error = PMPI_Comm_test_inter(call->comm, &rank_info->is_inter);
    if (error == MPI_SUCCESS) error = PMPI_Comm_rank(call->comm, &rank_info->rank);
    if (error == MPI_SUCCESS) error = PMPI_Comm_size(call->comm, &rank_info->ranks);
    rank_info->peers = rank_info->ranks;
    if (error == MPI_SUCCESS && rank_info->is_inter)
        error = PMPI_Comm_remote_size(call->comm, &rank_info->peers);
    if (error != MPI_SUCCESS || !has_root(call)) return error;
    rank_info->is_root = rank_info->is_inter ? call->root == MPI_ROOT : call->root == rank_info->rank;
    rank_info->is_leaf = rank_info->is_inter ? call->root != MPI_ROOT && call->root != MPI_PROC_NULL : true;
    return MPI_SUCCESS;
}

static bool is_used_here(enum role role, const struct rank_info *rank_info) {
    return role == ALL || (role == ROOT ? rank_info->is_root : rank_info->is_leaf);
}

// How many neighbours this rank sends to or receives from.
static int neighbours(const struct rank_info *rank_info, bool is_sent, int *count) {
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
        *count = is_sent ? destinations : sources;
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
    if (pattern_of(call) == NEIGHBORS) {
        int error = neighbours(rank_info, side == &call->out, &peers);
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
    // Data sent in place are in the receive buffer.
    if (is_in_place && kind->out.shape == SUM) received.shape = SUM;
    if (is_in_place) in->is_read = true;
    if (kind->pattern == BROADCAST) {
        in->is_read = rank_info.is_root;
        in->is_written = !rank_info.is_root;
        if (!rank_info.is_root && !rank_info.is_leaf) return MPI_SUCCESS;
    }
    error = lay_out_side(call, &call->out, &kind->out, &rank_info, out);
    if (error == MPI_SUCCESS) error = lay_out_side(call, &call->in, &received, &rank_info, in);
    return error;
}

// Collective calls in two two_level, where the ranks of a communicator are on several hosts: within a host from
// GPU to GPU, and between hosts by one rank of each, its leader. Only what the leaders tell each other goes
// over the network, and nothing of what the ranks of a host have for each other.
//
// What is made depends on the places of ranks and on what is the same in the call at all of them, and on one
// question to all of them: whether their memory is on GPUs. Within a place ranks fall back to the MPI if
// memory can be used by no kernel and no channel: that is nobody else's affair.
//
// A rank that fails takes part in the rest, so that nobody waits for it. A leader that has failed says so to
// the other leaders, and each of them to its place, by giving no memory where some is asked for: then that
// place falls back to the MPI, where the first word says whether anything follows.

#include "two_level.h"

static void allreduce(struct two_level *two_level) {
    const void *from = send_buffer_of(two_level->call);
    void *to = two_level->call->in.address;
    reduce_within_node(two_level, from, to);
    run_between_leaders(two_level, COLLECTIVE_Allreduce, 0, two_level->node.ranks > 1 ? to : from, to);
    broadcast_within_node(two_level, to, two_level->bytes, 0);
}

// Gives the root what the leader of its place has.
static void send_to_root(struct two_level *two_level, void *elements, uint32_t root) {
    struct causeway_comm_range nothing = {NULL, 0}, all = {elements, two_level->bytes};
    struct causeway_comm_range sends[two_level->node.ranks];
    if (root == 0) return;
    for (uint32_t rank = 0; rank < two_level->node.ranks; rank++) sends[rank] = rank == root ? all : nothing;
    scatter_within_node(two_level, sends, two_level->node.rank == root ? all : nothing);
}

// `scratch` is the leader's memory for elements that are not for itself.
static void reduce(struct two_level *two_level, const struct node_of_rank *root, bool is_root, void *scratch) {
    const void *from = send_buffer_of(two_level->call);
    void *to = is_root ? two_level->call->in.address : scratch;
    bool is_alone = two_level->node.ranks == 1;
    reduce_within_node(two_level, from, to);
    run_between_leaders(two_level, COLLECTIVE_Reduce, root->node, is_alone ? from : to, to);
    if (two_level->groups->own_node == root->node) send_to_root(two_level, to, root->local_rank);
}

static void broadcast(struct two_level *two_level, const struct node_of_rank *root) {
    void *buffer = two_level->call->in.address;
    bool is_of_root = two_level->groups->own_node == root->node;
    // A root that leads gives its own host the bytes when the others have them.
    bool is_first = is_of_root && root->local_rank != 0;
    if (is_first) broadcast_within_node(two_level, buffer, two_level->bytes, (int)root->local_rank);
    run_between_leaders(two_level, COLLECTIVE_Bcast, root->node, buffer, buffer);
    if (!is_first) broadcast_within_node(two_level, buffer, two_level->bytes, 0);
}

// The blocks of this place's ranks.
static void node_blocks_of(const struct two_level *two_level, const struct causeway_comm_range *blocks,
                          struct causeway_comm_range *in_node) {
    const struct node_groups *groups = two_level->groups;
    for (uint32_t rank = 0; rank < two_level->ranks; rank++)
        if (groups->ranks[rank].node == groups->own_node) in_node[groups->ranks[rank].local_rank] = blocks[rank];
}

// Where the blocks of all ranks lie one behind the other at all of them, a place gets them as one.
static void allgather(struct two_level *two_level, struct causeway_comm_range own,
                      const struct causeway_comm_range *blocks, bool is_scattered) {
    struct causeway_comm_range in_node[two_level->node.ranks], all = {NULL, 0};
    node_blocks_of(two_level, blocks, in_node);
    gather_within_node(two_level, in_node, own);
    allgather_between_leaders(two_level, blocks);
    for (uint32_t rank = 0; rank < two_level->ranks; rank++) {
        if (is_scattered) broadcast_within_node(two_level, blocks[rank].address, blocks[rank].bytes, 0);
        if (all.bytes == 0) all.address = blocks[rank].address;
        all.bytes += blocks[rank].bytes;
    }
    if (!is_scattered) broadcast_within_node(two_level, all.address, all.bytes, 0);
}

// `blocks` are where a leader has all elements of its place: in its spare memory, or, if it is alone, where
// they are given. Then it may work in place: the pieces of all places that begin at an offset are read before
// the result's piece of that offset is written, and an element's offset in its place's portion is at most its
// offset in the buffer, so that what is written over has been read.
static void reduce_scatter(struct two_level *two_level, struct causeway_comm_range own,
                           const struct causeway_comm_range *blocks, void *scratch) {
    if (two_level->node.ranks == 1) {
        reduce_scatter_between_leaders(two_level, blocks, own.address);
        return;
    }
    struct causeway_comm_range in_node[two_level->node.ranks];
    reduce_within_node(two_level, send_buffer_of(two_level->call), scratch);
    reduce_scatter_between_leaders(two_level, blocks, NULL);
    node_blocks_of(two_level, blocks, in_node);
    scatter_within_node(two_level, in_node, own);
}

static struct two_level two_level_of(const struct call *call, const struct members *members,
                               const struct node_groups *groups, uint64_t bytes) {
    bool is_move = call->what == COLLECTIVE_Bcast || gathers(call);
    MPI_Aint lower = 0, extent = 1;
    if (!is_move) PMPI_Type_get_extent(call->in.type, &lower, &extent);
    struct two_level two_level = {
        .call = call,
        .groups = groups,
        .ranks = members->count,
        .me = members->rank,
        .element = is_move ? 0 : element_of(call->in.type),
        .operation = is_move ? 0 : operation_of(call->op),
        .count = is_move ? bytes : (uint64_t)call->in.count,
        .extent = (uint64_t)extent,
        .type = is_move ? MPI_BYTE : call->in.type,
        .node_comm = groups->node_comm,
        .leader_comm = groups->leader_comm,
        .error = MPI_SUCCESS,
    };
    for (uint32_t rank = 0; scatters(call) && rank < members->count; rank++)
        two_level.count = (rank > 0 ? two_level.count : 0) + (uint64_t)count_at(call, &call->in, (int)rank);
    two_level.bytes = is_move ? bytes : two_level.count * two_level.extent;
    two_level.node = (struct causeway_comm_group){
        .rank = groups->ranks[members->rank].local_rank,
        .ranks = groups->node_size,
        .members = groups->node_members,
        .exchange = exchange_control,
    };
    two_level.leaders = (struct causeway_comm_group){
        .rank = groups->own_node,
        .ranks = groups->count,
        .members = groups->leader_members,
        .exchange = exchange_control,
    };
    return two_level;
}

// What this rank gives or gets alone, and the blocks of all ranks: those that it receives, or those of all
// elements, which begin at `base`.
static struct causeway_comm_range lay_out_blocks(const struct two_level *two_level, void *base,
                                                 struct causeway_comm_range *blocks) {
    const struct call *call = two_level->call;
    struct causeway_comm_range sends[two_level->ranks], own = {call->in.address, 0};
    if (gathers(call)) {
        struct moves moves = {sends, blocks};
        lay_out_moves(call, two_level->me, two_level->ranks, &moves);
        return sends[0];
    }
    char *start = base;
    for (uint32_t rank = 0; scatters(call) && rank < two_level->ranks; rank++) {
        uint64_t bytes = (uint64_t)count_at(call, &call->in, (int)rank) * two_level->extent;
        blocks[rank] = (struct causeway_comm_range){start, bytes};
        if (start != NULL) start += bytes;
        if (rank == two_level->me) own.bytes = bytes;
    }
    return own;
}

bool run_two_level(const struct call *call, const struct members *members, const struct node_groups *groups,
                       uint64_t bytes, int *algorithm, int *error) {
    struct two_level two_level = two_level_of(call, members, groups, bytes);
    two_level.node.context = &two_level.node_comm;
    two_level.leaders.context = &two_level.leader_comm;
    bool is_root = has_root(call) && call->root == (int)members->rank;
    struct causeway_comm_range blocks[members->count], own = lay_out_blocks(&two_level, NULL, blocks);
    void *holder = NULL, *scratch = NULL;
    bool needs = needs_scratch(&two_level, is_root);
    if (needs) scratch = causeway_comm_allocate(send_buffer_of(call), two_level.bytes, &holder);
    struct signature signature = signature_of(&two_level, is_root, own, blocks, !needs || scratch != NULL);
    *error = PMPI_Allreduce(MPI_IN_PLACE, &signature, sizeof signature / sizeof(long), MPI_LONG, MPI_MAX, call->comm);
    bool can = *error == MPI_SUCCESS && !signature.cannot && signature.on_gpu;
    *algorithm = CAUSEWAY_COMM_CALL_RANK;
    if (can) *error = compare_signatures(call, &signature);
    if (can && *error == MPI_SUCCESS) {
        if (call->what == COLLECTIVE_Allreduce) allreduce(&two_level);
        if (call->what == COLLECTIVE_Reduce) reduce(&two_level, &groups->ranks[call->root], is_root, scratch);
        if (call->what == COLLECTIVE_Bcast) broadcast(&two_level, &groups->ranks[call->root]);
        if (gathers(call)) allgather(&two_level, own, blocks, signature.is_scattered);
        if (scatters(call)) {
            void *base = two_level.node.ranks == 1 ? (void *)send_buffer_of(call) : scratch;
            lay_out_blocks(&two_level, base, blocks);
            reduce_scatter(&two_level, own, blocks, scratch);
        }
        *algorithm = CAUSEWAY_COMM_CALL_TWO_LEVEL_MPI;
        if (two_level.by_channels) *algorithm = CAUSEWAY_COMM_CALL_TWO_LEVEL_CHANNELS;
        *error = two_level.error;
        if (*error != MPI_SUCCESS) PMPI_Comm_call_errhandler(call->comm, *error);
    }
    if (holder != NULL) causeway_comm_release(holder);
    return can || *error != MPI_SUCCESS;
}

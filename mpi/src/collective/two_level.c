// Two-level (hierarchical) collective calls of a communicator whose ranks are on several nodes: from GPU to
// GPU within a node, and between nodes by the leader of each node. Only the messages between leaders use the
// network.
//
// The algorithm depends on the node groups, on arguments that are the same at all ranks, and on one agreement
// of all ranks: whether their memory is on GPUs. Within a node the ranks fall back to the MPI if no kernel
// and no channel can use their memory; other nodes need not know that.
//
// A rank that fails completes the remaining exchanges, so that no rank blocks. A leader that has failed
// reports it to the other leaders, and each of them to its node, by passing no memory: then that node falls
// back to the MPI, whose first message says whether data follows.

#include <stdio.h>

#include "chunked.h"
#include "two_level.h"

// A two-level call, at this rank.
struct two_level {
    const struct call *call;
    const struct node_groups *groups;
    // The communicator's ranks, and this one.
    uint32_t ranks, me;
    int element, operation;
    // Bytes, which must be the same at all ranks.
    uint64_t bytes;
    // Elements that are reduced, or bytes that are sent, and the bytes from one to the next.
    uint64_t count, extent;
    MPI_Datatype type;
    MPI_Comm node_comm, leader_comm;
    struct causeway_comm_group node, leaders;
    bool by_channels;
    // This rank's first error.
    int error;
};

// What all ranks have to know of each one: the maximum over all ranks counts.
struct signature {
    // It cannot make the call, has memory on a GPU, and has blocks of ranks that are not adjacent.
    long cannot, on_gpu, is_scattered;
    // Bytes of the call, and the negative of that; the same of a hash of its counts.
    long bytes, minus_bytes, list, minus_list;
};

// Agreement of all ranks on the two-level algorithm.

static const void *send_buffer_of(const struct call *call) {
    return call->out.address == MPI_IN_PLACE ? call->in.address : call->out.address;
}

static bool scatters(const struct call *call) {
    return call->what == COLLECTIVE_Reduce_scatter || call->what == COLLECTIVE_Reduce_scatter_block;
}

static bool gathers(const struct call *call) {
    return call->what == COLLECTIVE_Allgather || call->what == COLLECTIVE_Allgatherv;
}

bool supports_two_level(const struct call *call, const struct node_groups *groups) {
    bool is_built = call->what == COLLECTIVE_Bcast || call->what == COLLECTIVE_Reduce ||
                    call->what == COLLECTIVE_Allreduce || gathers(call) || scatters(call);
    return is_built && groups->count > 1 && groups->has_shared_node;
}

// The memory that a call uses at this rank.
struct used {
    bool on_gpu, in_host, has_gaps;
};

static void use(struct used *used, struct causeway_comm_range range) {
    if (range.bytes == 0) return;
    bool on_gpu = causeway_comm_on_gpu(range.address);
    used->on_gpu |= on_gpu;
    used->in_host |= !on_gpu;
    // Memory with gaps has no address.
    used->has_gaps |= range.address == NULL;
}

static struct used used_by(const struct two_level *two_level, bool is_root, struct causeway_comm_range own,
                           const struct causeway_comm_range *blocks) {
    const struct call *call = two_level->call;
    struct causeway_comm_range from = {(void *)send_buffer_of(call), two_level->bytes}, to = from;
    struct used used = {0};
    if (call->what == COLLECTIVE_Bcast && !is_contiguous(call->in.type)) used.has_gaps = true;
    to.address = call->in.address;
    if (gathers(call)) {
        for (uint32_t rank = 0; rank < two_level->ranks; rank++) use(&used, blocks[rank]);
        to.bytes = 0;
        from = own;
        // The MPI reports that.
        used.has_gaps |= own.bytes != blocks[two_level->me].bytes;
    }
    if (scatters(call)) to = own;
    if (call->what != COLLECTIVE_Bcast) use(&used, from);
    if (call->what != COLLECTIVE_Reduce || is_root) use(&used, to);
    return used;
}

static struct signature signature_of(const struct two_level *two_level, bool is_root,
                                     struct causeway_comm_range own, const struct causeway_comm_range *blocks,
                                     bool has_scratch) {
    struct used used = used_by(two_level, is_root, own, blocks);
    // No other rank uses the memory of a rank that is alone.
    bool can = has_scratch && !used.has_gaps && (!used.in_host || two_level->node.ranks == 1);
    bool has_list = gathers(two_level->call) || scatters(two_level->call), is_scattered = false;
    const char *end = NULL;
    uint64_t list = 0;
    for (uint32_t rank = 0; has_list && rank < two_level->ranks; rank++) {
        list = list * 1000003 + blocks[rank].bytes;
        if (blocks[rank].bytes == 0) continue;
        is_scattered |= end != NULL && end != blocks[rank].address;
        if (gathers(two_level->call)) end = (const char *)blocks[rank].address + blocks[rank].bytes;
    }
    long bytes = (long)two_level->bytes, sum = (long)(list >> 1);
    return (struct signature){!can, used.on_gpu, is_scattered, bytes, -bytes, sum, -sum};
}

static int compare_signatures(const struct call *call, const struct signature *signature) {
    char message[128];
    if (signature->bytes != -signature->minus_bytes)
        snprintf(message, sizeof message,
                 "ranks pass from %ld to %ld bytes: all of them must pass the same number",
                 -signature->minus_bytes, signature->bytes);
    else if (signature->list != -signature->minus_list)
        snprintf(message, sizeof message, "ranks pass different counts: all of them must pass the same list");
    else
        return MPI_SUCCESS;
    return raise_error(call->comm, name_of(call), message);
}

static bool needs_scratch(const struct two_level *two_level, bool is_root) {
    const struct call *call = two_level->call;
    const struct node_groups *groups = two_level->groups;
    bool is_alone = two_level->node.ranks == 1;
    if (!groups->is_leader) return false;
    if (scatters(call)) return !is_alone;
    if (call->what != COLLECTIVE_Reduce || is_root) return false;
    return !is_alone || groups->own_node == groups->ranks[call->root].node;
}

// Exchanges within a node: from GPU to GPU, or by the MPI in chunks if no kernel and no channel can use the
// memory.

static const char REMOTE_FAILURE[] =
    "a rank of another node, or the leader of this one, has failed in this call";

static void record_error(struct two_level *two_level, int error) {
    if (two_level->error == MPI_SUCCESS) two_level->error = error;
}

static void record_error_message(struct two_level *two_level, const char *message) {
    fprintf(stderr, "causeway: %s: %s\n", name_of(two_level->call), message);
    record_error(two_level, error_code(name_of(two_level->call), message));
}

static bool is_made(struct two_level *two_level, int made) {
    if (made < 0) record_error_message(two_level, causeway_comm_error());
    return made <= 0;
}

static struct chunked_call chunked_call_of(const struct two_level *two_level, enum collective what,
                                           bool is_intra_node, int root, const void *from, void *to) {
    const struct node_groups *groups = two_level->groups;
    return (struct chunked_call){
        .what = what,
        .call = name_of(two_level->call),
        .comm = is_intra_node ? groups->node_comm : groups->leader_comm,
        .rank = (int)(is_intra_node ? two_level->node.rank : groups->own_node),
        .root = root,
        .type = two_level->type,
        .extent = two_level->extent,
        .count = (MPI_Count)two_level->count,
        .op = two_level->call->op,
        .from = from,
        .to = to,
    };
}

static struct chunked_call chunked_copy_of(const struct two_level *two_level, enum collective what,
                                           bool is_intra_node, int root, const void *from, void *to,
                                           uint64_t bytes) {
    struct chunked_call chunked = chunked_call_of(two_level, what, is_intra_node, root, from, to);
    chunked.type = MPI_BYTE;
    chunked.extent = 1;
    chunked.count = (MPI_Count)bytes;
    return chunked;
}

static void reduce_within_node(struct two_level *two_level, const void *from, void *to) {
    if (two_level->node.ranks == 1) return;
    int made = causeway_comm_reduce(&two_level->node, from, to, two_level->count, two_level->element,
                                    two_level->operation, 0);
    if (is_made(two_level, made)) return;
    struct chunked_call chunked = chunked_call_of(two_level, COLLECTIVE_Reduce, true, 0, from, to);
    record_error(two_level, run_chunked(&chunked));
}

// Whether data follows from a rank of this node.
static bool is_well(struct two_level *two_level, int root) {
    int well = two_level->error == MPI_SUCCESS;
    record_error(two_level, PMPI_Bcast(&well, 1, MPI_INT, root, two_level->groups->node_comm));
    if (!well && two_level->error == MPI_SUCCESS) record_error_message(two_level, REMOTE_FAILURE);
    return well;
}

static void broadcast_within_node(struct two_level *two_level, void *address, uint64_t bytes, int root) {
    if (two_level->node.ranks == 1 || bytes == 0) return;
    bool is_root = two_level->node.rank == (uint32_t)root;
    void *sent = is_root && two_level->error != MPI_SUCCESS ? NULL : address;
    int made = causeway_comm_broadcast(&two_level->node, sent, bytes, (uint32_t)root);
    if (is_made(two_level, made) || !is_well(two_level, root)) return;
    struct chunked_call chunked =
        chunked_copy_of(two_level, COLLECTIVE_Bcast, true, root, address, address, bytes);
    record_error(two_level, run_chunked(&chunked));
}

static void send_within_node(struct two_level *two_level, uint32_t from, uint32_t to,
                             struct causeway_comm_range sent, struct causeway_comm_range received) {
    uint64_t bytes = two_level->node.rank == from ? sent.bytes : received.bytes;
    struct chunked_call chunked =
        chunked_copy_of(two_level, COLLECTIVE_Reduce, true, (int)to, sent.address, received.address, bytes);
    record_error(two_level, send_chunked(&chunked, (int)from, (int)to));
}

static void scatter_within_node(struct two_level *two_level, const struct causeway_comm_range *sends,
                                struct causeway_comm_range own) {
    uint32_t ranks = two_level->node.ranks;
    bool is_leader = two_level->node.rank == 0, is_right = two_level->error == MPI_SUCCESS;
    struct causeway_comm_range sent[ranks], received[ranks];
    for (uint32_t rank = 0; rank < ranks; rank++) {
        sent[rank] = is_leader ? sends[rank] : (struct causeway_comm_range){NULL, 0};
        if (!is_right) sent[rank].address = NULL;
        received[rank] = rank == 0 ? own : (struct causeway_comm_range){NULL, 0};
    }
    int made = causeway_comm_exchange(&two_level->node, sent, received, two_level->bytes);
    if (is_made(two_level, made) || !is_well(two_level, 0)) return;
    for (uint32_t rank = 0; rank < ranks; rank++) send_within_node(two_level, 0, rank, sent[rank], own);
}

static void gather_within_node(struct two_level *two_level, const struct causeway_comm_range *receives,
                               struct causeway_comm_range own) {
    uint32_t ranks = two_level->node.ranks;
    struct causeway_comm_range sent[ranks], received[ranks];
    for (uint32_t rank = 0; rank < ranks; rank++) {
        sent[rank] = rank == 0 ? own : (struct causeway_comm_range){NULL, 0};
        received[rank] = two_level->node.rank == 0 ? receives[rank] : (struct causeway_comm_range){NULL, 0};
    }
    int made = 1;
    if (ranks > 1) made = causeway_comm_exchange(&two_level->node, sent, received, two_level->bytes);
    if (is_made(two_level, made)) return;
    for (uint32_t rank = 0; rank < ranks; rank++) send_within_node(two_level, rank, 0, own, received[rank]);
}

// Exchanges between the leaders of all nodes: by channels if they all reach each other over a network and
// have their memory on GPUs, and by the MPI in chunks otherwise. The other ranks do nothing in these
// functions.

// After the exchanges of the MPI: whether a leader has failed.
static void share_errors(struct two_level *two_level) {
    int has_failed = two_level->error != MPI_SUCCESS, have_failed = 0;
    record_error(two_level, PMPI_Allreduce(&has_failed, &have_failed, 1, MPI_INT, MPI_MAX,
                                           two_level->groups->leader_comm));
    if (have_failed && two_level->error == MPI_SUCCESS) record_error_message(two_level, REMOTE_FAILURE);
}

// Each leader reduces a part of the elements, and sends it to the others. So it sends and receives no more
// than it must, which the non-blocking calls of MPIs do not always ensure, and all leaders get the same bits.
static void allreduce_chunked(struct two_level *two_level, const void *from, void *to) {
    uint32_t hosts = two_level->groups->count, me = two_level->groups->own_node;
    struct causeway_comm_range sent[hosts], received[hosts];
    struct rank_block parts[hosts], results[hosts];
    uint64_t first = 0;
    for (uint32_t host = 0; host < hosts; host++) {
        uint64_t end = two_level->count * (host + 1) / hosts, bytes = (end - first) * two_level->extent;
        uint64_t offset = first * two_level->extent;
        sent[host] = (struct causeway_comm_range){(char *)from + offset, bytes};
        received[host] = (struct causeway_comm_range){(char *)to + offset, bytes};
        parts[host] = (struct rank_block){1, &sent[host], bytes};
        results[host] = (struct rank_block){1, &received[host], bytes};
        first = end;
    }
    struct chunked_call chunked = chunked_call_of(two_level, COLLECTIVE_Allreduce, false, 0, from, to);
    record_error(two_level, alltoall_chunked(&chunked, hosts, parts, &results[me]));
    record_error(two_level, alltoall_chunked(&chunked, hosts, results, NULL));
}

static void run_between_leaders(struct two_level *two_level, enum collective what, uint32_t root,
                                const void *from, void *to) {
    if (!two_level->groups->is_leader) return;
    int made = 1;
    if (two_level->groups->has_network) {
        bool is_well = two_level->error == MPI_SUCCESS;
        const void *sent = is_well ? from : NULL;
        void *received = is_well ? to : NULL;
        if (what == COLLECTIVE_Bcast)
            made = causeway_comm_broadcast(&two_level->leaders, received, two_level->bytes, root);
        else if (what == COLLECTIVE_Reduce)
            made = causeway_comm_reduce(&two_level->leaders, sent, received, two_level->count,
                                        two_level->element, two_level->operation, root);
        else
            made = causeway_comm_allreduce(&two_level->leaders, sent, received, two_level->count,
                                           two_level->element, two_level->operation);
    }
    two_level->by_channels = made == 0;
    if (is_made(two_level, made)) return;
    if (what == COLLECTIVE_Allreduce) {
        allreduce_chunked(two_level, from, to);
    } else {
        struct chunked_call chunked = chunked_call_of(two_level, what, false, (int)root, from, to);
        record_error(two_level, run_chunked(&chunked));
    }
    share_errors(two_level);
}

// The blocks of the ranks of each node, in the order of nodes and then of ranks.
static void order_blocks(const struct two_level *two_level, const struct causeway_comm_range *blocks,
                         struct causeway_comm_range *ordered, struct rank_block *rank_blocks) {
    const struct node_groups *groups = two_level->groups;
    for (uint32_t node = 0; node < groups->count; node++) {
        struct rank_block *rank_block = &rank_blocks[node];
        *rank_block = (struct rank_block){.ranges = ordered};
        for (uint32_t rank = 0; rank < two_level->ranks; rank++) {
            if (groups->ranks[rank].node != node) continue;
            ordered[rank_block->count++] = blocks[rank];
            rank_block->bytes += blocks[rank].bytes;
        }
        ordered += rank_block->count;
    }
}

// The block of a node in a round; empty if it has none.
static struct causeway_comm_range block_in(const struct rank_block *rank_block, uint32_t round) {
    return round < rank_block->count ? rank_block->ranges[round] : (struct causeway_comm_range){NULL, 0};
}

// One block of each node per round. Whether that succeeded: else all leaders have learned that one cannot.
static bool gather_by_channels(struct two_level *two_level, const struct rank_block *rank_blocks) {
    uint32_t hosts = two_level->groups->count, me = two_level->groups->own_node, rounds = 0;
    struct causeway_comm_range sends[hosts], receives[hosts];
    for (uint32_t host = 0; host < hosts; host++)
        rounds = rank_blocks[host].count > rounds ? rank_blocks[host].count : rounds;
    for (uint32_t round = 0; round < rounds; round++) {
        struct causeway_comm_range own = block_in(&rank_blocks[me], round);
        if (two_level->error != MPI_SUCCESS) own.address = NULL;
        for (uint32_t host = 0; host < hosts; host++) {
            sends[host] = own;
            receives[host] = host == me ? own : block_in(&rank_blocks[host], round);
        }
        if (!is_made(two_level,
                     causeway_comm_exchange(&two_level->leaders, sends, receives, two_level->bytes)))
            return false;
    }
    return true;
}

static void allgather_between_leaders(struct two_level *two_level, const struct causeway_comm_range *blocks) {
    if (!two_level->groups->is_leader) return;
    struct causeway_comm_range ordered[two_level->ranks];
    struct rank_block rank_blocks[two_level->groups->count];
    order_blocks(two_level, blocks, ordered, rank_blocks);
    two_level->by_channels = two_level->groups->has_network && gather_by_channels(two_level, rank_blocks);
    if (two_level->by_channels) return;
    struct chunked_call chunked =
        chunked_call_of(two_level, COLLECTIVE_Allgather, false, 0, ordered[0].address, NULL);
    record_error(two_level, alltoall_chunked(&chunked, two_level->groups->count, rank_blocks, NULL));
    share_errors(two_level);
}

// By a call of the leaders, which supports only contiguous elements.
static bool scatter_by_channels(struct two_level *two_level, const struct causeway_comm_range *blocks,
                                const struct rank_block *rank_blocks, const struct rank_block *result) {
    const struct node_groups *groups = two_level->groups;
    uint64_t counts[groups->count];
    for (uint32_t rank = 1; rank < two_level->ranks; rank++)
        if (groups->ranks[rank].node < groups->ranks[rank - 1].node) return false;
    for (uint32_t host = 0; host < groups->count; host++)
        counts[host] = rank_blocks[host].bytes / two_level->extent;
    const void *from = two_level->error == MPI_SUCCESS ? blocks[0].address : NULL;
    int made = causeway_comm_reduce_scatter(&two_level->leaders, from, result->ranges[0].address, counts,
                                            two_level->element, two_level->operation);
    return is_made(two_level, made);
}

static void reduce_scatter_between_leaders(struct two_level *two_level,
                                           const struct causeway_comm_range *blocks, void *own_result) {
    if (!two_level->groups->is_leader) return;
    struct causeway_comm_range ordered[two_level->ranks];
    struct rank_block rank_blocks[two_level->groups->count];
    order_blocks(two_level, blocks, ordered, rank_blocks);
    struct rank_block result = rank_blocks[two_level->groups->own_node];
    struct causeway_comm_range own_range = {own_result, result.bytes};
    if (own_result != NULL) result = (struct rank_block){1, &own_range, result.bytes};
    two_level->by_channels =
        two_level->groups->has_network && scatter_by_channels(two_level, blocks, rank_blocks, &result);
    if (two_level->by_channels) return;
    struct chunked_call chunked =
        chunked_call_of(two_level, COLLECTIVE_Reduce_scatter, false, 0, blocks[0].address, NULL);
    record_error(two_level, alltoall_chunked(&chunked, two_level->groups->count, rank_blocks, &result));
    share_errors(two_level);
}

// The calls.

static void allreduce(struct two_level *two_level) {
    const void *from = send_buffer_of(two_level->call);
    void *to = two_level->call->in.address;
    reduce_within_node(two_level, from, to);
    run_between_leaders(two_level, COLLECTIVE_Allreduce, 0, two_level->node.ranks > 1 ? to : from, to);
    broadcast_within_node(two_level, to, two_level->bytes, 0);
}

// Sends the root what the leader of its node has.
static void send_to_root(struct two_level *two_level, void *elements, uint32_t root) {
    struct causeway_comm_range nothing = {NULL, 0}, all = {elements, two_level->bytes};
    struct causeway_comm_range sends[two_level->node.ranks];
    if (root == 0) return;
    for (uint32_t rank = 0; rank < two_level->node.ranks; rank++) sends[rank] = rank == root ? all : nothing;
    scatter_within_node(two_level, sends, two_level->node.rank == root ? all : nothing);
}

// `scratch` is the leader's memory for elements that are not for itself.
static void reduce(struct two_level *two_level, const struct node_of_rank *root, bool is_root,
                   void *scratch) {
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
    // A root that is a leader sends to its own node when the other leaders have the bytes.
    bool is_first = is_of_root && root->local_rank != 0;
    if (is_first) broadcast_within_node(two_level, buffer, two_level->bytes, (int)root->local_rank);
    run_between_leaders(two_level, COLLECTIVE_Bcast, root->node, buffer, buffer);
    if (!is_first) broadcast_within_node(two_level, buffer, two_level->bytes, 0);
}

// The blocks of this node's ranks.
static void node_blocks_of(const struct two_level *two_level, const struct causeway_comm_range *blocks,
                           struct causeway_comm_range *in_node) {
    const struct node_groups *groups = two_level->groups;
    for (uint32_t rank = 0; rank < two_level->ranks; rank++)
        if (groups->ranks[rank].node == groups->own_node)
            in_node[groups->ranks[rank].local_rank] = blocks[rank];
}

// If the blocks of all ranks are adjacent at all of them, a node gets them as one.
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

// `blocks` are where a leader has all elements of its node: in its scratch memory, or, if it is alone, in the
// send buffer. Then it may work in place: the chunks of all nodes that begin at an offset are read before the
// result's chunk of that offset is written, and an element's offset in its node's block is at most its offset
// in the buffer, so that what is overwritten has been read.
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

// What this rank alone sends or receives, and the blocks of all ranks: those that it receives, or those of
// all elements, which begin at `base`.
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
    *error = PMPI_Allreduce(MPI_IN_PLACE, &signature, sizeof signature / sizeof(long), MPI_LONG, MPI_MAX,
                            call->comm);
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

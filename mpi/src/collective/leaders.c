// The part of a call in two levels that the leaders of all hosts make together: by channels where they all
// reach each other over a network and have their memory on GPUs, and by the MPI in pieces otherwise.

#include "two_level.h"

// After what the MPI has done: does a leader have nothing right?
static void share_errors(struct two_level *two_level) {
    int has_failed = two_level->error != MPI_SUCCESS, have_failed = 0;
    record_error(two_level, PMPI_Allreduce(&has_failed, &have_failed, 1, MPI_INT, MPI_MAX, two_level->groups->leader_comm));
    if (have_failed && two_level->error == MPI_SUCCESS) record_error_message(two_level, REMOTE_FAILURE);
}

// Each leader puts a part of the elements together, and gives it to the others. So it sends and receives no
// more than it must, which the non-blocking calls of MPIs do not always see to, and all leaders get the same
// bits.
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
    struct chunked chunked = chunked_call_of(two_level, COLLECTIVE_Allreduce, false, 0, from, to);
    record_error(two_level, alltoall_chunked(&chunked, hosts, parts, &results[me]));
    record_error(two_level, alltoall_chunked(&chunked, hosts, results, NULL));
}

void run_between_leaders(struct two_level *two_level, enum collective what, uint32_t root, const void *from, void *to) {
    if (!two_level->groups->is_leader) return;
    int made = 1;
    if (two_level->groups->has_network) {
        bool is_well = two_level->error == MPI_SUCCESS;
        const void *sent = is_well ? from : NULL;
        void *received = is_well ? to : NULL;
        if (what == COLLECTIVE_Bcast)
            made = causeway_comm_broadcast(&two_level->leaders, received, two_level->bytes, root);
        else if (what == COLLECTIVE_Reduce)
            made = causeway_comm_reduce(&two_level->leaders, sent, received, two_level->count, two_level->element,
                                        two_level->operation, root);
        else
            made = causeway_comm_allreduce(&two_level->leaders, sent, received, two_level->count, two_level->element,
                                           two_level->operation);
    }
    two_level->by_channels = made == 0;
    if (is_made(two_level, made)) return;
    if (what == COLLECTIVE_Allreduce) {
        allreduce_chunked(two_level, from, to);
    } else {
        struct chunked chunked = chunked_call_of(two_level, what, false, (int)root, from, to);
        record_error(two_level, run_chunked(&chunked));
    }
    share_errors(two_level);
}

// The blocks of the ranks of each place, in the order of places and then of ranks.
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

// The block of a place in a round; of no bytes where it has none.
static struct causeway_comm_range block_in(const struct rank_block *rank_block, uint32_t round) {
    return round < rank_block->count ? rank_block->ranges[round] : (struct causeway_comm_range){NULL, 0};
}

// One block of each place in turn. Says whether that was it: else all leaders have heard that one cannot.
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
        if (!is_made(two_level, causeway_comm_exchange(&two_level->leaders, sends, receives, two_level->bytes)))
            return false;
    }
    return true;
}

void allgather_between_leaders(struct two_level *two_level, const struct causeway_comm_range *blocks) {
    if (!two_level->groups->is_leader) return;
    struct causeway_comm_range ordered[two_level->ranks];
    struct rank_block rank_blocks[two_level->groups->count];
    order_blocks(two_level, blocks, ordered, rank_blocks);
    two_level->by_channels = two_level->groups->has_network && gather_by_channels(two_level, rank_blocks);
    if (two_level->by_channels) return;
    struct chunked chunked = chunked_call_of(two_level, COLLECTIVE_Allgather, false, 0, ordered[0].address, NULL);
    record_error(two_level, alltoall_chunked(&chunked, two_level->groups->count, rank_blocks, NULL));
    share_errors(two_level);
}

// By a call of the leaders that knows elements that lie one behind the other alone.
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

void reduce_scatter_between_leaders(struct two_level *two_level, const struct causeway_comm_range *blocks, void *own_result) {
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
    struct chunked chunked =
        chunked_call_of(two_level, COLLECTIVE_Reduce_scatter, false, 0, blocks[0].address, NULL);
    record_error(two_level, alltoall_chunked(&chunked, two_level->groups->count, rank_blocks, &result));
    share_errors(two_level);
}

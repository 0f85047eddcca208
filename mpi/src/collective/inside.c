// The part of a call in two levels that the ranks of one host make together: from GPU to GPU, or by the MPI
// in pieces if memory can be used by no kernel and no channel.

#include <stdio.h>

#include "two_level.h"

const char REMOTE_FAILURE[] = "a rank of another host, or the leader of this one, has failed in this call";

void record_error(struct two_level *two_level, int error) {
    if (two_level->error == MPI_SUCCESS) two_level->error = error;
}

void record_error_message(struct two_level *two_level, const char *message) {
    fprintf(stderr, "causeway: %s: %s\n", name_of(two_level->call), message);
    record_error(two_level, error_code(name_of(two_level->call), message));
}

bool is_made(struct two_level *two_level, int made) {
    if (made < 0) record_error_message(two_level, causeway_comm_error());
    return made <= 0;
}

struct chunked chunked_call_of(const struct two_level *two_level, enum collective what, bool is_intra_node, int root,
                          const void *from, void *to) {
    const struct node_groups *groups = two_level->groups;
    return (struct chunked){
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

struct chunked chunked_copy_of(const struct two_level *two_level, enum collective what, bool is_intra_node, int root,
                       const void *from, void *to, uint64_t bytes) {
    struct chunked chunked = chunked_call_of(two_level, what, is_intra_node, root, from, to);
    chunked.type = MPI_BYTE;
    chunked.extent = 1;
    chunked.count = (MPI_Count)bytes;
    return chunked;
}

void reduce_within_node(struct two_level *two_level, const void *from, void *to) {
    if (two_level->node.ranks == 1) return;
    int made = causeway_comm_reduce(&two_level->node, from, to, two_level->count, two_level->element,
                                    two_level->operation, 0);
    if (is_made(two_level, made)) return;
    struct chunked chunked = chunked_call_of(two_level, COLLECTIVE_Reduce, true, 0, from, to);
    record_error(two_level, run_chunked(&chunked));
}

// Whether something follows from a rank of this place.
static bool is_well(struct two_level *two_level, int root) {
    int well = two_level->error == MPI_SUCCESS;
    record_error(two_level, PMPI_Bcast(&well, 1, MPI_INT, root, two_level->groups->node_comm));
    if (!well && two_level->error == MPI_SUCCESS) record_error_message(two_level, REMOTE_FAILURE);
    return well;
}

void broadcast_within_node(struct two_level *two_level, void *address, uint64_t bytes, int root) {
    if (two_level->node.ranks == 1 || bytes == 0) return;
    bool is_root = two_level->node.rank == (uint32_t)root;
    void *sent = is_root && two_level->error != MPI_SUCCESS ? NULL : address;
    int made = causeway_comm_broadcast(&two_level->node, sent, bytes, (uint32_t)root);
    if (is_made(two_level, made) || !is_well(two_level, root)) return;
    struct chunked chunked = chunked_copy_of(two_level, COLLECTIVE_Bcast, true, root, address, address, bytes);
    record_error(two_level, run_chunked(&chunked));
}

static void send_within_node(struct two_level *two_level, uint32_t from, uint32_t to, struct causeway_comm_range sent,
                      struct causeway_comm_range received) {
    uint64_t bytes = two_level->node.rank == from ? sent.bytes : received.bytes;
    struct chunked chunked =
        chunked_copy_of(two_level, COLLECTIVE_Reduce, true, (int)to, sent.address, received.address, bytes);
    record_error(two_level, send_chunked(&chunked, (int)from, (int)to));
}

void scatter_within_node(struct two_level *two_level, const struct causeway_comm_range *sends,
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

void gather_within_node(struct two_level *two_level, const struct causeway_comm_range *receives,
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

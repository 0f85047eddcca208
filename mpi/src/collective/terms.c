// Can a call be made in two two_level, and does it need memory for that? What each rank says of it to all.

#include <stdio.h>

#include "two_level.h"

const void *send_buffer_of(const struct call *call) {
    return call->out.address == MPI_IN_PLACE ? call->in.address : call->out.address;
}

bool scatters(const struct call *call) {
    return call->what == COLLECTIVE_Reduce_scatter || call->what == COLLECTIVE_Reduce_scatter_block;
}

bool gathers(const struct call *call) {
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
    // What cannot be moved as it is, as elements with gaps, is nowhere.
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
        // That is the MPI's to say.
        used.has_gaps |= own.bytes != blocks[two_level->me].bytes;
    }
    if (scatters(call)) to = own;
    if (call->what != COLLECTIVE_Bcast) use(&used, from);
    if (call->what != COLLECTIVE_Reduce || is_root) use(&used, to);
    return used;
}

struct signature signature_of(const struct two_level *two_level, bool is_root, struct causeway_comm_range own,
                      const struct causeway_comm_range *blocks, bool has_scratch) {
    struct used used = used_by(two_level, is_root, own, blocks);
    // Nobody else uses the memory of a rank that is alone.
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

int compare_signatures(const struct call *call, const struct signature *signature) {
    char message[128];
    if (signature->bytes != -signature->minus_bytes)
        snprintf(message, sizeof message, "ranks give from %ld to %ld bytes: all of them must give the same",
                 -signature->minus_bytes, signature->bytes);
    else if (signature->list != -signature->minus_list)
        snprintf(message, sizeof message, "ranks give other counts: all of them must give the same list");
    else
        return MPI_SUCCESS;
    return raise_error(call->comm, name_of(call), message);
}

bool needs_scratch(const struct two_level *two_level, bool is_root) {
    const struct call *call = two_level->call;
    const struct node_groups *groups = two_level->groups;
    bool is_alone = two_level->node.ranks == 1;
    if (!groups->is_leader) return false;
    if (scatters(call)) return !is_alone;
    if (call->what != COLLECTIVE_Reduce || is_root) return false;
    return !is_alone || groups->own_node == groups->ranks[call->root].node;
}

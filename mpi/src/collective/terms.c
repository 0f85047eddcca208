// Can a call be made in two levels, and does it need memory for that? What each rank says of it to all.

#include <stdio.h>

#include "levels.h"

const void *given_by(const struct call *call) {
    return call->out.address == MPI_IN_PLACE ? call->in.address : call->out.address;
}

bool scatters(const struct call *call) {
    return call->what == COLLECTIVE_Reduce_scatter || call->what == COLLECTIVE_Reduce_scatter_block;
}

bool gathers(const struct call *call) {
    return call->what == COLLECTIVE_Allgather || call->what == COLLECTIVE_Allgatherv;
}

bool is_built_in_levels(const struct call *call, const struct places *places) {
    bool is_built = call->what == COLLECTIVE_Bcast || call->what == COLLECTIVE_Reduce ||
                    call->what == COLLECTIVE_Allreduce || gathers(call) || scatters(call);
    return is_built && places->count > 1 && places->is_shared;
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

static struct used used_by(const struct levels *levels, bool is_root, struct causeway_comm_range own,
                           const struct causeway_comm_range *blocks) {
    const struct call *call = levels->call;
    struct causeway_comm_range from = {(void *)given_by(call), levels->bytes}, to = from;
    struct used used = {0};
    if (call->what == COLLECTIVE_Bcast && !is_contiguous(call->in.type)) used.has_gaps = true;
    to.address = call->in.address;
    if (gathers(call)) {
        for (uint32_t rank = 0; rank < levels->ranks; rank++) use(&used, blocks[rank]);
        to.bytes = 0;
        from = own;
        // That is the MPI's to say.
        used.has_gaps |= own.bytes != blocks[levels->me].bytes;
    }
    if (scatters(call)) to = own;
    if (call->what != COLLECTIVE_Bcast) use(&used, from);
    if (call->what != COLLECTIVE_Reduce || is_root) use(&used, to);
    return used;
}

struct terms terms_of(const struct levels *levels, bool is_root, struct causeway_comm_range own,
                      const struct causeway_comm_range *blocks, bool has_spare) {
    struct used used = used_by(levels, is_root, own, blocks);
    // Nobody else uses the memory of a rank that is alone.
    bool can = has_spare && !used.has_gaps && (!used.in_host || levels->inside.ranks == 1);
    bool has_list = gathers(levels->call) || scatters(levels->call), is_scattered = false;
    const char *end = NULL;
    uint64_t list = 0;
    for (uint32_t rank = 0; has_list && rank < levels->ranks; rank++) {
        list = list * 1000003 + blocks[rank].bytes;
        if (blocks[rank].bytes == 0) continue;
        is_scattered |= end != NULL && end != blocks[rank].address;
        if (gathers(levels->call)) end = (const char *)blocks[rank].address + blocks[rank].bytes;
    }
    long bytes = (long)levels->bytes, sum = (long)(list >> 1);
    return (struct terms){!can, used.on_gpu, is_scattered, bytes, -bytes, sum, -sum};
}

int compare_terms(const struct call *call, const struct terms *terms) {
    char words[128];
    if (terms->bytes != -terms->minus_bytes)
        snprintf(words, sizeof words, "ranks give from %ld to %ld bytes: all of them must give the same",
                 -terms->minus_bytes, terms->bytes);
    else if (terms->list != -terms->minus_list)
        snprintf(words, sizeof words, "ranks give other counts: all of them must give the same list");
    else
        return MPI_SUCCESS;
    return raise_error(call->comm, name_of(call), words);
}

bool needs_spare(const struct levels *levels, bool is_root) {
    const struct call *call = levels->call;
    const struct places *places = levels->places;
    bool is_alone = levels->inside.ranks == 1;
    if (!places->is_leader) return false;
    if (scatters(call)) return !is_alone;
    if (call->what != COLLECTIVE_Reduce || is_root) return false;
    return !is_alone || places->own == places->ranks[call->root].place;
}

// Collective calls in two levels, where the ranks of a communicator are on several hosts: within a host from
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

#include "levels.h"

static void allreduce(struct levels *levels) {
    const void *from = given_by(levels->call);
    void *to = levels->call->in.address;
    reduce_inside(levels, from, to);
    lead(levels, COLLECTIVE_Allreduce, 0, levels->inside.ranks > 1 ? to : from, to);
    spread_inside(levels, to, levels->bytes, 0);
}

// Gives the root what the leader of its place has.
static void hand_to_root(struct levels *levels, void *elements, uint32_t root) {
    struct causeway_comm_range nothing = {NULL, 0}, all = {elements, levels->bytes};
    struct causeway_comm_range gives[levels->inside.ranks];
    if (root == 0) return;
    for (uint32_t rank = 0; rank < levels->inside.ranks; rank++) gives[rank] = rank == root ? all : nothing;
    give_inside(levels, gives, levels->inside.rank == root ? all : nothing);
}

// `spare` is the leader's memory for elements that are not for itself.
static void reduce(struct levels *levels, const struct place_of_rank *root, bool is_root, void *spare) {
    const void *from = given_by(levels->call);
    void *to = is_root ? levels->call->in.address : spare;
    bool is_alone = levels->inside.ranks == 1;
    reduce_inside(levels, from, to);
    lead(levels, COLLECTIVE_Reduce, root->place, is_alone ? from : to, to);
    if (levels->places->own == root->place) hand_to_root(levels, to, root->inside);
}

static void broadcast(struct levels *levels, const struct place_of_rank *root) {
    void *buffer = levels->call->in.address;
    bool is_of_root = levels->places->own == root->place;
    // A root that leads gives its own host the bytes when the others have them.
    bool is_first = is_of_root && root->inside != 0;
    if (is_first) spread_inside(levels, buffer, levels->bytes, (int)root->inside);
    lead(levels, COLLECTIVE_Bcast, root->place, buffer, buffer);
    if (!is_first) spread_inside(levels, buffer, levels->bytes, 0);
}

// The blocks of this place's ranks.
static void blocks_inside(const struct levels *levels, const struct causeway_comm_range *blocks,
                          struct causeway_comm_range *inside) {
    const struct places *places = levels->places;
    for (uint32_t rank = 0; rank < levels->ranks; rank++)
        if (places->ranks[rank].place == places->own) inside[places->ranks[rank].inside] = blocks[rank];
}

// Where the blocks of all ranks lie one behind the other at all of them, a place gets them as one.
static void allgather(struct levels *levels, struct causeway_comm_range own,
                      const struct causeway_comm_range *blocks, bool is_scattered) {
    struct causeway_comm_range inside[levels->inside.ranks], all = {NULL, 0};
    blocks_inside(levels, blocks, inside);
    take_inside(levels, inside, own);
    lead_gathering(levels, blocks);
    for (uint32_t rank = 0; rank < levels->ranks; rank++) {
        if (is_scattered) spread_inside(levels, blocks[rank].address, blocks[rank].bytes, 0);
        if (all.bytes == 0) all.address = blocks[rank].address;
        all.bytes += blocks[rank].bytes;
    }
    if (!is_scattered) spread_inside(levels, all.address, all.bytes, 0);
}

// `blocks` are where a leader has all elements of its place: in its spare memory, or, if it is alone, where
// they are given. Then it may work in place: the pieces of all places that begin at an offset are read before
// the result's piece of that offset is written, and an element's offset in its place's portion is at most its
// offset in the buffer, so that what is written over has been read.
static void reduce_scatter(struct levels *levels, struct causeway_comm_range own,
                           const struct causeway_comm_range *blocks, void *spare) {
    if (levels->inside.ranks == 1) {
        lead_scattering(levels, blocks, own.address);
        return;
    }
    struct causeway_comm_range inside[levels->inside.ranks];
    reduce_inside(levels, given_by(levels->call), spare);
    lead_scattering(levels, blocks, NULL);
    blocks_inside(levels, blocks, inside);
    give_inside(levels, inside, own);
}

static struct levels levels_of(const struct call *call, const struct members *members,
                               const struct places *places, uint64_t bytes) {
    bool is_move = call->what == COLLECTIVE_Bcast || gathers(call);
    MPI_Aint lower = 0, extent = 1;
    if (!is_move) PMPI_Type_get_extent(call->in.type, &lower, &extent);
    struct levels levels = {
        .call = call,
        .places = places,
        .ranks = members->count,
        .me = members->rank,
        .element = is_move ? 0 : element_of(call->in.type),
        .operation = is_move ? 0 : operation_of(call->op),
        .count = is_move ? bytes : (uint64_t)call->in.count,
        .extent = (uint64_t)extent,
        .type = is_move ? MPI_BYTE : call->in.type,
        .inside_comm = places->inside,
        .leaders_comm = places->leaders,
        .error = MPI_SUCCESS,
    };
    for (uint32_t rank = 0; scatters(call) && rank < members->count; rank++)
        levels.count = (rank > 0 ? levels.count : 0) + (uint64_t)count_at(call, &call->in, (int)rank);
    levels.bytes = is_move ? bytes : levels.count * levels.extent;
    levels.inside = (struct causeway_comm_group){
        .rank = places->ranks[members->rank].inside,
        .ranks = places->inside_count,
        .members = places->inside_members,
        .exchange = exchange_words,
    };
    levels.leaders = (struct causeway_comm_group){
        .rank = places->own,
        .ranks = places->count,
        .members = places->leading_members,
        .exchange = exchange_words,
    };
    return levels;
}

// What this rank gives or gets alone, and the blocks of all ranks: those that it receives, or those of all
// elements, which begin at `base`.
static struct causeway_comm_range lay_out_blocks(const struct levels *levels, void *base,
                                                 struct causeway_comm_range *blocks) {
    const struct call *call = levels->call;
    struct causeway_comm_range gives[levels->ranks], own = {call->in.address, 0};
    if (gathers(call)) {
        struct moves moves = {gives, blocks};
        lay_out_moves(call, levels->me, levels->ranks, &moves);
        return gives[0];
    }
    char *start = base;
    for (uint32_t rank = 0; scatters(call) && rank < levels->ranks; rank++) {
        uint64_t bytes = (uint64_t)count_at(call, &call->in, (int)rank) * levels->extent;
        blocks[rank] = (struct causeway_comm_range){start, bytes};
        if (start != NULL) start += bytes;
        if (rank == levels->me) own.bytes = bytes;
    }
    return own;
}

bool collect_in_levels(const struct call *call, const struct members *members, const struct places *places,
                       uint64_t bytes, int *way, int *error) {
    struct levels levels = levels_of(call, members, places, bytes);
    levels.inside.context = &levels.inside_comm;
    levels.leaders.context = &levels.leaders_comm;
    bool is_root = has_root(call) && call->root == (int)members->rank;
    struct causeway_comm_range blocks[members->count], own = lay_out_blocks(&levels, NULL, blocks);
    void *holder = NULL, *spare = NULL;
    bool needs = needs_spare(&levels, is_root);
    if (needs) spare = causeway_comm_allocate(given_by(call), levels.bytes, &holder);
    struct terms terms = terms_of(&levels, is_root, own, blocks, !needs || spare != NULL);
    *error = PMPI_Allreduce(MPI_IN_PLACE, &terms, sizeof terms / sizeof(long), MPI_LONG, MPI_MAX, call->comm);
    bool can = *error == MPI_SUCCESS && !terms.cannot && terms.on_gpu;
    *way = CAUSEWAY_COMM_CALL_RANK;
    if (can) *error = compare_terms(call, &terms);
    if (can && *error == MPI_SUCCESS) {
        if (call->what == COLLECTIVE_Allreduce) allreduce(&levels);
        if (call->what == COLLECTIVE_Reduce) reduce(&levels, &places->ranks[call->root], is_root, spare);
        if (call->what == COLLECTIVE_Bcast) broadcast(&levels, &places->ranks[call->root]);
        if (gathers(call)) allgather(&levels, own, blocks, terms.is_scattered);
        if (scatters(call)) {
            void *base = levels.inside.ranks == 1 ? (void *)given_by(call) : spare;
            lay_out_blocks(&levels, base, blocks);
            reduce_scatter(&levels, own, blocks, spare);
        }
        *way = CAUSEWAY_COMM_CALL_TWO_LEVEL_MPI;
        if (levels.by_channels) *way = CAUSEWAY_COMM_CALL_TWO_LEVEL_CHANNELS;
        *error = levels.error;
        if (*error != MPI_SUCCESS) PMPI_Comm_call_errhandler(call->comm, *error);
    }
    if (holder != NULL) causeway_comm_release(holder);
    return can || *error != MPI_SUCCESS;
}

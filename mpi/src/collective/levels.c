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

#include <stdio.h>

#include "places.h"

struct levels {
    const struct call *call;
    const struct places *places;
    int element, operation;
    uint64_t bytes, count, extent;
    // Moved bytes are bytes, whatever the type.
    MPI_Datatype type;
    MPI_Comm inside_comm, leaders_comm;
    struct causeway_comm_group inside, leaders;
    bool by_channels;
    // This rank's first error.
    int error;
};

static int exchange(void *context, const void *out, void *in, uint64_t bytes) {
    MPI_Comm comm = *(MPI_Comm *)context;
    return PMPI_Alltoall(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE, comm);
}

static void note(struct levels *levels, int error) {
    if (levels->error == MPI_SUCCESS) levels->error = error;
}

static void note_words(struct levels *levels, const char *words) {
    fprintf(stderr, "causeway: %s: %s\n", name_of(levels->call), words);
    note(levels, error_code(name_of(levels->call), words));
}

// Whether a call of libcauseway_comm's was made, or has failed here; otherwise all ranks of its group have
// heard that it was not.
static bool is_made(struct levels *levels, int made) {
    if (made < 0) note_words(levels, causeway_comm_error());
    return made <= 0;
}

static struct between between_of(const struct levels *levels, enum collective what, bool is_inside, int root,
                                 const void *from, void *to) {
    const struct places *places = levels->places;
    return (struct between){
        .what = what,
        .call = name_of(levels->call),
        .comm = is_inside ? places->inside : places->leaders,
        .rank = (int)(is_inside ? levels->inside.rank : places->own),
        .root = root,
        .type = levels->type,
        .extent = levels->extent,
        .count = (MPI_Count)levels->count,
        .op = levels->call->op,
        .from = from,
        .to = to,
    };
}

static void make(struct levels *levels, const struct between *between) {
    note(levels, make_in_pieces(between));
}

// Puts the elements of this place together at its leader.
static void reduce_inside(struct levels *levels, const void *from, void *to) {
    if (levels->inside.ranks == 1) return;
    int made = causeway_comm_reduce(&levels->inside, from, to, levels->count, levels->element,
                                    levels->operation, 0);
    if (is_made(levels, made)) return;
    struct between between = between_of(levels, COLLECTIVE_Reduce, true, 0, from, to);
    make(levels, &between);
}

static const char ELSEWHERE[] = "a rank of another host, or the leader of this one, has failed in this call";

// Whether something follows from a rank of this place.
static bool is_well(struct levels *levels, int root) {
    int well = levels->error == MPI_SUCCESS;
    note(levels, PMPI_Bcast(&well, 1, MPI_INT, root, levels->places->inside));
    if (!well && levels->error == MPI_SUCCESS) note_words(levels, ELSEWHERE);
    return well;
}

// Gives all ranks of this place what one of them has.
static void spread_inside(struct levels *levels, void *address, int root) {
    if (levels->inside.ranks == 1) return;
    bool is_root = levels->inside.rank == (uint32_t)root;
    void *given = is_root && levels->error != MPI_SUCCESS ? NULL : address;
    int made = causeway_comm_broadcast(&levels->inside, given, levels->bytes, (uint32_t)root);
    if (is_made(levels, made) || !is_well(levels, root)) return;
    struct between between = between_of(levels, COLLECTIVE_Bcast, true, root, address, address);
    make(levels, &between);
}

// Gives the root what the leader of its place has.
static void hand_to_root(struct levels *levels, void *of_leader, void *of_root, uint32_t root) {
    uint32_t ranks = levels->inside.ranks, me = levels->inside.rank;
    if (root == 0) return;
    struct causeway_comm_range gives[ranks], takes[ranks];
    for (uint32_t rank = 0; rank < ranks; rank++)
        gives[rank] = takes[rank] = (struct causeway_comm_range){NULL, 0};
    void *given = levels->error == MPI_SUCCESS ? of_leader : NULL;
    if (me == 0) gives[root] = (struct causeway_comm_range){given, levels->bytes};
    if (me == root) takes[0] = (struct causeway_comm_range){of_root, levels->bytes};
    int made = causeway_comm_exchange(&levels->inside, gives, takes, levels->bytes);
    if (is_made(levels, made) || !is_well(levels, 0)) return;
    struct between between = between_of(levels, COLLECTIVE_Reduce, true, 0, of_leader, of_root);
    note(levels, hand_over_in_pieces(&between, 0, (int)root));
}

// The part of the leaders: by channels where they all reach each other over a network and have their memory
// on GPUs, and in pieces otherwise.
static void lead(struct levels *levels, enum collective what, uint32_t root, const void *from, void *to) {
    if (!levels->places->is_leader) return;
    int made = 1;
    if (levels->places->use_network) {
        bool is_well = levels->error == MPI_SUCCESS;
        const void *given = is_well ? from : NULL;
        void *taken = is_well ? to : NULL;
        if (what == COLLECTIVE_Bcast)
            made = causeway_comm_broadcast(&levels->leaders, taken, levels->bytes, root);
        else if (what == COLLECTIVE_Reduce)
            made = causeway_comm_reduce(&levels->leaders, given, taken, levels->count, levels->element,
                                        levels->operation, root);
        else
            made = causeway_comm_allreduce(&levels->leaders, given, taken, levels->count, levels->element,
                                           levels->operation);
    }
    levels->by_channels = made == 0;
    if (is_made(levels, made)) return;
    struct between between = between_of(levels, what, false, (int)root, from, to);
    make(levels, &between);
    int has_failed = levels->error != MPI_SUCCESS, have_failed = 0;
    note(levels, PMPI_Allreduce(&has_failed, &have_failed, 1, MPI_INT, MPI_MAX, levels->places->leaders));
    if (have_failed && levels->error == MPI_SUCCESS) note_words(levels, ELSEWHERE);
}

static const void *given_by(const struct call *call) {
    return call->out.address == MPI_IN_PLACE ? call->in.address : call->out.address;
}

static void allreduce(struct levels *levels) {
    const void *from = given_by(levels->call);
    void *to = levels->call->in.address;
    reduce_inside(levels, from, to);
    lead(levels, COLLECTIVE_Allreduce, 0, levels->inside.ranks > 1 ? to : from, to);
    spread_inside(levels, to, 0);
}

// `spare` is the leader's memory for elements that are not for itself.
static void reduce(struct levels *levels, const struct place_of_rank *root, bool is_root, void *spare) {
    const void *from = given_by(levels->call);
    void *to = is_root ? levels->call->in.address : spare;
    bool is_alone = levels->inside.ranks == 1;
    reduce_inside(levels, from, to);
    lead(levels, COLLECTIVE_Reduce, root->place, is_alone ? from : to, to);
    if (levels->places->own == root->place) hand_to_root(levels, to, to, root->inside);
}

static void broadcast(struct levels *levels, const struct place_of_rank *root) {
    void *buffer = levels->call->in.address;
    bool is_of_root = levels->places->own == root->place;
    if (is_of_root) spread_inside(levels, buffer, (int)root->inside);
    lead(levels, COLLECTIVE_Bcast, root->place, buffer, buffer);
    if (!is_of_root) spread_inside(levels, buffer, 0);
}

bool is_built_in_levels(const struct call *call, const struct places *places) {
    bool is_built = call->what == COLLECTIVE_Bcast || call->what == COLLECTIVE_Reduce ||
                    call->what == COLLECTIVE_Allreduce;
    return is_built && places->count > 1 && places->is_shared;
}

// What all ranks have to know of each one. The most that a rank says counts.
struct terms {
    // It cannot, and has memory on a GPU.
    long cannot, on_gpu;
    // Bytes of the call, and so many less than none.
    long bytes, minus_bytes;
};

static struct terms terms_of(const struct levels *levels, bool is_root, bool has_spare) {
    const struct call *call = levels->call;
    const void *from = given_by(call), *to = call->in.address;
    bool is_leaf = call->what == COLLECTIVE_Reduce && !is_root;
    bool from_gpu = call->what != COLLECTIVE_Bcast && causeway_comm_on_gpu(from);
    bool to_gpu = !is_leaf && causeway_comm_on_gpu(to);
    bool are_on_gpu = (call->what == COLLECTIVE_Bcast || from_gpu) && (is_leaf || to_gpu);
    bool can = is_contiguous(call->in.type) || call->what != COLLECTIVE_Bcast;
    // Nobody else uses the memory of a rank that is alone.
    can &= has_spare && (are_on_gpu || levels->inside.ranks == 1);
    long bytes = (long)levels->bytes;
    return (struct terms){!can, from_gpu || to_gpu, bytes, -bytes};
}

static void report(const struct levels *levels, int way) {
    const struct places *places = levels->places;
    causeway_comm_count_between_hosts(way, places->is_leader, places->count, levels->bytes);
}

bool collect_in_levels(const struct call *call, const struct members *members, const struct places *places,
                       uint64_t bytes, int *error) {
    bool is_move = call->what == COLLECTIVE_Bcast;
    MPI_Aint lower = 0, extent = 1;
    if (!is_move) PMPI_Type_get_extent(call->in.type, &lower, &extent);
    struct levels levels = {
        .call = call,
        .places = places,
        .element = is_move ? 0 : element_of(call->in.type),
        .operation = is_move ? 0 : operation_of(call->op),
        .count = is_move ? bytes : (uint64_t)call->in.count,
        .extent = (uint64_t)extent,
        .type = is_move ? MPI_BYTE : call->in.type,
        .inside_comm = places->inside,
        .leaders_comm = places->leaders,
        .error = MPI_SUCCESS,
    };
    levels.bytes = is_move ? bytes : levels.count * levels.extent;
    levels.inside = (struct causeway_comm_group){places->ranks[members->rank].inside, places->inside_count,
                                                 places->inside_members, exchange, &levels.inside_comm, NULL};
    levels.leaders = (struct causeway_comm_group){places->own, places->count, places->leading_members,
                                                  exchange, &levels.leaders_comm, NULL};
    bool is_root = has_root(call) && call->root == (int)members->rank;
    bool needs_spare = call->what == COLLECTIVE_Reduce && places->is_leader && !is_root &&
                       (levels.inside.ranks > 1 || places->own == places->ranks[call->root].place);
    void *holder = NULL, *spare = NULL;
    if (needs_spare) spare = causeway_comm_take(given_by(call), levels.bytes, &holder);
    struct terms terms = terms_of(&levels, is_root, !needs_spare || spare != NULL);
    *error = PMPI_Allreduce(MPI_IN_PLACE, &terms, sizeof terms / sizeof(long), MPI_LONG, MPI_MAX, call->comm);
    bool can = *error == MPI_SUCCESS && !terms.cannot && terms.on_gpu;
    if (can && terms.bytes != -terms.minus_bytes) {
        char words[128];
        snprintf(words, sizeof words, "ranks give from %ld to %ld bytes: all of them must give the same",
                 -terms.minus_bytes, terms.bytes);
        *error = raise_error(call->comm, name_of(call), words);
    } else if (can) {
        if (call->what == COLLECTIVE_Allreduce) allreduce(&levels);
        if (call->what == COLLECTIVE_Reduce) reduce(&levels, &places->ranks[call->root], is_root, spare);
        if (call->what == COLLECTIVE_Bcast) broadcast(&levels, &places->ranks[call->root]);
        report(&levels,
               levels.by_channels ? CAUSEWAY_COMM_LEADERS_BY_CHANNELS : CAUSEWAY_COMM_LEADERS_BY_MPI);
        *error = levels.error;
        if (*error != MPI_SUCCESS) PMPI_Comm_call_errhandler(call->comm, *error);
    } else if (terms.on_gpu) {
        report(&levels, CAUSEWAY_COMM_ALL_STAGED);
    }
    if (holder != NULL) causeway_comm_give_back(holder);
    return can || *error != MPI_SUCCESS;
}

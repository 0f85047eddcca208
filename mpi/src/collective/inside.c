// The part of a call in two levels that the ranks of one host make together: from GPU to GPU, or by the MPI
// in pieces if memory can be used by no kernel and no channel.

#include <stdio.h>

#include "levels.h"

const char ELSEWHERE[] = "a rank of another host, or the leader of this one, has failed in this call";

void note(struct levels *levels, int error) {
    if (levels->error == MPI_SUCCESS) levels->error = error;
}

void note_words(struct levels *levels, const char *words) {
    fprintf(stderr, "causeway: %s: %s\n", name_of(levels->call), words);
    note(levels, error_code(name_of(levels->call), words));
}

bool is_made(struct levels *levels, int made) {
    if (made < 0) note_words(levels, causeway_comm_error());
    return made <= 0;
}

struct between between_of(const struct levels *levels, enum collective what, bool is_inside, int root,
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

struct between move_of(const struct levels *levels, enum collective what, bool is_inside, int root,
                       const void *from, void *to, uint64_t bytes) {
    struct between between = between_of(levels, what, is_inside, root, from, to);
    between.type = MPI_BYTE;
    between.extent = 1;
    between.count = (MPI_Count)bytes;
    return between;
}

void reduce_inside(struct levels *levels, const void *from, void *to) {
    if (levels->inside.ranks == 1) return;
    int made = causeway_comm_reduce(&levels->inside, from, to, levels->count, levels->element,
                                    levels->operation, 0);
    if (is_made(levels, made)) return;
    struct between between = between_of(levels, COLLECTIVE_Reduce, true, 0, from, to);
    note(levels, make_in_pieces(&between));
}

// Whether something follows from a rank of this place.
static bool is_well(struct levels *levels, int root) {
    int well = levels->error == MPI_SUCCESS;
    note(levels, PMPI_Bcast(&well, 1, MPI_INT, root, levels->places->inside));
    if (!well && levels->error == MPI_SUCCESS) note_words(levels, ELSEWHERE);
    return well;
}

void spread_inside(struct levels *levels, void *address, uint64_t bytes, int root) {
    if (levels->inside.ranks == 1 || bytes == 0) return;
    bool is_root = levels->inside.rank == (uint32_t)root;
    void *given = is_root && levels->error != MPI_SUCCESS ? NULL : address;
    int made = causeway_comm_broadcast(&levels->inside, given, bytes, (uint32_t)root);
    if (is_made(levels, made) || !is_well(levels, root)) return;
    struct between between = move_of(levels, COLLECTIVE_Bcast, true, root, address, address, bytes);
    note(levels, make_in_pieces(&between));
}

static void hand_over(struct levels *levels, uint32_t from, uint32_t to, struct causeway_comm_range given,
                      struct causeway_comm_range taken) {
    uint64_t bytes = levels->inside.rank == from ? given.bytes : taken.bytes;
    struct between between =
        move_of(levels, COLLECTIVE_Reduce, true, (int)to, given.address, taken.address, bytes);
    note(levels, hand_over_in_pieces(&between, (int)from, (int)to));
}

void give_inside(struct levels *levels, const struct causeway_comm_range *gives,
                 struct causeway_comm_range own) {
    uint32_t ranks = levels->inside.ranks;
    bool is_leader = levels->inside.rank == 0, is_right = levels->error == MPI_SUCCESS;
    struct causeway_comm_range given[ranks], taken[ranks];
    for (uint32_t rank = 0; rank < ranks; rank++) {
        given[rank] = is_leader ? gives[rank] : (struct causeway_comm_range){NULL, 0};
        if (!is_right) given[rank].address = NULL;
        taken[rank] = rank == 0 ? own : (struct causeway_comm_range){NULL, 0};
    }
    int made = causeway_comm_exchange(&levels->inside, given, taken, levels->bytes);
    if (is_made(levels, made) || !is_well(levels, 0)) return;
    for (uint32_t rank = 0; rank < ranks; rank++) hand_over(levels, 0, rank, given[rank], own);
}

void take_inside(struct levels *levels, const struct causeway_comm_range *takes,
                 struct causeway_comm_range own) {
    uint32_t ranks = levels->inside.ranks;
    struct causeway_comm_range given[ranks], taken[ranks];
    for (uint32_t rank = 0; rank < ranks; rank++) {
        given[rank] = rank == 0 ? own : (struct causeway_comm_range){NULL, 0};
        taken[rank] = levels->inside.rank == 0 ? takes[rank] : (struct causeway_comm_range){NULL, 0};
    }
    int made = 1;
    if (ranks > 1) made = causeway_comm_exchange(&levels->inside, given, taken, levels->bytes);
    if (is_made(levels, made)) return;
    for (uint32_t rank = 0; rank < ranks; rank++) hand_over(levels, rank, 0, own, taken[rank]);
}

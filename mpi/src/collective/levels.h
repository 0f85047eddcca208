// What the files about calls in two levels share.
#ifndef CAUSEWAY_LEVELS_H
#define CAUSEWAY_LEVELS_H

#include "places.h"

// A call in two levels, at this rank.
struct levels {
    const struct call *call;
    const struct places *places;
    // The communicator's ranks, and this one.
    uint32_t ranks, me;
    int element, operation;
    // What all ranks must give the same.
    uint64_t bytes;
    // Elements that are reduced, or bytes that are moved, and the bytes from one to the next.
    uint64_t count, extent;
    MPI_Datatype type;
    MPI_Comm inside_comm, leaders_comm;
    struct causeway_comm_group inside, leaders;
    bool by_channels;
    // This rank's first error.
    int error;
};

// terms.c: whether a call can be made so.

// Where the elements are that this rank gives.
const void *given_by(const struct call *call);
// Whether a call gives each rank a part of what is reduced, or all ranks the blocks of all.
bool scatters(const struct call *call);
bool gathers(const struct call *call);

// What all ranks have to know of each one. The most that a rank says counts.
struct terms {
    // It cannot, has memory on a GPU, and has the blocks of ranks apart from each other.
    long cannot, on_gpu, is_scattered;
    // Bytes of the call, and so many less than none; the same of a sum of what it says of each rank.
    long bytes, minus_bytes, list, minus_list;
};

// `blocks` are those of all ranks, and `own` what this rank alone gives or gets.
struct terms terms_of(const struct levels *levels, bool is_root, struct causeway_comm_range own,
                      const struct causeway_comm_range *blocks, bool has_spare);
// Raises an error where ranks give other numbers.
int compare_terms(const struct call *call, const struct terms *terms);

// Whether a leader needs memory for all elements besides the call's own.
bool needs_spare(const struct levels *levels, bool is_root);

// inside.c: what the ranks of a place do together.

void note(struct levels *levels, int error);
void note_words(struct levels *levels, const char *words);
extern const char ELSEWHERE[];
// Whether a call of libcauseway_comm's was made, or has failed here; otherwise all ranks of its group have
// heard that it was not.
bool is_made(struct levels *levels, int made);
// A call on elements of the user's, or on so many bytes, among the ranks of this place, or the leaders.
struct between between_of(const struct levels *levels, enum collective what, bool is_inside, int root,
                          const void *from, void *to);
struct between move_of(const struct levels *levels, enum collective what, bool is_inside, int root,
                       const void *from, void *to, uint64_t bytes);

// Puts the elements of this place together at its leader.
void reduce_inside(struct levels *levels, const void *from, void *to);
// Gives all ranks of this place so many bytes that one of them has.
void spread_inside(struct levels *levels, void *address, uint64_t bytes, int root);
// The leader gives each rank of its place a range of as many bytes as that rank has room for.
void give_inside(struct levels *levels, const struct causeway_comm_range *gives,
                 struct causeway_comm_range own);
// Each rank of the place gives the leader a range.
void take_inside(struct levels *levels, const struct causeway_comm_range *takes,
                 struct causeway_comm_range own);

// leaders.c: what the leaders of all places do together. The other ranks do nothing there.

// MPI_Bcast, MPI_Reduce or MPI_Allreduce.
void lead(struct levels *levels, enum collective what, uint32_t root, const void *from, void *to);
// Each leader gets the blocks of the ranks of all other places. There is one for each rank of the
// communicator.
void lead_gathering(struct levels *levels, const struct causeway_comm_range *blocks);
// Each leader gets the blocks of the ranks of its place, put together with what the others have of them:
// where they lie, or in other memory, one behind the other.
void lead_scattering(struct levels *levels, const struct causeway_comm_range *blocks, void *elsewhere);

#endif

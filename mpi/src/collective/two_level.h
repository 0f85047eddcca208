// What the files about calls in two levels share.
#ifndef CAUSEWAY_TWO_LEVEL_CALL_H
#define CAUSEWAY_TWO_LEVEL_CALL_H

#include "places.h"

// A call in two two_level, at this rank.
struct two_level {
    const struct call *call;
    const struct node_groups *groups;
    // The communicator's ranks, and this one.
    uint32_t ranks, me;
    int element, operation;
    // What all ranks must give the same.
    uint64_t bytes;
    // Elements that are reduced, or bytes that are moved, and the bytes from one to the next.
    uint64_t count, extent;
    MPI_Datatype type;
    MPI_Comm node_comm, leader_comm;
    struct causeway_comm_group node, leaders;
    bool by_channels;
    // This rank's first error.
    int error;
};

// terms.c: whether a call can be made so.

// Where the elements are that this rank gives.
const void *send_buffer_of(const struct call *call);
// Whether a call gives each rank a part of what is reduced, or all ranks the blocks of all.
bool scatters(const struct call *call);
bool gathers(const struct call *call);

// What all ranks have to know of each one. The most that a rank says counts.
struct signature {
    // It cannot, has memory on a GPU, and has the blocks of ranks apart from each other.
    long cannot, on_gpu, is_scattered;
    // Bytes of the call, and so many less than none; the same of a sum of what it says of each rank.
    long bytes, minus_bytes, list, minus_list;
};

// `blocks` are those of all ranks, and `own` what this rank alone gives or gets.
struct signature signature_of(const struct two_level *two_level, bool is_root, struct causeway_comm_range own,
                      const struct causeway_comm_range *blocks, bool has_scratch);
// Raises an error where ranks give other numbers.
int compare_signatures(const struct call *call, const struct signature *signature);

// Whether a leader needs memory for all elements besides the call's own.
bool needs_scratch(const struct two_level *two_level, bool is_root);

// inside.c: what the ranks of a place do together.

void record_error(struct two_level *two_level, int error);
void record_error_message(struct two_level *two_level, const char *message);
extern const char REMOTE_FAILURE[];
// Whether a call of libcauseway_comm's was made, or has failed here; otherwise all ranks of its group have
// heard that it was not.
bool is_made(struct two_level *two_level, int made);
// A call on elements of the user's, or on so many bytes, among the ranks of this place, or the leaders.
struct chunked chunked_call_of(const struct two_level *two_level, enum collective what, bool is_intra_node, int root,
                          const void *from, void *to);
struct chunked chunked_copy_of(const struct two_level *two_level, enum collective what, bool is_intra_node, int root,
                       const void *from, void *to, uint64_t bytes);

// Puts the elements of this place together at its leader.
void reduce_within_node(struct two_level *two_level, const void *from, void *to);
// Gives all ranks of this place so many bytes that one of them has.
void broadcast_within_node(struct two_level *two_level, void *address, uint64_t bytes, int root);
// The leader gives each rank of its place a range of as many bytes as that rank has room for.
void scatter_within_node(struct two_level *two_level, const struct causeway_comm_range *sends,
                 struct causeway_comm_range own);
// Each rank of the place gives the leader a range.
void gather_within_node(struct two_level *two_level, const struct causeway_comm_range *receives,
                 struct causeway_comm_range own);

// leaders.c: what the leaders of all places do together. The other ranks do nothing there.

// MPI_Bcast, MPI_Reduce or MPI_Allreduce.
void run_between_leaders(struct two_level *two_level, enum collective what, uint32_t root, const void *from, void *to);
// Each leader gets the blocks of the ranks of all other places. There is one for each rank of the
// communicator.
void allgather_between_leaders(struct two_level *two_level, const struct causeway_comm_range *blocks);
// Each leader gets the blocks of the ranks of its place, put together with what the others have of them:
// where they lie, or in other memory, one behind the other.
void reduce_scatter_between_leaders(struct two_level *two_level, const struct causeway_comm_range *blocks, void *own_result);

#endif

// What is known of where a communicator's ranks are.
#ifndef CAUSEWAY_TWO_LEVEL_H
#define CAUSEWAY_TWO_LEVEL_H

#include "collective.h"

struct node_of_rank {
    // The number of its place, and its own one there; the leader's is 0.
    uint32_t node, local_rank;
};

// The places of a communicator's ranks: those of a place reach each other on one host. Kept with the
// communicator, and freed with it.
struct node_groups {
    uint32_t count;
    // Some place has several ranks.
    bool has_shared_node;
    // All ranks may reach those of other hosts over a network.
    bool has_network;
    // Of all ranks of the communicator; the same at all of them.
    struct node_of_rank *ranks;
    // This rank's place.
    uint32_t own_node;
    bool is_leader;
    // Its ranks, in the job, and their communicator.
    uint32_t node_size, *node_members;
    MPI_Comm node_comm;
    // The same for the leaders of all groups, in the order of places. Other ranks have no such communicator.
    uint32_t *leader_members;
    MPI_Comm leader_comm;
};

// All ranks of the communicator call this together where it is not known yet. Gives an error of the MPI's.
int node_groups_of(MPI_Comm comm, const struct members *members, struct node_groups **groups);

// two_level.c: calls in two two_level, between hosts by their leaders.

// Whether such calls can be made in two two_level; the same at all ranks, as all their arguments are.
bool supports_two_level(const struct call *call, const struct node_groups *groups);
// Says whether the call was made so, and in which way, or why not. All ranks of the communicator decide the
// same.
bool run_two_level(const struct call *call, const struct members *members, const struct node_groups *groups,
                       uint64_t bytes, int *algorithm, int *error);

// pieces.c: calls by way of the host's memory, in pieces.

// A call between the ranks of a communicator, which give the same.
struct chunked {
    enum collective what;
    // The user's call, for errors.
    const char *call;
    MPI_Comm comm;
    int rank, root;
    MPI_Datatype type;
    // Bytes from one element to the next.
    uint64_t extent;
    MPI_Count count;
    MPI_Op op;
    // What this rank gives, and where its result goes: anywhere in memory, and the same in place.
    const void *from;
    void *to;
};
// MPI_Bcast or MPI_Reduce. Gives this rank's first error, which has not been raised.
int run_chunked(const struct chunked *chunked);
// Gives one rank's elements to another one, or copies them where that is the same.
int send_chunked(const struct chunked *chunked, int from, int to);
// A piece of the host's memory, pinned where the GPU is, if it can be. There is no going on without: others
// wait for this rank.
unsigned char *allocate_chunk(const struct chunked *chunked, uint64_t bytes, void **holder);
void release_chunk(unsigned char *memory, void *holder);
// Copies between any two places. Gives the code of an error.
int copy_any(const struct chunked *chunked, void *to, const void *from, uint64_t bytes);

// portions.c: what each rank has for each other one.

// Ranges of this rank's memory, one behind the other.
struct rank_block {
    uint32_t count;
    const struct causeway_comm_range *ranges;
    // Of all of them; the same at all ranks.
    uint64_t bytes;
};
// There is a portion for each rank. Without a result a rank gives its own one to all, and gets all others'.
// With one it gives each rank that one's portion, and gets its own one put together into the result, which
// may be it.
// Gives this rank's first error, which has not been raised.
int alltoall_chunked(const struct chunked *chunked, uint32_t ranks, const struct rank_block *rank_blocks,
                       const struct rank_block *result);

#endif

// Two-level collective calls, and the node groups of a communicator.
#ifndef CAUSEWAY_TWO_LEVEL_H
#define CAUSEWAY_TWO_LEVEL_H

#include "collective.h"

// node_groups.c: which ranks of a communicator are on one node.

struct node_of_rank {
    // The number of its node group, and its rank there; the leader's is 0.
    uint32_t node, local_rank;
};

// The node groups of a communicator's ranks: those of a group reach each other on one node. An attribute of
// the communicator, and freed with it.
struct node_groups {
    uint32_t count;
    // Some group has several ranks.
    bool has_shared_node;
    // All ranks may reach those of other nodes over a network.
    bool has_network;
    // Of all ranks of the communicator; the same at all of them.
    struct node_of_rank *ranks;
    // This rank's group.
    uint32_t own_node;
    bool is_leader;
    // The ranks of that group, in the job, and their communicator.
    uint32_t node_size, *node_members;
    MPI_Comm node_comm;
    // The same for the leaders of all groups, by group. Other ranks have no such communicator.
    uint32_t *leader_members;
    MPI_Comm leader_comm;
};

// All ranks of the communicator call this collectively if it is not known yet. Returns an error of the MPI.
int node_groups_of(MPI_Comm comm, const struct members *members, struct node_groups **groups);
// Frees the attribute of MPI_COMM_WORLD, before the MPI is finalized. All ranks call it.
void free_world_node_groups(void);

// two_level.c: calls whose messages between nodes are those of leaders.

// Whether such calls have a two-level algorithm; the same at all ranks, as all their arguments are.
bool supports_two_level(const struct call *call, const struct node_groups *groups);
// Whether the call was made so, and by which algorithm, or why not. All ranks of the communicator decide the
// same.
bool run_two_level(const struct call *call, const struct members *members, const struct node_groups *groups,
                   uint64_t bytes, int *algorithm, int *error);

#endif

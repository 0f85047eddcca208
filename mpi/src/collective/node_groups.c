// Node groups of a communicator, and their leaders: which ranks are on one node.
//
// A rank knows which ranks of its node it can reach, and no more: what containers share need not be the same
// for all of them. So the ranks exchange this once, on the first call of a communicator that may go from GPU
// to GPU, and each of them computes the same groups. Each group has a communicator, and so have the leaders,
// the first rank of each group.

#include <stdlib.h>
#include <string.h>

#include "two_level.h"

// What a rank sends about each one: that it is local; and in its own byte whether it uses a network.
enum { IS_LOCAL = 1, HAS_NETWORK = 2 };

static int key = MPI_KEYVAL_INVALID;

static void drop_node_groups(struct node_groups *groups) {
    if (groups == NULL) return;
    if (groups->node_comm != MPI_COMM_NULL) PMPI_Comm_free(&groups->node_comm);
    if (groups->leader_comm != MPI_COMM_NULL) PMPI_Comm_free(&groups->leader_comm);
    free(groups->ranks);
    free(groups);
}

static int delete_node_groups(MPI_Comm comm, int which, void *groups, void *unused) {
    (void)comm, (void)which, (void)unused;
    drop_node_groups(groups);
    return MPI_SUCCESS;
}

void free_world_node_groups(void) {
    delete_world_attribute(key);
}

// Adds each rank to the first group whose ranks all reach it, and are reached by it.
static uint32_t group_by_node(const unsigned char *rows, uint32_t count, struct node_of_rank *ranks) {
    uint32_t nodes = 0;
    for (uint32_t rank = 0; rank < count; rank++) {
        uint32_t node = 0, local_rank = 0;
        for (; node < nodes; node++) {
            bool fits = true;
            local_rank = 0;
            for (uint32_t other = 0; other < rank && fits; other++) {
                if (ranks[other].node != node) continue;
                fits = (rows[rank * count + other] & rows[other * count + rank] & IS_LOCAL) != 0;
                local_rank++;
            }
            if (fits) break;
        }
        if (node == nodes) local_rank = 0;
        ranks[rank] = (struct node_of_rank){node, local_rank};
        if (node == nodes) nodes++;
    }
    return nodes;
}

// The communicators of this rank's group, and of the leaders.
static int make_comms(struct node_groups *groups, const struct members *members, MPI_Comm comm) {
    uint32_t me = members->rank, own = groups->ranks[me].node;
    groups->own_node = own;
    groups->is_leader = groups->ranks[me].local_rank == 0;
    int color = groups->is_leader ? 0 : MPI_UNDEFINED;
    int error = PMPI_Comm_split(comm, (int)own, (int)me, &groups->node_comm);
    if (error == MPI_SUCCESS) error = PMPI_Comm_split(comm, color, (int)me, &groups->leader_comm);
    if (error != MPI_SUCCESS) return error;
    PMPI_Comm_set_errhandler(groups->node_comm, MPI_ERRORS_RETURN);
    if (groups->is_leader) PMPI_Comm_set_errhandler(groups->leader_comm, MPI_ERRORS_RETURN);
    groups->node_members = (uint32_t *)(groups->ranks + members->count);
    groups->leader_members = groups->node_members + members->count;
    for (uint32_t rank = 0; rank < members->count; rank++) {
        const struct node_of_rank *of = &groups->ranks[rank];
        if (of->node == own) groups->node_members[groups->node_size++] = members->ranks[rank];
        if (of->local_rank == 0) groups->leader_members[of->node] = members->ranks[rank];
        groups->has_shared_node |= of->local_rank > 0;
    }
    return MPI_SUCCESS;
}

static int make_node_groups(MPI_Comm comm, const struct members *members, struct node_groups **made) {
    uint32_t count = members->count;
    struct node_groups *groups = calloc(1, sizeof *groups);
    unsigned char *rows = calloc(count + 1, count);
    if (groups == NULL || rows == NULL) abort();
    groups->node_comm = groups->leader_comm = MPI_COMM_NULL;
    groups->ranks = calloc(count, sizeof *groups->ranks + 2 * sizeof(uint32_t));
    if (groups->ranks == NULL) abort();
    // All ranks have joined the job when they have entered this call.
    int error = PMPI_Barrier(comm);
    unsigned char *own = rows + (size_t)count * count;
    for (uint32_t rank = 0; rank < count && error == MPI_SUCCESS; rank++)
        own[rank] = causeway_comm_is_local(members->ranks[rank]) ? IS_LOCAL : 0;
    if (causeway_comm_uses_network()) own[members->rank] |= HAS_NETWORK;
    if (error == MPI_SUCCESS)
        error = PMPI_Allgather(own, (int)count, MPI_BYTE, rows, (int)count, MPI_BYTE, comm);
    if (error == MPI_SUCCESS) {
        groups->count = group_by_node(rows, count, groups->ranks);
        groups->has_network = true;
        for (uint32_t rank = 0; rank < count; rank++)
            groups->has_network &= (rows[(size_t)rank * count + rank] & HAS_NETWORK) != 0;
        error = make_comms(groups, members, comm);
    }
    free(rows);
    if (error != MPI_SUCCESS) {
        drop_node_groups(groups);
        groups = NULL;
    }
    *made = groups;
    return error;
}

int node_groups_of(MPI_Comm comm, const struct members *members, struct node_groups **groups) {
    if (find_attribute(comm, &key, delete_node_groups, groups)) return MPI_SUCCESS;
    // Without the lock: other threads proceed while this rank waits for the others.
    int error = make_node_groups(comm, members, groups);
    if (error == MPI_SUCCESS) error = PMPI_Comm_set_attr(comm, key, *groups);
    return error;
}

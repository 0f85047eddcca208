// One place that a collective call is given both to send from and to receive in: does the MPI tell of it?
//
// It cannot see that in a call of the interposer's, where the two are different places (staging.c) or the MPI
// has no part (direct.c). Which of these calls are errors differs from MPI to MPI, so the MPI is asked, by
// such a call on the host's memory and of this rank alone.

#include "collective.h"

// Where the bytes begin that a side has of this rank. Most sides are of all ranks.
static const char *own_block_address(const struct call *call, const struct side *side, bool is_of_all, int rank) {
    if (!is_of_all) return side->address;
    MPI_Aint lower = 0, extent = 0;
    PMPI_Type_get_extent(side->type, &lower, &extent);
    MPI_Aint at = side->displacements != NULL ? displacement_at(call, side, rank)
                                              : (MPI_Aint)(rank * count_at(call, side, rank));
    return (const char *)((uintptr_t)side->address + (uintptr_t)(at * extent));
}

// Whether what this rank gives itself is received where it is sent from. Among neighbours no block is of the
// rank itself.
static bool is_aliased(const struct call *call) {
    const struct side *out = &call->out, *in = &call->in;
    int rank = 0, is_inter = 0;
    bool out_of_all = false, in_of_all = false, has_types = in->types != NULL;
    if (out->address == MPI_IN_PLACE || in->address == MPI_IN_PLACE) return false;
    if (in->address == MPI_BOTTOM) return false;
    switch (call->what) {
    case COLLECTIVE_Bcast:
    case COLLECTIVE_Neighbor_allgather:
    case COLLECTIVE_Neighbor_allgatherv:
    case COLLECTIVE_Neighbor_alltoall:
    case COLLECTIVE_Neighbor_alltoallv:
    case COLLECTIVE_Neighbor_alltoallw: return false;
    case COLLECTIVE_Gather:
    case COLLECTIVE_Gatherv:
    case COLLECTIVE_Allgather:
    case COLLECTIVE_Allgatherv: in_of_all = true; break;
    case COLLECTIVE_Scatter:
    case COLLECTIVE_Scatterv: out_of_all = true; break;
    // Where each rank gets another block the MPIs look at the whole.
    default:
        if (out->address != in->address) return false;
    }
    if (call->comm == MPI_COMM_NULL || (!has_types && out->type == MPI_DATATYPE_NULL)) return false;
    if (PMPI_Comm_test_inter(call->comm, &is_inter) != MPI_SUCCESS || is_inter) return false;
    PMPI_Comm_rank(call->comm, &rank);
    if (has_root(call) && call->root != rank) return false;
    if (!has_types && out->type != in->type) return false;
    MPI_Count sent = count_at(call, out, rank), received = count_at(call, in, rank);
    if (sent != received || sent <= 0) return false;
    return own_block_address(call, out, out_of_all, rank) == own_block_address(call, in, in_of_all, rank);
}

// Has the MPI make such a call, and gives its error.
static int ask(const struct call *call) {
    int rank = 0, displacement = 0, numbers[2] = {0};
    PMPI_Comm_rank(call->comm, &rank);
    // Open MPI 4.1.4 lets one element pass.
    int count = count_at(call, &call->in, rank) > 1 ? 2 : 1;
    // MPICH 4.0.2 looks whether lists are the same ones.
    int counts[] = {count, count};
    MPI_Datatype types[] = {MPI_INT, MPI_INT};
    struct side side = {.address = numbers, .count = count, .type = MPI_INT};
    struct call question = {call->what, .out = side, .in = side, .op = MPI_SUM};
    const struct side *given[] = {&call->out, &call->in};
    struct side *asked[] = {&question.out, &question.in};
    bool has_other_counts = call->out.counts != call->in.counts;
    bool has_other_types = call->out.types != call->in.types;
    for (int at = 0; at < 2; at++) {
        if (given[at]->counts != NULL) asked[at]->counts = &counts[at > 0 && has_other_counts];
        if (given[at]->types != NULL) asked[at]->types = &types[at > 0 && has_other_types];
        if (given[at]->displacements != NULL) asked[at]->displacements = &displacement;
    }
    lock();
    question.comm = self_comm();
    int error = invoke(&question, BLOCKING, MPI_INFO_NULL, NULL);
    unlock();
    return error;
}

int check_aliasing(const struct call *call) {
    int error = is_aliased(call) ? ask(call) : MPI_SUCCESS;
    if (error != MPI_SUCCESS) PMPI_Comm_call_errhandler(call->comm, error);
    return error;
}

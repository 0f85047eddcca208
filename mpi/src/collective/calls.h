// The table of the MPI's collective calls that move data: one row each, from which follow their entry points
// in all forms, in C and in Fortran, the calls of the MPI, and the layout of their data.
#ifndef CAUSEWAY_CALLS_H
#define CAUSEWAY_CALLS_H

// X(name, name of the non-blocking form, parameters, pattern, length, sent, received, written). A file takes
// the columns that it needs.
//
// The parameters are below, patterns and lengths in collective.h, the sides that are sent and received in
// layout.c. The MPI writes ALL of what is received, or may leave SOME elements as they are.

#define CALLS_OF_ONE_TYPE(X)                                                                    \
    X(Bcast, bcast, BUFFER_ROOT, BROADCAST, COUNT, NONE, ONE, ALL)                              \
    X(Reduce, reduce, REDUCTION_ROOT, REDUCTION, COUNT, ONE_OF_LEAF, ONE_OF_ROOT, ALL)          \
    X(Allreduce, allreduce, REDUCTION, REDUCTION, COUNT, ONE, ONE, ALL)                         \
    X(Scan, scan, REDUCTION, REDUCTION, COUNT, ONE, ONE, ALL)                                   \
    X(Exscan, exscan, REDUCTION, REDUCTION, COUNT, ONE, ONE, SOME)                              \
    X(Reduce_scatter, reduce_scatter, REDUCTION_COUNTS, REDUCTION, SUM, SUM, OWN, ALL)          \
    X(Reduce_scatter_block, reduce_scatter_block, REDUCTION, REDUCTION, EACH, SUM, ONE, ALL)    \
    X(Gather, gather, EQUAL_ROOT, GATHER, BLOCK, ONE_OF_LEAF, EACH_OF_ROOT, ALL)                \
    X(Gatherv, gatherv, COUNTS_IN_ROOT, GATHER, IRREGULAR, ONE_OF_LEAF, LIST_OF_ROOT, ALL)      \
    X(Scatter, scatter, EQUAL_ROOT, SCATTER, BLOCK, EACH_OF_ROOT, ONE_OF_LEAF, ALL)             \
    X(Scatterv, scatterv, COUNTS_OUT_ROOT, SCATTER, IRREGULAR, LIST_OF_ROOT, ONE_OF_LEAF, ALL)  \
    X(Allgather, allgather, EQUAL, ALLGATHER, BLOCK, ONE, EACH, ALL)                            \
    X(Allgatherv, allgatherv, COUNTS_IN, ALLGATHER, SUM, ONE, LIST, ALL)                        \
    X(Alltoall, alltoall, EQUAL, ALLTOALL, BLOCK, EACH, EACH, ALL)                              \
    X(Alltoallv, alltoallv, COUNTS_BOTH, ALLTOALL, IRREGULAR, LIST, LIST, ALL)                  \
    X(Neighbor_allgather, neighbor_allgather, EQUAL, NEIGHBORS, UNKNOWN, ONE, EACH, SOME)       \
    X(Neighbor_allgatherv, neighbor_allgatherv, COUNTS_IN, NEIGHBORS, UNKNOWN, ONE, LIST, SOME) \
    X(Neighbor_alltoall, neighbor_alltoall, EQUAL, NEIGHBORS, UNKNOWN, EACH, EACH, SOME)        \
    X(Neighbor_alltoallv, neighbor_alltoallv, COUNTS_BOTH, NEIGHBORS, UNKNOWN, LIST, LIST, SOME)

// A call with a list of types, which Fortran's are not (fortran/collectives.c).
#define CALLS_OF_TYPES(X) X(Alltoallw, alltoallw, TYPES_BOTH, ALLTOALL, IRREGULAR, LIST, LIST, ALL)

#define COLLECTIVE_CALLS(X) CALLS_OF_ONE_TYPE(X) CALLS_OF_TYPES(X)

// Those whose entry points stand by themselves (dispatch.c): the displacements of the first are of one type
// in all forms, and the other has one form alone.
#define CALLS_APART(X)                                                                          \
    X(Neighbor_alltoallw, neighbor_alltoallw, TYPES_BOTH, NEIGHBORS, UNKNOWN, LIST, LIST, SOME) \
    X(Reduce_local, , REDUCTION, LOCAL, UNKNOWN, ONE, ONE, SOME)

#define ALL_COLLECTIVE_CALLS(X) COLLECTIVE_CALLS(X) CALLS_APART(X)

// Parameters before the communicator, what of a `struct call` they fill, and how the MPI gets them out of the
// `struct call` c. N is the type of counts, A that of displacements. s is what is sent, with n, d and t; r is
// what is received, with m, e and u.

#define BUFFER_ROOT_PARAMETERS(N, A) void *r, N n, MPI_Datatype t, int root
#define BUFFER_ROOT_FILL .in = {.address = r, .count = n, .type = t}, .root = root
#define BUFFER_ROOT_ARGUMENTS(N, A) c->in.address, (N)c->in.count, c->in.type, c->root

#define REDUCTION_PARAMETERS(N, A) const void *s, void *r, N n, MPI_Datatype t, MPI_Op o
#define REDUCTION_FILL \
    .out = {.address = (void *)s, .count = n, .type = t}, .op = o, .in = {.address = r, .count = n, .type = t}
#define REDUCTION_ARGUMENTS(N, A) c->out.address, c->in.address, (N)c->in.count, c->in.type, c->op

#define REDUCTION_ROOT_PARAMETERS(N, A) REDUCTION_PARAMETERS(N, A), int root
#define REDUCTION_ROOT_FILL REDUCTION_FILL, .root = root
#define REDUCTION_ROOT_ARGUMENTS(N, A) REDUCTION_ARGUMENTS(N, A), c->root

#define REDUCTION_COUNTS_PARAMETERS(N, A) const void *s, void *r, const N *n, MPI_Datatype t, MPI_Op o
#define REDUCTION_COUNTS_FILL                                       \
    .out = {.address = (void *)s, .counts = n, .type = t}, .op = o, \
    .in = {.address = r, .counts = n, .type = t}
#define REDUCTION_COUNTS_ARGUMENTS(N, A) c->out.address, c->in.address, c->in.counts, c->in.type, c->op

#define EQUAL_PARAMETERS(N, A) const void *s, N n, MPI_Datatype t, void *r, N m, MPI_Datatype u
#define EQUAL_FILL \
    .out = {.address = (void *)s, .count = n, .type = t}, .in = {.address = r, .count = m, .type = u}
#define EQUAL_ARGUMENTS(N, A) \
    c->out.address, (N)c->out.count, c->out.type, c->in.address, (N)c->in.count, c->in.type

#define EQUAL_ROOT_PARAMETERS(N, A) EQUAL_PARAMETERS(N, A), int root
#define EQUAL_ROOT_FILL EQUAL_FILL, .root = root
#define EQUAL_ROOT_ARGUMENTS(N, A) EQUAL_ARGUMENTS(N, A), c->root

#define COUNTS_IN_PARAMETERS(N, A) \
    const void *s, N n, MPI_Datatype t, void *r, const N *m, const A *e, MPI_Datatype u
#define COUNTS_IN_FILL                                    \
    .out = {.address = (void *)s, .count = n, .type = t}, \
    .in = {.address = r, .counts = m, .displacements = e, .type = u}
#define COUNTS_IN_ARGUMENTS(N, A) \
    c->out.address, (N)c->out.count, c->out.type, c->in.address, c->in.counts, c->in.displacements, c->in.type

#define COUNTS_IN_ROOT_PARAMETERS(N, A) COUNTS_IN_PARAMETERS(N, A), int root
#define COUNTS_IN_ROOT_FILL COUNTS_IN_FILL, .root = root
#define COUNTS_IN_ROOT_ARGUMENTS(N, A) COUNTS_IN_ARGUMENTS(N, A), c->root

#define COUNTS_OUT_ROOT_PARAMETERS(N, A) \
    const void *s, const N *n, const A *d, MPI_Datatype t, void *r, N m, MPI_Datatype u, int root
#define COUNTS_OUT_ROOT_FILL                                                   \
    .out = {.address = (void *)s, .counts = n, .displacements = d, .type = t}, \
    .in = {.address = r, .count = m, .type = u}, .root = root
#define COUNTS_OUT_ROOT_ARGUMENTS(N, A)                                                              \
    c->out.address, c->out.counts, c->out.displacements, c->out.type, c->in.address, (N)c->in.count, \
        c->in.type, c->root

#define COUNTS_BOTH_PARAMETERS(N, A) \
    const void *s, const N *n, const A *d, MPI_Datatype t, void *r, const N *m, const A *e, MPI_Datatype u
#define COUNTS_BOTH_FILL                                                       \
    .out = {.address = (void *)s, .counts = n, .displacements = d, .type = t}, \
    .in = {.address = r, .counts = m, .displacements = e, .type = u}
#define COUNTS_BOTH_ARGUMENTS(N, A)                                                                \
    c->out.address, c->out.counts, c->out.displacements, c->out.type, c->in.address, c->in.counts, \
        c->in.displacements, c->in.type

#define TYPES_BOTH_PARAMETERS(N, A)                                                                \
    const void *s, const N *n, const A *d, const MPI_Datatype *t, void *r, const N *m, const A *e, \
        const MPI_Datatype *u
#define TYPES_BOTH_FILL                                                         \
    .out = {.address = (void *)s, .counts = n, .displacements = d, .types = t}, \
    .in = {.address = r, .counts = m, .displacements = e, .types = u}
#define TYPES_BOTH_ARGUMENTS(N, A)                                                                  \
    c->out.address, c->out.counts, c->out.displacements, c->out.types, c->in.address, c->in.counts, \
        c->in.displacements, c->in.types

#endif

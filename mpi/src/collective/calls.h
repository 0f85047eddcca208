// The MPI's collective calls that move data: one line each, from which their entry points in all forms and
// the calls of the MPI are made.
#ifndef CAUSEWAY_CALLS_H
#define CAUSEWAY_CALLS_H

// X(name, name of the non-blocking form, parameters). MPI_Neighbor_alltoallw, whose displacements are of one
// type in all forms, and MPI_Reduce_local, which has one form alone, stand by themselves.
#define COLLECTIVE_CALLS(X)                                  \
    X(Bcast, bcast, BUFFER_ROOT)                             \
    X(Reduce, reduce, REDUCTION_ROOT)                        \
    X(Allreduce, allreduce, REDUCTION)                       \
    X(Scan, scan, REDUCTION)                                 \
    X(Exscan, exscan, REDUCTION)                             \
    X(Reduce_scatter, reduce_scatter, REDUCTION_COUNTS)      \
    X(Reduce_scatter_block, reduce_scatter_block, REDUCTION) \
    X(Gather, gather, EQUAL_ROOT)                            \
    X(Gatherv, gatherv, COUNTS_IN_ROOT)                      \
    X(Scatter, scatter, EQUAL_ROOT)                          \
    X(Scatterv, scatterv, COUNTS_OUT_ROOT)                   \
    X(Allgather, allgather, EQUAL)                           \
    X(Allgatherv, allgatherv, COUNTS_IN)                     \
    X(Alltoall, alltoall, EQUAL)                             \
    X(Alltoallv, alltoallv, COUNTS_BOTH)                     \
    X(Alltoallw, alltoallw, TYPES_BOTH)                      \
    X(Neighbor_allgather, neighbor_allgather, EQUAL)         \
    X(Neighbor_allgatherv, neighbor_allgatherv, COUNTS_IN)   \
    X(Neighbor_alltoall, neighbor_alltoall, EQUAL)           \
    X(Neighbor_alltoallv, neighbor_alltoallv, COUNTS_BOTH)

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

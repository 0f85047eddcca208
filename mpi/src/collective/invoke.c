// How does a call go on to the MPI?

#include "collective.h"

#define NAME(name, lower, parameters) [COLLECTIVE_##name] = "MPI_" #name,
static const char *const NAMES[] = {
    COLLECTIVE_CALLS(NAME) NAME(Neighbor_alltoallw, , ) NAME(Reduce_local, , )
};
#undef NAME

const char *name_of(const struct call *call) {
    return NAMES[call->what];
}

// One function for each form and kind of counts: it calls the MPI's function of the call's name.

#define BLOCKING_CASE(name, lower, parameters) \
    case COLLECTIVE_##name: return PMPI_##name(parameters##_ARGUMENTS(int, int), c->comm);
#define NON_BLOCKING_CASE(name, lower, parameters) \
    case COLLECTIVE_##name: return PMPI_I##lower(parameters##_ARGUMENTS(int, int), c->comm, request);

static int invoke_blocking(const struct call *c) {
    switch (c->what) {
        COLLECTIVE_CALLS(BLOCKING_CASE)
    case COLLECTIVE_Neighbor_alltoallw: return PMPI_Neighbor_alltoallw(TYPES_BOTH_ARGUMENTS(, ), c->comm);
    case COLLECTIVE_Reduce_local:
        return PMPI_Reduce_local(c->out.address, c->in.address, (int)c->in.count, c->in.type, c->op);
    }
    return MPI_ERR_INTERN;
}

static int invoke_nonblocking(const struct call *c, MPI_Request *request) {
    switch (c->what) {
        COLLECTIVE_CALLS(NON_BLOCKING_CASE)
    case COLLECTIVE_Neighbor_alltoallw:
        return PMPI_Ineighbor_alltoallw(TYPES_BOTH_ARGUMENTS(, ), c->comm, request);
    case COLLECTIVE_Reduce_local: break;
    }
    return MPI_ERR_INTERN;
}

#if HAS_MPI_4

#define PERSISTENT_CASE(name, lower, parameters) \
    case COLLECTIVE_##name:                      \
        return PMPI_##name##_init(parameters##_ARGUMENTS(int, int), c->comm, info, request);

static int invoke_persistent(const struct call *c, MPI_Info info, MPI_Request *request) {
    switch (c->what) {
        COLLECTIVE_CALLS(PERSISTENT_CASE)
    case COLLECTIVE_Neighbor_alltoallw:
        return PMPI_Neighbor_alltoallw_init(TYPES_BOTH_ARGUMENTS(, ), c->comm, info, request);
    case COLLECTIVE_Reduce_local: break;
    }
    return MPI_ERR_INTERN;
}

#endif

#if MPI_VERSION >= 4

#define LARGE_BLOCKING_CASE(name, lower, parameters) \
    case COLLECTIVE_##name: return PMPI_##name##_c(parameters##_ARGUMENTS(MPI_Count, MPI_Aint), c->comm);
#define LARGE_NON_BLOCKING_CASE(name, lower, parameters) \
    case COLLECTIVE_##name:                              \
        return PMPI_I##lower##_c(parameters##_ARGUMENTS(MPI_Count, MPI_Aint), c->comm, request);
#define LARGE_PERSISTENT_CASE(name, lower, parameters) \
    case COLLECTIVE_##name:                            \
        return PMPI_##name##_init_c(parameters##_ARGUMENTS(MPI_Count, MPI_Aint), c->comm, info, request);

static int invoke_large_blocking(const struct call *c) {
    switch (c->what) {
        COLLECTIVE_CALLS(LARGE_BLOCKING_CASE)
    case COLLECTIVE_Neighbor_alltoallw: return PMPI_Neighbor_alltoallw_c(TYPES_BOTH_ARGUMENTS(, ), c->comm);
    case COLLECTIVE_Reduce_local:
        return PMPI_Reduce_local_c(c->out.address, c->in.address, c->in.count, c->in.type, c->op);
    }
    return MPI_ERR_INTERN;
}

static int invoke_large_nonblocking(const struct call *c, MPI_Request *request) {
    switch (c->what) {
        COLLECTIVE_CALLS(LARGE_NON_BLOCKING_CASE)
    case COLLECTIVE_Neighbor_alltoallw:
        return PMPI_Ineighbor_alltoallw_c(TYPES_BOTH_ARGUMENTS(, ), c->comm, request);
    case COLLECTIVE_Reduce_local: break;
    }
    return MPI_ERR_INTERN;
}

static int invoke_large_persistent(const struct call *c, MPI_Info info, MPI_Request *request) {
    switch (c->what) {
        COLLECTIVE_CALLS(LARGE_PERSISTENT_CASE)
    case COLLECTIVE_Neighbor_alltoallw:
        return PMPI_Neighbor_alltoallw_init_c(TYPES_BOTH_ARGUMENTS(, ), c->comm, info, request);
    case COLLECTIVE_Reduce_local: break;
    }
    return MPI_ERR_INTERN;
}

#endif

int invoke(const struct call *call, enum form form, MPI_Info info, MPI_Request *request) {
    (void)info;
#if MPI_VERSION >= 4
    if (call->is_large && form == BLOCKING) return invoke_large_blocking(call);
    if (call->is_large && form == NON_BLOCKING) return invoke_large_nonblocking(call, request);
    if (call->is_large) return invoke_large_persistent(call, info, request);
#endif
#if HAS_MPI_4
    if (form == PERSISTENT) return invoke_persistent(call, info, request);
#endif
    if (form == BLOCKING) return invoke_blocking(call);
    return form == NON_BLOCKING ? invoke_nonblocking(call, request) : MPI_ERR_INTERN;
}

// Dispatch of collective calls: entry points, the choice between GPU and staging, and the call of the MPI.
//
// A staged call has the MPI work on staging buffers in host memory. That is right whatever the other ranks
// have, since the MPI gets the same of all of them.

#include <stdlib.h>

#include "../persistent.h"
#include "staging.h"
#if defined(OPEN_MPI) && !HAS_MPI_4 && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

// The call of the MPI.

#define NAME(name, ...) [COLLECTIVE_##name] = "MPI_" #name,
static const char *const NAMES[] = {ALL_COLLECTIVE_CALLS(NAME)};
#undef NAME

const char *name_of(const struct call *call) {
    return NAMES[call->what];
}

// One function for each form and kind of counts: it calls the function of that name.

#define BLOCKING_CASE(name, lower, parameters, ...) \
    case COLLECTIVE_##name: return PMPI_##name(parameters##_ARGUMENTS(int, int), c->comm);
#define NON_BLOCKING_CASE(name, lower, parameters, ...) \
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

// Open MPI 4 has the persistent forms as an extension, with names of their own.
#if HAS_MPI_4
#define HAS_PERSISTENT 1
#define PERSISTENT_ENTRY(name, suffix) MPI_##name##_init##suffix
#define MPIS_PERSISTENT(name) PMPI_##name##_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define HAS_PERSISTENT 1
#define PERSISTENT_ENTRY(name, suffix) MPIX_##name##_init
#define MPIS_PERSISTENT(name) PMPIX_##name##_init
// Another build of the same version may lack it.
#define WEAK(name, ...) extern __typeof__(PMPIX_##name##_init) PMPIX_##name##_init __attribute__((weak));
COLLECTIVE_CALLS(WEAK)
WEAK(Neighbor_alltoallw)
#else
#define HAS_PERSISTENT 0
#endif

#if HAS_PERSISTENT

#define PERSISTENT_CASE(name, lower, parameters, ...) \
    case COLLECTIVE_##name:                           \
        return MPIS_PERSISTENT(name)(parameters##_ARGUMENTS(int, int), c->comm, info, request);

static int invoke_persistent(const struct call *c, MPI_Info info, MPI_Request *request) {
    switch (c->what) {
        COLLECTIVE_CALLS(PERSISTENT_CASE)
    case COLLECTIVE_Neighbor_alltoallw:
        return MPIS_PERSISTENT(Neighbor_alltoallw)(TYPES_BOTH_ARGUMENTS(, ), c->comm, info, request);
    case COLLECTIVE_Reduce_local: break;
    }
    return MPI_ERR_INTERN;
}

#endif

#if MPI_VERSION >= 4

#define LARGE_BLOCKING_CASE(name, lower, parameters, ...) \
    case COLLECTIVE_##name: return PMPI_##name##_c(parameters##_ARGUMENTS(MPI_Count, MPI_Aint), c->comm);
#define LARGE_NON_BLOCKING_CASE(name, lower, parameters, ...) \
    case COLLECTIVE_##name:                                   \
        return PMPI_I##lower##_c(parameters##_ARGUMENTS(MPI_Count, MPI_Aint), c->comm, request);
#define LARGE_PERSISTENT_CASE(name, lower, parameters, ...) \
    case COLLECTIVE_##name:                                 \
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
#if HAS_PERSISTENT
    if (form == PERSISTENT) return invoke_persistent(call, info, request);
#endif
    if (form == BLOCKING) return invoke_blocking(call);
    return form == NON_BLOCKING ? invoke_nonblocking(call, request) : MPI_ERR_INTERN;
}

// The counts of the report of CAUSEWAY_COMM_EXPLAIN.

static uint64_t bytes_of_layout(const struct layout *layout) {
    uint64_t bytes = 0;
    for (int at = 0; at < layout->count; at++)
        bytes += bytes_of(layout->blocks[at].count, layout->blocks[at].type);
    return bytes;
}

uint64_t bytes_of_layouts(const struct layout *out, const struct layout *in) {
    return bytes_of_layout(out) + bytes_of_layout(in);
}

void count_for_report(const struct call *call, const struct choice *choice) {
    if (!causeway_comm_explains()) return;
    struct layout out, in;
    if (lay_out(call, &out, &in) == MPI_SUCCESS)
        causeway_comm_count_call(name_of(call), choice->algorithm, choice->hosts, choice->is_leader,
                                 bytes_of_layouts(&out, &in));
    free(out.blocks);
    free(in.blocks);
}

// The choice of the algorithm.

// MPI_Reduce_local by a kernel, if both buffers are on a GPU. Whether it was made.
static bool reduce_on_gpu(const struct call *call, int *error) {
    int element = element_of(call->in.type), operation = operation_of(call->op);
    if (pattern_of(call) != LOCAL || !causeway_comm_reduces(element, operation)) return false;
    if (!causeway_comm_on_gpu(call->out.address) || !causeway_comm_on_gpu(call->in.address)) return false;
    if (call->in.count <= 0) return false;
    int done = causeway_comm_reduce_local(call->out.address, call->in.address, (uint64_t)call->in.count,
                                          element, operation);
    // The kernel does not support such an address.
    if (done > 0) return false;
    *error = done == 0 ? MPI_SUCCESS : raise_error(call->comm, name_of(call), causeway_comm_error());
    return true;
}

static int check_call(const struct call *call, enum form form) {
    // Without a GPU the MPI sees the buffers itself.
    int error = causeway_comm_has_driver() ? check_aliasing(call) : MPI_SUCCESS;
    return error == MPI_SUCCESS ? check_consistency(call, form) : error;
}

// Earlier work of the program in the default streams must complete before a call.
static void sync_buffers(const struct call *call) {
    const void *addresses[] = {call->out.address, call->in.address};
    for (int at = 0; at < 2; at++)
        if (causeway_comm_on_gpu(addresses[at])) causeway_comm_sync_memory(addresses[at]);
}

// A blocking call of the MPI.
static int invoke_and_wait(const struct call *call) {
    bool has_entered = enter_mpi();
    return leave_mpi(has_entered, invoke(call, BLOCKING, MPI_INFO_NULL, NULL));
}

int run_collective(const struct call *call) {
    int error = check_call(call, BLOCKING);
    if (error != MPI_SUCCESS) return error;
    if (causeway_comm_has_driver()) sync_buffers(call);
    finish_fetches();
    struct choice choice = {.algorithm = CAUSEWAY_COMM_CALL_NO_KERNEL};
    if (pattern_of(call) == LOCAL && reduce_on_gpu(call, &error)) return error;
    if (pattern_of(call) != LOCAL && run_on_gpus(call, &choice, &error)) {
        if (error == MPI_SUCCESS) count_for_report(call, &choice);
        return error;
    }
    struct staging *staging = stage(call, &error);
    if (error != MPI_SUCCESS) return error;
    if (staging == NULL) return invoke_and_wait(call);
    count_for_report(call, &choice);
    fill_staging(staging);
    error = invoke_and_wait(&staging->call);
    if (error != MPI_SUCCESS) {
        drop_staging(staging);
        return error;
    }
    error = end_staging(staging, true);
    if (error != MPI_SUCCESS) PMPI_Comm_call_errhandler(call->comm, error);
    return error;
}

int run_nonblocking(const struct call *call, MPI_Request *request) {
    int error = check_call(call, NON_BLOCKING);
    if (error != MPI_SUCCESS) return error;
    struct staging *staging = stage(call, &error);
    if (error != MPI_SUCCESS) return error;
    if (staging == NULL) return invoke(call, NON_BLOCKING, MPI_INFO_NULL, request);
    struct operation *operation;
    error = start_request(&operation, request);
    if (error != MPI_SUCCESS) {
        drop_staging(staging);
        return error;
    }
    error = start_collective(operation, staging, MPI_REQUEST_NULL, call->comm);
    if (error != MPI_SUCCESS) drop_request(request);
    return error;
}

int make_persistent(const struct call *call, MPI_Info info, MPI_Request *request) {
    int error = check_call(call, PERSISTENT);
    if (error != MPI_SUCCESS) return error;
    struct staging *staging = stage(call, &error);
    if (error != MPI_SUCCESS) return error;
    if (staging == NULL) return invoke(call, PERSISTENT, info, request);
    MPI_Request inner;
    // MPICH 4.0.2 copies what a rank has for itself here already.
    fill_staging(staging);
    error = invoke(&staging->call, PERSISTENT, info, &inner);
    if (error == MPI_SUCCESS) error = make_collective(staging, inner, call->comm, request);
    if (error != MPI_SUCCESS) drop_staging(staging);
    return error;
}

// The entry points.

#define SAME_FOR_ALL(name, lower, parameters, suffix, N, A, large)                                        \
    EXPORT int MPI_##name##suffix(parameters##_PARAMETERS(N, A), MPI_Comm comm) {                         \
        struct call call = {COLLECTIVE_##name, .is_large = large, parameters##_FILL, .comm = comm};       \
        return run_collective(&call);                                                                     \
    }                                                                                                     \
    EXPORT int MPI_I##lower##suffix(parameters##_PARAMETERS(N, A), MPI_Comm comm, MPI_Request *request) { \
        struct call call = {COLLECTIVE_##name, .is_large = large, parameters##_FILL, .comm = comm};       \
        return run_nonblocking(&call, request);                                                           \
    }
#define PERSISTENT_FOR_ALL(name, parameters, suffix, N, A, large)                                          \
    EXPORT int PERSISTENT_ENTRY(name, suffix)(parameters##_PARAMETERS(N, A), MPI_Comm comm, MPI_Info info, \
                                              MPI_Request *request) {                                      \
        struct call call = {COLLECTIVE_##name, .is_large = large, parameters##_FILL, .comm = comm};        \
        return make_persistent(&call, info, request);                                                      \
    }

#define ENTRIES(name, lower, parameters, ...) SAME_FOR_ALL(name, lower, parameters, , int, int, false)
COLLECTIVE_CALLS(ENTRIES)
SAME_FOR_ALL(Neighbor_alltoallw, neighbor_alltoallw, TYPES_BOTH, , int, MPI_Aint, false)

EXPORT int MPI_Reduce_local(const void *s, void *r, int n, MPI_Datatype t, MPI_Op o) {
    struct call call = {COLLECTIVE_Reduce_local, .is_large = false, REDUCTION_FILL, .comm = error_comm()};
    return run_collective(&call);
}

#if HAS_PERSISTENT
#define PERSISTENT_ENTRIES(name, lower, parameters, ...) \
    PERSISTENT_FOR_ALL(name, parameters, , int, int, false)
COLLECTIVE_CALLS(PERSISTENT_ENTRIES)
PERSISTENT_FOR_ALL(Neighbor_alltoallw, TYPES_BOTH, , int, MPI_Aint, false)
#endif

#if MPI_VERSION >= 4
#define LARGE_ENTRIES(name, lower, parameters, ...)                      \
    SAME_FOR_ALL(name, lower, parameters, _c, MPI_Count, MPI_Aint, true) \
    PERSISTENT_FOR_ALL(name, parameters, _c, MPI_Count, MPI_Aint, true)
COLLECTIVE_CALLS(LARGE_ENTRIES)
SAME_FOR_ALL(Neighbor_alltoallw, neighbor_alltoallw, TYPES_BOTH, _c, MPI_Count, MPI_Aint, true)
PERSISTENT_FOR_ALL(Neighbor_alltoallw, TYPES_BOTH, _c, MPI_Count, MPI_Aint, true)

EXPORT int MPI_Reduce_local_c(const void *s, void *r, MPI_Count n, MPI_Datatype t, MPI_Op o) {
    struct call call = {COLLECTIVE_Reduce_local, .is_large = true, REDUCTION_FILL, .comm = error_comm()};
    return run_collective(&call);
}
#endif

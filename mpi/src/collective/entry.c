// The entry points of collective calls.

#include "collective.h"

#define SAME_FOR_ALL(name, lower, parameters, suffix, N, A, large)                                        \
    EXPORT int MPI_##name##suffix(parameters##_PARAMETERS(N, A), MPI_Comm comm) {                         \
        struct call call = {COLLECTIVE_##name, .is_large = large, parameters##_FILL, .comm = comm};       \
        return run_collective(&call);                                                                            \
    }                                                                                                     \
    EXPORT int MPI_I##lower##suffix(parameters##_PARAMETERS(N, A), MPI_Comm comm, MPI_Request *request) { \
        struct call call = {COLLECTIVE_##name, .is_large = large, parameters##_FILL, .comm = comm};       \
        return run_nonblocking(&call, request);                                                             \
    }
#define PERSISTENT_FOR_ALL(name, parameters, suffix, N, A, large)                                     \
    EXPORT int MPI_##name##_init##suffix(parameters##_PARAMETERS(N, A), MPI_Comm comm, MPI_Info info, \
                                         MPI_Request *request) {                                      \
        struct call call = {COLLECTIVE_##name, .is_large = large, parameters##_FILL, .comm = comm};   \
        return make_persistent(&call, info, request);                                                   \
    }

#define ENTRIES(name, lower, parameters) SAME_FOR_ALL(name, lower, parameters, , int, int, false)
COLLECTIVE_CALLS(ENTRIES)
SAME_FOR_ALL(Neighbor_alltoallw, neighbor_alltoallw, TYPES_BOTH, , int, MPI_Aint, false)

EXPORT int MPI_Reduce_local(const void *s, void *r, int n, MPI_Datatype t, MPI_Op o) {
    struct call call = {COLLECTIVE_Reduce_local, .is_large = false, REDUCTION_FILL, .comm = error_comm()};
    return run_collective(&call);
}

#if HAS_MPI_4
#define PERSISTENT_ENTRIES(name, lower, parameters) PERSISTENT_FOR_ALL(name, parameters, , int, int, false)
COLLECTIVE_CALLS(PERSISTENT_ENTRIES)
PERSISTENT_FOR_ALL(Neighbor_alltoallw, TYPES_BOTH, , int, MPI_Aint, false)
#endif

#if MPI_VERSION >= 4
#define LARGE_ENTRIES(name, lower, parameters)                           \
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

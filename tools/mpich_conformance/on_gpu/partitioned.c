// Partitioned messages: a partition goes to the GPU when the program says that it is ready, and comes back
// when the program hears that it has arrived.

#include "on_gpu.h"

#if HAS_MPI_4

static size_t part_bytes(MPI_Count count, MPI_Datatype type) {
    MPI_Count lower, extent;
    return PMPI_Type_get_extent_x(type, &lower, &extent) == MPI_SUCCESS && extent > 0
               ? (size_t)(count * extent)
               : 0;
}

#define PARTITIONED(name, B, is_receive)                                                              \
    EXPORT int MPI_##name(B b, int parts, MPI_Count n, MPI_Datatype t, int peer, int tag, MPI_Comm c, \
                          MPI_Info i, MPI_Request *q) {                                               \
        struct moved *m = peer == MPI_PROC_NULL ? NULL : move_elements(b, parts * n, t, is_receive);  \
        int error = NEXT(MPI_##name)(moved_address(m, b), parts, n, t, peer, tag, c, i, q);           \
        remember_parts(*q, error, part_bytes(n, t), is_receive ? NULL : m, is_receive ? m : NULL);    \
        return error;                                                                                 \
    }

PARTITIONED(Psend_init, const void *, false)
PARTITIONED(Precv_init, void *, true)

EXPORT int MPI_Pready(int partition, MPI_Request request) {
    bring_out(request, partition, 1);
    return NEXT(MPI_Pready)(partition, request);
}

EXPORT int MPI_Pready_range(int low, int high, MPI_Request request) {
    bring_out(request, low, high - low + 1);
    return NEXT(MPI_Pready_range)(low, high, request);
}

// Some declare them as if they wrote to them.
#if defined(OPEN_MPI) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40003300)
#define PARTITIONS int
#else
#define PARTITIONS const int
#endif

EXPORT int MPI_Pready_list(int count, PARTITIONS partitions[], MPI_Request request) {
    for (int at = 0; at < count; at++) bring_out(request, partitions[at], 1);
    return NEXT(MPI_Pready_list)(count, partitions, request);
}

EXPORT int MPI_Parrived(MPI_Request request, int partition, int *flag) {
    int error = NEXT(MPI_Parrived)(request, partition, flag);
    if (error == MPI_SUCCESS && *flag) bring_in(request, partition);
    return error;
}

#endif

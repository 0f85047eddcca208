// Calls that do not support memory on a GPU: they are errors, unless the MPI itself supports it. And the calls by which a
// program queries the support of CUDA.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "collective/collective.h"

static const char *const UNSUPPORTED = "this call does not support memory on a GPU: copy it to the host first";

bool mpi_is_gpu_aware(void) {
    static int known = -1;
    if (known < 0) {
        int (*query)(void) = (int (*)(void))dlsym(RTLD_NEXT, "MPIX_Query_cuda_support");
        known = query != NULL && query() == 1;
    }
    return known == 1;
}

// The MPI can access what the processor can, as managed memory.
bool is_inaccessible(const void *address, MPI_Count count, MPI_Datatype type) {
    if (!causeway_comm_has_driver() || bytes_of(count, type) == 0 || mpi_is_gpu_aware()) return false;
    switch (location_of(address, count, type)) {
    case IN_HOST: return false;
    case IN_BOTH: return true;
    case ON_GPU: break;
    }
    return !causeway_comm_is_host_accessible((const void *)((uintptr_t)address + (uintptr_t)first_of(type)));
}

EXPORT int MPIX_Query_cuda_support(void) {
    return 1;
}

// The query of MPICH; 0 is CUDA.
EXPORT int MPIX_GPU_query_support(int kind, int *is_supported) {
    *is_supported = kind == 0;
    return MPI_SUCCESS;
}

// Partitioned messages.

#if HAS_MPI_4
#define PARTITIONED(name, B)                                                                           \
    EXPORT int MPI_##name(B b, int parts, MPI_Count n, MPI_Datatype t, int peer, int tag, MPI_Comm c,  \
                          MPI_Info i, MPI_Request *q) {                                                \
        if (is_inaccessible(b, parts * n, t)) return raise_error(c, "MPI_" #name, UNSUPPORTED);              \
        return PMPI_##name(b, parts, n, t, peer, tag, c, i, q);                                        \
    }

PARTITIONED(Psend_init, const void *)
PARTITIONED(Precv_init, void *)
#endif

// Packing in the external representation. The calls have no communicator.

#define EXTERNAL(suffix, N, A)                                                                                  \
    EXPORT int MPI_Pack_external##suffix(const char name[], const void *s, N n, MPI_Datatype t, void *r,        \
                                         A size, A *at) {                                                       \
        if (is_inaccessible(s, n, t) || is_inaccessible(r, size, MPI_BYTE))                                     \
            return raise_error(error_comm(), "MPI_Pack_external" #suffix, UNSUPPORTED);                               \
        return PMPI_Pack_external##suffix(name, s, n, t, r, size, at);                                          \
    }                                                                                                           \
    EXPORT int MPI_Unpack_external##suffix(const char name[], const void *s, A size, A *at, void *r, N n,       \
                                           MPI_Datatype t) {                                                    \
        if (is_inaccessible(s, size, MPI_BYTE) || is_inaccessible(r, n, t))                                     \
            return raise_error(error_comm(), "MPI_Unpack_external" #suffix, UNSUPPORTED);                             \
        return PMPI_Unpack_external##suffix(name, s, size, at, r, n, t);                                        \
    }

EXTERNAL(, int, MPI_Aint)

EXPORT int MPI_Buffer_attach(void *buffer, int bytes) {
    if (is_inaccessible(buffer, bytes, MPI_BYTE)) return raise_error(error_comm(), "MPI_Buffer_attach", UNSUPPORTED);
    return PMPI_Buffer_attach(buffer, bytes);
}

#if MPI_VERSION >= 4
EXTERNAL(_c, MPI_Count, MPI_Count)

EXPORT int MPI_Buffer_attach_c(void *buffer, MPI_Count bytes) {
    if (is_inaccessible(buffer, bytes, MPI_BYTE)) return raise_error(error_comm(), "MPI_Buffer_attach_c", UNSUPPORTED);
    return PMPI_Buffer_attach_c(buffer, bytes);
}
#endif

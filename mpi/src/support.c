// Support of memory on a GPU: what the MPI itself supports, and the calls by which a program queries it.

#define _GNU_SOURCE
#include <dlfcn.h>

#include "datatype/datatype.h"

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

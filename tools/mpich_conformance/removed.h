// Calls that MPI 3.0 has removed, and Open MPI with them: the tests of datatypes use some of them still.
#include <mpi.h>

#ifdef OPEN_MPI
#undef MPI_Type_hindexed
#undef MPI_Type_hvector
#undef MPI_Type_struct
#undef MPI_Type_extent
#undef MPI_Type_lb
#undef MPI_Type_ub
#define MPI_Type_hindexed MPI_Type_create_hindexed
#define MPI_Type_hvector MPI_Type_create_hvector
#define MPI_Type_struct MPI_Type_create_struct
#define MPI_Type_extent(type, extent) MPI_Type_get_extent(type, &(MPI_Aint){0}, extent)
#define MPI_Type_lb(type, lower) MPI_Type_get_extent(type, lower, &(MPI_Aint){0})
#define MPI_Type_ub(type, upper)                                   \
    ({                                                             \
        MPI_Aint lower_ = 0, extent_ = 0;                          \
        int error_ = MPI_Type_get_extent(type, &lower_, &extent_); \
        *(upper) = lower_ + extent_;                               \
        error_;                                                    \
    })
#endif

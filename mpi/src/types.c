// What a datatype's bytes are.

#include <stdlib.h>

#include "shim.h"

uint64_t bytes_of(MPI_Count count, MPI_Datatype type) {
    MPI_Count size = 0;
    // A count below 0 is an error, which the MPI tells.
    if (count <= 0) return 0;
    PMPI_Type_size_x(type, &size);
    return (uint64_t)size * (uint64_t)count;
}

int combiner_of(MPI_Datatype type, int *integers, int *addresses, int *types) {
    int combiner = MPI_COMBINER_NAMED;
#if MPI_VERSION >= 4
    // The old question is an error for types that were made by calls for large counts.
    MPI_Count many_integers = 0, many_addresses = 0, large = 0, many_types = 0;
    PMPI_Type_get_envelope_c(type, &many_integers, &many_addresses, &large, &many_types, &combiner);
    *integers = (int)many_integers;
    *addresses = (int)many_addresses;
    *types = (int)many_types;
    return large > 0 ? COMBINER_LARGE : combiner;
#else
    PMPI_Type_get_envelope(type, integers, addresses, types, &combiner);
    return combiner;
#endif
}

// The type that a type is made of, where it is a number of copies of another one.
static bool inner_of(MPI_Datatype type, MPI_Datatype *inner) {
    int integers, addresses, types, combiner = combiner_of(type, &integers, &addresses, &types);
    if ((combiner != MPI_COMBINER_DUP && combiner != MPI_COMBINER_CONTIGUOUS) || types != 1 || integers > 1)
        return false;
    int numbers[1];
    MPI_Aint places[1];
    return PMPI_Type_get_contents(type, integers, addresses, types, numbers, places, inner) == MPI_SUCCESS;
}

bool is_predefined(MPI_Datatype type) {
    int integers, addresses, types;
    switch (combiner_of(type, &integers, &addresses, &types)) {
    case MPI_COMBINER_NAMED:
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
    case MPI_COMBINER_F90_INTEGER: return true;
    default: return false;
    }
}

bool is_contiguous(MPI_Datatype type) {
    if (is_predefined(type)) {
        // Pairs such as MPI_DOUBLE_INT have gaps.
        MPI_Count size, lower, extent;
        PMPI_Type_size_x(type, &size);
        PMPI_Type_get_extent_x(type, &lower, &extent);
        return lower == 0 && size == extent;
    }
    MPI_Datatype inner;
    if (!inner_of(type, &inner)) return false;
    bool contiguous = is_contiguous(inner);
    if (!is_predefined(inner)) PMPI_Type_free(&inner);
    return contiguous;
}

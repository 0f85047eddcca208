// What a datatype's bytes are.

#include <limits.h>
#include <stdlib.h>

#include "shim.h"

uint64_t bytes_of(MPI_Count count, MPI_Datatype type) {
    MPI_Count size = 0;
    // A count below 0 is an error, which the MPI tells.
    if (count <= 0 || type == MPI_DATATYPE_NULL) return 0;
    PMPI_Type_size_x(type, &size);
    return (uint64_t)size * (uint64_t)count;
}

int combiner_of(MPI_Datatype type, struct envelope *envelope) {
    int combiner = MPI_COMBINER_NAMED;
    *envelope = (struct envelope){0};
#if MPI_VERSION >= 4
    // The old question is an error for types that were made by calls for large counts.
    PMPI_Type_get_envelope_c(type, &envelope->integers, &envelope->addresses, &envelope->large, &envelope->types,
                             &combiner);
#else
    int integers = 0, addresses = 0, types = 0;
    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    envelope->integers = integers;
    envelope->addresses = addresses;
    envelope->types = types;
#endif
    return combiner;
}

bool is_predefined(MPI_Datatype type) {
    struct envelope envelope;
    switch (combiner_of(type, &envelope)) {
    case MPI_COMBINER_NAMED:
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
    case MPI_COMBINER_F90_INTEGER: return true;
    default: return false;
    }
}

bool is_contiguous(MPI_Datatype type) {
    if (type == MPI_DATATYPE_NULL) return true;
    if (is_predefined(type)) {
        // Pairs such as MPI_DOUBLE_INT have gaps.
        MPI_Count size, lower, extent;
        PMPI_Type_size_x(type, &size);
        PMPI_Type_get_extent_x(type, &lower, &extent);
        return lower == 0 && size == extent;
    }
    struct runs *runs = hold_runs(type);
    bool contiguous = runs != NULL && has_no_gaps(runs);
    if (runs != NULL) drop_runs(runs);
    return contiguous;
}

bool make_narrow(MPI_Count *count, MPI_Datatype *type) {
    enum { BLOCK = 1 << 30 };
    if (MPI_VERSION >= 4 || *count <= INT_MAX) return false;
    MPI_Datatype blocks;
    int lengths[] = {1, (int)(*count % BLOCK)}, whole = (int)(*count / BLOCK);
    PMPI_Type_vector(whole, BLOCK, BLOCK, MPI_BYTE, &blocks);
    MPI_Aint displacements[] = {0, (MPI_Aint)whole * BLOCK};
    MPI_Datatype types[] = {blocks, MPI_BYTE};
    PMPI_Type_create_struct(2, lengths, displacements, types, type);
    PMPI_Type_commit(type);
    PMPI_Type_free(&blocks);
    *count = 1;
    return true;
}

// Reduction of RMA updates (MPI_Accumulate and its relatives), which are made in host memory.

#include <stdlib.h>
#include <string.h>

#include "../collective/collective.h"
#include "../datatype/datatype.h"
#include "window.h"

// The predefined type of which a type is made: of several it is the first, since updates take types of one alone.
static MPI_Datatype element_type(MPI_Datatype type) {
    if (is_predefined(type)) return type;
    struct contents contents;
    MPI_Datatype found = MPI_DATATYPE_NULL;
    if (!contents_of(type, &contents)) return found;
    for (int at = 0; at < contents.type_count && found == MPI_DATATYPE_NULL; at++)
        if (bytes_of(1, contents.types[at]) > 0) found = element_type(contents.types[at]);
    free_contents(&contents);
    return found;
}

bool is_for_windows(MPI_Op op) {
    const MPI_Op known[] = {MPI_MAX, MPI_MIN, MPI_SUM,  MPI_PROD, MPI_LAND,   MPI_BAND,   MPI_LOR,
                            MPI_BOR, MPI_LXOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC, MPI_REPLACE, MPI_NO_OP};
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (known[at] == op) return true;
    return false;
}

static const char *reduce(void *from, void *into, MPI_Count count, MPI_Datatype type, MPI_Op op) {
    enum { BLOCK = 1 << 20 };
    MPI_Count lower, extent;
    PMPI_Type_get_extent_x(type, &lower, &extent);
    for (MPI_Count at = 0; at < count; at += BLOCK) {
        int some = (int)(count - at < BLOCK ? count - at : BLOCK);
        if (PMPI_Reduce_local((char *)from + at * extent, (char *)into + at * extent, some, type, op) != MPI_SUCCESS)
            return "the operation does not support elements of this type";
    }
    return NULL;
}

// Elements with gaps, such as MPI_DOUBLE_INT, as the MPI has them.
static const char *reduce_with_gaps(const void *from, void *into, MPI_Count count, MPI_Datatype type, MPI_Op op) {
    MPI_Count lower, extent;
    PMPI_Type_get_extent_x(type, &lower, &extent);
    char *ours = calloc((size_t)count, (size_t)extent), *theirs = calloc((size_t)count, (size_t)extent);
    const char *message = ours == NULL || theirs == NULL ? "cannot allocate memory to reduce the elements" : NULL;
    if (message == NULL) message = copy_elements(ours, count, type, (void *)from, false);
    if (message == NULL) message = copy_elements(theirs, count, type, into, false);
    if (message == NULL) message = reduce(ours, theirs, count, type, op);
    if (message == NULL) message = copy_elements(theirs, count, type, into, true);
    free(ours);
    free(theirs);
    return message;
}

const char *combine(const void *from, void *into, uint64_t bytes, MPI_Datatype type, MPI_Op op) {
    if (op == MPI_REPLACE) {
        memcpy(into, from, bytes);
        return NULL;
    }
    MPI_Datatype element = element_type(type);
    if (element == MPI_DATATYPE_NULL) return "the datatype is not made of one predefined type";
    MPI_Count count = (MPI_Count)(bytes / bytes_of(1, element));
    if (is_contiguous(element)) return reduce((void *)from, into, count, element, op);
    return reduce_with_gaps(from, into, count, element, op);
}

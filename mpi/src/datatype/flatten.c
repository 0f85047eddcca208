// The bytes of a datatype's element: runs that lie one behind the other in the order in which they are sent.

#include <stdlib.h>
#include <string.h>

#include "datatype.h"

// How a type is made.
struct contents {
    int combiner;
    int *numbers;
    MPI_Aint *addresses;
    MPI_Datatype *types;
    int type_count;
};

static void free_contents(struct contents *contents) {
    for (int at = 0; at < contents->type_count; at++) {
        if (!is_predefined(contents->types[at])) PMPI_Type_free(&contents->types[at]);
    }
    free(contents->numbers);
    free(contents->addresses);
    free(contents->types);
}

static int contents_of(MPI_Datatype type, struct contents *contents) {
    int numbers, addresses, types;
    *contents = (struct contents){0};
    contents->combiner = combiner_of(type, &numbers, &addresses, &types);
    if (contents->combiner == COMBINER_LARGE) return -1;
    // One of Fortran's types of a given precision has no type inside, and neither has a structure of nothing.
    bool has_contents = types > 0 || contents->combiner == MPI_COMBINER_STRUCT;
    if (contents->combiner == MPI_COMBINER_NAMED || !has_contents) return 0;
    contents->numbers = calloc((size_t)numbers + 1, sizeof *contents->numbers);
    contents->addresses = calloc((size_t)addresses + 1, sizeof *contents->addresses);
    contents->types = calloc((size_t)types + 1, sizeof *contents->types);
    if (contents->numbers == NULL || contents->addresses == NULL || contents->types == NULL) {
        free_contents(contents);
        return -1;
    }
    contents->type_count = types;
    return PMPI_Type_get_contents(type, numbers, addresses, types, contents->numbers, contents->addresses,
                                  contents->types) == MPI_SUCCESS
               ? 0
               : -1;
}

// A predefined type: pairs have gaps, in front of the second part or behind it.
static int flatten_named(MPI_Datatype type, struct flat *flat) {
    // Pairs and complex numbers have parts, some of which are elements: the shortest ones are of 4 bytes, but
    // in pairs with gaps.
    flat->unit = is_contiguous(type) ? common_divisor(4, bytes_of(1, type)) : 1;
    if (type == MPI_SHORT_INT) return add_run(flat, 0, sizeof(short)) == 0 ? add_run(flat, 4, sizeof(int)) : -1;
    return add_run(flat, 0, bytes_of(1, type));
}

// Types that are made of copies of one type.
static int flatten_copies(const struct contents *contents, struct flat *flat) {
    MPI_Datatype inner = contents->types[0];
    const int *numbers = contents->numbers;
    const MPI_Aint *addresses = contents->addresses;
    MPI_Aint lower, extent;
    struct flat element = {0};
    PMPI_Type_get_extent(inner, &lower, &extent);
    int result = flatten(inner, &element);
    switch (result == 0 ? contents->combiner : MPI_COMBINER_NAMED) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED: result = repeat(flat, &element, 1, 0, 0); break;
    case MPI_COMBINER_CONTIGUOUS: result = repeat(flat, &element, numbers[0], 0, extent); break;
    case MPI_COMBINER_VECTOR:
        for (int at = 0; at < numbers[0] && result == 0; at++)
            result = repeat(flat, &element, numbers[1], (int64_t)at * numbers[2] * extent, extent);
        break;
    case MPI_COMBINER_HVECTOR:
        for (int at = 0; at < numbers[0] && result == 0; at++)
            result = repeat(flat, &element, numbers[1], at * addresses[0], extent);
        break;
    case MPI_COMBINER_INDEXED:
        for (int at = 0; at < numbers[0] && result == 0; at++)
            result = repeat(flat, &element, numbers[1 + at], numbers[1 + numbers[0] + at] * extent, extent);
        break;
    case MPI_COMBINER_HINDEXED:
        for (int at = 0; at < numbers[0] && result == 0; at++)
            result = repeat(flat, &element, numbers[1 + at], addresses[at], extent);
        break;
    case MPI_COMBINER_INDEXED_BLOCK:
        for (int at = 0; at < numbers[0] && result == 0; at++)
            result = repeat(flat, &element, numbers[1], numbers[2 + at] * extent, extent);
        break;
    case MPI_COMBINER_HINDEXED_BLOCK:
        for (int at = 0; at < numbers[0] && result == 0; at++)
            result = repeat(flat, &element, numbers[1], addresses[at], extent);
        break;
    case MPI_COMBINER_SUBARRAY: result = flatten_subarray(contents->numbers, &element, extent, flat); break;
    case MPI_COMBINER_DARRAY: result = flatten_darray(contents->numbers, &element, extent, flat); break;
    default: result = -1;
    }
    free(element.runs);
    return result;
}

static int flatten_struct(const struct contents *contents, struct flat *flat) {
    int result = 0;
    for (int at = 0; at < contents->numbers[0] && result == 0; at++) {
        MPI_Aint lower, extent;
        struct flat element = {0};
        PMPI_Type_get_extent(contents->types[at], &lower, &extent);
        result = flatten(contents->types[at], &element);
        if (result == 0)
            result = repeat(flat, &element, contents->numbers[1 + at], contents->addresses[at], extent);
        free(element.runs);
    }
    return result;
}

int flatten(MPI_Datatype type, struct flat *flat) {
    struct contents contents;
    if (contents_of(type, &contents) != 0) return -1;
    int result;
    if (contents.combiner == MPI_COMBINER_STRUCT)
        result = flatten_struct(&contents, flat);
    else if (contents.type_count == 0)
        result = flatten_named(type, flat);
    else
        result = flatten_copies(&contents, flat);
    free_contents(&contents);
    return result;
}

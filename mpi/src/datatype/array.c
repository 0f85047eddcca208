// Which elements of an array with several dimensions are in a part of it (MPI_Type_create_subarray), or in
// one process's share (MPI_Type_create_darray)? In each dimension it is the same indices everywhere, so that
// the runs are made from the dimension whose elements lie side by side on.

#include <stdlib.h>

#include "datatype.h"

// The indices of a dimension: `block` of them one behind the other, from `start` on, and so again after each
// `step`, all below `end`.
struct indices {
    int64_t size, start, block, step, end;
};

// Adds a dimension: elements that lie so many bytes from each other.
static int add_dimension(const struct flat *inner, const struct indices *indices, int64_t stride,
                         struct flat *outer) {
    int result = 0;
    for (int64_t at = indices->start; at < indices->end && result == 0; at += indices->step) {
        int64_t some = indices->end - at < indices->block ? indices->end - at : indices->block;
        result = repeat(outer, inner, some, at * stride, stride);
    }
    return result;
}

// An array whose dimensions are listed as the program has done it.
static int flatten_array(const struct indices *list, int dimensions, bool is_c, const struct flat *element,
                         int64_t extent, struct flat *flat) {
    struct flat inner = {0};
    int result = repeat(&inner, element, 1, 0, 0);
    int64_t stride = extent;
    for (int at = 0; at < dimensions && result == 0; at++) {
        const struct indices *indices = &list[is_c ? dimensions - 1 - at : at];
        struct flat outer = {0};
        result = add_dimension(&inner, indices, stride, &outer);
        stride *= indices->size;
        free(inner.runs);
        inner = outer;
    }
    if (result == 0) result = repeat(flat, &inner, 1, 0, 0);
    free(inner.runs);
    return result;
}

// The integers: the dimensions, their sizes, those of the part, where that begins, and the order.
int flatten_subarray(const int *integers, const struct flat *element, int64_t extent, struct flat *flat) {
    int dimensions = integers[0];
    const int *sizes = integers + 1, *parts = sizes + dimensions, *starts = parts + dimensions;
    struct indices *list = calloc((size_t)dimensions + 1, sizeof *list);
    if (list == NULL) return -1;
    for (int at = 0; at < dimensions; at++)
        list[at] = (struct indices){sizes[at], starts[at], parts[at], sizes[at], starts[at] + parts[at]};
    int result = flatten_array(list, dimensions, integers[1 + 3 * dimensions] == MPI_ORDER_C, element, extent,
                               flat);
    free(list);
    return result;
}

// The indices that the process has which is at this place of so many in a dimension.
static struct indices share_of(int64_t size, int distribution, int argument, int64_t place, int64_t places) {
    if (distribution == MPI_DISTRIBUTE_NONE) return (struct indices){size, 0, size, size, size};
    int64_t block = argument;
    if (argument == MPI_DISTRIBUTE_DFLT_DARG)
        block = distribution == MPI_DISTRIBUTE_BLOCK ? (size + places - 1) / places : 1;
    // One block for each process comes round once, where the program has not made them too short, which is an
    // error that the MPI has told.
    return (struct indices){size, place * block, block, places * block, size};
}

// The integers: the number of processes, which one it is, the dimensions, their sizes, how each is
// distributed, the blocks' lengths, the processes along each, and the order of the elements. Processes are
// always in the order of C.
int flatten_darray(const int *integers, const struct flat *element, int64_t extent, struct flat *flat) {
    int place = integers[1], dimensions = integers[2];
    const int *sizes = integers + 3, *distributions = sizes + dimensions;
    const int *arguments = distributions + dimensions, *places = arguments + dimensions;
    struct indices *list = calloc((size_t)dimensions + 1, sizeof *list);
    if (list == NULL) return -1;
    for (int at = dimensions - 1; at >= 0; at--) {
        list[at] = share_of(sizes[at], distributions[at], arguments[at], place % places[at], places[at]);
        place /= places[at];
    }
    int result =
        flatten_array(list, dimensions, places[dimensions] == MPI_ORDER_C, element, extent, flat);
    free(list);
    return result;
}

// Which elements of an array with several dimensions are in a part of it (MPI_Type_create_subarray), or in
// one process's share (MPI_Type_create_darray)? In each dimension it is the same indices everywhere, so that
// the tree is made from the dimension whose elements lie side by side on.

#include <stdlib.h>

#include "datatype.h"

// The indices of a dimension: `block` of them one behind the other, from `start` on, and so again after each
// `step`, all below `end`.
struct indices {
    int64_t size, start, block, step, end;
};

// A dimension of elements that lie so many bytes from each other, which become its own. Null where there is no memory.
static struct tree *dimension_of(struct tree *inner, const struct indices *indices, int64_t stride) {
    struct tree *tree = new_tree(0, 1);
    if (tree == NULL) {
        drop_tree(inner);
        return NULL;
    }
    inner->extent = stride;
    tree->inners[tree->inner_count++] = inner;
    tree->unit = inner->unit;
    int64_t all = indices->end - indices->start;
    bool has_whole = indices->block > 0 && indices->step > 0 && all >= indices->block;
    int64_t whole = has_whole ? (all - indices->block) / indices->step + 1 : 0;
    // The last block may be a shorter one.
    int64_t last = indices->start + whole * indices->step, rest = indices->end - last;
    struct part blocks = {indices->start * stride, indices->step * stride, (uint64_t)whole, (uint64_t)indices->block,
                          inner};
    struct part shorter = {last * stride, 0, 1, rest > 0 ? (uint64_t)rest : 0, inner};
    if ((whole == 0 || add_part(tree, blocks)) && add_part(tree, shorter)) return tree;
    drop_tree(tree);
    return NULL;
}

// An array whose dimensions are listed as the program has done it.
static struct tree *array_of(const struct indices *list, int64_t dimensions, bool is_c, struct tree *element,
                             int64_t extent) {
    struct tree *tree = element;
    int64_t stride = extent;
    for (int64_t at = 0; at < dimensions && tree != NULL; at++) {
        const struct indices *indices = &list[is_c ? dimensions - 1 - at : at];
        tree = dimension_of(tree, indices, stride);
        stride *= indices->size;
    }
    return tree;
}

// The numbers: the dimensions, their sizes, those of the part, where that begins, and the order.
struct tree *tree_of_subarray(const int64_t *numbers, struct tree *element, int64_t extent) {
    int64_t dimensions = numbers[0];
    const int64_t *sizes = numbers + 1, *parts = sizes + dimensions, *starts = parts + dimensions;
    struct indices *list = calloc((size_t)dimensions + 1, sizeof *list);
    if (list == NULL) {
        drop_tree(element);
        return NULL;
    }
    for (int64_t at = 0; at < dimensions; at++)
        list[at] = (struct indices){sizes[at], starts[at], parts[at], sizes[at], starts[at] + parts[at]};
    struct tree *tree = array_of(list, dimensions, numbers[1 + 3 * dimensions] == MPI_ORDER_C, element, extent);
    free(list);
    return tree;
}

// The indices that the process has which is at this place of so many in a dimension.
static struct indices share_of(int64_t size, int64_t distribution, int64_t argument, int64_t rank, int64_t psizes) {
    if (distribution == MPI_DISTRIBUTE_NONE) return (struct indices){size, 0, size, size, size};
    int64_t block = argument;
    if (argument == MPI_DISTRIBUTE_DFLT_DARG)
        block = distribution == MPI_DISTRIBUTE_BLOCK ? (size + psizes - 1) / psizes : 1;
    // One block for each process comes round once, where the program has not made them too short, which is an
    // error that the MPI has told.
    return (struct indices){size, rank * block, block, psizes * block, size};
}

// The numbers: the number of processes, which one it is, the dimensions, their sizes, how each is
// distributed, the blocks' lengths, the processes along each, and the order of the elements. Processes are
// always in the order of C.
struct tree *tree_of_darray(const int64_t *numbers, struct tree *element, int64_t extent) {
    int64_t rank = numbers[1], dimensions = numbers[2];
    const int64_t *sizes = numbers + 3, *distributions = sizes + dimensions;
    const int64_t *arguments = distributions + dimensions, *psizes = arguments + dimensions;
    struct indices *list = calloc((size_t)dimensions + 1, sizeof *list);
    if (list == NULL) {
        drop_tree(element);
        return NULL;
    }
    for (int64_t at = dimensions - 1; at >= 0; at--) {
        list[at] = share_of(sizes[at], distributions[at], arguments[at], rank % psizes[at], psizes[at]);
        rank /= psizes[at];
    }
    struct tree *tree = array_of(list, dimensions, psizes[dimensions] == MPI_ORDER_C, element, extent);
    free(list);
    return tree;
}

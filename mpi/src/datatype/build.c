// The tree of a datatype, from the calls that made it.

#include <stdlib.h>

#include "datatype.h"

// 0 and a number have that number.
static uint64_t common_divisor(uint64_t one, uint64_t other) {
    return other == 0 ? one : common_divisor(other, one % other);
}

static MPI_Aint extent_of(MPI_Datatype type) {
    MPI_Aint lower, extent = 0;
    PMPI_Type_get_extent(type, &lower, &extent);
    return extent;
}

static bool add_bytes(struct tree *tree, int64_t start, uint64_t bytes) {
    return add_part(tree, (struct part){start, 0, 1, bytes, NULL});
}

// A predefined type: pairs have gaps, in front of the second part or behind it.
static struct tree *tree_of_named(MPI_Datatype type) {
    struct tree *tree = new_tree(extent_of(type), 0);
    uint64_t bytes = bytes_of(1, type);
    if (tree == NULL) return NULL;
    bool is_right;
    if (type == MPI_SHORT_INT)
        is_right = add_bytes(tree, 0, sizeof(short)) && add_bytes(tree, 4, sizeof(int));
    else
        is_right = add_bytes(tree, 0, bytes);
    // Pairs and complex numbers have parts, some of which are elements: the shortest ones are of 4 bytes, but
    // in pairs with gaps.
    tree->unit = is_right && is_dense(tree) ? common_divisor(4, bytes) : 1;
    if (is_right) return tree;
    drop_tree(tree);
    return NULL;
}

// Blocks of one length, or of one each, at multiples of a unit of bytes.
static bool add_blocks(struct tree *tree, int64_t count, const int64_t *lengths, bool is_one_length,
                       const int64_t *displacements, int64_t unit) {
    const struct tree *inner = tree->inners[0];
    for (int64_t at = 0; at < count; at++) {
        uint64_t length = (uint64_t)lengths[is_one_length ? 0 : at];
        if (!add_part(tree, (struct part){displacements[at] * unit, 0, 1, length, inner})) return false;
    }
    return true;
}

// Types that are made of copies of one type, whose tree is the first inner one.
static bool add_copies(struct tree *tree, const struct contents *contents, int64_t extent) {
    const int64_t *numbers = contents->numbers, *addresses = contents->addresses;
    const struct tree *inner = tree->inners[0];
    uint64_t first = (uint64_t)numbers[0];
    switch (contents->combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED: return add_part(tree, (struct part){0, 0, 1, 1, inner});
    case MPI_COMBINER_CONTIGUOUS: return add_part(tree, (struct part){0, 0, 1, first, inner});
    case MPI_COMBINER_VECTOR:
        return add_part(tree, (struct part){0, numbers[2] * extent, first, (uint64_t)numbers[1], inner});
    case MPI_COMBINER_HVECTOR:
        return add_part(tree, (struct part){0, addresses[0], first, (uint64_t)numbers[1], inner});
    case MPI_COMBINER_INDEXED:
        return add_blocks(tree, numbers[0], numbers + 1, false, numbers + 1 + numbers[0], extent);
    case MPI_COMBINER_HINDEXED: return add_blocks(tree, numbers[0], numbers + 1, false, addresses, 1);
    case MPI_COMBINER_INDEXED_BLOCK: return add_blocks(tree, numbers[0], numbers + 1, true, numbers + 2, extent);
    case MPI_COMBINER_HINDEXED_BLOCK: return add_blocks(tree, numbers[0], numbers + 1, true, addresses, 1);
    default: return false;
    }
}

static struct tree *tree_of_array(const struct contents *contents, int64_t extent) {
    struct tree *element = tree_of(contents->types[0]);
    int64_t of_element = extent_of(contents->types[0]);
    if (element == NULL) return NULL;
    struct tree *tree = contents->combiner == MPI_COMBINER_SUBARRAY
                            ? tree_of_subarray(contents->numbers, element, of_element)
                            : tree_of_darray(contents->numbers, element, of_element);
    if (tree != NULL) tree->extent = extent;
    return tree;
}

// Whether there is a tree of each type inside.
static bool add_inners(struct tree *tree, const struct contents *contents) {
    for (int at = 0; at < contents->type_count; at++) {
        struct tree *inner = tree_of(contents->types[at]);
        if (inner == NULL) return false;
        tree->inners[tree->inner_count++] = inner;
    }
    return true;
}

static bool add_members(struct tree *tree, const struct contents *contents) {
    for (int at = 0; at < contents->type_count; at++) {
        uint64_t length = (uint64_t)contents->numbers[1 + at];
        struct part part = {contents->addresses[at], 0, 1, length, tree->inners[at]};
        if (length > 0) tree->unit = common_divisor(tree->unit, tree->inners[at]->unit);
        if (!add_part(tree, part)) return false;
    }
    return true;
}

static struct tree *tree_of_made(const struct contents *contents, int64_t extent) {
    struct tree *tree = new_tree(extent, (uint64_t)contents->type_count);
    if (tree == NULL) return NULL;
    bool is_right = add_inners(tree, contents);
    if (is_right && contents->combiner == MPI_COMBINER_STRUCT)
        is_right = add_members(tree, contents);
    else if (is_right)
        is_right = add_copies(tree, contents, extent_of(contents->types[0]));
    if (tree->bytes > 0 && contents->combiner != MPI_COMBINER_STRUCT) tree->unit = tree->inners[0]->unit;
    if (is_right) return tree;
    drop_tree(tree);
    return NULL;
}

struct tree *tree_of(MPI_Datatype type) {
    struct contents contents;
    if (!contents_of(type, &contents)) return NULL;
    struct tree *tree;
    if (contents.combiner == MPI_COMBINER_SUBARRAY || contents.combiner == MPI_COMBINER_DARRAY)
        tree = tree_of_array(&contents, extent_of(type));
    else if (contents.combiner == MPI_COMBINER_STRUCT || contents.type_count > 0)
        tree = tree_of_made(&contents, extent_of(type));
    else
        tree = tree_of_named(type);
    free_contents(&contents);
    return tree;
}

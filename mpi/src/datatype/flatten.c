// Datatypes: how a type is made, and the tree of the byte ranges of an element that it is flattened to.

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "datatype.h"
#include "tree.h"

// Queries of a type.

uint64_t bytes_of(MPI_Count count, MPI_Datatype type) {
    MPI_Count size = 0;
    // A negative count is an error, which the MPI reports.
    if (count <= 0 || type == MPI_DATATYPE_NULL) return 0;
    PMPI_Type_size_x(type, &size);
    return (uint64_t)size * (uint64_t)count;
}

int combiner_of(MPI_Datatype type, struct envelope *envelope) {
    int combiner = MPI_COMBINER_NAMED;
    *envelope = (struct envelope){0};
#if MPI_VERSION >= 4
    // The old query is an error for types that were made by calls for large counts.
    PMPI_Type_get_envelope_c(type, &envelope->integers, &envelope->addresses, &envelope->large,
                             &envelope->types, &combiner);
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

bool is_received_as_bytes(MPI_Datatype type) {
#ifdef MPICH_VERSION
    return in_job || !is_contiguous(type);
#else
    (void)type;
    return in_job;
#endif
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

// The tree.

struct tree *new_tree(int64_t extent, uint64_t inner_count) {
    struct tree *tree = calloc(1, sizeof *tree);
    if (tree == NULL) return NULL;
    tree->extent = extent;
    tree->inners = calloc(inner_count + 1, sizeof(struct tree *));
    if (tree->inners != NULL) return tree;
    free(tree);
    return NULL;
}

void drop_tree(struct tree *tree) {
    if (tree == NULL) return;
    for (uint64_t at = 0; at < tree->inner_count; at++) drop_tree(tree->inners[at]);
    free(tree->inners);
    free(tree->parts);
    free(tree);
}

// Whether an element is one run of bytes.
static bool is_run(const struct tree *tree) {
    return tree->count == 1 && tree->parts[0].inner == NULL && tree->parts[0].times == 1;
}

bool is_dense(const struct tree *tree) {
    if (tree->count == 0) return true;
    return is_run(tree) && tree->parts[0].start == 0 && tree->extent == (int64_t)tree->bytes;
}

// The same bytes, with fewer blocks and trees.
static struct part simplify(struct part part) {
    const struct tree *inner = part.inner;
    if (inner != NULL && is_run(inner) && (part.length == 1 || inner->extent == (int64_t)inner->bytes)) {
        part.start += inner->parts[0].start;
        part.length *= inner->bytes;
        part.inner = NULL;
    } else if (inner != NULL && is_run(inner) && part.times == 1) {
        part =
            (struct part){part.start + inner->parts[0].start, inner->extent, part.length, inner->bytes, NULL};
    } else if (inner != NULL && inner->count == 1 && part.times == 1 && part.length == 1) {
        int64_t start = part.start;
        part = inner->parts[0];
        part.start += start;
    }
    if (part.inner == NULL && part.times > 1 && part.stride == (int64_t)part.length) {
        part.length *= part.times;
        part.times = 1;
    }
    return part;
}

bool add_part(struct tree *tree, struct part part) {
    uint64_t each = part.inner != NULL ? part.inner->bytes : 1;
    if (part.times == 0 || part.length == 0 || each == 0) return true;
    tree->bytes += part.times * part.length * each;
    part = simplify(part);
    struct part *last = tree->count > 0 ? &tree->parts[tree->count - 1] : NULL;
    bool are_runs =
        last != NULL && last->inner == NULL && part.inner == NULL && last->times == 1 && part.times == 1;
    if (are_runs && last->start + (int64_t)last->length == part.start) {
        last->length += part.length;
        return true;
    }
    if (tree->count == tree->capacity) {
        uint64_t capacity = tree->capacity > 0 ? 2 * tree->capacity : 4;
        struct part *parts = realloc(tree->parts, capacity * sizeof *parts);
        if (parts == NULL) return false;
        tree->parts = parts;
        tree->capacity = capacity;
    }
    tree->parts[tree->count++] = part;
    return true;
}

static bool visit_block(const struct part *part, int64_t start, visit_run *visit, void *context) {
    if (part->inner == NULL) return visit(context, start, part->length);
    for (uint64_t at = 0; at < part->length; at++)
        if (!visit_runs(part->inner, start + (int64_t)at * part->inner->extent, visit, context)) return false;
    return true;
}

bool visit_runs(const struct tree *tree, int64_t base, visit_run *visit, void *context) {
    for (uint64_t at = 0; at < tree->count; at++) {
        const struct part *part = &tree->parts[at];
        for (uint64_t time = 0; time < part->times; time++)
            if (!visit_block(part, base + part->start + (int64_t)time * part->stride, visit, context))
                return false;
    }
    return true;
}

// The arguments of the call that made a type: the same form for calls with small counts, and with large ones
// (_c).

void free_contents(struct contents *contents) {
    for (int at = 0; at < contents->type_count; at++) {
        if (!is_predefined(contents->types[at])) PMPI_Type_free(&contents->types[at]);
    }
    free(contents->numbers);
    free(contents->addresses);
    free(contents->types);
}

static bool reserve(struct contents *contents, size_t numbers, size_t addresses, size_t types) {
    contents->numbers = calloc(numbers + 1, sizeof *contents->numbers);
    contents->addresses = calloc(addresses + 1, sizeof *contents->addresses);
    contents->types = calloc(types + 1, sizeof(MPI_Datatype));
    return contents->numbers != NULL && contents->addresses != NULL && contents->types != NULL;
}

static bool read_small(MPI_Datatype type, const struct envelope *envelope, struct contents *contents) {
    size_t count = (size_t)envelope->integers, address_count = (size_t)envelope->addresses;
    int *integers = calloc(count + 1, sizeof *integers);
    MPI_Aint *addresses = calloc(address_count + 1, sizeof *addresses);
    bool is_read = integers != NULL && addresses != NULL &&
                   PMPI_Type_get_contents(type, (int)count, (int)address_count, (int)envelope->types,
                                          integers, addresses, contents->types) == MPI_SUCCESS;
    for (size_t at = 0; at < count && is_read; at++) contents->numbers[at] = integers[at];
    for (size_t at = 0; at < address_count && is_read; at++) contents->addresses[at] = addresses[at];
    free(integers);
    free(addresses);
    return is_read;
}

#if MPI_VERSION >= 4

// So many of the counts are numbers, and the others addresses.
static void divide(const MPI_Count *counts, size_t numbers, size_t addresses, struct contents *contents) {
    for (size_t at = 0; at < numbers; at++) contents->numbers[at] = counts[at];
    for (size_t at = 0; at < addresses; at++) contents->addresses[at] = counts[numbers + at];
}

// An array's sizes are counts, and stand behind the first integers.
static void insert(const int *integers, size_t before, size_t behind, const MPI_Count *counts, size_t sizes,
                   struct contents *contents) {
    int64_t *number = contents->numbers;
    for (size_t at = 0; at < before; at++) *number++ = integers[at];
    for (size_t at = 0; at < sizes; at++) *number++ = counts[at];
    for (size_t at = 0; at < behind; at++) *number++ = integers[before + at];
}

static bool read_large(MPI_Datatype type, const struct envelope *envelope, struct contents *contents) {
    size_t integer_count = (size_t)envelope->integers, count = (size_t)envelope->large;
    int *integers = calloc(integer_count + 1, sizeof *integers);
    MPI_Aint *addresses = calloc((size_t)envelope->addresses + 1, sizeof *addresses);
    MPI_Count *counts = calloc(count + 1, sizeof *counts);
    bool is_read = integers != NULL && addresses != NULL && counts != NULL &&
                   PMPI_Type_get_contents_c(type, envelope->integers, envelope->addresses, envelope->large,
                                            envelope->types, integers, addresses, counts,
                                            contents->types) == MPI_SUCCESS;
    if (is_read) switch (contents->combiner) {
        case MPI_COMBINER_HVECTOR: divide(counts, 2, 1, contents); break;
        case MPI_COMBINER_HINDEXED:
        case MPI_COMBINER_STRUCT: divide(counts, (size_t)counts[0] + 1, (size_t)counts[0], contents); break;
        case MPI_COMBINER_HINDEXED_BLOCK: divide(counts, 2, (size_t)counts[0], contents); break;
        case MPI_COMBINER_SUBARRAY: insert(integers, 1, integer_count - 1, counts, count, contents); break;
        case MPI_COMBINER_DARRAY: insert(integers, 3, integer_count - 3, counts, count, contents); break;
        default: divide(counts, count, 0, contents);
        }
    free(integers);
    free(addresses);
    free(counts);
    return is_read;
}

#endif

bool contents_of(MPI_Datatype type, struct contents *contents) {
    struct envelope envelope;
    *contents = (struct contents){0};
    contents->combiner = combiner_of(type, &envelope);
    // One of Fortran's types of a given precision has no type inside, and neither has a structure of nothing.
    bool has_contents = envelope.types > 0 || contents->combiner == MPI_COMBINER_STRUCT;
    if (contents->combiner == MPI_COMBINER_NAMED || !has_contents) return true;
    size_t numbers = (size_t)(envelope.integers + envelope.large);
    bool is_read =
        reserve(contents, numbers, (size_t)(envelope.addresses + envelope.large), (size_t)envelope.types);
#if MPI_VERSION >= 4
    if (is_read && envelope.large > 0)
        is_read = read_large(type, &envelope, contents);
    else
#endif
        is_read = is_read && read_small(type, &envelope, contents);
    if (is_read)
        contents->type_count = (int)envelope.types;
    else
        free_contents(contents);
    return is_read;
}

// Parts of multi-dimensional arrays: MPI_Type_create_subarray and MPI_Type_create_darray. In each dimension
// the indices are the same everywhere, so the tree is built from the dimension with adjacent elements on.

// The indices of a dimension: `block` of them one behind the other, from `start` on, and so again after each
// `step`, all below `end`.
struct indices {
    int64_t size, start, block, step, end;
};

// A dimension of elements at a distance of so many bytes, which become its property. Null if there is no
// memory.
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
    struct part blocks = {indices->start * stride, indices->step * stride, (uint64_t)whole,
                          (uint64_t)indices->block, inner};
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
    struct tree *tree =
        array_of(list, dimensions, numbers[1 + 3 * dimensions] == MPI_ORDER_C, element, extent);
    free(list);
    return tree;
}

// The indices of the process with this coordinate of so many in a dimension.
static struct indices share_of(int64_t size, int64_t distribution, int64_t argument, int64_t rank,
                               int64_t psizes) {
    if (distribution == MPI_DISTRIBUTE_NONE) return (struct indices){size, 0, size, size, size};
    int64_t block = argument;
    if (argument == MPI_DISTRIBUTE_DFLT_DARG)
        block = distribution == MPI_DISTRIBUTE_BLOCK ? (size + psizes - 1) / psizes : 1;
    // One block for each process covers the dimension, unless the program has made them too short, which is
    // an error that the MPI has reported.
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

// The tree of a type, from the call that made it.

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
    case MPI_COMBINER_INDEXED_BLOCK:
        return add_blocks(tree, numbers[0], numbers + 1, true, numbers + 2, extent);
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

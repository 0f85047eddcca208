// What the files about datatypes share.
#ifndef CAUSEWAY_DATATYPE_H
#define CAUSEWAY_DATATYPE_H

#include "../shim.h"

// tree.c: the bytes of an element, as a tree.

struct tree;
// `times` blocks, the first of which begins at `start`, one every `stride` bytes. Each is `length` copies of the
// inner tree, or so many bytes where there is none.
struct part {
    int64_t start, stride;
    uint64_t times, length;
    const struct tree *inner;
};
// Parts, in the order in which they are sent. What is within a part lies in one of the inner trees, which are this
// tree's own.
struct tree {
    struct part *parts;
    struct tree **inners;
    uint64_t count, capacity, inner_count;
    // Of all parts together.
    uint64_t bytes;
    // From one element to the next.
    int64_t extent;
    // A number that divides the length of each element of a predefined type; 0 where there is none.
    uint64_t unit;
};
struct tree *new_tree(int64_t extent, uint64_t inner_count);
void drop_tree(struct tree *tree);
// Adds a part, to the last one where it follows that. Where it cannot be had, there is no memory: false.
bool add_part(struct tree *tree, struct part part);
// Whether the elements are bytes without gaps, and lie one behind the other.
bool is_dense(const struct tree *tree);
// Calls for each run of bytes of an element that lies at `base`, in the order in which they are sent, until one says
// false; says whether none has.
typedef bool visit_run(void *context, int64_t offset, uint64_t bytes);
bool visit_runs(const struct tree *tree, int64_t base, visit_run *visit, void *context);

// build.c: the tree of a type.

// Null: the type is made in a way that is not known, or there is no memory.
struct tree *tree_of(MPI_Datatype type);

// contents.c: how a type is made.

struct contents {
    int combiner;
    // As MPI_Type_get_contents gives them for a type that was made by a call for small counts. Displacements in bytes
    // and extents are addresses.
    int64_t *numbers, *addresses;
    MPI_Datatype *types;
    int type_count;
};
// False where they cannot be had. Otherwise they are to be freed.
bool contents_of(MPI_Datatype type, struct contents *contents);
void free_contents(struct contents *contents);

// array.c: parts of arrays, from the numbers with which their type was made. `element` is the array's, which becomes
// the tree's own. Null where there is no memory.

struct tree *tree_of_subarray(const int64_t *numbers, struct tree *element, int64_t extent);
struct tree *tree_of_darray(const int64_t *numbers, struct tree *element, int64_t extent);

#endif

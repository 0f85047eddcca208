// Datatypes: the interface between the files of this folder.
#ifndef CAUSEWAY_TREE_H
#define CAUSEWAY_TREE_H

#include "../interposer.h"

// flatten.c: the bytes of an element, as a tree.

struct tree;
// `times` blocks, the first of which begins at `start`, one every `stride` bytes. Each is `length` copies of
// the inner tree, or so many bytes if there is none.
struct part {
    int64_t start, stride;
    uint64_t times, length;
    const struct tree *inner;
};
// Parts, in the order in which they are sent. The inner trees belong to this tree.
struct tree {
    struct part *parts;
    struct tree **inners;
    uint64_t count, capacity, inner_count;
    // Of all parts together.
    uint64_t bytes;
    // From one element to the next.
    int64_t extent;
    // A number that divides the length of each element of a predefined type; 0 if there is none.
    uint64_t unit;
};
struct tree *new_tree(int64_t extent, uint64_t inner_count);
void drop_tree(struct tree *tree);
// Adds a part, to the last one if it is adjacent. False if there is no memory.
bool add_part(struct tree *tree, struct part part);
// Whether the elements are contiguous bytes.
bool is_dense(const struct tree *tree);
// Visits each run of bytes of an element at `base`, in the order in which they are sent, until a visit
// returns false; whether none has.
typedef bool visit_run(void *context, int64_t offset, uint64_t bytes);
bool visit_runs(const struct tree *tree, int64_t base, visit_run *visit, void *context);

// The tree of a type.

// Null if the type is made in a way that is not known, or there is no memory.
struct tree *tree_of(MPI_Datatype type);

// How a type is made.

struct contents {
    int combiner;
    // As MPI_Type_get_contents gives them for a type that was made by a call for small counts. Displacements
    // in bytes and extents are addresses.
    int64_t *numbers, *addresses;
    MPI_Datatype *types;
    int type_count;
};
// False if they cannot be determined. Otherwise they must be freed.
bool contents_of(MPI_Datatype type, struct contents *contents);
void free_contents(struct contents *contents);

// Parts of arrays, from the arguments with which their type was made. `element` is the array's, which becomes
// the property of the tree. Null if there is no memory.

struct tree *tree_of_subarray(const int64_t *numbers, struct tree *element, int64_t extent);
struct tree *tree_of_darray(const int64_t *numbers, struct tree *element, int64_t extent);

#endif

// What the files about datatypes share.
#ifndef CAUSEWAY_DATATYPE_H
#define CAUSEWAY_DATATYPE_H

#include "../shim.h"

// flatten.c: the bytes of an element, as runs.

struct flat {
    struct causeway_comm_run *runs;
    uint64_t count, room;
    // A number that divides the length of each element of a predefined type; 0 where there is none.
    uint64_t unit;
};
// 0, or -1: the type is made in a way that is not known, or has too many runs.
int flatten(MPI_Datatype type, struct flat *flat);
// Adds copies of a list, one every so many bytes. 0, or -1 where they are too many.
int repeat(struct flat *to, const struct flat *from, int64_t count, int64_t start, int64_t stride);

// array.c: parts of arrays, from the integers with which their type was made. `element` is the array's, which
// has this extent.

int flatten_subarray(const int *integers, const struct flat *element, int64_t extent, struct flat *flat);
int flatten_darray(const int *integers, const struct flat *element, int64_t extent, struct flat *flat);

#endif

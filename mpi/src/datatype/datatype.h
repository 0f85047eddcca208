// What the files about datatypes share.
#ifndef CAUSEWAY_DATATYPE_H
#define CAUSEWAY_DATATYPE_H

#include "../shim.h"

// flat.c: a list of runs.

struct flat {
    struct causeway_comm_run *runs;
    uint64_t count, room;
    // A number that divides the length of each element of a predefined type; 0 where there is none.
    uint64_t unit;
};
// Adds a run, to the last one where it follows that. 0, or -1: there are too many.
int add_run(struct flat *flat, int64_t offset, uint64_t bytes);
// 0 and a number have that number.
uint64_t common_divisor(uint64_t one, uint64_t other);
// Adds copies of a list, one every so many bytes. 0, or -1 where they are too many.
int repeat(struct flat *to, const struct flat *from, int64_t count, int64_t start, int64_t stride);

// flatten.c: the bytes of an element, as runs.

// 0, or -1: the type is made in a way that is not known, or has too many runs.
int flatten(MPI_Datatype type, struct flat *flat);

// array.c: parts of arrays, from the integers with which their type was made. `element` is the array's, which
// has this extent.

int flatten_subarray(const int *integers, const struct flat *element, int64_t extent, struct flat *flat);
int flatten_darray(const int *integers, const struct flat *element, int64_t extent, struct flat *flat);

#endif

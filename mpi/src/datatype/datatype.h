// What the files about datatypes share.
#ifndef CAUSEWAY_DATATYPE_H
#define CAUSEWAY_DATATYPE_H

#include "../shim.h"

// flatten.c: the bytes of an element, as runs.

struct flat {
    struct causeway_comm_run *runs;
    uint64_t count, room;
};
// 0, or -1: the type is made in a way that is not known, or has too many runs.
int flatten(MPI_Datatype type, struct flat *flat);

#endif

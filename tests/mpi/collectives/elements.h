// The MPI's predefined types and operations, and elements of them that are summed up and multiplied exactly.
#ifndef ELEMENTS_H
#define ELEMENTS_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

// What operations a type takes: whole numbers take all but MINLOC and MAXLOC.
enum class { WHOLE, REAL, COMPLEX, BOOLEAN, BYTES, PAIR, AFFINE };

struct type {
    const char *name;
    MPI_Datatype type;
    enum class class;
    // Of one part of an element: of both parts of a complex number, of the first one of a pair.
    size_t part;
    // Bytes of the second part of a pair, and where it begins.
    size_t second, second_at;
};
extern struct type types[];
extern int type_count;

struct operation {
    const char *name;
    MPI_Op op;
};
extern struct operation operations[];
extern int operation_count;

// Fills the tables, when the MPI has been initialised.
void make_elements(void);
void free_elements(void);
int fits(const struct operation *operation, const struct type *type);
// Fills elements with numbers that `next` gives.
void fill_elements(void *to, size_t count, const struct type *type, const struct operation *operation,
                   uint64_t (*next)(void));

#endif

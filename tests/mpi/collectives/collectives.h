// Random collective calls: the interface between the files of this program.
#ifndef COLLECTIVES_H
#define COLLECTIVES_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#include "elements.h"
#include "gpu.h"

enum { GUARD = 32, MAX_RANKS = 64 };

enum what {
    REDUCE,
    ALLREDUCE,
    SCAN,
    EXSCAN,
    REDUCE_SCATTER,
    REDUCE_SCATTER_BLOCK,
    REDUCE_LOCAL,
    REDUCTIONS,
    BCAST = REDUCTIONS,
    GATHER,
    GATHERV,
    SCATTER,
    SCATTERV,
    ALLGATHER,
    ALLGATHERV,
    ALLTOALL,
    ALLTOALLV,
    ALLTOALLW,
    NEIGHBOR_ALLGATHER,
    NEIGHBOR_ALLGATHERV,
    NEIGHBOR_ALLTOALL,
    NEIGHBOR_ALLTOALLV,
    NEIGHBOR_ALLTOALLW,
    WHATS
};
enum form { HOST_FORM, BLOCKING, LATER, OFTEN, LARGE, LARGE_LATER, LARGE_OFTEN, FORMS };

// A memory region with bytes behind it that must stay.
struct region {
    enum memory kind;
    // Bytes in front of it, so that it does not begin where its allocation does.
    size_t bytes, shift;
    unsigned char *before, *expected, *address;
};

struct lists {
    int counts[MAX_RANKS], places[MAX_RANKS];
    MPI_Count large_counts[MAX_RANKS];
    MPI_Aint large_places[MAX_RANKS];
    MPI_Datatype types[MAX_RANKS];
};

// Any mix; on GPUs, as calls that go from GPU to GPU need it; there, and of kinds that others can open.
enum place { ANYWHERE, ON_GPUS, FOR_ALL_KERNELS };

struct plan {
    enum what what;
    enum form form;
    const struct type *type;
    const struct operation *operation;
    MPI_Comm comm;
    const char *comm_name;
    int count, root, in_place;
    // Where all ranks have their memory.
    enum place place;
    // This rank's.
    struct lists out, in;
    struct region sent, received;
};

// The world, and its size.
extern int rank, ranks;
// The elements that a call has at most.
extern size_t longest;

// random.c: numbers that are the same at all ranks, and a rank's own.

void start_random(uint64_t seed);
uint64_t advance(uint64_t *state);
int common(int limit);
// A number that all ranks have, from which they make others.
uint64_t common_salt(void);
uint64_t own(void);

// regions.c: memory that a call reads or writes.

MPI_Aint extent_of(const struct type *type);
void fill_region(struct region *region, size_t elements, const struct plan *plan);
void drop_region(struct region *region);
int is_right(const struct region *region, const struct plan *plan, size_t skip_from, size_t skip_to);

// calls.c: makes the call in a form. HOST_FORM is the MPI's own.

void perform(const struct plan *plan, enum form form, void *out, void *in);

// plans.c: what the ranks call.

void make_comms(void);
// Chooses all but type, operation, form and place.
void choose(struct plan *plan);

#endif

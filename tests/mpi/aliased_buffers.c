// Collective calls that send from the place in which they receive, and messages that end within an element:
// what the MPI tells of the host's memory it must tell of a GPU's.
//
// aliased_buffers SEED ROUNDS: all ranks make the same calls, which follow from the seed.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "split_mix.h"

enum { CALLS = 15, MAX_COUNT = 1 << 17 };

static uint64_t state;
static int rank, ranks, wrong;

static int common(int limit) {
    return (int)(split_mix(&state) % (uint64_t)limit);
}

static int class_of(int error) {
    int class = MPI_SUCCESS;
    if (error != MPI_SUCCESS) MPI_Error_class(error, &class);
    return class;
}

// Whether only the root looks at both places.
static int is_rooted(int call) {
    return call < 5;
}

// A call of `count` numbers from each rank to each, for which there is room at `all`, and whose own part is
// sent from there, or received there. A shift of one number makes them two places.
static int make(int call, int *all, int count, int shift, MPI_Comm comm, int is_later) {
    int own, size, error = MPI_SUCCESS;
    MPI_Comm_rank(comm, &own);
    MPI_Comm_size(comm, &size);
    int counts[size], displacements[size];
    MPI_Datatype types[size];
    for (int at = 0; at < size; at++) {
        counts[at] = count;
        displacements[at] = (size - 1 - at) * count;
        types[at] = MPI_INT;
    }
    int *part = all + own * count + shift, *other = all + displacements[own] + shift, *same = all + shift;
    const MPI_Datatype t = MPI_INT;
    MPI_Request request = MPI_REQUEST_NULL;
#define MAKE(name, lower, ...)                             \
    if (is_later)                                          \
        error = MPI_I##lower(__VA_ARGS__, comm, &request); \
    else                                                   \
        error = MPI_##name(__VA_ARGS__, comm);             \
    break
    switch (call) {
    case 0: MAKE(Gather, gather, part, count, t, all, count, t, own);
    case 1: MAKE(Gatherv, gatherv, other, count, t, all, counts, displacements, t, own);
    case 2: MAKE(Scatter, scatter, all, count, t, part, count, t, own);
    case 3: MAKE(Scatterv, scatterv, all, counts, displacements, t, other, count, t, own);
    case 4: MAKE(Reduce, reduce, all, same, count, t, MPI_SUM, own);
    case 5: MAKE(Allgather, allgather, part, count, t, all, count, t);
    case 6: MAKE(Allgatherv, allgatherv, other, count, t, all, counts, displacements, t);
    case 7: MAKE(Alltoall, alltoall, all, count, t, same, count, t);
    case 8: MAKE(Alltoallv, alltoallv, all, counts, displacements, t, same, counts, displacements, t);
    case 9: MAKE(Alltoallw, alltoallw, all, counts, displacements, types, same, counts, displacements, types);
    case 10: MAKE(Allreduce, allreduce, all, same, count, t, MPI_SUM);
    case 11: MAKE(Reduce_scatter, reduce_scatter, all, same, counts, t, MPI_SUM);
    case 12: MAKE(Reduce_scatter_block, reduce_scatter_block, all, same, count, t, MPI_SUM);
    case 13: MAKE(Scan, scan, all, same, count, t, MPI_SUM);
    default: MAKE(Exscan, exscan, all, same, count, t, MPI_SUM);
    }
    if (error == MPI_SUCCESS) MPI_Wait(&request, MPI_STATUS_IGNORE);
    return error;
}

static void must_be(int found, int expected, int call, int count, const char *where) {
    if (found == expected) return;
    fprintf(stderr, "rank %d: call %d of %d numbers %s: error class %d and not %d\n", rank, call, count,
            where, found, expected);
    wrong = 1;
}

// The MPI tells alone, on the host's memory, whether such a call is an error. Where it is one, no rank waits
// for the others, which need not make it: of a rooted call they do not.
static void aliased_buffers(MPI_Comm alone, MPI_Comm world) {
    int call = common(CALLS), count = common(3) ? common(8) : common(MAX_COUNT), is_later = common(2);
    size_t bytes = ((size_t)count * (size_t)ranks + 1) * sizeof(int);
    int *host = calloc(1, bytes);
    int *device = gpu_allocate(DEVICE, bytes);
    int expected = class_of(make(call, host, count, 0, alone, is_later));
    gpu_copy(device, host, bytes);
    must_be(class_of(make(call, device, count, 0, alone, is_later)), expected, call, count, "alone");
    int is_alike = call != 1 && call != 3 && call != 6;
    if (is_alike) must_be(class_of(make(call, device, count, 1, alone, is_later)), 0, call, count, "beside");
    if (expected != MPI_SUCCESS && (!is_rooted(call) || rank == count % ranks))
        must_be(class_of(make(call, device, count, 0, world, is_later)), expected, call, count,
                "of all ranks");
    gpu_free(DEVICE, device, bytes);
    free(host);
}

// A message of so many bytes for a type of integers, or of shorter numbers too, with gaps.
static void cut(MPI_Comm world) {
    int bytes = common(40), has_short = common(2), is_later = common(2), places[] = {common(2), common(2)};
    int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks, error;
    MPI_Datatype parts[] = {MPI_INT, has_short ? MPI_SHORT : MPI_INT}, type;
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 8}, parts, &type);
    MPI_Type_commit(&type);
    char *out = gpu_allocate(places[0] ? DEVICE : HOST, 40),
         *in = gpu_allocate(places[1] ? DEVICE : HOST, 160);
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Isend(out, bytes, MPI_BYTE, right, 3, world, &requests[0]);
    if (is_later) {
        error = MPI_Irecv(in, 10, type, left, 3, world, &requests[1]);
        MPI_Type_free(&type);
        if (error == MPI_SUCCESS) error = MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    } else {
        error = MPI_Recv(in, 10, type, left, 3, world, MPI_STATUS_IGNORE);
        MPI_Type_free(&type);
    }
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
#ifdef MPICH_VERSION
    int expected = bytes % (has_short ? 2 : 4) ? MPI_ERR_TYPE : MPI_SUCCESS;
#else
    int expected = MPI_SUCCESS;
#endif
    must_be(class_of(error), expected, -1, bytes, "of a message");
    gpu_free(places[0] ? DEVICE : HOST, out, 40);
    gpu_free(places[1] ? DEVICE : HOST, in, 160);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    gpu_start();
    state = strtoull(argv[1], NULL, 0);
    MPI_Comm alone, world;
    MPI_Comm_dup(MPI_COMM_SELF, &alone);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_set_errhandler(alone, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    // Where it tells of one place, Open MPI 4.1.4 calls this one's handler, whatever the call's communicator.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int all = 0, rounds = atoi(argv[2]);
    for (int round = 0; round < rounds; round++) {
        aliased_buffers(alone, world);
        cut(world);
    }
    MPI_Comm_free(&alone);
    MPI_Comm_free(&world);
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0) printf("%d ranks found faults in %d rounds\n", all, rounds);
    return all != 0;
}

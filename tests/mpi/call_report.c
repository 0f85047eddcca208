// Collective calls for the report of CAUSEWAY_COMM_EXPLAIN.
#include <mpi.h>
#include <stdlib.h>

#include "gpu.h"

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    int rank, ranks, count = atoi(argv[1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    gpu_start_on(rank);
    size_t bytes = sizeof(int) * (size_t)count * (size_t)ranks;
    void *out = gpu_allocate(DEVICE, bytes), *in = gpu_allocate(DEVICE, bytes),
         *host = gpu_allocate(HOST, bytes);
    for (int at = 0; at < count * ranks; at++) ((int *)host)[at] = at;
    gpu_copy(out, host, bytes);
    for (int turn = 0; turn < 3; turn++) MPI_Allreduce(out, in, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(out, in, count / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(out, in, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int turn = 0; turn < 2; turn++) {
        MPI_Request request;
        MPI_Iallreduce(out, in, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Allreduce(rank == 1 ? host : out, in, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD);
    // Nobody frees what another one reads.
    MPI_Barrier(MPI_COMM_WORLD);
    gpu_free(DEVICE, out, bytes);
    gpu_free(DEVICE, in, bytes);
    gpu_free(HOST, host, bytes);
    MPI_Finalize();
    return 0;
}

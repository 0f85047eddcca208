// Ranks of an MPI program pass an array around in a ring, each time from GPU to GPU: the addresses that MPI_Sendrecv gets are of
// device memory. A kernel of each rank adds the rank's number to it, and the last rank has the sum of all.
#include <cstdio>
#include <cstdlib>
#include <mpi.h>

#define CHECK(call)                                                                        \
    do {                                                                                   \
        cudaError_t error = (call);                                                        \
        if (error != cudaSuccess) {                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error)); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                  \
        }                                                                                  \
    } while (0)

__global__ void add(int *values, int n, int more) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += more;
}

int main(int argc, char **argv) {
    const int n = 1 << 18;
    int rank, ranks, devices, *mine, *received;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaSetDevice(rank % devices));
    CHECK(cudaMalloc(&mine, n * sizeof(int)));
    CHECK(cudaMalloc(&received, n * sizeof(int)));
    CHECK(cudaMemset(mine, 0, n * sizeof(int)));

    for (int step = 0; step < ranks; step++) {
        add<<<n / 256, 256>>>(mine, n, rank + 1);
        CHECK(cudaGetLastError());
        // MPI knows nothing of streams: what is to be sent must be there.
        CHECK(cudaDeviceSynchronize());
        MPI_Sendrecv(mine, n, MPI_INT, (rank + 1) % ranks, 0, received, n, MPI_INT, (rank + ranks - 1) % ranks, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        int *sent = mine;
        mine = received;
        received = sent;
    }

    int *host = static_cast<int *>(malloc(n * sizeof(int)));
    CHECK(cudaMemcpy(host, mine, n * sizeof(int), cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < n; i++) wrong += host[i] != ranks * (ranks + 1) / 2;
    printf("rank %d of %d: %d numbers came around, %d are wrong\n", rank, ranks, n, wrong);
    MPI_Finalize();
    return wrong != 0;
}

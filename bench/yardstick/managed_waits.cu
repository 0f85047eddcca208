// Waits beside managed memory: a kernel of a microsecond and a wait for it, without managed memory, and beside managed memory
// that kernels have used, of several sizes. Then the same while each kernel writes a counter there, and all of it.
//
//     managed_waits [ROUNDS]
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                                          \
    do {                                                                                                                     \
        cudaError_t error = (call);                                                                                          \
        if (error != cudaSuccess) {                                                                                          \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(error));                                \
            exit(1);                                                                                                         \
        }                                                                                                                    \
    } while (0)

static double now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

__global__ void count(int *where) { *where += 1; }

__global__ void add(unsigned *values, size_t n, unsigned value) {
    for (size_t at = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; at < n; at += static_cast<size_t>(gridDim.x) * blockDim.x)
        values[at] += value;
}

// Microseconds of a kernel with a wait.
static double wait_time(int *counter, int rounds) {
    CHECK(cudaDeviceSynchronize());
    double start = now();
    for (int round = 0; round < rounds; round++) {
        count<<<1, 1>>>(counter);
        CHECK(cudaStreamSynchronize(0));
    }
    return (now() - start) / rounds * 1e6;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 200;
    int *counter;
    CHECK(cudaMalloc(&counter, sizeof *counter));
    wait_time(counter, 20);
    printf("none: launch and wait %.1f us\n", wait_time(counter, rounds));
    for (size_t mib : {2, 16, 128, 1024}) {
        unsigned *managed;
        size_t values = mib << 18;
        CHECK(cudaMallocManaged(&managed, values * 4));
        for (size_t at = 0; at < values; at += 1024) managed[at] = at;
        add<<<1024, 256>>>(managed, values, 0);
        wait_time(counter, 5);
        printf("%4zu MiB used by a kernel: launch and wait %.1f us", mib, wait_time(counter, rounds));
        wait_time(reinterpret_cast<int *>(managed), 2);
        printf(", counter there %.1f us", wait_time(reinterpret_cast<int *>(managed), rounds));
        CHECK(cudaDeviceSynchronize());
        double start = now();
        for (int round = 0; round < 3; round++) {
            add<<<1024, 256>>>(managed, values, 1);
            CHECK(cudaStreamSynchronize(0));
        }
        printf(", all of it written %.0f us", (now() - start) / 3 * 1e6);
        start = now();
        unsigned sum = 0;
        for (size_t at = 0; at < values; at += 16) sum += managed[at];
        printf(", read by the host %.0f us (%u)\n", (now() - start) * 1e6, sum);
        CHECK(cudaFree(managed));
    }
    return 0;
}

// A program that has reserved terabytes of addresses before it uses the GPU, as a JVM with ZGC does from 16 TiB on: memory
// of each kind works as in any other.
#include "check.h"

#include <cuda_runtime.h>
#include <sys/mman.h>

#define TIB (1ul << 40)

// Where servers place windows of addresses if nothing lies there.
static const unsigned long TAKEN[] = {16 * TIB, 32 * TIB, 48 * TIB};

__global__ void add(int *device, int *managed, int *pinned) {
    *device += 1;
    *managed += 2;
    *pinned += 3;
}

int main() {
    for (unsigned long start : TAKEN) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        void *found = mmap((void *)start, TIB, PROT_NONE, flags, -1, 0);
        REQUIRE(found == (void *)start, "1 TiB at %#lx is not free", start);
    }
    int *device, *managed, *pinned, *mapped, result;
    CHECK_CUDA(cudaMalloc(&device, 1 << 20));
    CHECK_CUDA(cudaMemset(device, 0, 1 << 20));
    CHECK_CUDA(cudaMallocManaged(&managed, 1 << 20));
    CHECK_CUDA(cudaHostAlloc(&pinned, 1 << 20, cudaHostAllocMapped));
    CHECK_CUDA(cudaHostGetDevicePointer(&mapped, pinned, 0));
    *managed = 5;
    *pinned = 6;
    add<<<1, 1>>>(device, managed, mapped);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaMemcpy(&result, device, sizeof(int), cudaMemcpyDeviceToHost));
    REQUIRE(result == 1 && *managed == 7 && *pinned == 9, "%d, %d and %d instead of 1, 7 and 9", result, *managed,
            *pinned);
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    void *pooled;
    CHECK_CUDA(cudaMallocAsync(&pooled, 4096, stream));
    CHECK_CUDA(cudaFreeAsync(pooled, stream));
    cudaIpcMemHandle_t handle;
    CHECK_CUDA(cudaIpcGetMemHandle(&handle, device));
    CHECK_CUDA(cudaFreeHost(pinned));
    CHECK_CUDA(cudaFree(managed));
    CHECK_CUDA(cudaFree(device));
    return pass();
}

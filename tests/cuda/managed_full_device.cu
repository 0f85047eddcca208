// Managed memory that a copy changes while a kernel fills the whole device and waits for the program: the wait for the copy
// must not need the device, and the program must find the bytes.  Natively it hangs (H200, driver 580.159); why is not known.
#include "check.h"

#include <cstring>
#include <vector>

constexpr size_t BYTES = (5 << 20) + 77;
constexpr int THREADS = 128;

__global__ void run_until(volatile int *flag, unsigned *arrived) {
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1U);
        while (*flag == 0);
    }
    __syncthreads();
}

__global__ void touch(unsigned char *bytes) { bytes[0] = 1; }

int main() {
    unsigned char *managed, *source;
    int *flag, *flag_on_device;
    unsigned *arrived;
    CHECK_CUDA(cudaMallocManaged(&managed, BYTES));
    CHECK_CUDA(cudaHostAlloc(&source, BYTES, cudaHostAllocDefault));
    CHECK_CUDA(cudaHostAlloc(&flag, sizeof *flag, cudaHostAllocMapped));
    CHECK_CUDA(cudaHostGetDevicePointer(&flag_on_device, flag, 0));
    CHECK_CUDA(cudaMalloc(&arrived, sizeof *arrived));
    CHECK_CUDA(cudaMemset(arrived, 0, sizeof *arrived));
    *flag = 0;
    touch<<<1, 1>>>(managed);
    CHECK_CUDA(cudaDeviceSynchronize());
    REQUIRE(managed[0] == 1, "%d", managed[0]);

    int processors, blocks;
    CHECK_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, run_until, THREADS, 0));
    cudaStream_t running, copying;
    CHECK_CUDA(cudaStreamCreateWithFlags(&running, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&copying, cudaStreamNonBlocking));
    run_until<<<processors * blocks, THREADS, 0, running>>>(flag_on_device, arrived);
    CHECK_CUDA(cudaGetLastError());
    // Wait until it has begun. A device that others use may not hold all of its blocks, which is as good here.
    for (unsigned seen = 0; seen == 0;) {
        CHECK_CUDA(cudaMemcpyAsync(&seen, arrived, sizeof seen, cudaMemcpyDeviceToHost, copying));
        CHECK_CUDA(cudaStreamSynchronize(copying));
    }
    for (int round = 1; round < 20; round++) {
        for (size_t at = 0; at < BYTES; at++) source[at] = static_cast<unsigned char>(at * 31 + round);
        size_t first = round % 3 == 0 ? 0 : 65536 * round + round, count = round % 3 == 1 ? 1000 : BYTES - first;
        CHECK_CUDA(cudaMemcpyAsync(managed + first, source + first, count, cudaMemcpyHostToDevice, copying));
        CHECK_CUDA(cudaStreamSynchronize(copying));
        REQUIRE(memcmp(managed + first, source + first, count) == 0, "round %d", round);
    }
    *static_cast<volatile int *>(flag) = 1;
    CHECK_CUDA(cudaDeviceSynchronize());
    unsigned all;
    CHECK_CUDA(cudaMemcpy(&all, arrived, sizeof all, cudaMemcpyDeviceToHost));
    REQUIRE(all == static_cast<unsigned>(processors * blocks), "%u of %d blocks", all, processors * blocks);
    return pass();
}

// An allocation that cannot be met is refused by the call that asked, whichever call that is, and everything else goes on.
#include "check.h"

#include <vector>

constexpr size_t MIB = size_t(1) << 20;

__global__ void fill(unsigned char *bytes, size_t count, unsigned char value) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) bytes[i] = value;
}

// A block of memory holds what a kernel writes there.
static void require_usable(void *block, size_t bytes, const char *what) {
    unsigned char last = 0;
    auto *end = static_cast<unsigned char *>(block) + bytes - 4096;
    fill<<<1, 256>>>(end, 4096, 77);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(&last, end + 4095, 1, cudaMemcpyDeviceToHost));
    REQUIRE(last == 77, "%s: the last byte is %d instead of 77", what, last);
}

// More than the device has, by every call that allocates.
static void check_more_than_there_is(size_t total) {
    void *block;
    cudaPitchedPtr pitched;
    size_t pitch;
    EXPECT_CUDA(cudaMalloc(&block, total + MIB), cudaErrorMemoryAllocation);
    EXPECT_CUDA(cudaMalloc(&block, size_t(1) << 50), cudaErrorMemoryAllocation);
    EXPECT_CUDA(cudaMallocPitch(&block, &pitch, size_t(1) << 30, total / (size_t(1) << 30) + 2), cudaErrorMemoryAllocation);
    EXPECT_CUDA(cudaMalloc3D(&pitched, make_cudaExtent(size_t(1) << 30, 2, total / (size_t(1) << 31) + 2)), cudaErrorMemoryAllocation);
    EXPECT_CUDA(cudaMallocAsync(&block, total + MIB, nullptr), cudaErrorMemoryAllocation);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaMalloc(&block, MIB));
    require_usable(block, MIB, "after refusals");
    CHECK_CUDA(cudaFree(block));
}

// Blocks of one size until one is refused; then memory that is freed can be had again.
static void check_until_it_is_full(size_t total) {
    const size_t size = total / 16 / MIB * MIB;
    std::vector<void *> blocks;
    cudaError_t error;
    for (;;) {
        void *block;
        error = cudaMalloc(&block, size);
        if (error != cudaSuccess) break;
        blocks.push_back(block);
        REQUIRE(blocks.size() <= 16, "%zu blocks of a sixteenth of all memory were given", blocks.size());
    }
    REQUIRE(error == cudaErrorMemoryAllocation, "a full device gave %s", cudaGetErrorName(error));
    (void)cudaGetLastError();
    REQUIRE(!blocks.empty(), "not even one block of %zu bytes was given", size);
    size_t free = 0, all = 0;
    CHECK_CUDA(cudaMemGetInfo(&free, &all));
    REQUIRE(all == total && free < total - (blocks.size() - 1) * size, "%zu of %zu bytes are free while %zu blocks of %zu are held", free, all,
            blocks.size(), size);
    for (void *block : blocks) require_usable(block, size, "a block of a full device");
    CHECK_CUDA(cudaFree(blocks.back()));
    void *again;
    CHECK_CUDA(cudaMalloc(&again, size));
    require_usable(again, size, "a block that was freed and given again");
    blocks.back() = again;
    for (void *block : blocks) CHECK_CUDA(cudaFree(block));
}

int main() {
    size_t free = 0, total = 0;
    CHECK_CUDA(cudaMemGetInfo(&free, &total));
    REQUIRE(free > 0 && free <= total, "%zu of %zu bytes are free", free, total);
    check_more_than_there_is(total);
    check_until_it_is_full(total);
    check_more_than_there_is(total);
    return pass();
}

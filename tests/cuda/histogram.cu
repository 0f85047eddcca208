// Histogram of bytes: each block counts in shared memory with shared atomics, then adds its counts to the global ones.
#include "check.h"

#include <vector>

constexpr int BINS = 256;

__global__ void count_bytes(const unsigned char *data, int n, unsigned *bins) {
    __shared__ unsigned block_bins[BINS];
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) block_bins[bin] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&block_bins[data[i]], 1);
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) atomicAdd(&bins[bin], block_bins[bin]);
}

int main() {
    const int n = 2'000'003;
    std::vector<unsigned char> data(n);
    std::vector<unsigned> expected(BINS), bins(BINS);
    uint32_t state = 5;
    for (unsigned char &byte : data) {
        // The product of two random bytes: some bins are far fuller than others, as atomics on one address would have it.
        byte = (next_random(&state) % 256) * (next_random(&state) % 256) / 256;
        expected[byte]++;
    }

    unsigned char *device_data;
    unsigned *device_bins;
    CHECK_CUDA(cudaMalloc(&device_data, n));
    CHECK_CUDA(cudaMalloc(&device_bins, BINS * sizeof(unsigned)));
    CHECK_CUDA(cudaMemcpy(device_data, data.data(), n, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemset(device_bins, 0, BINS * sizeof(unsigned)));
    count_bytes<<<64, 192>>>(device_data, n, device_bins);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(bins.data(), device_bins, BINS * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (int bin = 0; bin < BINS; bin++)
        REQUIRE(bins[bin] == expected[bin], "byte %d occurs %u times, %u were counted", bin, expected[bin], bins[bin]);
    CHECK_CUDA(cudaFree(device_data));
    CHECK_CUDA(cudaFree(device_bins));
    return pass();
}

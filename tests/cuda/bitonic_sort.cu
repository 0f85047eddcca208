// Bitonic sort of key and value pairs: short strides in shared memory, long ones in global memory, a launch each.
#include "check.h"

#include <algorithm>
#include <vector>

constexpr int COUNT = 1 << 15;
constexpr int PART = 512;  // elements that a block sorts in shared memory, with half as many threads

__device__ void order(unsigned &key_a, unsigned &value_a, unsigned &key_b, unsigned &value_b, bool ascending) {
    if ((key_a > key_b) != ascending) return;
    unsigned key = key_a, value = value_a;
    key_a = key_b, value_a = value_b;
    key_b = key, value_b = value;
}

// Sorts or merges within parts: all the strides of the lengths first_length .. last_length that fit in a part.
__global__ void sort_parts(unsigned *keys, unsigned *values, int first_length, int last_length) {
    __shared__ unsigned part_keys[PART], part_values[PART];
    int base = blockIdx.x * PART;
    for (int i = threadIdx.x; i < PART; i += blockDim.x) {
        part_keys[i] = keys[base + i];
        part_values[i] = values[base + i];
    }
    for (int length = first_length; length <= last_length; length *= 2)
        for (int stride = min(length, PART) / 2; stride > 0; stride /= 2) {
            __syncthreads();
            int a = 2 * threadIdx.x - (threadIdx.x & (stride - 1)), b = a + stride;
            order(part_keys[a], part_values[a], part_keys[b], part_values[b], ((base + a) & length) == 0);
        }
    __syncthreads();
    for (int i = threadIdx.x; i < PART; i += blockDim.x) {
        keys[base + i] = part_keys[i];
        values[base + i] = part_values[i];
    }
}

__global__ void merge_far(unsigned *keys, unsigned *values, int length, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int a = 2 * i - (i & (stride - 1)), b = a + stride;
    order(keys[a], values[a], keys[b], values[b], (a & length) == 0);
}

int main() {
    std::vector<unsigned> keys(COUNT), values(COUNT), sorted_keys(COUNT), sorted_values(COUNT);
    uint32_t state = 11;
    for (int i = 0; i < COUNT; i++) {
        keys[i] = next_random(&state) % 10'000;  // with many equal keys
        values[i] = i;
    }
    const size_t bytes = COUNT * sizeof(unsigned);
    unsigned *device_keys, *device_values;
    CHECK_CUDA(cudaMalloc(&device_keys, bytes));
    CHECK_CUDA(cudaMalloc(&device_values, bytes));
    CHECK_CUDA(cudaMemcpy(device_keys, keys.data(), bytes, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(device_values, values.data(), bytes, cudaMemcpyHostToDevice));
    sort_parts<<<COUNT / PART, PART / 2>>>(device_keys, device_values, 2, PART);
    CHECK_LAUNCH();
    for (int length = 2 * PART; length <= COUNT; length *= 2) {
        for (int stride = length / 2; stride >= PART; stride /= 2) {
            merge_far<<<COUNT / 2 / 256, 256>>>(device_keys, device_values, length, stride);
            CHECK_LAUNCH();
        }
        sort_parts<<<COUNT / PART, PART / 2>>>(device_keys, device_values, length, length);
        CHECK_LAUNCH();
    }
    CHECK_CUDA(cudaMemcpy(sorted_keys.data(), device_keys, bytes, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaMemcpy(sorted_values.data(), device_values, bytes, cudaMemcpyDeviceToHost));

    std::vector<unsigned> expected = keys;
    std::sort(expected.begin(), expected.end());
    std::vector<bool> seen(COUNT);
    for (int i = 0; i < COUNT; i++) {
        unsigned value = sorted_values[i];
        REQUIRE(sorted_keys[i] == expected[i], "key %d should be %u, came out as %u", i, expected[i], sorted_keys[i]);
        REQUIRE(value < COUNT && !seen[value] && keys[value] == sorted_keys[i], "value %u at %d does not belong to key %u",
                value, i, sorted_keys[i]);
        seen[value] = true;
    }
    CHECK_CUDA(cudaFree(device_keys));
    CHECK_CUDA(cudaFree(device_values));
    return pass();
}

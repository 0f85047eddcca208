// Exclusive prefix sum of any length: each block scans its part in shared memory (up-sweep and down-sweep, after Blelloch
// 1990), the sums of the parts are scanned in the same way, and then added to each part.
#include "check.h"

#include <vector>

constexpr int THREADS = 128;
constexpr int PART = 2 * THREADS;  // elements that a block scans

__global__ void scan_parts(const unsigned *in, unsigned *out, unsigned *part_sums, int n) {
    extern __shared__ unsigned part[];
    int first = blockIdx.x * PART + 2 * threadIdx.x;
    part[2 * threadIdx.x] = first < n ? in[first] : 0;
    part[2 * threadIdx.x + 1] = first + 1 < n ? in[first + 1] : 0;

    int stride = 1;
    for (int active = THREADS; active > 0; active /= 2, stride *= 2) {
        __syncthreads();
        if (threadIdx.x < active) {
            int left = stride * (2 * threadIdx.x + 1) - 1, right = left + stride;
            part[right] += part[left];
        }
    }
    if (threadIdx.x == 0) {
        part_sums[blockIdx.x] = part[PART - 1];
        part[PART - 1] = 0;
    }
    for (int active = 1; active <= THREADS; active *= 2) {
        stride /= 2;
        __syncthreads();
        if (threadIdx.x < active) {
            int left = stride * (2 * threadIdx.x + 1) - 1, right = left + stride;
            unsigned before = part[left];
            part[left] = part[right];
            part[right] += before;
        }
    }
    __syncthreads();
    if (first < n) out[first] = part[2 * threadIdx.x];
    if (first + 1 < n) out[first + 1] = part[2 * threadIdx.x + 1];
}

__global__ void add_part_sums(unsigned *out, const unsigned *part_sums, int n) {
    for (int i = threadIdx.x; i < PART; i += blockDim.x) {
        int at = blockIdx.x * PART + i;
        if (at < n) out[at] += part_sums[blockIdx.x];
    }
}

static void exclusive_scan(const unsigned *in, unsigned *out, int n) {
    int parts = (n + PART - 1) / PART;
    unsigned *sums, *scanned_sums;
    CHECK_CUDA(cudaMalloc(&sums, parts * sizeof(unsigned)));
    CHECK_CUDA(cudaMalloc(&scanned_sums, parts * sizeof(unsigned)));
    scan_parts<<<parts, THREADS, PART * sizeof(unsigned)>>>(in, out, sums, n);
    CHECK_LAUNCH();
    if (parts > 1) {
        exclusive_scan(sums, scanned_sums, parts);
        add_part_sums<<<parts, THREADS>>>(out, scanned_sums, n);
        CHECK_LAUNCH();
    }
    CHECK_CUDA(cudaFree(sums));
    CHECK_CUDA(cudaFree(scanned_sums));
}

int main() {
    for (int n : {1, 255, 256, 257, 200'001}) {
        std::vector<unsigned> values(n), result(n);
        uint32_t state = n;
        for (unsigned &value : values) value = next_random(&state);
        unsigned *in, *out;
        CHECK_CUDA(cudaMalloc(&in, n * sizeof(unsigned)));
        CHECK_CUDA(cudaMalloc(&out, n * sizeof(unsigned)));
        CHECK_CUDA(cudaMemcpy(in, values.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
        exclusive_scan(in, out, n);
        CHECK_CUDA(cudaMemcpy(result.data(), out, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
        unsigned sum = 0;
        for (int i = 0; i < n; i++) {
            REQUIRE(result[i] == sum, "of %d elements, number %d should be %u, came out as %u", n, i, sum, result[i]);
            sum += values[i];
        }
        CHECK_CUDA(cudaFree(in));
        CHECK_CUDA(cudaFree(out));
    }
    return pass();
}

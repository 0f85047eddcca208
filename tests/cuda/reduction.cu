// Sum, largest value and number of positive values of an array: shuffles and votes within a warp, shared memory between
// warps, atomics between blocks.
#include "check.h"

#include <climits>
#include <vector>

struct Totals {
    unsigned long long sum;  // two's complement of a signed sum
    int largest;
    int positives;
    double sum_of_roots;
};

template <typename T>
__device__ T warp_sum(T value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffff, value, offset);
    return value;
}

__device__ int warp_largest(int value) {
    for (int mask = 16; mask > 0; mask /= 2) value = max(value, __shfl_xor_sync(0xffffffff, value, mask));
    return value;
}

// Blocks of whole warps, at most 32 of them; every thread walks the array in strides of the grid.
__global__ void reduce(const int *values, int n, Totals *totals) {
    __shared__ long long sums[32];
    __shared__ double roots[32];
    __shared__ int largest[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    long long sum = 0;
    double root = 0;
    int best = INT_MIN, positives = 0;
    int stride = gridDim.x * blockDim.x;
    // The bound is the same for all threads of a warp, so that all 32 take part in every vote.
    int rounds = (n + stride - 1) / stride;
    for (int round = 0; round < rounds; round++) {
        int i = round * stride + blockIdx.x * blockDim.x + threadIdx.x;
        bool inside = i < n;
        int value = inside ? values[i] : 0;
        unsigned positive = __ballot_sync(0xffffffff, inside && value > 0);
        if (lane == 0) positives += __popc(positive);
        if (!inside) continue;
        sum += value;
        root += sqrt(fabs(double(value)));
        best = max(best, value);
    }
    sum = warp_sum(sum);
    root = warp_sum(root);
    best = warp_largest(best);
    if (lane == 0) {
        sums[warp] = sum;
        roots[warp] = root;
        largest[warp] = best;
        atomicAdd(&totals->positives, positives);
    }
    __syncthreads();
    if (warp != 0) return;
    sum = warp_sum(lane < warps ? sums[lane] : 0);
    root = warp_sum(lane < warps ? roots[lane] : 0.0);
    best = warp_largest(lane < warps ? largest[lane] : INT_MIN);
    if (lane == 0) {
        atomicAdd(&totals->sum, static_cast<unsigned long long>(sum));
        atomicAdd(&totals->sum_of_roots, root);
        atomicMax(&totals->largest, best);
    }
}

int main() {
    const int n = 1'000'001;
    std::vector<int> values(n);
    uint32_t state = 3;
    long long sum = 0;
    double roots = 0;
    int largest = INT_MIN, positives = 0;
    for (int &value : values) {
        value = int(next_random(&state)) - (1 << 23);
        sum += value;
        roots += sqrt(fabs(double(value)));
        largest = value > largest ? value : largest;
        positives += value > 0;
    }

    int *device_values;
    Totals *device_totals;
    Totals totals = {0, INT_MIN, 0, 0};
    CHECK_CUDA(cudaMalloc(&device_values, n * sizeof(int)));
    CHECK_CUDA(cudaMalloc(&device_totals, sizeof(Totals)));
    CHECK_CUDA(cudaMemcpy(device_values, values.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(device_totals, &totals, sizeof(Totals), cudaMemcpyHostToDevice));
    reduce<<<40, 256>>>(device_values, n, device_totals);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(&totals, device_totals, sizeof(Totals), cudaMemcpyDeviceToHost));

    REQUIRE((long long)totals.sum == sum, "the sum should be %lld, came out as %lld", sum, (long long)totals.sum);
    REQUIRE(totals.largest == largest, "the largest should be %d, came out as %d", largest, totals.largest);
    REQUIRE(totals.positives == positives, "%d are positive, %d were counted", positives, totals.positives);
    REQUIRE(is_close(totals.sum_of_roots, roots, 1e-10), "the sum of roots should be %.15g, came out as %.15g", roots,
            totals.sum_of_roots);
    CHECK_CUDA(cudaFree(device_values));
    CHECK_CUDA(cudaFree(device_totals));
    return pass();
}

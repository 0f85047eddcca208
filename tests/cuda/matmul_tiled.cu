// C = A * B by tiles in shared memory.  The matrices hold small whole numbers, so every sum is exact in float and the
// result must equal the CPU's to the bit, in whatever order the products are added.
#include "check.h"

#include <vector>

constexpr int TILE = 16;

// A is m x k, B is k x n, C is m x n, all row by row; none of the sizes need be a multiple of the tile.
__global__ void multiply(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int start = 0; start < k; start += TILE) {
        int inner_a = start + threadIdx.x, inner_b = start + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < m && inner_a < k ? a[row * k + inner_a] : 0;
        tile_b[threadIdx.y][threadIdx.x] = inner_b < k && column < n ? b[inner_b * n + column] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; i++) sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = sum;
}

int main() {
    const int m = 200, n = 184, k = 150;
    std::vector<float> a(m * k), b(k * n), c(m * n), expected(m * n);
    uint32_t state = 2;
    for (float &value : a) value = int(next_random(&state) % 17) - 8;
    for (float &value : b) value = int(next_random(&state) % 17) - 8;
    for (int row = 0; row < m; row++)
        for (int i = 0; i < k; i++)
            for (int column = 0; column < n; column++) expected[row * n + column] += a[row * k + i] * b[i * n + column];

    float *device_a, *device_b, *device_c;
    CHECK_CUDA(cudaMalloc(&device_a, a.size() * sizeof(float)));
    CHECK_CUDA(cudaMalloc(&device_b, b.size() * sizeof(float)));
    CHECK_CUDA(cudaMalloc(&device_c, c.size() * sizeof(float)));
    CHECK_CUDA(cudaMemcpy(device_a, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(device_b, b.data(), b.size() * sizeof(float), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemset(device_c, 0xff, c.size() * sizeof(float)));

    dim3 block(TILE, TILE), grid((n + TILE - 1) / TILE, (m + TILE - 1) / TILE);
    multiply<<<grid, block>>>(device_a, device_b, device_c, m, n, k);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(c.data(), device_c, c.size() * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < m * n; i++)
        REQUIRE(c[i] == expected[i], "C[%d][%d] should be %g, came out as %g", i / n, i % n, expected[i], c[i]);

    CHECK_CUDA(cudaFree(device_a));
    CHECK_CUDA(cudaFree(device_b));
    CHECK_CUDA(cudaFree(device_c));
    return pass();
}

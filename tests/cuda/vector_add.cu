// The first CUDA program: c = a + b, one thread an element.
#include "check.h"

#include <vector>

__global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

int main() {
    const int n = 1'000'003;  // no multiple of the block: the last block is partly idle
    const size_t bytes = n * sizeof(float);
    std::vector<float> a(n), b(n), c(n);
    uint32_t state = 1;
    for (int i = 0; i < n; i++) {
        a[i] = random_between(&state, -100, 100);
        b[i] = random_between(&state, -100, 100);
    }

    float *device_a, *device_b, *device_c;
    CHECK_CUDA(cudaMalloc(&device_a, bytes));
    CHECK_CUDA(cudaMalloc(&device_b, bytes));
    CHECK_CUDA(cudaMalloc(&device_c, bytes));
    CHECK_CUDA(cudaMemcpy(device_a, a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(device_b, b.data(), bytes, cudaMemcpyHostToDevice));

    const int block = 256;
    add<<<(n + block - 1) / block, block>>>(device_a, device_b, device_c, n);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(c.data(), device_c, bytes, cudaMemcpyDeviceToHost));

    for (int i = 0; i < n; i++)
        REQUIRE(c[i] == a[i] + b[i], "element %d: %g + %g came out as %g", i, a[i], b[i], c[i]);
    CHECK_CUDA(cudaFree(device_a));
    CHECK_CUDA(cudaFree(device_b));
    CHECK_CUDA(cudaFree(device_c));

    cudaDeviceProp properties;
    CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
    printf("%d sums computed on %s, all equal to the CPU's\n", n, properties.name);
    return pass();
}

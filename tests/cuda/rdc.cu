// Relocatable device code: kernels, device functions, a device variable and constant memory used across two parts.
#include "rdc.h"

#include "check.h"

#include <vector>

__constant__ Shape shape;

__device__ __noinline__ float negate(float x) { return -x; }

__global__ void evaluate_all(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = evaluate(in[i]);
    if (i == 0) atomicAdd(&evaluations, 1000000ull);
}

int main() {
    const int n = 5'000;
    const size_t bytes = n * sizeof(float);
    std::vector<float> in(n), out(n);
    for (int i = 0; i < n; i++) in[i] = i % 50;
    float *device_in, *device_out, *device_negated;
    CHECK_CUDA(cudaMalloc(&device_in, bytes));
    CHECK_CUDA(cudaMalloc(&device_out, bytes));
    CHECK_CUDA(cudaMalloc(&device_negated, bytes));
    CHECK_CUDA(cudaMemcpy(device_in, in.data(), bytes, cudaMemcpyHostToDevice));
    const Shape cubic = {0.5f, 3};
    CHECK_CUDA(cudaMemcpyToSymbol(shape, &cubic, sizeof(cubic)));

    evaluate_all<<<(n + 127) / 128, 128>>>(device_in, device_out, n);
    CHECK_LAUNCH();
    negate_all<<<(n + 127) / 128, 128>>>(device_out, device_negated, n);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(out.data(), device_negated, bytes, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        float want = -0.5f * in[i] * in[i] * in[i];
        REQUIRE(out[i] == want, "element %d should be %g, came out as %g", i, want, out[i]);
    }
    unsigned long long count = 0;
    CHECK_CUDA(cudaMemcpyFromSymbol(&count, evaluations, sizeof(count)));
    REQUIRE(count == 1000000ull + n, "the shared variable should be %llu, is %llu", 1000000ull + n, count);
    CHECK_CUDA(cudaFree(device_in));
    CHECK_CUDA(cudaFree(device_out));
    CHECK_CUDA(cudaFree(device_negated));
    return pass();
}

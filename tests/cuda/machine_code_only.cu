// A program that was built for one architecture alone, without PTX: on any other the launch says so, and the rest of CUDA works.
#include "check.h"

// nvcc is told to make machine code for compute capability 7.5 and nothing else.
constexpr int BUILT_FOR_MAJOR = 7;

__global__ void set(int *value) { *value = 42; }

int main() {
    int major = 0, *device, value = 7;
    CHECK_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK_CUDA(cudaMalloc(&device, sizeof(value)));
    CHECK_CUDA(cudaMemcpy(device, &value, sizeof(value), cudaMemcpyHostToDevice));
    cudaError_t expected = major == BUILT_FOR_MAJOR ? cudaSuccess : cudaErrorNoKernelImageForDevice;
    for (int i = 0; i < 2; i++) {
        set<<<1, 1>>>(device);
        cudaError_t error = cudaGetLastError();
        REQUIRE(error == expected, "launch %d gave %s instead of %s", i, cudaGetErrorName(error), cudaGetErrorName(expected));
    }
    cudaFuncAttributes attributes;
    EXPECT_CUDA(cudaFuncGetAttributes(&attributes, set), expected);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaMemcpy(&value, device, sizeof(value), cudaMemcpyDeviceToHost));
    REQUIRE(value == (expected == cudaSuccess ? 42 : 7), "the value is %d", value);
    CHECK_CUDA(cudaFree(device));
    return pass();
}

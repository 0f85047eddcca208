// The shortest way from a program's start to a kernel: what a session costs before anything is computed can be counted with it.
#include "check.h"

__global__ void add_one(int *value) { *value += 1; }

int main() {
    int *device, value = 41;
    CHECK_CUDA(cudaMalloc(&device, sizeof(value)));
    CHECK_CUDA(cudaMemcpy(device, &value, sizeof(value), cudaMemcpyHostToDevice));
    add_one<<<1, 1>>>(device);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(&value, device, sizeof(value), cudaMemcpyDeviceToHost));
    REQUIRE(value == 42, "41 and 1 gave %d", value);
    return pass();
}

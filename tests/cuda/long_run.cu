// Launches and copies without end, or for as many seconds as the first argument says, checking every result.  It prints
// "running" as soon as the device is in use, so that a test knows when to kill it, its server or its worker.
#include "check.h"

#include <chrono>
#include <cstdlib>
#include <vector>

constexpr int COUNT = 50'000;

__global__ void step(unsigned *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) data[i] = data[i] * 3 + 1;
}

int main(int count, char **arguments) {
    const double seconds = count > 1 ? atof(arguments[1]) : INFINITY;
    const auto start = std::chrono::steady_clock::now();
    std::vector<unsigned> data(COUNT), expected(COUNT);
    for (int i = 0; i < COUNT; i++) data[i] = expected[i] = i;
    const size_t bytes = COUNT * sizeof(unsigned);
    unsigned *device;
    CHECK_CUDA(cudaMalloc(&device, bytes));
    for (long round = 0;; round++) {
        CHECK_CUDA(cudaMemcpy(device, data.data(), bytes, cudaMemcpyHostToDevice));
        for (int i = 0; i < 10; i++) {
            step<<<(COUNT + 255) / 256, 256>>>(device);
            CHECK_LAUNCH();
            for (unsigned &value : expected) value = value * 3 + 1;
        }
        CHECK_CUDA(cudaMemcpy(data.data(), device, bytes, cudaMemcpyDeviceToHost));
        for (int i = 0; i < COUNT; i++)
            REQUIRE(data[i] == expected[i], "round %ld: element %d should be %u, is %u", round, i, expected[i], data[i]);
        if (round == 0) {
            printf("running\n");
            fflush(stdout);
        }
        if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds) break;
    }
    CHECK_CUDA(cudaFree(device));
    return pass();
}

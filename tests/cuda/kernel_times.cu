// How long kernels of several lengths take, by events around each launch: a line `busy STEPS: MICROSECONDS` a launch, in the
// order of the launches.  `causeway trace` must say the same of them.  With a number as argument there are so many rounds.
#include "check.h"

#include <cstdlib>

constexpr int THREADS = 32;

__global__ void busy(float *values, float factor, int steps) {
    float value = values[threadIdx.x];
    for (int i = 0; i < steps; i++) value = fmaf(value, factor, 1.0f);
    values[threadIdx.x] = value;
}

int main(int count, char **arguments) {
    const int rounds = count > 1 ? atoi(arguments[1]) : 2;
    uint32_t state = (uint32_t)getpid();
    const float factor = random_between(&state, 0.1f, 0.9f);
    float values[THREADS], expected[THREADS], *device;
    for (int i = 0; i < THREADS; i++) values[i] = expected[i] = random_between(&state, -10, 10);
    cudaStream_t stream;
    cudaEvent_t before, after;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreate(&before));
    CHECK_CUDA(cudaEventCreate(&after));
    CHECK_CUDA(cudaMalloc(&device, sizeof values));
    CHECK_CUDA(cudaMemcpy(device, values, sizeof values, cudaMemcpyHostToDevice));
    for (int round = 0; round < rounds; round++) {
        for (int steps : {10'000, 50'000, 250'000}) {
            CHECK_CUDA(cudaEventRecord(before, stream));
            busy<<<1, THREADS, 0, stream>>>(device, factor, steps);
            CHECK_LAUNCH();
            CHECK_CUDA(cudaEventRecord(after, stream));
            CHECK_CUDA(cudaEventSynchronize(after));
            float milliseconds;
            CHECK_CUDA(cudaEventElapsedTime(&milliseconds, before, after));
            printf("busy %d: %.1f\n", steps, milliseconds * 1e3);
            for (float &value : expected)
                for (int i = 0; i < steps; i++) value = fmaf(value, factor, 1.0f);
        }
    }
    CHECK_CUDA(cudaMemcpy(values, device, sizeof values, cudaMemcpyDeviceToHost));
    for (int i = 0; i < THREADS; i++)
        REQUIRE(values[i] == expected[i], "thread %d: %.9g, and by the CPU %.9g", i, values[i], expected[i]);
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaEventDestroy(before));
    CHECK_CUDA(cudaEventDestroy(after));
    CHECK_CUDA(cudaStreamDestroy(stream));
    return pass();
}

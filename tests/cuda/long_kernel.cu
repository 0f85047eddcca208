// A kernel that takes as many seconds as the first argument says, 1 if there is none. The host waits meanwhile and says nothing.
// With a second argument there are so many, all launched at once, and a line for each that has ended.
#include "check.h"

#include <cstdlib>
#include <vector>

__device__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__global__ void busy(unsigned long long duration, unsigned *done) {
    const unsigned long long start = nanoseconds();
    while (nanoseconds() - start < duration) __nanosleep(100'000);
    *done = 1;
}

int main(int count, char **arguments) {
    const double seconds = count > 1 ? atof(arguments[1]) : 1;
    unsigned *device, done = 0;
    CHECK_CUDA(cudaMalloc(&device, sizeof done));
    CHECK_CUDA(cudaMemset(device, 0, sizeof done));
    CHECK_CUDA(cudaDeviceSynchronize());
    printf("begins\n");
    fflush(stdout);
    const int launches = count > 2 ? atoi(arguments[2]) : 1;
    std::vector<cudaEvent_t> ends(launches);
    for (cudaEvent_t &end : ends) {
        CHECK_CUDA(cudaEventCreateWithFlags(&end, cudaEventDisableTiming));
        busy<<<1, 1>>>((unsigned long long)(seconds * 1e9), device);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaEventRecord(end));
    }
    for (int i = 0; i < launches && launches > 1; i++) {
        CHECK_CUDA(cudaEventSynchronize(ends[i]));
        printf("kernel %d\n", i + 1);
        fflush(stdout);
    }
    CHECK_CUDA(cudaMemcpy(&done, device, sizeof done, cudaMemcpyDeviceToHost));
    REQUIRE(done == 1, "the kernel left %u, not 1", done);
    return pass();
}

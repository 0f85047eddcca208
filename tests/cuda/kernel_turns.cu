// Kernels one after the other, and a line for each that has ended: how fast they follow each other while other programs use
// the device. Arguments: how long a kernel takes (milliseconds, 2 if there is none), for how long kernels are launched
// (seconds, 0.2), and how many are launched ahead (2; with 1 the host waits for each).
#include "check.h"

#include <chrono>
#include <cstdlib>
#include <vector>

__device__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__global__ void busy(unsigned long long duration, unsigned *count) {
    const unsigned long long start = nanoseconds();
    while (nanoseconds() - start < duration) __nanosleep(20'000);
    *count += 1;
}

int main(int count, char **arguments) {
    const double milliseconds = count > 1 ? atof(arguments[1]) : 2, seconds = count > 2 ? atof(arguments[2]) : 0.2;
    const int ahead = count > 3 ? atoi(arguments[3]) : 2;
    REQUIRE(ahead >= 1 && milliseconds > 0, "%d launches ahead, kernels of %g ms", ahead, milliseconds);
    unsigned *device, found = 0;
    CHECK_CUDA(cudaMalloc(&device, sizeof found));
    CHECK_CUDA(cudaMemset(device, 0, sizeof found));
    std::vector<cudaEvent_t> ends(ahead);
    for (cudaEvent_t &end : ends) CHECK_CUDA(cudaEventCreateWithFlags(&end, cudaEventDisableTiming));
    unsigned launched = 0, ended = 0;
    const auto start = std::chrono::steady_clock::now();
    const auto is_time = [&] { return std::chrono::steady_clock::now() - start < std::chrono::duration<double>(seconds); };
    for (bool goes_on = true; goes_on || ended < launched;) {
        goes_on = goes_on && is_time();
        if (goes_on && launched - ended < unsigned(ahead)) {
            busy<<<1, 1>>>((unsigned long long)(milliseconds * 1e6), device);
            CHECK_LAUNCH();
            CHECK_CUDA(cudaEventRecord(ends[launched++ % ahead]));
            continue;
        }
        if (ended == launched) break;
        CHECK_CUDA(cudaEventSynchronize(ends[ended++ % ahead]));
        printf("kernel %u\n", ended);
        fflush(stdout);
    }
    CHECK_CUDA(cudaMemcpy(&found, device, sizeof found, cudaMemcpyDeviceToHost));
    REQUIRE(found == launched, "%u kernels of %u have run", found, launched);
    return pass();
}

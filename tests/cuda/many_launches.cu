// Ten thousand small launches with ten waits among them, the last of which fetches the result: what a program costs that
// launches much and asks little.  Over a long network its time must grow with the waits, not with the launches.
//
// many_launches [launches between two waits] [waits]
#include "check.h"

#include <chrono>
#include <cstdlib>

__global__ void count_launch(unsigned *launches) { *launches += 1; }

static double seconds() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
    unsigned between = argc > 1 ? strtoul(argv[1], nullptr, 10) : 1000;
    unsigned waits = argc > 2 ? strtoul(argv[2], nullptr, 10) : 10;
    double begun = seconds();
    unsigned *counter;
    CHECK_CUDA(cudaMalloc(&counter, sizeof *counter));
    CHECK_CUDA(cudaMemset(counter, 0, sizeof *counter));
    double allocated = seconds();
    printf("the first of %u launches begins\n", between * waits);
    fflush(stdout);
    unsigned counted = 0;
    for (unsigned wait = 1; wait <= waits; wait++) {
        for (unsigned i = 0; i < between; i++) count_launch<<<1, 1>>>(counter);
        CHECK_CUDA(cudaGetLastError());
        if (wait < waits) CHECK_CUDA(cudaDeviceSynchronize());
    }
    CHECK_CUDA(cudaMemcpy(&counted, counter, sizeof counted, cudaMemcpyDeviceToHost));
    double launched = seconds();
    REQUIRE(counted == between * waits, "%u launches were counted, not %u", counted, between * waits);
    printf("start %.6f s, %u launches with %u waits %.6f s\n", allocated - begun, between * waits, waits, launched - allocated);
    return pass();
}

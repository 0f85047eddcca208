// What one process does wrong must not be felt by another that uses the same GPU: neighbours fault in several ways while this process
// computes, and each of them gets its own error.
#include "check.h"

#include <cassert>
#include <cstdlib>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <vector>

constexpr int COUNT = 100'000;

__global__ void step(int *values, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] += i;
}

__global__ void write_to(int *where) { *where = 1; }

__global__ void trap_always() { __trap(); }

__global__ void assert_false(int zero) { assert(zero == 1); }

// The life of a neighbour: it computes, faults, and must be told so.
static void be_faulty(const std::string &how) {
    int *device;
    CHECK_CUDA(cudaMalloc(&device, COUNT * sizeof(int)));
    step<<<(COUNT + 255) / 256, 256>>>(device, COUNT);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    cudaError_t expected;
    if (how == "illegal_address") {
        write_to<<<1, 1>>>(reinterpret_cast<int *>(0x40));
        expected = cudaErrorIllegalAddress;
    } else if (how == "trap") {
        trap_always<<<1, 1>>>();
        expected = cudaErrorLaunchFailure;
    } else {
        assert_false<<<1, 1>>>(0);
        expected = cudaErrorAssert;
    }
    CHECK_LAUNCH();
    cudaError_t error = cudaDeviceSynchronize();
    REQUIRE(error == expected, "%s gave %s instead of %s", how.c_str(), cudaGetErrorName(error), cudaGetErrorName(expected));
}

static pid_t start(const char *how) {
    const char *arguments[] = {"/proc/self/exe", how, nullptr};
    pid_t pid = 0;
    int error = posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, const_cast<char **>(arguments), environ);
    REQUIRE(error == 0, "a neighbour cannot be started: %s", strerror(error));
    return pid;
}

// A round of work of this process, whose result must be right whatever the neighbours do.
static void compute(int *device, int round) {
    static std::vector<int> host(COUNT);
    CHECK_CUDA(cudaMemset(device, 0, COUNT * sizeof(int)));
    for (int i = 0; i < 3; i++) step<<<(COUNT + 255) / 256, 256>>>(device, COUNT);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(host.data(), device, COUNT * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) REQUIRE(host[i] == 3 * i, "round %d: element %d should be %d, is %d", round, i, 3 * i, host[i]);
}

int main(int count, char **arguments) {
    if (count > 1) {
        be_faulty(arguments[1]);
        return 0;
    }
    int *device;
    CHECK_CUDA(cudaMalloc(&device, COUNT * sizeof(int)));
    compute(device, 0);
    std::vector<pid_t> neighbours = {start("illegal_address"), start("trap"), start("assertion")};
    size_t ended = 0;
    int round = 0;
    while (ended < neighbours.size()) {
        compute(device, ++round);
        int status = 0;
        if (waitpid(-1, &status, WNOHANG) > 0) {
            REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a neighbour ended with wait status 0x%x", status);
            ended++;
        }
    }
    // All faults have happened by now.
    compute(device, ++round);
    int *more;
    CHECK_CUDA(cudaMalloc(&more, COUNT * sizeof(int)));
    compute(more, ++round);
    CHECK_CUDA(cudaFree(more));
    CHECK_CUDA(cudaFree(device));
    return pass();
}

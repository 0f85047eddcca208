// Waits while kernels reach memory of the program: with `idle` no kernel writes to it, and each way to wait is used with work
// in between; without, a kernel writes a counter there before each wait, in turn with another thread that waits for its own
// stream, and the program must find it.
#include "check.h"

#include <thread>
#include <vector>

constexpr int ROUNDS = 40;

__global__ void count(int *where) { *where += 1; }

static void wait_in_every_way(cudaStream_t stream, cudaEvent_t event, int round) {
    if (round % 4 == 0) CHECK_CUDA(cudaStreamSynchronize(stream));
    if (round % 4 == 1) {
        CHECK_CUDA(cudaEventRecord(event, stream));
        CHECK_CUDA(cudaEventSynchronize(event));
    }
    if (round % 4 == 2) CHECK_CUDA(cudaDeviceSynchronize());
    if (round % 4 == 3) CHECK_CUDA(cudaStreamSynchronize(nullptr));
}

// Counts in `where`, which is `seen` here, and finds each number after the wait.
static void count_and_look(int *where, volatile int *seen) {
    cudaStream_t stream;
    cudaEvent_t event;
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaEventCreate(&event));
    for (int round = 0; round < ROUNDS; round++) {
        count<<<1, 1, 0, stream>>>(where);
        wait_in_every_way(stream, event, round);
        REQUIRE(*seen == round + 1, "round %d: %d", round, *seen);
    }
    CHECK_CUDA(cudaEventDestroy(event));
    CHECK_CUDA(cudaStreamDestroy(stream));
}

int main(int argc, char **argv) {
    const bool is_idle = argc > 1 && !strcmp(argv[1], "idle");
    int *device, *mapped, *there;
    CHECK_CUDA(cudaMalloc(&device, sizeof *device));
    CHECK_CUDA(cudaMemset(device, 0, sizeof *device));
    CHECK_CUDA(cudaHostAlloc(&mapped, 4 * 4096, cudaHostAllocMapped));
    CHECK_CUDA(cudaHostGetDevicePointer(&there, mapped, 0));
    memset(mapped, 0, 4 * 4096);
    count<<<1, 1>>>(there);
    CHECK_CUDA(cudaDeviceSynchronize());
    REQUIRE(mapped[0] == 1, "%d", mapped[0]);
    if (is_idle) {
        cudaEvent_t event;
        CHECK_CUDA(cudaEventCreate(&event));
        for (int round = 0; round < ROUNDS; round++) {
            count<<<1, 1>>>(device);
            wait_in_every_way(nullptr, event, round);
        }
        int found;
        CHECK_CUDA(cudaMemcpy(&found, device, sizeof found, cudaMemcpyDeviceToHost));
        REQUIRE(found == ROUNDS, "%d", found);
        REQUIRE(mapped[0] == 1, "%d", mapped[0]);
        return pass();
    }
    std::vector<std::thread> threads;
    for (int each = 1; each <= 3; each++)
        threads.emplace_back([=] { count_and_look(there + each * 1024, mapped + each * 1024); });
    for (auto &thread : threads) thread.join();
    return pass();
}

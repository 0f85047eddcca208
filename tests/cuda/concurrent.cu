// Four host threads, each with its own stream and data.  Meant to be run twice at the same time, too: the data depends on the
// process, so that a mix-up between threads or between processes shows.
#include "check.h"

#include <thread>
#include <vector>

constexpr int THREADS = 4, ROUNDS = 15, COUNT = 30'000;

__global__ void mix(unsigned *data, unsigned key) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) data[i] = (data[i] ^ key) * 2654435761u + i;
}

static void work(unsigned id) {
    uint32_t state = unsigned(getpid()) * THREADS + id;
    cudaStream_t stream;
    unsigned *device, *pinned;
    const size_t bytes = COUNT * sizeof(unsigned);
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMallocHost(&pinned, bytes));
    std::vector<unsigned> expected(COUNT);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_CUDA(cudaMalloc(&device, bytes));
        const unsigned key = next_random(&state);
        for (int i = 0; i < COUNT; i++) pinned[i] = expected[i] = next_random(&state);
        CHECK_CUDA(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, stream));
        for (unsigned pass = 0; pass < 4; pass++) {
            mix<<<(COUNT + 255) / 256, 256, 0, stream>>>(device, key + pass);
            CHECK_LAUNCH();
            for (int i = 0; i < COUNT; i++) expected[i] = (expected[i] ^ (key + pass)) * 2654435761u + i;
        }
        CHECK_CUDA(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        for (int i = 0; i < COUNT; i++)
            REQUIRE(pinned[i] == expected[i], "process %d, thread %u, round %d: element %d should be %u, is %u", getpid(), id, round,
                    i, expected[i], pinned[i]);
        CHECK_CUDA(cudaFree(device));
    }
    CHECK_CUDA(cudaFreeHost(pinned));
    CHECK_CUDA(cudaStreamDestroy(stream));
}

int main() {
    std::vector<std::thread> threads;
    for (unsigned id = 0; id < THREADS; id++) threads.emplace_back(work, id);
    for (std::thread &thread : threads) thread.join();
    return pass();
}

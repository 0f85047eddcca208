// Host threads with the per-thread default stream (compiled with --default-stream per-thread): each thread's plain calls go to
// a stream of its own, so the work of one does not wait for that of another.
#include "check.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

constexpr int THREADS = 4, COUNT = 20'000, ROUNDS = 10;

__global__ void mix(unsigned *data, unsigned addend) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) data[i] = data[i] * 5 + addend;
}

// Every thread runs the same plain code on its own data.
static void work(unsigned id) {
    std::vector<unsigned> data(COUNT), expected(COUNT);
    for (int i = 0; i < COUNT; i++) data[i] = expected[i] = i * id;
    unsigned *device;
    CHECK_CUDA(cudaMalloc(&device, COUNT * sizeof(unsigned)));
    CHECK_CUDA(cudaMemcpy(device, data.data(), COUNT * sizeof(unsigned), cudaMemcpyHostToDevice));
    for (unsigned round = 0; round < ROUNDS; round++) {
        mix<<<(COUNT + 127) / 128, 128>>>(device, round + id);
        CHECK_LAUNCH();
        for (unsigned &value : expected) value = value * 5 + round + id;
        // Half of the rounds wait for the thread's own stream, by either of its names.
        if (round % 4 == 1) CHECK_CUDA(cudaStreamSynchronize(0));
        if (round % 4 == 3) CHECK_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
    }
    CHECK_CUDA(cudaMemcpy(data.data(), device, COUNT * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        REQUIRE(data[i] == expected[i], "thread %u: element %d should be %u, is %u", id, i, expected[i], data[i]);
    CHECK_CUDA(cudaFree(device));
}

static std::atomic<bool> held{false}, released{false};

// Holds up the stream it was put into until the other thread is done, or half a minute has passed.
static void CUDART_CB hold(void *timed_out) {
    held = true;
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!released && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    *static_cast<bool *>(timed_out) = !released;
}

// While this thread's default stream is held up, another thread's default stream must get its work done.
static void check_independence() {
    unsigned *device, *pinned;
    CHECK_CUDA(cudaMalloc(&device, COUNT * sizeof(unsigned)));
    CHECK_CUDA(cudaMallocHost(&pinned, COUNT * sizeof(unsigned)));
    mix<<<1, 32>>>(device, 0);  // so that the kernel is loaded before any stream is held up
    CHECK_LAUNCH();
    CHECK_CUDA(cudaStreamSynchronize(0));
    bool timed_out = false;
    CHECK_CUDA(cudaLaunchHostFunc(0, hold, &timed_out));
    std::thread other([=] {
        while (!held) std::this_thread::yield();
        for (int i = 0; i < COUNT; i++) pinned[i] = i;
        CHECK_CUDA(cudaMemcpyAsync(device, pinned, COUNT * sizeof(unsigned), cudaMemcpyHostToDevice, 0));
        mix<<<(COUNT + 127) / 128, 128>>>(device, 3);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaMemcpyAsync(pinned, device, COUNT * sizeof(unsigned), cudaMemcpyDeviceToHost, 0));
        CHECK_CUDA(cudaStreamSynchronize(0));
        released = true;
    });
    other.join();
    CHECK_CUDA(cudaStreamSynchronize(0));
    REQUIRE(!timed_out, "a thread's default stream waited for that of another thread");
    for (int i = 0; i < COUNT; i++)
        REQUIRE(pinned[i] == unsigned(i) * 5 + 3, "element %d should be %u, is %u", i, unsigned(i) * 5 + 3, pinned[i]);
    CHECK_CUDA(cudaFreeHost(pinned));
    CHECK_CUDA(cudaFree(device));
}

int main() {
    std::vector<std::thread> threads;
    for (unsigned id = 1; id <= THREADS; id++) threads.emplace_back(work, id);
    for (std::thread &thread : threads) thread.join();
    check_independence();
    return pass();
}

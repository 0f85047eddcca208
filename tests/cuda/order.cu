// Calls keep the order in which they were made, also when several threads make them one after the other: threads take turns by
// a mutex and a condition variable, and every turn's work depends on the turn before, without any wait for the device.
// A launch has the attributes that its function had when it was made, however much of the stream is still to be done.
#include "check.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

constexpr int THREADS = 4, TURNS = 400;
constexpr int COUNT = 1'000;

// Not commutative: a swap of any two turns changes the result.
__global__ void turn(unsigned *data, unsigned number) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) data[i] = data[i] * 3 + number;
}

static unsigned *data, *copy;
static cudaStream_t stream;
static cudaEvent_t handed_over;
static std::mutex mutex;
static std::condition_variable changed;
static int next_turn = 0;

// One thread in each of its turns uses one of four ways to go on where the thread before left off.
static void take_turn(int number) {
    const size_t bytes = COUNT * sizeof(unsigned);
    switch (number % 4) {
    case 0:  // the shared stream
        turn<<<(COUNT + 255) / 256, 256, 0, stream>>>(data, number);
        break;
    case 1:  // the legacy default stream, which the shared stream waits for and the other way round
        turn<<<(COUNT + 255) / 256, 256>>>(data, number);
        break;
    case 2: {  // a stream of this turn alone, made and destroyed here
        cudaStream_t own;
        CHECK_CUDA(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
        CHECK_CUDA(cudaStreamWaitEvent(own, handed_over, 0));
        turn<<<(COUNT + 255) / 256, 256, 0, own>>>(data, number);
        CHECK_CUDA(cudaEventRecord(handed_over, own));
        CHECK_CUDA(cudaStreamWaitEvent(stream, handed_over, 0));
        CHECK_CUDA(cudaStreamDestroy(own));
        break;
    }
    case 3:  // through another place and back
        CHECK_CUDA(cudaMemcpyAsync(copy, data, bytes, cudaMemcpyDeviceToDevice, stream));
        CHECK_CUDA(cudaMemsetAsync(data, 0, bytes, stream));
        turn<<<(COUNT + 255) / 256, 256, 0, stream>>>(copy, number);
        CHECK_CUDA(cudaMemcpyAsync(data, copy, bytes, cudaMemcpyDeviceToDevice, stream));
        break;
    }
    CHECK_LAUNCH();
    CHECK_CUDA(cudaEventRecord(handed_over, stream));
}

static void run(int id) {
    for (int number = id; number < TURNS; number += THREADS) {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return next_turn == number; });
        take_turn((number / THREADS + id) % 4 + 4 * number);
        next_turn++;
        changed.notify_all();
    }
}

__global__ void in_shared_memory(unsigned *counter, int words, int rounds) {
    extern __shared__ unsigned room[];
    for (int round = 0; round < rounds; round++) room[(words - 1 + round) % words] = round;
    atomicAdd(counter, room[(words - 2 + rounds) % words] - rounds + 2);
}

// The function may have more shared memory for one launch than for the next, as libraries set it before each. The stream is
// behind: its first command is a long copy, and then come more commands than a driver takes at once.
static void attributes_between_launches() {
    constexpr int PAIRS = 1'500, MORE = 90 << 10, LESS = 60 << 10;
    const size_t bytes = 32 << 20;
    unsigned *counter;
    char *source, *target;
    CHECK_CUDA(cudaMalloc(&counter, sizeof *counter));
    CHECK_CUDA(cudaMemset(counter, 0, sizeof *counter));
    CHECK_CUDA(cudaMalloc(&target, bytes));
    CHECK_CUDA(cudaMallocHost(&source, bytes));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, stream));
    for (int launch = 0; launch < 2 * PAIRS; launch++) {
        int size = launch % 2 ? LESS : MORE;
        CHECK_CUDA(cudaFuncSetAttribute(in_shared_memory, cudaFuncAttributeMaxDynamicSharedMemorySize, size));
        in_shared_memory<<<1, 1, size, stream>>>(counter, size / sizeof(unsigned), 100);
        CHECK_LAUNCH();
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
    unsigned count;
    CHECK_CUDA(cudaMemcpy(&count, counter, sizeof count, cudaMemcpyDeviceToHost));
    REQUIRE(count == 2 * PAIRS, "%u of %d launches with other attributes ran", count, 2 * PAIRS);
    CHECK_CUDA(cudaFreeHost(source));
    CHECK_CUDA(cudaFree(target));
    CHECK_CUDA(cudaFree(counter));
}

int main() {
    const size_t bytes = COUNT * sizeof(unsigned);
    CHECK_CUDA(cudaMalloc(&data, bytes));
    CHECK_CUDA(cudaMalloc(&copy, bytes));
    CHECK_CUDA(cudaMemset(data, 0, bytes));
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaEventCreateWithFlags(&handed_over, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventRecord(handed_over, stream));
    std::vector<std::thread> threads;
    for (int id = 0; id < THREADS; id++) threads.emplace_back(run, id);
    for (std::thread &thread : threads) thread.join();

    unsigned expected = 0;
    for (int number = 0; number < TURNS; number++)
        expected = expected * 3 + unsigned((number / THREADS + number % THREADS) % 4 + 4 * number);
    std::vector<unsigned> result(COUNT);
    CHECK_CUDA(cudaMemcpy(result.data(), data, bytes, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        REQUIRE(result[i] == expected, "after %d turns element %d should be %u, is %u", TURNS, i, expected, result[i]);
    attributes_between_launches();
    CHECK_CUDA(cudaEventDestroy(handed_over));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(data));
    CHECK_CUDA(cudaFree(copy));
    return pass();
}

// A host function in one stream waits until another thread's CUDA calls have returned.  CUDA forbids CUDA calls in a host
// function, but not that it waits for a thread that makes them: so no call may wait behind a running host function.
#include "check.h"

#include <atomic>
#include <chrono>
#include <thread>

constexpr int COUNT = 10'000;

__global__ void add(unsigned *data, unsigned addend) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) data[i] += addend;
}

constexpr int GRID = (COUNT + 127) / 128;

struct Meeting {
    std::atomic<bool> callback_runs{false}, calls_returned{false}, timed_out{false};
};

// Waits for the other thread, but not for ever: a deadlock shall end in a FAIL line.
static void CUDART_CB wait_for_calls(void *data) {
    Meeting *meeting = static_cast<Meeting *>(data);
    meeting->callback_runs = true;
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!meeting->calls_returned && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    meeting->timed_out = !meeting->calls_returned;
}

int main() {
    unsigned *held_data, *free_data, *pinned;
    cudaStream_t held, free_stream;
    cudaEvent_t event;
    const size_t bytes = COUNT * sizeof(unsigned);
    CHECK_CUDA(cudaMalloc(&held_data, bytes));
    CHECK_CUDA(cudaMalloc(&free_data, bytes));
    CHECK_CUDA(cudaMallocHost(&pinned, bytes));
    CHECK_CUDA(cudaStreamCreateWithFlags(&held, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&free_stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreate(&event));
    CHECK_CUDA(cudaMemset(held_data, 0, bytes));
    CHECK_CUDA(cudaMemset(free_data, 0, bytes));
    add<<<GRID, 128>>>(held_data, 0);  // loads the kernel before anything waits
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());

    const unsigned rounds = 3;
    for (unsigned round = 1; round <= rounds; round++) {
        Meeting meeting;
        add<<<GRID, 128, 0, held>>>(held_data, 1);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaLaunchHostFunc(held, wait_for_calls, &meeting));
        add<<<GRID, 128, 0, held>>>(held_data, 1);
        CHECK_LAUNCH();
        std::thread caller([&] {
            while (!meeting.callback_runs) std::this_thread::yield();
            // Calls of every kind: a launch, copies, a wait for an event and one for a stream, queries, an attribute.
            add<<<GRID, 128, 0, free_stream>>>(free_data, round);
            CHECK_LAUNCH();
            CHECK_CUDA(cudaEventRecord(event, free_stream));
            CHECK_CUDA(cudaMemcpyAsync(pinned, free_data, bytes, cudaMemcpyDeviceToHost, free_stream));
            CHECK_CUDA(cudaEventSynchronize(event));
            CHECK_CUDA(cudaStreamSynchronize(free_stream));
            int value = 0;
            CHECK_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0));
            EXPECT_CUDA(cudaStreamQuery(held), cudaErrorNotReady);
            (void)cudaGetLastError();
            meeting.calls_returned = true;
        });
        caller.join();
        CHECK_CUDA(cudaStreamSynchronize(held));
        REQUIRE(!meeting.timed_out, "round %u: calls of another thread waited for a running host function", round);
        unsigned want = round * (round + 1) / 2;
        for (int i = 0; i < COUNT; i++)
            REQUIRE(pinned[i] == want, "round %u: element %d should be %u, is %u", round, i, want, pinned[i]);
    }
    unsigned last = 0;
    CHECK_CUDA(cudaMemcpy(&last, held_data + COUNT - 1, sizeof(last), cudaMemcpyDeviceToHost));
    REQUIRE(last == 2 * rounds, "the stream with the host functions added up to %u instead of %u", last, 2 * rounds);
    CHECK_CUDA(cudaEventDestroy(event));
    CHECK_CUDA(cudaStreamDestroy(held));
    CHECK_CUDA(cudaStreamDestroy(free_stream));
    CHECK_CUDA(cudaFreeHost(pinned));
    CHECK_CUDA(cudaFree(held_data));
    CHECK_CUDA(cudaFree(free_data));
    return pass();
}

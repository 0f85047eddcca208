// A stream that fails settles what is behind it: callbacks hear of the error, host functions are not called, also those of
// graphs, and nobody who waits waits for ever.
#include "check.h"

#include <cuda_runtime.h>

#include <atomic>
#include <cstdlib>

__global__ void fault(int *at) {
    *(volatile int *)at = 1;
}

static std::atomic<int> told{-1}, second{-1}, waiter{-1}, functions;

static void CUDART_CB hear(cudaStream_t, cudaError_t status, void *where) {
    *static_cast<std::atomic<int> *>(where) = status;
}

static void CUDART_CB count(void *) {
    functions++;
}

static void CUDART_CB hold(void *gate) {
    while (!*static_cast<std::atomic<bool> *>(gate)) usleep(100);
}

int main() {
    cudaStream_t stream, other;
    cudaEvent_t event;
    int *data, *pinned;
    const size_t bytes = 4 << 20;
    CHECK_CUDA(cudaMalloc(&data, bytes));
    CHECK_CUDA(cudaMallocHost(&pinned, bytes));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreate(&event));
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphNode_t node;
    cudaHostNodeParams parameters = {count, nullptr};
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    CHECK_CUDA(cudaGraphAddHostNode(&node, graph, nullptr, 0, &parameters));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));

    // Loads the kernel, which waits until the device is idle, before anything waits.
    fault<<<1, 1, 0, stream>>>(data);
    CHECK_CUDA(cudaStreamSynchronize(stream));

    // All of it is in the stream before the fault is known.
    std::atomic<bool> gate{false};
    CHECK_CUDA(cudaLaunchHostFunc(stream, hold, &gate));
    fault<<<1, 1, 0, stream>>>((int *)0x10);
    CHECK_CUDA(cudaStreamAddCallback(stream, hear, &told, 0));
    CHECK_CUDA(cudaLaunchHostFunc(stream, count, nullptr));
    // Reads its source when the stream gets here, which is behind what may still write to it.
    CHECK_CUDA(cudaMemcpyAsync(data, pinned, bytes, cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudaStreamAddCallback(stream, hear, &second, 0));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaEventRecord(event, stream));
    CHECK_CUDA(cudaStreamWaitEvent(other, event, 0));
    CHECK_CUDA(cudaStreamAddCallback(other, hear, &waiter, 0));
    gate = true;
    // Nobody makes a call that could bring the news.
    for (int waited = 0; waited < 6000 && (told < 0 || second < 0 || waiter < 0); waited++) usleep(10000);
    REQUIRE(told == cudaErrorIllegalAddress && second == cudaErrorIllegalAddress && waiter == cudaErrorIllegalAddress,
            "callbacks behind a fault were told %d, %d and %d", told.load(), second.load(), waiter.load());
    EXPECT_CUDA(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
    EXPECT_CUDA(cudaStreamSynchronize(other), cudaErrorIllegalAddress);
    EXPECT_CUDA(cudaLaunchHostFunc(stream, count, nullptr), cudaErrorIllegalAddress);
    EXPECT_CUDA(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    REQUIRE(functions == 0, "%d host functions behind a fault were called", functions.load());
    int result = pass();
    fflush(stdout);
    _exit(result);
}

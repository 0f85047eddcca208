// Threads that end: the last destructors of a thread still call CUDA, and a thread that is cancelled while it calls CUDA ends
// between two calls.
#include "check.h"

#include <cuda_runtime.h>
#include <pthread.h>

#include <atomic>

static pthread_key_t key;
static cudaStream_t stream;
static int *data, *pinned;
static const size_t bytes = 4 << 20;

__global__ void add(int *at) {
    *at += 1;
}

static void CUDART_CB count(void *counter) {
    ++*static_cast<std::atomic<int> *>(counter);
}

static std::atomic<int> called, rounds;

// In the second round of destructors the variables of the library's own thread-local storage have gone.
static void last_calls(void *again) {
    if (rounds++ == 0) {
        pthread_setspecific(key, again);
        return;
    }
    cudaStream_t own;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaStreamCreate(&own));
    CHECK_CUDA(cudaLaunchHostFunc(own, count, &called));
    add<<<1, 1, 0, own>>>(data);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaMemcpyAsync(data + 1, pinned, bytes - 4, cudaMemcpyHostToDevice, own));
    CHECK_CUDA(cudaStreamSynchronize(own));
    CHECK_CUDA(cudaMemcpy(pinned, data, bytes, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal));
    add<<<1, 1, 0, own>>>(data);
    CHECK_CUDA(cudaStreamEndCapture(own, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaGraphLaunch(executable, own));
    CHECK_CUDA(cudaStreamSynchronize(own));
    CHECK_CUDA(cudaStreamDestroy(own));
    rounds = 100;
}

static void *call_at_the_end(void *) {
    CHECK_CUDA(cudaStreamSynchronize(stream));
    pthread_setspecific(key, &key);
    return nullptr;
}

static std::atomic<bool> runs;

static void *call_for_ever(void *) {
    for (;;) {
        CHECK_CUDA(cudaMemcpyAsync(data, pinned, 4, cudaMemcpyHostToDevice, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        runs = true;
        pthread_testcancel();
    }
}

int main() {
    CHECK_CUDA(cudaMalloc(&data, bytes));
    CHECK_CUDA(cudaMallocHost(&pinned, bytes));
    memset(pinned, 0, bytes);
    CHECK_CUDA(cudaMemset(data, 0, bytes));
    CHECK_CUDA(cudaStreamCreate(&stream));
    add<<<1, 1, 0, stream>>>(data);
    CHECK_CUDA(cudaStreamSynchronize(stream));

    pthread_t thread;
    REQUIRE(pthread_key_create(&key, last_calls) == 0, "there is no key");
    REQUIRE(pthread_create(&thread, nullptr, call_at_the_end, nullptr) == 0, "there is no thread");
    REQUIRE(pthread_join(thread, nullptr) == 0, "the thread cannot be joined");
    REQUIRE(rounds == 100 && called == 1, "the last calls of a thread: round %d, %d host functions", rounds.load(), called.load());

    for (int round = 0; round < 5; round++) {
        void *result = nullptr;
        runs = false;
        REQUIRE(pthread_create(&thread, nullptr, call_for_ever, nullptr) == 0, "there is no thread");
        while (!runs) usleep(100);
        REQUIRE(pthread_cancel(thread) == 0, "the thread cannot be cancelled");
        REQUIRE(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED, "the thread did not end cancelled");
    }
    int value = 0;
    CHECK_CUDA(cudaMemset(data, 0, bytes));
    add<<<1, 1, 0, stream>>>(data);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaMemcpy(&value, data, 4, cudaMemcpyDeviceToHost));
    REQUIRE(value == 1, "after threads have ended, the value is %d", value);
    return pass();
}

// 5,000 launches queue up behind a stream operation that waits for a value in device memory; another thread writes that value
// from another stream while the launches are still being made.  Nothing may deadlock, and nothing may run before the release.
#include "check.h"

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <thread>

constexpr int LAUNCHES = 5'000;

__global__ void count(unsigned *counter) { *counter += 1; }

// The driver's stream memory operations have no counterpart in the runtime: their addresses come from it all the same.
template <typename Function>
static Function driver_function(const char *name) {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
    REQUIRE(found == cudaDriverEntryPointSuccess && function, "the driver has no %s", name);
    return reinterpret_cast<Function>(function);
}

int main() {
    unsigned *words;  // the flag that is waited for, and the counter
    CHECK_CUDA(cudaMalloc(&words, 2 * sizeof(unsigned)));
    CHECK_CUDA(cudaMemset(words, 0, 2 * sizeof(unsigned)));
    auto wait_value = driver_function<decltype(&cuStreamWaitValue32)>("cuStreamWaitValue32");
    auto write_value = driver_function<decltype(&cuStreamWriteValue32)>("cuStreamWriteValue32");
    cudaStream_t waiting, releasing;
    CHECK_CUDA(cudaStreamCreateWithFlags(&waiting, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&releasing, cudaStreamNonBlocking));
    unsigned *seen;
    CHECK_CUDA(cudaMallocHost(&seen, sizeof(unsigned)));
    count<<<1, 1, 0, releasing>>>(words + 1);  // loads the kernel before anything waits
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemsetAsync(words + 1, 0, sizeof(unsigned), releasing));
    CHECK_CUDA(cudaStreamSynchronize(releasing));

    const CUdeviceptr flag = reinterpret_cast<CUdeviceptr>(words);
    CUresult result = wait_value(waiting, flag, 1, CU_STREAM_WAIT_VALUE_EQ);
    REQUIRE(result == CUDA_SUCCESS, "cuStreamWaitValue32 returned error %d", result);
    std::atomic<int> launched{0};
    std::thread releaser([&] {
        while (launched < 500) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        CHECK_CUDA(cudaMemcpyAsync(seen, words + 1, sizeof(unsigned), cudaMemcpyDeviceToHost, releasing));
        CHECK_CUDA(cudaStreamSynchronize(releasing));
        REQUIRE(*seen == 0, "%u kernels ran before the stream was released", *seen);
        CUresult written = write_value(releasing, flag, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
        REQUIRE(written == CUDA_SUCCESS, "cuStreamWriteValue32 returned error %d", written);
    });
    for (int i = 0; i < LAUNCHES; i++) {
        count<<<1, 1, 0, waiting>>>(words + 1);
        CHECK_LAUNCH();
        launched++;
    }
    releaser.join();
    CHECK_CUDA(cudaStreamSynchronize(waiting));
    unsigned counter = 0;
    CHECK_CUDA(cudaMemcpy(&counter, words + 1, sizeof(counter), cudaMemcpyDeviceToHost));
    REQUIRE(counter == LAUNCHES, "%d kernels were launched, %u ran", LAUNCHES, counter);

    // The other conditions: at least, and any of some bits; each is met by a write on the other stream.
    for (unsigned round = 2; round < 20; round++) {
        bool bits = round % 2;
        unsigned awaited = bits ? round << 8 : round, written = bits ? round << 8 | 1 : round + 1;
        result = wait_value(waiting, flag, awaited, bits ? CU_STREAM_WAIT_VALUE_AND : CU_STREAM_WAIT_VALUE_GEQ);
        REQUIRE(result == CUDA_SUCCESS, "cuStreamWaitValue32 returned error %d", result);
        count<<<1, 1, 0, waiting>>>(words + 1);
        CHECK_LAUNCH();
        result = write_value(releasing, flag, written, CU_STREAM_WRITE_VALUE_DEFAULT);
        REQUIRE(result == CUDA_SUCCESS, "cuStreamWriteValue32 returned error %d", result);
        CHECK_CUDA(cudaStreamSynchronize(waiting));
    }
    // Pinned memory that nothing has used before.
    unsigned *host;
    CHECK_CUDA(cudaMallocHost(&host, 4096));
    host[0] = 0;
    const CUdeviceptr pinned = reinterpret_cast<CUdeviceptr>(host);
    result = write_value(releasing, pinned, 5, CU_STREAM_WRITE_VALUE_DEFAULT);
    REQUIRE(result == CUDA_SUCCESS, "cuStreamWriteValue32 to pinned memory returned error %d", result);
    CHECK_CUDA(cudaStreamSynchronize(releasing));
    REQUIRE(host[0] == 5, "pinned memory holds %u", host[0]);
    CHECK_CUDA(cudaFreeHost(host));
    CHECK_CUDA(cudaFreeHost(seen));
    CHECK_CUDA(cudaFree(words));
    CHECK_CUDA(cudaStreamDestroy(waiting));
    CHECK_CUDA(cudaStreamDestroy(releasing));
    return pass();
}

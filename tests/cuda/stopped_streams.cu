// Streams that stand still, behind a host function, a wait for a value or an event, with more copies and launches than any part of the
// way to a GPU takes at a time. Another stream copies both ways, launches and waits meanwhile; only then do the others go on, and what
// they have left to do must be right as well.
//
// stopped_streams [host|value|event]
#include "check.h"

#include <cuda.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

constexpr size_t MIB = 1 << 20, PART = 16 * MIB;
// More bytes than a session has under way: 128 MiB of copies from a device, the arena of 256 MiB in shared memory.
constexpr int COPIES = 18;
constexpr int LAUNCHES = 1500;

__global__ void count(unsigned *counter) { *counter += 1; }

template <typename Function>
static Function driver_function(const char *name) {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
    REQUIRE(found == cudaDriverEntryPointSuccess && function, "the driver has no %s", name);
    return reinterpret_cast<Function>(function);
}

static std::atomic<bool> may_go_on;

static void CUDART_CB wait_for_main(void *) {
    while (!may_go_on) std::this_thread::yield();
}

static cudaStream_t new_stream() {
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

// Host memory of whole pages.
static unsigned char *host_memory(size_t bytes, bool is_registered) {
    unsigned char *memory;
    if (is_registered) {
        memory = static_cast<unsigned char *>(aligned_alloc(4096, bytes));
        REQUIRE(memory, "no memory");
        CHECK_CUDA(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
    } else {
        CHECK_CUDA(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault));
    }
    memset(memory, 0, bytes);
    return memory;
}

static void free_host_memory(unsigned char *memory, bool is_registered) {
    if (is_registered) {
        CHECK_CUDA(cudaHostUnregister(memory));
        free(memory);
    } else {
        CHECK_CUDA(cudaFreeHost(memory));
    }
}

static void require_bytes(const unsigned char *bytes, size_t count, unsigned char value, const std::string &what) {
    for (size_t i = 0; i < count; i++) REQUIRE(bytes[i] == value, "%s: byte %zu is %u, not %u", what.c_str(), i, bytes[i], value);
}

// A stream stands still with copies in `kind`, while another one works.
static void run(const std::string &stop, cudaMemcpyKind kind, bool is_registered) {
    const std::string what = "behind " + stop + ", copies " + (kind == cudaMemcpyHostToDevice ? "to" : "from") + " the device, " +
                             (is_registered ? "registered" : "pinned") + " memory";
    auto wait_value = driver_function<decltype(&cuStreamWaitValue32)>("cuStreamWaitValue32");
    auto write_value = driver_function<decltype(&cuStreamWriteValue32)>("cuStreamWriteValue32");
    unsigned *words;  // the flag, and two counters
    unsigned char *device, *small;
    CHECK_CUDA(cudaMalloc(&words, 3 * sizeof(unsigned)));
    CHECK_CUDA(cudaMalloc(&device, PART));
    CHECK_CUDA(cudaMalloc(&small, MIB));
    CHECK_CUDA(cudaMemset(words, 0, 3 * sizeof(unsigned)));
    CHECK_CUDA(cudaMemset(device, 1, PART));
    CHECK_CUDA(cudaMemset(small, 7, MIB));
    unsigned char *host = host_memory(PART, is_registered), *other = host_memory(MIB, is_registered);
    if (kind == cudaMemcpyHostToDevice) memset(host, 3, PART);
    cudaStream_t stopped = new_stream(), first = new_stream(), working = new_stream();
    cudaEvent_t event;
    CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    count<<<1, 1, 0, working>>>(words + 2);  // loads the kernel before anything waits
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    may_go_on = false;

    const CUdeviceptr flag = reinterpret_cast<CUdeviceptr>(words);
    if (stop == "host") {
        CHECK_CUDA(cudaLaunchHostFunc(stopped, wait_for_main, nullptr));
    } else {
        cudaStream_t waiting = stop == "value" ? stopped : first;
        CUresult result = wait_value(waiting, flag, 1, CU_STREAM_WAIT_VALUE_EQ);
        REQUIRE(result == CUDA_SUCCESS, "cuStreamWaitValue32 returned error %d", result);
        if (stop == "event") {
            CHECK_CUDA(cudaEventRecord(event, first));
            CHECK_CUDA(cudaStreamWaitEvent(stopped, event, 0));
        }
    }
    for (int i = 0; i < COPIES; i++) {
        void *to = kind == cudaMemcpyHostToDevice ? device : host, *from = kind == cudaMemcpyHostToDevice ? host : device;
        CHECK_CUDA(cudaMemcpyAsync(to, from, PART, kind, stopped));
    }
    // What is posted may be more than the driver takes; then the call waits for the stream, here as with a GPU of one's own.
    std::thread poster([&] {
        for (int i = 0; i < LAUNCHES; i++) {
            count<<<1, 1, 0, stopped>>>(words + 1);
            CHECK_LAUNCH();
        }
    });

    for (int round = 0; round < 3; round++) {
        int word = 0;
        CHECK_CUDA(cudaMemcpyAsync(&word, small, sizeof word, cudaMemcpyDeviceToHost, working));
        CHECK_CUDA(cudaStreamSynchronize(working));
        REQUIRE(word == 0x07070707, "%s: a word of another stream is %x", what.c_str(), word);
        CHECK_CUDA(cudaMemcpyAsync(other, small, MIB, cudaMemcpyDeviceToHost, working));
        CHECK_CUDA(cudaStreamSynchronize(working));
        require_bytes(other, MIB, 7, what);
        CHECK_CUDA(cudaMemcpyAsync(small, other, MIB, cudaMemcpyHostToDevice, working));
        count<<<1, 1, 0, working>>>(words + 2);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaStreamSynchronize(working));
        memset(other, 0, MIB);
    }

    may_go_on = true;
    if (stop != "host") {
        CUresult result = write_value(working, flag, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
        REQUIRE(result == CUDA_SUCCESS, "cuStreamWriteValue32 returned error %d", result);
    }
    poster.join();
    CHECK_CUDA(cudaDeviceSynchronize());
    unsigned counted[3];
    CHECK_CUDA(cudaMemcpy(counted, words, sizeof counted, cudaMemcpyDeviceToHost));
    REQUIRE(counted[1] == LAUNCHES && counted[2] == 4, "%s: %u launches of %d and %u of 4", what.c_str(), counted[1], LAUNCHES, counted[2]);
    if (kind == cudaMemcpyHostToDevice) CHECK_CUDA(cudaMemcpy(host, device, PART, cudaMemcpyDeviceToHost));
    require_bytes(host, PART, kind == cudaMemcpyHostToDevice ? 3 : 1, what);

    CHECK_CUDA(cudaEventDestroy(event));
    for (cudaStream_t stream : {stopped, first, working}) CHECK_CUDA(cudaStreamDestroy(stream));
    free_host_memory(host, is_registered);
    free_host_memory(other, is_registered);
    CHECK_CUDA(cudaFree(words));
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFree(small));
}

int main(int argc, char **argv) {
    const std::string only = argc > 1 ? argv[1] : "";
    for (const char *stop : {"host", "value", "event"}) {
        if (!only.empty() && only != stop) continue;
        for (cudaMemcpyKind kind : {cudaMemcpyDeviceToHost, cudaMemcpyHostToDevice})
            for (bool is_registered : {false, true}) run(stop, kind, is_registered);
    }
    return pass();
}

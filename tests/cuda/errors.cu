// How errors come back.  Each case runs in a process of its own, since the last ones cannot be recovered from:
//   errors calls             wrong calls and launches are refused at once and leave the program working
//   errors illegal_address   a kernel that writes where nothing is: reported by the wait, and by every call after it
//   errors trap              a kernel that executes a trap
//   errors assertion         a kernel whose assertion fails
//   errors bounds            memory that is too small, freed or on the wrong side is refused at the call, and its neighbours
//                            stay as they are (only for Causeway: CUDA leaves much of this undefined)
//   errors stale_handles     destroyed handles are refused (CUDA itself leaves this undefined: only for Causeway)
#include "check.h"

#include <cassert>
#include <cooperative_groups.h>
#include <string>
#include <vector>

__global__ void write_to(int *where, int value) { where[threadIdx.x] = value; }

__global__ void trap_if(bool condition) {
    if (condition) __trap();
}

__global__ void assert_less(int limit) { assert(int(threadIdx.x) < limit); }

__global__ void __launch_bounds__(128) bounded(int *where) { where[threadIdx.x] = threadIdx.x; }

// The device still works: a kernel's result comes back right.
static void require_working(const char *after) {
    int *device, value[32];
    CHECK_CUDA(cudaMalloc(&device, sizeof(value)));
    write_to<<<1, 32>>>(device, 4711);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(value, device, sizeof(value), cudaMemcpyDeviceToHost));
    REQUIRE(value[31] == 4711, "after %s a kernel wrote %d instead of 4711", after, value[31]);
    CHECK_CUDA(cudaFree(device));
}

__global__ void together(int *where) {
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0 && blockIdx.x == 0) *where = gridDim.x;
}

// A cooperative grid may have as many blocks as the device holds at the same time, and no more.
static void check_cooperative() {
    int *device, held = 0, processors = 0, blocks = 0;
    CHECK_CUDA(cudaMalloc(&device, sizeof(int)));
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&held, together, 256, 0));
    CHECK_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    void *arguments[] = {&device};
    const auto launch = [&](int grid) {
        return cudaLaunchCooperativeKernel(reinterpret_cast<void *>(together), grid, 256, arguments, 0, nullptr);
    };
    EXPECT_CUDA(launch(held * processors + 1), cudaErrorCooperativeLaunchTooLarge);
    EXPECT_CUDA(launch(1 << 20), cudaErrorCooperativeLaunchTooLarge);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(launch(held * processors));
    CHECK_CUDA(cudaMemcpy(&blocks, device, sizeof(int), cudaMemcpyDeviceToHost));
    REQUIRE(blocks == held * processors, "a grid of %d blocks instead of %d", blocks, held * processors);
    CHECK_CUDA(cudaFree(device));
}

// A launch that cannot be must be refused at once, and asking for the error takes it away.
static void require_refused(const char *what) {
    cudaError_t peeked = cudaPeekAtLastError(), error = cudaGetLastError();
    REQUIRE(error == cudaErrorInvalidConfiguration || error == cudaErrorInvalidValue, "%s gave %s", what,
            cudaGetErrorName(error));
    REQUIRE(peeked == error, "%s gave %s, then %s", what, cudaGetErrorName(peeked), cudaGetErrorName(error));
    EXPECT_CUDA(cudaGetLastError(), cudaSuccess);
    // Which of the two it is: for whoever compares Causeway with a local GPU.
    printf("%s: %s\n", what, cudaGetErrorName(error));
}

static void check_launches() {
    int *device;
    CHECK_CUDA(cudaMalloc(&device, 4096));
    write_to<<<1, 2048>>>(device, 1);
    require_refused("a block of 2048 threads");
    write_to<<<0, 32>>>(device, 1);
    require_refused("a grid without blocks");
    write_to<<<dim3(1, 70000), 32>>>(device, 1);
    require_refused("a grid of 70000 rows");
    write_to<<<1, dim3(1, 1, 128)>>>(device, 1);
    require_refused("a block 128 threads deep");
    write_to<<<1, 32, 1 << 20>>>(device, 1);
    require_refused("1 MiB of shared memory");
    bounded<<<1, 128>>>(device);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaFree(device));
    require_working("refused launches");
}

// A wrong call that need not wait for the device may be reported by it or by the next call that waits.
static void require_reported(cudaError_t error, const char *what) {
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    REQUIRE(error == cudaErrorInvalidValue, "%s gave %s", what, cudaGetErrorName(error));
}

static void check_memory_calls() {
    int host[4] = {1, 2, 3, 4}, *device;
    void *too_large;
    CHECK_CUDA(cudaMalloc(&device, sizeof(host)));
    EXPECT_CUDA(cudaMalloc(&too_large, size_t(1) << 46), cudaErrorMemoryAllocation);
    EXPECT_CUDA(cudaMemcpy(reinterpret_cast<void *>(0x10), host, sizeof(host), cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaMemcpy(host, reinterpret_cast<void *>(0x10), sizeof(host), cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    require_reported(cudaMemset(reinterpret_cast<void *>(0x10), 0, 16), "a memset of a wrong address");
    require_reported(cudaFree(reinterpret_cast<void *>(0x10)), "freeing a wrong address");
    EXPECT_CUDA(cudaMemcpy(device, host, sizeof(host), cudaMemcpyKind(99)), cudaErrorInvalidMemcpyDirection);
    CHECK_CUDA(cudaFree(nullptr));
    CHECK_CUDA(cudaFree(device));
    require_reported(cudaFree(device), "freeing twice");
    (void)cudaGetLastError();
    require_working("refused memory calls");
}

static void check_device_calls() {
    int devices = 0;
    CHECK_CUDA(cudaGetDeviceCount(&devices));
    EXPECT_CUDA(cudaSetDevice(devices), cudaErrorInvalidDevice);
    EXPECT_CUDA(cudaSetDevice(-1), cudaErrorInvalidDevice);
    int value = 0;
    EXPECT_CUDA(cudaDeviceGetAttribute(&value, cudaDeviceAttr(99999), 0), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaEventQuery(nullptr), cudaErrorInvalidResourceHandle);
    (void)cudaGetLastError();
    REQUIRE(std::string(cudaGetErrorName(cudaErrorInvalidDevice)) == "cudaErrorInvalidDevice", "the name of an error is %s",
            cudaGetErrorName(cudaErrorInvalidDevice));
    require_working("refused device calls");
}

// After a fault every call that needs the device reports the same error.
static void require_sticky(cudaError_t expected) {
    cudaError_t error = cudaDeviceSynchronize();
    REQUIRE(error == expected, "the wait returned %s instead of %s", cudaGetErrorName(error), cudaGetErrorName(expected));
    (void)cudaGetLastError();
    int *device;
    error = cudaMalloc(&device, sizeof(int));
    REQUIRE(error == expected, "cudaMalloc after the fault returned %s instead of %s", cudaGetErrorName(error),
            cudaGetErrorName(expected));
    error = cudaDeviceSynchronize();
    REQUIRE(error == expected, "the second wait returned %s instead of %s", cudaGetErrorName(error), cudaGetErrorName(expected));
    write_to<<<1, 1>>>(nullptr, 1);
    error = cudaGetLastError();
    REQUIRE(error == expected, "a launch after the fault gave %s instead of %s", cudaGetErrorName(error), cudaGetErrorName(expected));
}

// Refused at the call, with nothing left for the next one.
#define EXPECT_REFUSED(call) \
    do { \
        EXPECT_CUDA(call, cudaErrorInvalidValue); \
        CHECK_CUDA(cudaDeviceSynchronize()); \
    } while (0)

static void require_bytes(const unsigned char *device, size_t bytes, int value, const char *what) {
    std::vector<unsigned char> found(bytes);
    CHECK_CUDA(cudaMemcpy(found.data(), device, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < bytes; i++)
        REQUIRE(found[i] == value, "%s: byte %zu is %d instead of %d", what, i, found[i], value);
}

static void check_bounds() {
    constexpr size_t SIZE = 512;
    std::vector<unsigned char *> all(8);
    for (auto &memory : all) {
        CHECK_CUDA(cudaMalloc(&memory, SIZE));
        CHECK_CUDA(cudaMemset(memory, 7, SIZE));
    }
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    for (unsigned char *memory : all) {
        EXPECT_REFUSED(cudaMemset(memory, 1, SIZE + 1));
        EXPECT_REFUSED(cudaMemsetAsync(memory, 1, SIZE + 1, stream));
        EXPECT_REFUSED(cudaMemsetAsync(memory + SIZE - 1, 1, 2, stream));
        EXPECT_REFUSED(cudaMemset2D(memory, SIZE, 1, 4, 2));
        EXPECT_REFUSED(cudaMemset2DAsync(memory, SIZE, 1, 4, 2, stream));
        EXPECT_REFUSED(cudaMemset2DAsync(memory, 100, 1, 104, 2, stream));
    }
    for (unsigned char *memory : all) require_bytes(memory, SIZE, 7, "after refused memsets");
    // The last row needs no whole pitch.
    CHECK_CUDA(cudaMemset2DAsync(all[0], SIZE - 4, 1, 4, 2, stream));
    CHECK_CUDA(cudaMemsetAsync(all[1], 1, SIZE, stream));
    CHECK_CUDA(cudaMemsetAsync(all[1], 1, 0, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    require_bytes(all[1], SIZE, 1, "after a memset of all of it");
    // Swapped pointers, and memory that was freed. Below 8 MiB memory lies in blocks that stay when it is freed, above that it
    // goes back.
    std::vector<unsigned char> host(SIZE);
    CHECK_CUDA(cudaMemcpy(host.data(), all[0], SIZE, cudaMemcpyDeviceToHost));
    for (size_t size : {SIZE, size_t(20) << 20}) {
        unsigned char *memory;
        CHECK_CUDA(cudaMalloc(&memory, size));
        EXPECT_REFUSED(cudaMemcpy(host.data(), memory, 4, cudaMemcpyHostToDevice));
        // Both sides are on the device, whatever the kind says: the addresses decide.
        CHECK_CUDA(cudaMemset(memory, 1, 64));
        CHECK_CUDA(cudaMemcpy(memory, all[2], 4, cudaMemcpyDeviceToHost));
        CHECK_CUDA(cudaMemcpyAsync(memory + 8, all[2], 4, cudaMemcpyDeviceToHost, stream));
        CHECK_CUDA(cudaMemcpyAsync(memory + 16, all[2], 4, cudaMemcpyHostToDevice, stream));
        CHECK_CUDA(cudaMemcpy2D(memory + 24, 8, all[2], 8, 4, 2, cudaMemcpyDeviceToHost));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        for (int at : {0, 8, 16, 24, 32}) {
            require_bytes(memory + at, 4, 7, "what was copied");
            require_bytes(memory + at + 4, 4, 1, "beside what was copied");
        }
        CHECK_CUDA(cudaFree(memory));
        EXPECT_REFUSED(cudaMemset(memory, 1, 4));
        EXPECT_REFUSED(cudaMemsetAsync(memory, 1, 4, stream));
        EXPECT_REFUSED(cudaMemcpy(memory, host.data(), 4, cudaMemcpyHostToDevice));
        EXPECT_REFUSED(cudaMemcpy(host.data(), memory, 4, cudaMemcpyDeviceToHost));
        EXPECT_REFUSED(cudaMemcpy(host.data(), memory, 4, cudaMemcpyDefault));
        EXPECT_REFUSED(cudaMemcpy(all[1], memory, 4, cudaMemcpyDeviceToDevice));
        EXPECT_REFUSED(cudaMemcpyAsync(memory, all[1], 4, cudaMemcpyDeviceToDevice, stream));
    }
    // Addresses where nothing is: the thread that names them hears of it, at the call.
    auto *nothing = reinterpret_cast<unsigned char *>(0x10);
    EXPECT_REFUSED(cudaMemsetAsync(nothing, 1, 4, stream));
    EXPECT_REFUSED(cudaMemcpyAsync(nothing, host.data(), 4, cudaMemcpyHostToDevice, stream));
    EXPECT_REFUSED(cudaMemcpyAsync(nothing, all[1], 4, cudaMemcpyDeviceToDevice, stream));
    EXPECT_REFUSED(cudaMemcpy(all[1], nothing, 4, cudaMemcpyDeviceToDevice));
    EXPECT_CUDA(cudaHostRegister(nothing, 4096, 0), cudaErrorInvalidValue);
    // What NVIDIA's driver calls invalid (580.159.04 on an H200).
    unsigned char *pinned;
    CHECK_CUDA(cudaMallocHost(&pinned, 4096));
    EXPECT_CUDA(cudaHostRegister(pinned, 4096, 0), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaHostUnregister(pinned), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFreeHost(pinned));
    EXPECT_CUDA(cudaHostUnregister(host.data()), cudaErrorHostMemoryNotRegistered);
    CHECK_CUDA(cudaHostRegister(host.data(), 256, 0));
    EXPECT_CUDA(cudaHostRegister(host.data(), 256, 0), cudaErrorHostMemoryAlreadyRegistered);
    EXPECT_CUDA(cudaHostUnregister(host.data() + 64), cudaErrorInvalidValue);
    CHECK_CUDA(cudaHostUnregister(host.data()));
    char bus[16];
    EXPECT_CUDA(cudaDeviceGetPCIBusId(bus, 4, 0), cudaErrorInvalidValue);
    cudaGraph_t graph;
    cudaGraphNode_t node = nullptr;
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    EXPECT_CUDA(cudaGraphAddEmptyNode(&node, graph, &node, 1), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphLaunch(nullptr, stream), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphExecDestroy(nullptr), cudaErrorInvalidValue);
    CHECK_CUDA(cudaGraphDestroy(graph));
    require_bytes(all[1], SIZE, 1, "after refused copies");
    CHECK_CUDA(cudaStreamDestroy(stream));
    for (unsigned char *memory : all) CHECK_CUDA(cudaFree(memory));
    require_working("refused memsets");
}

static void check_stale_handles() {
    cudaStream_t stream;
    cudaEvent_t event;
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaEventCreate(&event));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaEventDestroy(event));
    cudaError_t error = cudaStreamSynchronize(stream);
    REQUIRE(error != cudaSuccess, "a destroyed stream was waited for with success");
    error = cudaEventQuery(event);
    REQUIRE(error != cudaSuccess && error != cudaErrorNotReady, "a destroyed event answered %s", cudaGetErrorName(error));
    error = cudaEventDestroy(event);
    REQUIRE(error != cudaSuccess, "an event was destroyed twice with success");
    // A handle that never was, in the place where such handles lie.
    error = cudaStreamQuery(reinterpret_cast<cudaStream_t>(reinterpret_cast<uintptr_t>(stream) + 0x10000));
    REQUIRE(error != cudaSuccess && error != cudaErrorNotReady, "an invented stream answered %s", cudaGetErrorName(error));
    (void)cudaGetLastError();
    require_working("stale handles");
}

int main(int count, char **arguments) {
    std::string which = count > 1 ? arguments[1] : "calls";
    if (which == "calls") {
        check_launches();
        check_cooperative();
        check_memory_calls();
        check_device_calls();
    } else if (which == "illegal_address") {
        require_working("nothing");
        write_to<<<1, 32>>>(reinterpret_cast<int *>(0x40), 1);
        CHECK_LAUNCH();  // the launch itself is fine
        require_sticky(cudaErrorIllegalAddress);
    } else if (which == "trap") {
        trap_if<<<1, 32>>>(false);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaDeviceSynchronize());
        trap_if<<<1, 32>>>(true);
        CHECK_LAUNCH();
        require_sticky(cudaErrorLaunchFailure);
    } else if (which == "assertion") {
        assert_less<<<1, 32>>>(32);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaDeviceSynchronize());
        assert_less<<<1, 32>>>(31);
        CHECK_LAUNCH();
        require_sticky(cudaErrorAssert);
    } else if (which == "bounds") {
        check_bounds();
    } else if (which == "stale_handles") {
        check_stale_handles();
    } else {
        fail("there is no case called %s", which.c_str());
    }
    return pass();
}

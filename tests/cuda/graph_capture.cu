// Stream capture: the program's memory and its functions in captured graphs, what is told of a capture, captures into graphs that
// are there, and what each mode forbids to which thread.
#include "check.h"

#include <atomic>
#include <thread>
#include <vector>

constexpr int COUNT = 20'000;
constexpr size_t BYTES = COUNT * sizeof(int);

__global__ void add(int *values, int amount) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) values[i] += amount;
}

static void launch_add(int *values, int amount, cudaStream_t stream) {
    add<<<(COUNT + 127) / 128, 128, 0, stream>>>(values, amount);
    CHECK_LAUNCH();
}

static void require_all(const int *values, int expected, const char *what) {
    for (int i = 0; i < COUNT; i++) REQUIRE(values[i] == expected, "%s: value %d is %d and not %d", what, i, values[i], expected);
}

static void set_all(int *values, int value) {
    for (int i = 0; i < COUNT; i++) values[i] = value;
}

struct Filling {
    int *memory;
    int next;
};

static void CUDART_CB fill(void *data) {
    Filling *filling = (Filling *)data;
    set_all(filling->memory, filling->next++);
}

// A host function fills the pinned source of the next copy; the result comes back into pageable and pinned memory.
static void host_memory(cudaStream_t stream, int *device) {
    Filling filling = {nullptr, 100};
    int *pinned;
    std::vector<int> pageable(COUNT), offsets(COUNT);
    CHECK_CUDA(cudaMallocHost(&filling.memory, BYTES));
    CHECK_CUDA(cudaMallocHost(&pinned, BYTES));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(cudaLaunchHostFunc(stream, fill, &filling));
    CHECK_CUDA(cudaMemcpyAsync(device, filling.memory, BYTES, cudaMemcpyHostToDevice, stream));
    launch_add(device, 1, stream);
    CHECK_CUDA(cudaMemcpyAsync(pageable.data(), device, BYTES, cudaMemcpyDeviceToHost, stream));
    launch_add(device, 1, stream);
    CHECK_CUDA(cudaMemcpyAsync(pinned, device, BYTES, cudaMemcpyDeviceToHost, stream));
    cudaGraph_t graph;
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    REQUIRE(filling.next == 100, "capturing called the host function");
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 10; i++) {
        CHECK_CUDA(cudaGraphLaunch(executable, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        require_all(pageable.data(), 101 + i, "pageable memory");
        require_all(pinned, 102 + i, "pinned memory");
    }
    // Ten launches without a wait between them, in two streams: each has its own value of the source.
    cudaStream_t other;
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (int i = 0; i < 10; i++) CHECK_CUDA(cudaGraphLaunch(executable, i % 2 ? other : stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaStreamSynchronize(other));
    require_all(pinned, 121, "pinned memory after ten launches");
    REQUIRE(filling.next == 120, "the host function was called %d times", filling.next - 100);
    CHECK_CUDA(cudaStreamDestroy(other));
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));

    // A source in pageable memory is read at each launch.
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK_CUDA(cudaMemcpyAsync(device, offsets.data(), BYTES, cudaMemcpyHostToDevice, stream));
    launch_add(device, 7, stream);
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; i++) {
        set_all(offsets.data(), i);
        CHECK_CUDA(cudaGraphLaunch(executable, stream));
        CHECK_CUDA(cudaMemcpyAsync(pinned, device, BYTES, cudaMemcpyDeviceToHost, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        require_all(pinned, i + 7, "a changed source");
    }
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaFreeHost(filling.memory));
    CHECK_CUDA(cudaFreeHost(pinned));
}

static void CUDART_CB count_destroyed(void *count) { ++*static_cast<std::atomic<int> *>(count); }

// What is told of a capture; nodes added beside the captured ones; a capture that goes on in a graph.
static void information(cudaStream_t stream, int *device) {
    cudaStreamCaptureStatus status;
    unsigned long long id = 0;
    cudaGraph_t graph, ended;
    const cudaGraphNode_t *tips;
    size_t count = 9;
    CHECK_CUDA(cudaMemset(device, 0, BYTES));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &tips, nullptr, &count));
    REQUIRE(status == cudaStreamCaptureStatusActive && count == 0, "a new capture has status %d and %zu tips", status, count);
    launch_add(device, 1, stream);
    CHECK_CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &tips, nullptr, &count));
    REQUIRE(count == 1, "after a launch there are %zu tips", count);
    cudaGraphNodeType type;
    CHECK_CUDA(cudaGraphNodeGetType(tips[0], &type));
    REQUIRE(type == cudaGraphNodeTypeKernel, "the tip's type is %d", type);
    // An object that the captured graph takes over, as NCCL has one for what its kernels need.
    static std::atomic<int> destroyed;
    destroyed = 0;
    cudaUserObject_t object;
    CHECK_CUDA(cudaUserObjectCreate(&object, &destroyed, count_destroyed, 1, cudaUserObjectNoDestructorSync));
    CHECK_CUDA(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    // A second branch, added by hand, that the next launch comes after as well.
    cudaGraphNode_t beside;
    CHECK_CUDA(cudaGraphAddEmptyNode(&beside, graph, tips, 1));
    CHECK_CUDA(cudaStreamUpdateCaptureDependencies(stream, &beside, nullptr, 1, cudaStreamAddCaptureDependencies));
    CHECK_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &tips, nullptr, &count));
    REQUIRE(count == 2, "with a node by hand there are %zu tips", count);
    launch_add(device, 2, stream);
    CHECK_CUDA(cudaStreamEndCapture(stream, &ended));
    REQUIRE(ended == graph, "the capture ended with another graph than it said");
    CHECK_CUDA(cudaStreamIsCapturing(stream, &status));
    REQUIRE(status == cudaStreamCaptureStatusNone, "after the capture the status is %d", status);

    CHECK_CUDA(cudaStreamBeginCaptureToGraph(stream, graph, &beside, nullptr, 1, cudaStreamCaptureModeRelaxed));
    launch_add(device, 4, stream);
    CHECK_CUDA(cudaStreamEndCapture(stream, &ended));
    REQUIRE(ended == graph, "a capture into a graph gave another one");
    CHECK_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
    REQUIRE(count == 4, "the graph has %zu nodes", count);
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));

    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    std::vector<int> values(COUNT);
    CHECK_CUDA(cudaMemcpy(values.data(), device, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) REQUIRE(values[i] >= 2, "value %d is %d", i, values[i]);
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    REQUIRE(destroyed == 0, "the graph's object was destroyed before the graph");
    CHECK_CUDA(cudaGraphDestroy(graph));
    while (destroyed != 1) usleep(1000);
}

// Stream-ordered memory in a capture belongs to the graph.
static void memory(cudaStream_t stream, int *device) {
    int *own;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(cudaMallocAsync(&own, BYTES, stream));
    CHECK_CUDA(cudaMemsetAsync(own, 0, BYTES, stream));
    launch_add(own, 3, stream);
    CHECK_CUDA(cudaMemcpyAsync(device, own, BYTES, cudaMemcpyDeviceToDevice, stream));
    CHECK_CUDA(cudaFreeAsync(own, stream));
    cudaGraph_t graph, clone;
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; i++) CHECK_CUDA(cudaGraphLaunch(executable, stream));
    std::vector<int> values(COUNT);
    CHECK_CUDA(cudaMemcpyAsync(values.data(), device, BYTES, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    require_all(values.data(), 3, "memory of the graph");
    REQUIRE(cudaGraphClone(&clone, graph) != cudaSuccess, "a graph with memory nodes was cloned");
    (void)cudaGetLastError();
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
}

// Queries an event, which may wait for the device and so is forbidden where a mode says so.
static cudaError_t query(cudaEvent_t event) {
    cudaError_t result = cudaEventQuery(event);
    (void)cudaGetLastError();
    return result;
}

static cudaError_t query_elsewhere(cudaEvent_t event, cudaStreamCaptureMode mode) {
    cudaError_t result = cudaErrorUnknown;
    std::thread([&] {
        CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
        result = query(event);
    }).join();
    return result;
}

static void modes(cudaStream_t stream) {
    cudaEvent_t event;
    CHECK_CUDA(cudaEventCreate(&event));
    CHECK_CUDA(cudaEventRecord(event, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    constexpr cudaStreamCaptureMode global = cudaStreamCaptureModeGlobal, local = cudaStreamCaptureModeThreadLocal,
                                    relaxed = cudaStreamCaptureModeRelaxed;
    struct {
        cudaStreamCaptureMode capture, thread;
        bool elsewhere, allowed;
    } cases[] = {
        {global, global, false, false}, {global, global, true, false}, {global, local, true, true},
        {global, relaxed, true, true},  {local, global, false, false}, {local, global, true, true},
        {relaxed, global, false, true}, {relaxed, global, true, true},
    };
    for (auto &one : cases) {
        CHECK_CUDA(cudaStreamBeginCapture(stream, one.capture));
        cudaError_t result = one.elsewhere ? query_elsewhere(event, one.thread) : query(event);
        cudaError_t expected = one.allowed ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
        REQUIRE(result == expected, "capture mode %d, %s thread in mode %d: %s", one.capture,
                one.elsewhere ? "another" : "the same", one.thread, cudaGetErrorName(result));
        cudaGraph_t graph = nullptr;
        if (one.allowed) {
            CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
            CHECK_CUDA(cudaGraphDestroy(graph));
        } else {
            EXPECT_CUDA(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
        }
    }
    // The thread that captures may allow it to itself for a while.
    CHECK_CUDA(cudaStreamBeginCapture(stream, global));
    cudaStreamCaptureMode mode = relaxed;
    CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    REQUIRE(mode == global, "the thread's mode was %d", mode);
    CHECK_CUDA(cudaEventQuery(event));
    void *block;
    CHECK_CUDA(cudaMalloc(&block, 16));
    CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    cudaGraph_t graph;
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaFree(block));
    CHECK_CUDA(cudaEventDestroy(event));
}

// Another thread polls an event of its own stream while this one captures.
static void polling(cudaStream_t stream, int *device) {
    int *other_memory;
    cudaStream_t other;
    cudaEvent_t event;
    CHECK_CUDA(cudaMalloc(&other_memory, BYTES));
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    std::atomic<bool> stop{false};
    std::atomic<int> rounds{0};
    std::thread poller([&] {
        while (!stop) {
            launch_add(other_memory, 1, other);
            CHECK_CUDA(cudaEventRecord(event, other));
            cudaError_t state;
            while ((state = cudaEventQuery(event)) == cudaErrorNotReady) (void)cudaGetLastError();
            CHECK_CUDA(state);
            rounds++;
        }
    });
    for (int i = 0; i < 50 || rounds < 5; i++) {
        CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (int node = 0; node < 20; node++) launch_add(device, 1, stream);
        cudaGraph_t graph;
        CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
        size_t count;
        CHECK_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
        REQUIRE(count == 20, "20 launches were captured, the graph has %zu nodes", count);
        CHECK_CUDA(cudaGraphDestroy(graph));
    }
    stop = true;
    poller.join();
    CHECK_CUDA(cudaEventDestroy(event));
    CHECK_CUDA(cudaStreamDestroy(other));
    CHECK_CUDA(cudaFree(other_memory));
}

static void wrong_uses(cudaStream_t stream, int *device) {
    cudaStream_t other;
    cudaEvent_t event;
    cudaGraph_t graph;
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    EXPECT_CUDA(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);

    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
    EXPECT_CUDA(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);

    // Freeing is not allowed, even if there is nothing to free.
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_CUDA(cudaFree(nullptr), cudaErrorStreamCaptureUnsupported);
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);

    // A branch that does not come back.
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    launch_add(device, 1, stream);
    CHECK_CUDA(cudaEventRecord(event, stream));
    CHECK_CUDA(cudaStreamWaitEvent(other, event, 0));
    launch_add(device, 1, other);
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);

    // Waiting for what was recorded outside.
    CHECK_CUDA(cudaEventRecord(event, other));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    EXPECT_CUDA(cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureIsolation);
    REQUIRE(cudaStreamEndCapture(stream, &graph) != cudaSuccess, "a capture that left its bounds gave a graph");
    (void)cudaGetLastError();

    // Ended by another thread.
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    std::thread([&] { EXPECT_CUDA(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureWrongThread); }).join();
    (void)cudaStreamEndCapture(stream, &graph);
    (void)cudaGetLastError();

    // Work in the legacy stream would have to wait for the captured one.
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    EXPECT_CUDA(cudaMemsetAsync(device, 0, BYTES, nullptr), cudaErrorStreamCaptureImplicit);
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaEventDestroy(event));
    CHECK_CUDA(cudaStreamDestroy(other));
}

int main() {
    cudaStream_t stream;
    int *device;
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaMalloc(&device, BYTES));
    host_memory(stream, device);
    information(stream, device);
    memory(stream, device);
    modes(stream);
    polling(stream, device);
    wrong_uses(stream, device);
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaStreamDestroy(stream));
    return pass();
}

// Mistakes in stream captures, alone in every mode and each after each other one: what the mistaken call returns, what becomes of
// the capture, what its end returns, and what the streams are afterwards. One line each, the same on every implementation.
//
// Every line is a capture of its own: `origin` (which the legacy default stream waits for, unless said otherwise) is captured,
// `forked` takes part in it, `outside` does not; then come the mistakes, the join of `forked` unless a mistake was to leave it out,
// and the end. After each call stand the states of the three streams: None, Active with the number of nodes that the next one
// comes after, Invalidated, or the error that asking gave.
#include "check.h"

#include <cuda_runtime.h>
#include <string>
#include <thread>
#include <vector>

__global__ void work(int *value) { *value += 1; }

static std::string name_of(cudaError_t error) {
    const char *name = cudaGetErrorName(error);
    return strncmp(name, "cudaError", 9) == 0 ? name + 9 : error == cudaSuccess ? "ok" : name;
}

struct Scene {
    cudaStream_t origin, forked, outside, second;
    cudaEvent_t fork, join, before, fresh, of_second;
    cudaStreamCaptureMode mode;
    cudaGraph_t foreign;
    cudaGraphNode_t foreign_node;
    cudaGraphExec_t executable;
    int *device, *spare;
    bool joins = true, has_second = false;
};

typedef cudaError_t (*Mistake)(Scene &);

static cudaError_t launch(cudaStream_t stream, int *device, unsigned threads = 1) {
    work<<<1, threads, 0, stream>>>(device);
    return cudaPeekAtLastError();
}

template <class Action> static cudaError_t elsewhere(Action action) {
    cudaError_t result = cudaErrorUnknown;
    std::thread([&] { result = action(); }).join();
    return result;
}

// Captures `second` too, and records an event there.
static void capture_second(Scene &scene) {
    if (scene.has_second) return;
    cudaStreamBeginCapture(scene.second, scene.mode);
    launch(scene.second, scene.device);
    cudaEventRecord(scene.of_second, scene.second);
    scene.has_second = true;
    (void)cudaGetLastError();
}

static void CUDART_CB nothing(void *) {}
static int host_value = 5;

static const struct {
    const char *name;
    Mistake make;
    bool in_pairs;
} MISTAKES[] = {
    {"nothing", [](Scene &) { return cudaSuccess; }, true},
    {"no_join", [](Scene &scene) { scene.joins = false; return cudaSuccess; }, true},
    {"end_forked", [](Scene &scene) { cudaGraph_t graph; return cudaStreamEndCapture(scene.forked, &graph); }, true},
    {"end_outside", [](Scene &scene) { cudaGraph_t graph; return cudaStreamEndCapture(scene.outside, &graph); }, true},
    {"end_legacy", [](Scene &) { cudaGraph_t graph; return cudaStreamEndCapture(nullptr, &graph); }, false},
    {"end_elsewhere", [](Scene &scene) { return elsewhere([&] { cudaGraph_t graph; return cudaStreamEndCapture(scene.origin, &graph); }); }, true},
    {"begin_again", [](Scene &scene) { return cudaStreamBeginCapture(scene.origin, scene.mode); }, true},
    {"begin_forked", [](Scene &scene) { return cudaStreamBeginCapture(scene.forked, scene.mode); }, true},
    {"begin_legacy", [](Scene &scene) { return cudaStreamBeginCapture(nullptr, scene.mode); }, false},
    {"begin_bad_mode", [](Scene &scene) { return cudaStreamBeginCapture(scene.outside, (cudaStreamCaptureMode)7); }, false},
    {"begin_to_no_graph", [](Scene &scene) { return cudaStreamBeginCaptureToGraph(scene.outside, nullptr, nullptr, nullptr, 0, scene.mode); }, false},
    {"begin_again_to_graph", [](Scene &scene) { return cudaStreamBeginCaptureToGraph(scene.origin, scene.foreign, nullptr, nullptr, 0, scene.mode); }, false},
    {"synchronize_origin", [](Scene &scene) { return cudaStreamSynchronize(scene.origin); }, true},
    {"query_origin", [](Scene &scene) { return cudaStreamQuery(scene.origin); }, false},
    {"synchronize_forked", [](Scene &scene) { return cudaStreamSynchronize(scene.forked); }, true},
    {"synchronize_outside", [](Scene &scene) { return cudaStreamSynchronize(scene.outside); }, true},
    {"query_outside", [](Scene &scene) { return cudaStreamQuery(scene.outside); }, false},
    {"synchronize_device", [](Scene &) { return cudaDeviceSynchronize(); }, true},
    {"synchronize_legacy", [](Scene &) { return cudaStreamSynchronize(nullptr); }, true},
    {"query_legacy", [](Scene &) { return cudaStreamQuery(nullptr); }, false},
    {"synchronize_fork_event", [](Scene &scene) { return cudaEventSynchronize(scene.fork); }, true},
    {"query_fork_event", [](Scene &scene) { return cudaEventQuery(scene.fork); }, false},
    {"elapsed_to_fork_event", [](Scene &scene) { float time; return cudaEventElapsedTime(&time, scene.before, scene.fork); }, true},
    {"synchronize_event_before", [](Scene &scene) { return cudaEventSynchronize(scene.before); }, false},
    {"query_event_before", [](Scene &scene) { return cudaEventQuery(scene.before); }, true},
    {"elapsed_before", [](Scene &scene) { float time; return cudaEventElapsedTime(&time, scene.before, scene.before); }, false},
    {"wait_for_event_before", [](Scene &scene) { return cudaStreamWaitEvent(scene.origin, scene.before, 0); }, true},
    {"wait_for_fresh_event", [](Scene &scene) { return cudaStreamWaitEvent(scene.origin, scene.fresh, 0); }, false},
    {"wait_with_bad_flag", [](Scene &scene) { return cudaStreamWaitEvent(scene.origin, scene.fork, 8); }, false},
    {"wait_external_for_fork", [](Scene &scene) { return cudaStreamWaitEvent(scene.origin, scene.fork, cudaEventWaitExternal); }, false},
    {"record_external", [](Scene &scene) { return cudaEventRecordWithFlags(scene.fresh, scene.origin, cudaEventRecordExternal); }, false},
    {"record_external_outside", [](Scene &scene) { return cudaEventRecordWithFlags(scene.fresh, scene.outside, cudaEventRecordExternal); }, false},
    {"wait_external_outside", [](Scene &scene) { return cudaStreamWaitEvent(scene.outside, scene.before, cudaEventWaitExternal); }, false},
    {"wait_for_other_capture",
     [](Scene &scene) { capture_second(scene); return cudaStreamWaitEvent(scene.origin, scene.of_second, 0); }, true},
    {"other_capture_waits",
     [](Scene &scene) { capture_second(scene); return cudaStreamWaitEvent(scene.second, scene.fork, 0); }, true},
    {"outside_waits_no_join", [](Scene &scene) { return cudaStreamWaitEvent(scene.outside, scene.fork, 0); }, true},
    {"legacy_waits", [](Scene &scene) { return cudaStreamWaitEvent(nullptr, scene.fork, 0); }, true},
    {"legacy_kernel", [](Scene &scene) { return launch(nullptr, scene.device); }, true},
    {"legacy_memset", [](Scene &scene) { return cudaMemsetAsync(scene.device, 0, 4, nullptr); }, false},
    {"legacy_record", [](Scene &scene) { return cudaEventRecord(scene.fresh, nullptr); }, true},
    {"legacy_status", [](Scene &) { cudaStreamCaptureStatus status; return cudaStreamIsCapturing(nullptr, &status); }, false},
    {"legacy_host_function", [](Scene &) { return cudaLaunchHostFunc(nullptr, nothing, nullptr); }, false},
    {"rerecord_outside_wait",
     [](Scene &scene) { cudaEventRecord(scene.fork, scene.outside); return cudaStreamWaitEvent(scene.origin, scene.fork, 0); }, false},
    {"malloc", [](Scene &) { void *memory = nullptr; cudaError_t result = cudaMalloc(&memory, 1 << 20); if (!result) cudaFree(memory); return result; }, true},
    {"free", [](Scene &scene) { int *spare = scene.spare; scene.spare = nullptr; return cudaFree(spare); }, false},
    {"malloc_host", [](Scene &) { void *memory = nullptr; cudaError_t result = cudaMallocHost(&memory, 4096); if (!result) cudaFreeHost(memory); return result; }, false},
    {"malloc_managed", [](Scene &) { void *memory = nullptr; cudaError_t result = cudaMallocManaged(&memory, 4096); if (!result) cudaFree(memory); return result; }, false},
    {"memcpy_to_device", [](Scene &scene) { return cudaMemcpy(scene.device, &host_value, 4, cudaMemcpyHostToDevice); }, true},
    {"memcpy_to_host", [](Scene &scene) { int value; return cudaMemcpy(&value, scene.device, 4, cudaMemcpyDeviceToHost); }, false},
    {"memcpy_within", [](Scene &scene) { return cudaMemcpy(scene.device + 1, scene.device, 4, cudaMemcpyDeviceToDevice); }, false},
    {"memset", [](Scene &scene) { return cudaMemset(scene.device, 0, 4); }, false},
    {"memory_info", [](Scene &) { size_t free, total; return cudaMemGetInfo(&free, &total); }, false},
    {"free_async_of_malloc", [](Scene &scene) { return cudaFreeAsync(scene.device, scene.origin); }, false},
    {"malloc_async", [](Scene &scene) { void *memory; return cudaMallocAsync(&memory, 64, scene.origin); }, false},
    {"create_event", [](Scene &) { cudaEvent_t event; cudaError_t result = cudaEventCreate(&event); return result ? result : cudaEventDestroy(event); }, false},
    {"create_stream", [](Scene &) { cudaStream_t stream; cudaError_t result = cudaStreamCreate(&stream); return result ? result : cudaStreamDestroy(stream); }, false},
    {"destroy_fork_event", [](Scene &scene) { cudaEvent_t event = scene.fork; cudaEventCreate(&scene.fork); return cudaEventDestroy(event); }, false},
    {"bad_launch", [](Scene &scene) { return launch(scene.origin, scene.device, 5000); }, true},
    {"bad_copy", [](Scene &scene) { return cudaMemcpyAsync(nullptr, scene.device, 4, cudaMemcpyDeviceToDevice, scene.origin); }, false},
    {"bad_exchange", [](Scene &) { cudaStreamCaptureMode mode = (cudaStreamCaptureMode)7; return cudaThreadExchangeStreamCaptureMode(&mode); }, false},
    {"update_with_foreign_node",
     [](Scene &scene) { return cudaStreamUpdateCaptureDependencies(scene.origin, &scene.foreign_node, nullptr, 1, cudaStreamSetCaptureDependencies); }, true},
    {"update_with_no_list", [](Scene &scene) { return cudaStreamUpdateCaptureDependencies(scene.origin, nullptr, nullptr, 1, cudaStreamSetCaptureDependencies); }, false},
    {"update_with_bad_flag", [](Scene &scene) { return cudaStreamUpdateCaptureDependencies(scene.origin, nullptr, nullptr, 0, 7); }, false},
    {"update_to_nothing", [](Scene &scene) { return cudaStreamUpdateCaptureDependencies(scene.origin, nullptr, nullptr, 0, cudaStreamSetCaptureDependencies); }, false},
    {"update_outside", [](Scene &scene) { return cudaStreamUpdateCaptureDependencies(scene.outside, nullptr, nullptr, 0, cudaStreamSetCaptureDependencies); }, false},
    {"launch_graph", [](Scene &scene) { return cudaGraphLaunch(scene.executable, scene.origin); }, false},
    {"launch_graph_legacy", [](Scene &scene) { return cudaGraphLaunch(scene.executable, nullptr); }, false},
    {"launch_graph_outside", [](Scene &scene) { return cudaGraphLaunch(scene.executable, scene.outside); }, false},
    {"upload_graph", [](Scene &scene) { return cudaGraphUpload(scene.executable, scene.origin); }, false},
    {"instantiate", [](Scene &scene) { cudaGraphExec_t made; cudaError_t result = cudaGraphInstantiate(&made, scene.foreign, 0); return result ? result : cudaGraphExecDestroy(made); }, false},
    {"kernel_elsewhere", [](Scene &scene) { return elsewhere([&] { return launch(scene.origin, scene.device); }); }, false},
    {"malloc_elsewhere", [](Scene &) { return elsewhere([] { void *memory = nullptr; cudaError_t result = cudaMalloc(&memory, 64); if (!result) cudaFree(memory); return result; }); }, true},
    {"synchronize_device_elsewhere", [](Scene &) { return elsewhere([] { return cudaDeviceSynchronize(); }); }, false},
    {"synchronize_outside_elsewhere", [](Scene &scene) { return elsewhere([&] { return cudaStreamSynchronize(scene.outside); }); }, false},
    {"synchronize_origin_elsewhere", [](Scene &scene) { return elsewhere([&] { return cudaStreamSynchronize(scene.origin); }); }, false},
    {"query_event_elsewhere", [](Scene &scene) { return elsewhere([&] { return cudaEventQuery(scene.before); }); }, false},
    {"relaxed_for_a_while",
     [](Scene &scene) {
         cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
         cudaThreadExchangeStreamCaptureMode(&mode);
         cudaError_t result = cudaStreamSynchronize(scene.outside);
         cudaThreadExchangeStreamCaptureMode(&mode);
         return result;
     },
     false},
};

static std::string state_of(cudaStream_t stream) {
    cudaStreamCaptureStatus status;
    size_t count = 0;
    const cudaGraphNode_t *nodes;
    cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, nullptr, &count);
    if (error) {
        (void)cudaGetLastError();
        return name_of(error);
    }
    cudaStreamCaptureStatus simple = cudaStreamCaptureStatusNone;
    cudaError_t asked = cudaStreamIsCapturing(stream, &simple);
    std::string other = asked || simple != status ? "!" + name_of(asked) + std::to_string(simple) : "";
    if (status == cudaStreamCaptureStatusNone) return "N" + other;
    return (status == cudaStreamCaptureStatusActive ? "A" + std::to_string(count) : "I") + other;
}

static std::string states_of(Scene &scene) {
    std::string text = "[" + state_of(scene.origin) + " " + state_of(scene.forked) + " " + state_of(scene.outside);
    if (scene.has_second) text += " " + state_of(scene.second);
    return text + "]";
}

// What a call returned, and what it left as the last error if that is another.
static std::string outcome(cudaError_t error) {
    cudaError_t last = cudaGetLastError();
    return name_of(error) + (last == error ? "" : "(last " + name_of(last) + ")");
}

static const char *const MODES[] = {"global", "local", "relaxed"};

static void play(const char *kind, cudaStreamCaptureMode mode, unsigned flags, std::vector<size_t> mistakes) {
    Scene scene;
    scene.mode = mode;
    CHECK_CUDA(cudaStreamCreateWithFlags(&scene.origin, flags));
    for (cudaStream_t *stream : {&scene.forked, &scene.outside, &scene.second})
        CHECK_CUDA(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (cudaEvent_t *event : {&scene.fork, &scene.join, &scene.before, &scene.fresh, &scene.of_second}) CHECK_CUDA(cudaEventCreate(event));
    CHECK_CUDA(cudaMalloc(&scene.device, 64));
    CHECK_CUDA(cudaMalloc(&scene.spare, 64));
    CHECK_CUDA(cudaGraphCreate(&scene.foreign, 0));
    CHECK_CUDA(cudaGraphAddEmptyNode(&scene.foreign_node, scene.foreign, nullptr, 0));
    CHECK_CUDA(cudaGraphInstantiate(&scene.executable, scene.foreign, 0));
    CHECK_CUDA(cudaEventRecord(scene.before, scene.outside));
    CHECK_CUDA(cudaDeviceSynchronize());

    CHECK_CUDA(cudaStreamBeginCapture(scene.origin, mode));
    CHECK_CUDA(launch(scene.origin, scene.device));
    CHECK_CUDA(cudaEventRecord(scene.fork, scene.origin));
    CHECK_CUDA(cudaStreamWaitEvent(scene.forked, scene.fork, 0));
    CHECK_CUDA(launch(scene.forked, scene.device));
    std::string line = kind;
    for (size_t mistake : mistakes) {
        line += std::string(" ") + MISTAKES[mistake].name + "=";
        line += outcome(MISTAKES[mistake].make(scene));
        line += " " + states_of(scene);
    }
    if (scene.joins) {
        line += " join=" + outcome(cudaEventRecord(scene.join, scene.forked));
        line += "," + outcome(cudaStreamWaitEvent(scene.origin, scene.join, 0));
    }
    cudaGraph_t graph = scene.foreign;
    cudaError_t ended = cudaStreamEndCapture(scene.origin, &graph);
    line += " end=" + outcome(ended);
    line += graph == nullptr ? " no graph" : graph == scene.foreign ? " graph untouched" : " graph";
    if (!ended && graph && graph != scene.foreign) {
        size_t count = 0;
        cudaGraphGetNodes(graph, nullptr, &count);
        line += " of " + std::to_string(count);
        cudaGraphDestroy(graph);
    }
    line += " " + states_of(scene);
    if (scene.has_second) line += " second's end=" + outcome(cudaStreamEndCapture(scene.second, &graph));
    printf("%s\n", line.c_str());
    fflush(stdout);

    for (cudaStream_t stream : {scene.origin, scene.forked, scene.outside, scene.second}) {
        cudaStreamEndCapture(stream, &graph);
        cudaStreamDestroy(stream);
    }
    for (cudaEvent_t event : {scene.fork, scene.join, scene.before, scene.fresh, scene.of_second}) cudaEventDestroy(event);
    cudaGraphExecDestroy(scene.executable);
    cudaGraphDestroy(scene.foreign);
    cudaDeviceSynchronize();
    cudaFree(scene.device);
    cudaFree(scene.spare);
    (void)cudaGetLastError();
}

int main() {
    constexpr size_t count = sizeof(MISTAKES) / sizeof(MISTAKES[0]);
    for (int mode = 0; mode < 3; mode++)
        for (size_t one = 0; one < count; one++) play(MODES[mode], (cudaStreamCaptureMode)mode, cudaStreamDefault, {one});
    for (size_t one = 0; one < count; one++) play("non-blocking", cudaStreamCaptureModeGlobal, cudaStreamNonBlocking, {one});
    for (size_t one = 0; one < count; one++)
        for (size_t two = 0; two < count; two++)
            if (MISTAKES[one].in_pairs && MISTAKES[two].in_pairs)
                play("then", cudaStreamCaptureModeGlobal, cudaStreamDefault, {one, two});
    return pass();
}

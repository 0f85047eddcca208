// For programs that show what captures do in scenes, a line a fact: the same lines natively and through Causeway. Each scene is a
// process of its own, since CUDA may break in some.
#pragma once

#include "check.h"

#include <cuda_runtime.h>
#include <string>
#include <sys/wait.h>

__global__ void work(int *value) { atomicAdd(value, 1); }

static const char *name_of(cudaError_t error) {
    (void)cudaGetLastError();
    const char *name = cudaGetErrorName(error);
    return strncmp(name, "cudaError", 9) == 0 ? name + 9 : error == cudaSuccess ? "ok" : name;
}

struct Scene {
    const char *name;
    void (*play)();
};

#define SCENE(name) {#name, name}

static const char *scene_name;
static cudaStream_t origin, forked, other;
static cudaEvent_t fork_event, join_event, outer;
static int *device;
static cudaGraph_t graph;

static void say(const char *what, cudaError_t result) {
    printf("%s: %s: %s\n", scene_name, what, name_of(result));
    fflush(stdout);
}

[[maybe_unused]] static void tell(const char *what, long long value) {
    printf("%s: %s: %lld\n", scene_name, what, value);
    fflush(stdout);
}

#define SAY(call) say(#call, call)

[[maybe_unused]] static cudaError_t launch(cudaStream_t stream) {
    work<<<1, 1, 0, stream>>>(device);
    return cudaPeekAtLastError();
}

[[maybe_unused]] static void state(const char *what, cudaStream_t stream) {
    cudaStreamCaptureStatus status;
    unsigned long long id = 0;
    cudaGraph_t captured = nullptr;
    const cudaGraphNode_t *nodes;
    size_t count = 0;
    cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &id, &captured, &nodes, nullptr, &count);
    if (error) return say(what, error);
    const char *names[] = {"none", "active", "invalidated"};
    printf("%s: %s: %s, %zu before the next one, %s graph\n", scene_name, what, names[status], count, captured ? "with" : "no");
    fflush(stdout);
}

[[maybe_unused]] static void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    CHECK_CUDA(cudaStreamBeginCapture(origin, mode));
    CHECK_CUDA(launch(origin));
}

[[maybe_unused]] static void fork_stream(bool works = true) {
    CHECK_CUDA(cudaEventRecord(fork_event, origin));
    CHECK_CUDA(cudaStreamWaitEvent(forked, fork_event, 0));
    if (works) CHECK_CUDA(launch(forked));
}

[[maybe_unused]] static void join() {
    SAY(cudaEventRecord(join_event, forked));
    SAY(cudaStreamWaitEvent(origin, join_event, 0));
}

[[maybe_unused]] static void end() {
    graph = (cudaGraph_t)8;
    SAY(cudaStreamEndCapture(origin, &graph));
    size_t count = 0, edges = 0;
    if (graph == nullptr) tell("nodes of no graph", 0);
    if (graph == (cudaGraph_t)8) tell("the graph is not written", 0);
    if (graph == nullptr || graph == (cudaGraph_t)8) return;
    SAY(cudaGraphGetNodes(graph, nullptr, &count));
    SAY(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    tell("nodes", count);
    tell("edges", edges);
}

// Launches the graph and counts what its kernels did.
[[maybe_unused]] static void count_kernels() {
    cudaGraphExec_t executable;
    int before, after;
    CHECK_CUDA(cudaMemcpy(&before, device, 4, cudaMemcpyDeviceToHost));
    SAY(cudaGraphInstantiate(&executable, graph, 0));
    SAY(cudaGraphLaunch(executable, other));
    SAY(cudaStreamSynchronize(other));
    CHECK_CUDA(cudaMemcpy(&after, device, 4, cudaMemcpyDeviceToHost));
    tell("kernels", after - before);
}

static void play(const Scene &scene) {
    scene_name = scene.name;
    for (cudaStream_t *stream : {&origin, &forked, &other}) CHECK_CUDA(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (cudaEvent_t *event : {&fork_event, &join_event, &outer}) CHECK_CUDA(cudaEventCreate(event));
    CHECK_CUDA(cudaMalloc(&device, 64));
    CHECK_CUDA(cudaMemset(device, 0, 64));
    CHECK_CUDA(launch(other));
    CHECK_CUDA(cudaDeviceSynchronize());
    scene.play();
    fflush(stdout);
    _exit(0);
}

// Four at a time; each writes to a file of its own, so that the order of the lines is always the same.
template <size_t count>
static void play_all(const Scene (&scenes)[count]) {
    constexpr size_t at_once = 4;
    fflush(stdout);
    for (size_t first = 0; first < count; first += at_once) {
        FILE *outputs[at_once];
        pid_t children[at_once];
        size_t playing = count - first < at_once ? count - first : at_once;
        for (size_t i = 0; i < playing; i++) {
            outputs[i] = tmpfile();
            children[i] = fork();
            if (children[i] == 0) {
                dup2(fileno(outputs[i]), STDOUT_FILENO);
                alarm(10);
                play(scenes[first + i]);
            }
        }
        for (size_t i = 0; i < playing; i++) {
            int status = 0;
            waitpid(children[i], &status, 0);
            rewind(outputs[i]);
            char buffer[4096];
            for (size_t got; (got = fread(buffer, 1, sizeof(buffer), outputs[i])) > 0;) fwrite(buffer, 1, got, stdout);
            fclose(outputs[i]);
            if (WIFSIGNALED(status)) printf("%s: ends by signal %d\n", scenes[first + i].name, WTERMSIG(status));
            else if (WEXITSTATUS(status)) printf("%s: ends with %d\n", scenes[first + i].name, WEXITSTATUS(status));
            fflush(stdout);
        }
    }
}

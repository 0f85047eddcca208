// What a capture survives: streams, events, graphs and nodes that are destroyed before it ends, threads that are gone, what is left
// of events and graphs after an end and after a failed one. Each scene is a process of its own, since CUDA may break in some.
#include "check.h"

#include <cuda_runtime.h>
#include <string>
#include <sys/wait.h>
#include <thread>

__global__ void work(int *value) { atomicAdd(value, 1); }

static const char *name_of(cudaError_t error) {
    (void)cudaGetLastError();
    const char *name = cudaGetErrorName(error);
    return strncmp(name, "cudaError", 9) == 0 ? name + 9 : error == cudaSuccess ? "ok" : name;
}

static const char *scene_name;
static cudaStream_t origin, forked, other;
static cudaEvent_t fork_event, join_event, outer;
static int *device;
static cudaGraph_t graph;

static void say(const char *what, cudaError_t result) {
    printf("%s: %s: %s\n", scene_name, what, name_of(result));
    fflush(stdout);
}

static void tell(const char *what, long long value) {
    printf("%s: %s: %lld\n", scene_name, what, value);
    fflush(stdout);
}

#define SAY(call) say(#call, call)

static cudaError_t launch(cudaStream_t stream) {
    work<<<1, 1, 0, stream>>>(device);
    return cudaPeekAtLastError();
}

static void state(const char *what, cudaStream_t stream) {
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

static void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    CHECK_CUDA(cudaStreamBeginCapture(origin, mode));
    CHECK_CUDA(launch(origin));
}

static void fork_stream(bool works = true) {
    CHECK_CUDA(cudaEventRecord(fork_event, origin));
    CHECK_CUDA(cudaStreamWaitEvent(forked, fork_event, 0));
    if (works) CHECK_CUDA(launch(forked));
}

static void join() {
    SAY(cudaEventRecord(join_event, forked));
    SAY(cudaStreamWaitEvent(origin, join_event, 0));
}

static void end() {
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
static void count_kernels() {
    cudaGraphExec_t executable;
    int before, after;
    CHECK_CUDA(cudaMemcpy(&before, device, 4, cudaMemcpyDeviceToHost));
    SAY(cudaGraphInstantiate(&executable, graph, 0));
    SAY(cudaGraphLaunch(executable, other));
    SAY(cudaStreamSynchronize(other));
    CHECK_CUDA(cudaMemcpy(&after, device, 4, cudaMemcpyDeviceToHost));
    tell("kernels", after - before);
}

static void joined_stream_destroyed() {
    begin();
    fork_stream();
    join();
    SAY(cudaStreamDestroy(forked));
    state("origin", origin);
    SAY(launch(origin));
    end();
    if (graph) count_kernels();
}

static void joined_stream_destroyed_event_reused() {
    begin();
    fork_stream();
    join();
    SAY(cudaStreamDestroy(forked));
    SAY(cudaStreamWaitEvent(other, join_event, 0));
    state("other", other);
    SAY(launch(other));
    SAY(cudaEventRecord(outer, other));
    SAY(cudaStreamWaitEvent(origin, outer, 0));
    end();
    if (graph) count_kernels();
}

static void joined_then_worked_destroyed() {
    begin();
    fork_stream();
    join();
    SAY(launch(forked));
    SAY(cudaStreamDestroy(forked));
    state("origin", origin);
    end();
}

static void unjoined_stream_destroyed() {
    begin();
    fork_stream();
    SAY(cudaStreamDestroy(forked));
    state("origin", origin);
    SAY(launch(origin));
    end();
    state("origin after", origin);
}

static void idle_fork_destroyed() {
    begin();
    fork_stream(false);
    SAY(cudaStreamDestroy(forked));
    state("origin", origin);
    end();
}

static void recorded_then_destroyed_then_joined() {
    begin();
    fork_stream();
    SAY(cudaEventRecord(join_event, forked));
    SAY(cudaStreamDestroy(forked));
    state("origin", origin);
    SAY(cudaStreamWaitEvent(origin, join_event, 0));
    state("origin after waiting", origin);
    end();
}

static void invalidated_fork_destroyed() {
    begin();
    fork_stream();
    SAY(cudaStreamSynchronize(origin));
    SAY(cudaStreamDestroy(forked));
    state("origin", origin);
    end();
}

static void origin_destroyed() {
    begin();
    fork_stream();
    join();
    SAY(cudaStreamDestroy(origin));
    state("forked", forked);
    SAY(launch(forked));
    graph = nullptr;
    SAY(cudaStreamEndCapture(forked, &graph));
    state("forked after", forked);
    SAY(cudaStreamBeginCapture(forked, cudaStreamCaptureModeGlobal));
    SAY(cudaDeviceSynchronize());
    SAY(cudaStreamDestroy(forked));
    SAY(cudaDeviceSynchronize());
}

static void lone_origin_destroyed() {
    begin(cudaStreamCaptureModeGlobal);
    SAY(cudaStreamDestroy(origin));
    SAY(cudaDeviceSynchronize());
    SAY(launch(other));
    SAY(cudaStreamSynchronize(other));
    SAY(cudaMalloc(&device, 64));
}

static void unjoined_stream_destroyed_after_failed_end() {
    begin();
    fork_stream();
    end();
    state("origin", origin);
    state("forked", forked);
    SAY(launch(forked));
    SAY(cudaStreamSynchronize(forked));
    SAY(cudaStreamDestroy(forked));
    begin();
    end();
}

static void forked_goes_on_after_end() {
    begin();
    fork_stream();
    join();
    end();
    state("forked", forked);
    SAY(launch(forked));
    SAY(cudaStreamSynchronize(forked));
    SAY(cudaEventQuery(join_event));
    SAY(cudaEventSynchronize(join_event));
    SAY(cudaStreamWaitEvent(other, join_event, 0));
    state("other", other);
    float time;
    SAY(cudaEventElapsedTime(&time, join_event, join_event));
    SAY(cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal));
    SAY(cudaStreamWaitEvent(other, join_event, 0));
    state("other in a new capture", other);
    cudaGraph_t second;
    SAY(cudaStreamEndCapture(other, &second));
    SAY(cudaEventRecord(join_event, other));
    SAY(cudaEventSynchronize(join_event));
}

static void events_after_failed_end() {
    begin();
    fork_stream();
    end();
    SAY(cudaEventQuery(fork_event));
    SAY(cudaEventSynchronize(fork_event));
    SAY(cudaStreamWaitEvent(other, fork_event, 0));
    SAY(cudaEventRecord(fork_event, other));
    SAY(cudaEventSynchronize(fork_event));
}

static void fork_event_destroyed() {
    begin();
    fork_stream();
    SAY(cudaEventDestroy(fork_event));
    join();
    SAY(cudaEventDestroy(join_event));
    end();
}

static void join_event_recorded_twice() {
    begin();
    fork_stream();
    SAY(cudaEventRecord(join_event, forked));
    SAY(launch(forked));
    SAY(cudaEventRecord(join_event, forked));
    SAY(cudaStreamWaitEvent(origin, join_event, 0));
    end();
}

static void joined_too_early() {
    begin();
    fork_stream();
    join();
    SAY(launch(forked));
    end();
    state("forked", forked);
}

static void node_destroyed_in_capture() {
    begin();
    cudaStreamCaptureStatus status;
    cudaGraph_t captured;
    const cudaGraphNode_t *nodes;
    size_t count = 0;
    CHECK_CUDA(cudaStreamGetCaptureInfo(origin, &status, nullptr, &captured, &nodes, nullptr, &count));
    SAY(cudaGraphDestroyNode(nodes[0]));
    state("origin", origin);
}

static void node_destroyed_then_work() {
    begin();
    cudaStreamCaptureStatus status;
    cudaGraph_t captured;
    const cudaGraphNode_t *nodes;
    size_t count = 0;
    CHECK_CUDA(cudaStreamGetCaptureInfo(origin, &status, nullptr, &captured, &nodes, nullptr, &count));
    cudaGraphNode_t first = nodes[0];
    CHECK_CUDA(launch(origin));
    SAY(cudaGraphDestroyNode(first));
    state("origin", origin);
    SAY(launch(origin));
    end();
}

static void graph_used_in_capture() {
    begin();
    cudaStreamCaptureStatus status;
    cudaGraph_t captured, clone, parent;
    cudaGraphExec_t executable;
    cudaGraphNode_t node;
    const cudaGraphNode_t *nodes;
    size_t count = 0;
    CHECK_CUDA(cudaStreamGetCaptureInfo(origin, &status, nullptr, &captured, &nodes, nullptr, &count));
    SAY(cudaGraphInstantiate(&executable, captured, 0));
    SAY(cudaGraphClone(&clone, captured));
    SAY(cudaGraphCreate(&parent, 0));
    SAY(cudaGraphAddChildGraphNode(&node, parent, nullptr, 0, captured));
    SAY(cudaGraphAddEmptyNode(&node, captured, nullptr, 0));
    state("origin", origin);
    end();
}

static void graph_destroyed_in_capture() {
    begin();
    cudaStreamCaptureStatus status;
    cudaGraph_t captured;
    const cudaGraphNode_t *nodes;
    size_t count = 0;
    CHECK_CUDA(cudaStreamGetCaptureInfo(origin, &status, nullptr, &captured, &nodes, nullptr, &count));
    SAY(cudaGraphDestroy(captured));
    state("origin", origin);
}

static void into_graph() {
    cudaGraph_t target, foreign;
    cudaGraphNode_t nodes[3], theirs;
    CHECK_CUDA(cudaGraphCreate(&target, 0));
    CHECK_CUDA(cudaGraphCreate(&foreign, 0));
    CHECK_CUDA(cudaGraphAddEmptyNode(&theirs, foreign, nullptr, 0));
    for (int i = 0; i < 3; i++) CHECK_CUDA(cudaGraphAddEmptyNode(&nodes[i], target, nullptr, 0));
    const cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    SAY(cudaStreamBeginCaptureToGraph(origin, nullptr, nullptr, nullptr, 0, mode));
    state("origin", origin);
    SAY(cudaStreamBeginCaptureToGraph(origin, target, &theirs, nullptr, 1, mode));
    state("origin", origin);
    SAY(cudaStreamBeginCaptureToGraph(origin, target, nullptr, nullptr, 1, mode));
    state("origin", origin);
    cudaGraphNode_t twice[2] = {nodes[0], nodes[0]};
    SAY(cudaStreamBeginCaptureToGraph(origin, target, twice, nullptr, 2, mode));
    state("origin", origin);
    SAY(cudaStreamEndCapture(origin, &graph));
    cudaGraphNode_t null_node = nullptr;
    SAY(cudaStreamBeginCaptureToGraph(origin, target, &null_node, nullptr, 1, mode));
    SAY(cudaStreamBeginCaptureToGraph(origin, target, nodes, nullptr, 2, (cudaStreamCaptureMode)9));
    SAY(cudaStreamBeginCaptureToGraph(nullptr, target, nodes, nullptr, 2, mode));
    SAY(cudaStreamBeginCaptureToGraph(origin, target, nodes, nullptr, 2, mode));
    SAY(launch(origin));
    SAY(cudaStreamEndCapture(origin, &graph));
    tell("it is the same graph", graph == target);
    size_t count = 0;
    CHECK_CUDA(cudaGraphGetNodes(target, nullptr, &count));
    tell("nodes", count);
    // One node twice.
    SAY(cudaStreamBeginCaptureToGraph(origin, target, twice, nullptr, 2, mode));
    SAY(launch(origin));
    SAY(cudaStreamEndCapture(origin, &graph));
    CHECK_CUDA(cudaGraphGetNodes(target, nullptr, &count));
    tell("nodes", count);
    // A failed capture into it.
    SAY(cudaStreamBeginCaptureToGraph(origin, target, nodes, nullptr, 1, mode));
    SAY(launch(origin));
    SAY(launch(origin));
    SAY(cudaStreamSynchronize(origin));
    graph = (cudaGraph_t)8;
    SAY(cudaStreamEndCapture(origin, &graph));
    tell("null", graph == nullptr);
    SAY(cudaGraphGetNodes(target, nullptr, &count));
    tell("nodes", count);
    // An unjoined one.
    SAY(cudaStreamBeginCaptureToGraph(origin, target, nodes, nullptr, 1, mode));
    fork_stream();
    graph = (cudaGraph_t)8;
    SAY(cudaStreamEndCapture(origin, &graph));
    tell("null", graph == nullptr);
    SAY(cudaGraphGetNodes(target, nullptr, &count));
    tell("nodes", count);
    cudaGraphExec_t executable;
    SAY(cudaGraphInstantiate(&executable, target, 0));
    SAY(cudaGraphDestroy(target));
}

static void into_graph_ended_with_null() {
    cudaGraph_t target;
    CHECK_CUDA(cudaGraphCreate(&target, 0));
    SAY(cudaStreamBeginCaptureToGraph(origin, target, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
    SAY(launch(origin));
    SAY(cudaStreamEndCapture(origin, nullptr));
    state("origin", origin);
    size_t count = 0;
    SAY(cudaGraphGetNodes(target, nullptr, &count));
    tell("nodes", count);
    SAY(cudaStreamEndCapture(origin, &graph));
}

static void into_graph_failed_with_null() {
    cudaGraph_t target;
    CHECK_CUDA(cudaGraphCreate(&target, 0));
    SAY(cudaStreamBeginCaptureToGraph(origin, target, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
    SAY(cudaStreamSynchronize(origin));
    SAY(cudaStreamEndCapture(origin, nullptr));
    state("origin", origin);
}

static void ended_with_null() {
    begin();
    SAY(cudaStreamEndCapture(origin, nullptr));
    state("origin", origin);
    end();
}

static void failed_with_null() {
    begin();
    SAY(cudaStreamSynchronize(origin));
    SAY(cudaStreamEndCapture(origin, nullptr));
    state("origin", origin);
    end();
}

static void target_destroyed_in_capture() {
    cudaGraph_t target;
    CHECK_CUDA(cudaGraphCreate(&target, 0));
    SAY(cudaStreamBeginCaptureToGraph(origin, target, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
    SAY(cudaGraphDestroy(target));
    state("origin", origin);
}

static void begun_by_thread_that_is_gone() {
    const char *names[] = {"global", "local", "relaxed"};
    for (int mode = 0; mode < 3; mode++) {
        std::thread([&] { begin((cudaStreamCaptureMode)mode); }).join();
        printf("%s: mode %s\n", scene_name, names[mode]);
        state("origin", origin);
        SAY(launch(origin));
        SAY(cudaStreamSynchronize(other));
        end();
        state("origin after", origin);
        if (mode < 2) {
            CHECK_CUDA(cudaStreamCreateWithFlags(&origin, cudaStreamNonBlocking));
        }
    }
}

static void threads_modes() {
    for (int capture = 0; capture < 3; capture++) {
        for (int own = 0; own < 3; own++) {
            for (int same = 0; same < 2; same++) {
                CHECK_CUDA(cudaStreamBeginCapture(origin, (cudaStreamCaptureMode)capture));
                cudaError_t sync = cudaErrorUnknown, memory = cudaErrorUnknown, query = cudaErrorUnknown;
                auto action = [&] {
                    cudaStreamCaptureMode mode = (cudaStreamCaptureMode)own;
                    cudaThreadExchangeStreamCaptureMode(&mode);
                    void *block = nullptr;
                    memory = cudaMalloc(&block, 64);
                    query = cudaStreamQuery(other);
                    sync = cudaDeviceSynchronize();
                    cudaThreadExchangeStreamCaptureMode(&mode);
                    (void)cudaGetLastError();
                };
                if (same) action();
                else std::thread(action).join();
                printf("%s: capture %d, %s thread in %d: malloc %s,", scene_name, capture, same ? "same" : "other", own, name_of(memory));
                printf(" query %s,", name_of(query));
                printf(" device synchronize %s", name_of(sync));
                cudaStreamCaptureStatus status;
                cudaStreamIsCapturing(origin, &status);
                printf(", then %d, end %s\n", status, name_of(cudaStreamEndCapture(origin, &graph)));
                fflush(stdout);
            }
        }
    }
}

static void information() {
    begin();
    fork_stream();
    unsigned long long one = 0, two = 0, after = 77;
    cudaStreamCaptureStatus status;
    SAY(cudaStreamGetCaptureInfo(origin, &status, &one));
    SAY(cudaStreamGetCaptureInfo(forked, &status, &two));
    tell("the same id", one == two && one != 0);
    SAY(cudaStreamGetCaptureInfo(other, &status, &after));
    tell("the id of a stream that is not captured is written", after != 77);
    SAY(cudaStreamSynchronize(origin));
    after = 77;
    cudaGraph_t captured = (cudaGraph_t)8;
    const cudaGraphNode_t *nodes = (const cudaGraphNode_t *)8;
    size_t count = 77;
    SAY(cudaStreamGetCaptureInfo(origin, &status, &after, &captured, &nodes, nullptr, &count));
    tell("status", status);
    tell("the id of an invalidated capture is written", after != 77);
    tell("and is the same", after == one);
    tell("its graph is written", captured != (cudaGraph_t)8);
    tell("its nodes are written", nodes != (const cudaGraphNode_t *)8);
    tell("their number is written", count != 77);
    end();
}

static void several_joins() {
    cudaStream_t more[3];
    for (auto &stream : more) CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    begin();
    CHECK_CUDA(cudaEventRecord(fork_event, origin));
    for (auto stream : more) {
        SAY(cudaStreamWaitEvent(stream, fork_event, 0));
        SAY(launch(stream));
    }
    // Each joins the one before it, and the last joins the origin.
    for (int i = 0; i < 3; i++) {
        SAY(cudaEventRecord(join_event, more[i]));
        SAY(cudaStreamWaitEvent(i < 2 ? more[i + 1] : origin, join_event, 0));
        SAY(cudaStreamDestroy(more[i]));
        state("origin", origin);
    }
    end();
    if (graph) count_kernels();
}

static const struct {
    const char *name;
    void (*play)();
} SCENES[] = {
#define SCENE(name) {#name, name}
    SCENE(joined_stream_destroyed), SCENE(joined_stream_destroyed_event_reused), SCENE(joined_then_worked_destroyed),
    SCENE(unjoined_stream_destroyed), SCENE(idle_fork_destroyed), SCENE(recorded_then_destroyed_then_joined),
    SCENE(invalidated_fork_destroyed), SCENE(origin_destroyed), SCENE(lone_origin_destroyed),
    SCENE(unjoined_stream_destroyed_after_failed_end), SCENE(forked_goes_on_after_end), SCENE(events_after_failed_end),
    SCENE(fork_event_destroyed), SCENE(join_event_recorded_twice), SCENE(joined_too_early), SCENE(node_destroyed_in_capture),
    SCENE(node_destroyed_then_work), SCENE(graph_used_in_capture), SCENE(graph_destroyed_in_capture), SCENE(into_graph),
    SCENE(into_graph_ended_with_null), SCENE(into_graph_failed_with_null), SCENE(ended_with_null), SCENE(failed_with_null),
    SCENE(target_destroyed_in_capture), SCENE(begun_by_thread_that_is_gone), SCENE(threads_modes), SCENE(information),
    SCENE(several_joins),
};

static void play(size_t index) {
    scene_name = SCENES[index].name;
    for (cudaStream_t *stream : {&origin, &forked, &other}) CHECK_CUDA(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (cudaEvent_t *event : {&fork_event, &join_event, &outer}) CHECK_CUDA(cudaEventCreate(event));
    CHECK_CUDA(cudaMalloc(&device, 64));
    CHECK_CUDA(cudaMemset(device, 0, 64));
    CHECK_CUDA(launch(other));
    CHECK_CUDA(cudaDeviceSynchronize());
    SCENES[index].play();
    fflush(stdout);
    _exit(0);
}

int main() {
    // Four at a time; each writes to a file of its own, so that the order of the lines is always the same.
    constexpr size_t count = sizeof(SCENES) / sizeof(SCENES[0]), at_once = 4;
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
                play(first + i);
            }
        }
        for (size_t i = 0; i < playing; i++) {
            int status = 0;
            waitpid(children[i], &status, 0);
            rewind(outputs[i]);
            char buffer[4096];
            for (size_t got; (got = fread(buffer, 1, sizeof(buffer), outputs[i])) > 0;) fwrite(buffer, 1, got, stdout);
            fclose(outputs[i]);
            if (WIFSIGNALED(status)) printf("%s: ends by signal %d\n", SCENES[first + i].name, WTERMSIG(status));
            else if (WEXITSTATUS(status)) printf("%s: ends with %d\n", SCENES[first + i].name, WEXITSTATUS(status));
            fflush(stdout);
        }
    }
    return pass();
}

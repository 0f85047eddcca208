// What does a capture survive? Streams, events and nodes that are destroyed before it ends, and what is left of events after an end
// and after a failed one.
#include "capture_scenes.h"

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

static const Scene SCENES[] = {
    SCENE(joined_stream_destroyed), SCENE(joined_stream_destroyed_event_reused),
    SCENE(joined_then_worked_destroyed), SCENE(unjoined_stream_destroyed), SCENE(idle_fork_destroyed),
    SCENE(recorded_then_destroyed_then_joined), SCENE(invalidated_fork_destroyed), SCENE(origin_destroyed),
    SCENE(lone_origin_destroyed), SCENE(unjoined_stream_destroyed_after_failed_end),
    SCENE(forked_goes_on_after_end), SCENE(events_after_failed_end), SCENE(fork_event_destroyed),
    SCENE(join_event_recorded_twice), SCENE(joined_too_early), SCENE(node_destroyed_in_capture),
    SCENE(node_destroyed_then_work), SCENE(graph_used_in_capture), SCENE(graph_destroyed_in_capture),
    SCENE(information), SCENE(several_joins),
};

int main() {
    play_all(SCENES);
    return pass();
}

// What becomes of a graph that a capture adds to, and of a capture whose graph nobody takes?
#include "capture_scenes.h"

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

static const Scene SCENES[] = {
    SCENE(into_graph), SCENE(into_graph_ended_with_null), SCENE(into_graph_failed_with_null),
    SCENE(ended_with_null), SCENE(failed_with_null), SCENE(target_destroyed_in_capture),
};

int main() {
    play_all(SCENES);
    return pass();
}

// Which work need not be joined at the end of a capture, where cudaStreamUpdateCaptureDependencies has changed what streams come
// after? NCCL orders its kernels so: it takes a stream of its own into the capture without dependencies, adds event nodes by hand,
// and never joins that stream.
#include "capture_scenes.h"

static void set(cudaStream_t stream, std::initializer_list<cudaGraphNode_t> nodes, unsigned flags = cudaStreamSetCaptureDependencies) {
    say(flags == cudaStreamSetCaptureDependencies ? "set dependencies" : "add dependencies",
        cudaStreamUpdateCaptureDependencies(stream, const_cast<cudaGraphNode_t *>(nodes.begin()), nullptr, nodes.size(), flags));
}

static cudaGraphNode_t tip_of(cudaStream_t stream) {
    cudaStreamCaptureStatus status;
    const cudaGraphNode_t *nodes;
    size_t count = 0;
    CHECK_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, nullptr, &count));
    return count ? nodes[0] : nullptr;
}

static cudaGraph_t graph_of(cudaStream_t stream) {
    cudaStreamCaptureStatus status;
    cudaGraph_t captured;
    CHECK_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, &captured, nullptr, nullptr, nullptr));
    return captured;
}

static cudaGraphNode_t empty_node(std::initializer_list<cudaGraphNode_t> after = {}) {
    cudaGraphNode_t node;
    CHECK_CUDA(cudaGraphAddEmptyNode(&node, graph_of(origin), after.begin(), after.size()));
    return node;
}

// As NCCL does: an event of another stream's life outside the capture, waited for in a stream that is in the capture for that alone,
// a kernel behind it that the origin takes over, and an event node by hand, which nothing in the capture comes after.
static void event_node_by_hand() {
    CHECK_CUDA(cudaEventRecord(outer, other));
    begin();
    fork_stream(false);
    set(forked, {});
    SAY(cudaStreamWaitEvent(forked, outer, cudaEventWaitExternal));
    SAY(cudaEventRecord(join_event, forked));
    SAY(cudaStreamWaitEvent(origin, join_event, 0));
    SAY(launch(origin));
    SAY(cudaEventRecord(join_event, origin));
    cudaStream_t scratch;
    CHECK_CUDA(cudaStreamCreateWithFlags(&scratch, cudaStreamNonBlocking));
    SAY(cudaStreamWaitEvent(scratch, join_event, 0));
    set(forked, {tip_of(scratch)});
    SAY(cudaStreamDestroy(scratch));
    cudaGraphNode_t record;
    cudaGraphNode_t before = tip_of(forked);
    SAY(cudaGraphAddEventRecordNode(&record, graph_of(origin), &before, 1, outer));
    set(forked, {record});
    end();
    if (graph) count_kernels();
}

static void nothing_after_an_idle_fork() {
    begin();
    fork_stream(false);
    set(forked, {});
    end();
}

static void work_taken_out_of_a_fork() {
    begin();
    fork_stream();
    set(forked, {});
    end();
    if (graph) count_kernels();
}

static void work_replaced_by_a_node_by_hand() {
    begin();
    fork_stream();
    set(forked, {empty_node()});
    end();
}

static void work_after_nothing() {
    begin();
    fork_stream(false);
    set(forked, {});
    SAY(launch(forked));
    end();
}

static void work_after_a_node_by_hand() {
    begin();
    fork_stream(false);
    set(forked, {empty_node()});
    SAY(launch(forked));
    end();
}

static void node_added_to_an_idle_fork() {
    begin();
    fork_stream(false);
    set(forked, {empty_node()}, cudaStreamAddCaptureDependencies);
    end();
}

static void node_added_to_work() {
    begin();
    fork_stream();
    set(forked, {empty_node()}, cudaStreamAddCaptureDependencies);
    end();
}

static void own_work_set_again() {
    begin();
    fork_stream();
    set(forked, {tip_of(forked)});
    end();
}

static void joined_by_setting() {
    begin();
    fork_stream();
    set(origin, {tip_of(forked)}, cudaStreamAddCaptureDependencies);
    end();
    if (graph) count_kernels();
}

static void joined_by_a_node_by_hand() {
    begin();
    fork_stream();
    set(origin, {empty_node({tip_of(forked), tip_of(origin)})});
    end();
    if (graph) count_kernels();
}

static void origin_set_to_nothing() {
    begin();
    set(origin, {});
    end();
}

static void origin_set_to_nothing_beside_an_idle_fork() {
    begin();
    fork_stream(false);
    set(origin, {});
    end();
}

static void origin_set_to_a_node_by_hand_beside_an_idle_fork() {
    begin();
    fork_stream(false);
    set(origin, {empty_node()});
    SAY(launch(origin));
    end();
}

static void third_stream_waits_for_work_that_is_taken_out() {
    begin();
    fork_stream();
    SAY(cudaEventRecord(join_event, forked));
    SAY(cudaStreamWaitEvent(other, join_event, 0));
    set(forked, {});
    end();
}

static void third_stream_waits_then_both_are_taken_out() {
    begin();
    fork_stream();
    SAY(cudaEventRecord(join_event, forked));
    SAY(cudaStreamWaitEvent(other, join_event, 0));
    set(forked, {});
    set(other, {});
    end();
}

static void work_set_for_another_stream() {
    begin();
    fork_stream();
    SAY(cudaEventRecord(join_event, origin));
    SAY(cudaStreamWaitEvent(other, join_event, 0));
    set(other, {tip_of(forked)});
    set(forked, {});
    end();
}

static void taken_out_then_joined_by_event() {
    begin();
    fork_stream();
    SAY(cudaEventRecord(join_event, forked));
    set(forked, {});
    SAY(cudaStreamWaitEvent(origin, join_event, 0));
    end();
    if (graph) count_kernels();
}

static const Scene SCENES[] = {
    SCENE(event_node_by_hand),
    SCENE(nothing_after_an_idle_fork),
    SCENE(work_taken_out_of_a_fork),
    SCENE(work_replaced_by_a_node_by_hand),
    SCENE(work_after_nothing),
    SCENE(work_after_a_node_by_hand),
    SCENE(node_added_to_an_idle_fork),
    SCENE(node_added_to_work),
    SCENE(own_work_set_again),
    SCENE(joined_by_setting),
    SCENE(joined_by_a_node_by_hand),
    SCENE(origin_set_to_nothing),
    SCENE(origin_set_to_nothing_beside_an_idle_fork),
    SCENE(origin_set_to_a_node_by_hand_beside_an_idle_fork),
    SCENE(third_stream_waits_for_work_that_is_taken_out),
    SCENE(third_stream_waits_then_both_are_taken_out),
    SCENE(work_set_for_another_stream),
    SCENE(taken_out_then_joined_by_event),
};

int main() {
    play_all(SCENES);
    return pass();
}

// Conditional nodes whose values kernels set: if, if with else, while and switch, built node by node and captured, nested, with
// values that each launch sets anew and values that stay. What bodies did is seen in memory and in what they print.
#include "check.h"

#include <cuda_runtime.h>
#include <string>
#include <vector>

__global__ void set(cudaGraphConditionalHandle handle, const unsigned *value) { cudaGraphSetConditional(handle, *value); }

// Counts `value` down and goes on as long as something is left.
__global__ void count_down(cudaGraphConditionalHandle handle, unsigned *value, int *log) {
    *value -= 1;
    atomicAdd(log, 1);
    printf("while: %u left\n", *value);
    cudaGraphSetConditional(handle, *value != 0);
}

__global__ void note(int *log, int amount, int tag) {
    *log = *log * 10 + amount;
    printf("body %d\n", tag);
}

static int *log_;
static unsigned *value_;
static cudaStream_t stream;

static cudaGraphNode_t add_kernel(cudaGraph_t graph, const cudaGraphNode_t *after, void *function, void **arguments) {
    cudaKernelNodeParams params = {};
    params.func = function;
    params.gridDim = dim3(1);
    params.blockDim = dim3(1);
    params.kernelParams = arguments;
    cudaGraphNode_t node;
    CHECK_CUDA(cudaGraphAddKernelNode(&node, graph, after, after ? 1 : 0, &params));
    return node;
}

static cudaGraphNode_t add_set(cudaGraph_t graph, const cudaGraphNode_t *after, cudaGraphConditionalHandle handle) {
    void *arguments[] = {&handle, &value_};
    return add_kernel(graph, after, (void *)set, arguments);
}

static cudaGraphNode_t add_note(cudaGraph_t graph, const cudaGraphNode_t *after, int amount, int tag) {
    void *arguments[] = {&log_, &amount, &tag};
    return add_kernel(graph, after, (void *)note, arguments);
}

static cudaGraphNode_t add_condition(cudaGraph_t graph, const cudaGraphNode_t *after, cudaGraphConditionalHandle handle,
                                     cudaGraphConditionalNodeType type, unsigned size, std::vector<cudaGraph_t> &bodies) {
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    cudaGraphNode_t node;
    CHECK_CUDA(cudaGraphAddNode(&node, graph, after, nullptr, after ? 1 : 0, &params));
    bodies.assign(params.conditional.phGraph_out, params.conditional.phGraph_out + size);
    return node;
}

// Launches with a value and tells what the log says afterwards.
static void launch(const char *name, cudaGraphExec_t executable, unsigned value) {
    int zero = 0, result = -1;
    unsigned left = 99;
    CHECK_CUDA(cudaMemcpyAsync(value_, &value, sizeof(value), cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudaMemcpyAsync(log_, &zero, sizeof(zero), cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaMemcpy(&result, log_, sizeof(result), cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaMemcpy(&left, value_, sizeof(left), cudaMemcpyDeviceToHost));
    printf("%s with %u: log %d, value %u\n", name, value, result, left);
    fflush(stdout);
}

static cudaGraphExec_t instantiate(cudaGraph_t graph) {
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    return executable;
}

static void choices(const char *name, cudaGraphConditionalNodeType type, unsigned size, unsigned values) {
    cudaGraph_t graph;
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle;
    CHECK_CUDA(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
    cudaGraphNode_t first = add_set(graph, nullptr, handle);
    std::vector<cudaGraph_t> bodies;
    cudaGraphNode_t condition = add_condition(graph, &first, handle, type, size, bodies);
    for (unsigned i = 0; i < size; i++) {
        cudaGraphNode_t one = add_note(bodies[i], nullptr, i + 1, 10 * i);
        add_note(bodies[i], &one, i + 2, 10 * i + 1);
    }
    add_note(graph, &condition, 9, 999);
    cudaGraphExec_t executable = instantiate(graph);
    for (unsigned value = 0; value < values; value++) launch(name, executable, value);
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
}

static void loop(const char *name, bool captured) {
    cudaGraph_t graph;
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle;
    CHECK_CUDA(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    std::vector<cudaGraph_t> bodies;
    cudaGraphNode_t condition = add_condition(graph, nullptr, handle, cudaGraphCondTypeWhile, 1, bodies);
    if (captured) {
        CHECK_CUDA(cudaStreamBeginCaptureToGraph(stream, bodies[0], nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
        count_down<<<1, 1, 0, stream>>>(handle, value_, log_);
        CHECK_CUDA(cudaMemsetAsync(log_ + 1, 7, 4, stream));
        cudaGraph_t ended;
        CHECK_CUDA(cudaStreamEndCapture(stream, &ended));
        REQUIRE(ended == bodies[0], "the capture gave another graph than the body");
    } else {
        void *arguments[] = {&handle, &value_, &log_};
        add_kernel(bodies[0], nullptr, (void *)count_down, arguments);
    }
    add_note(graph, &condition, 5, 888);
    cudaGraphExec_t executable = instantiate(graph);
    for (unsigned value = 1; value < 5; value++) launch(name, executable, value);
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
}

// The node is added while a stream is captured, and the body is captured by another stream.
static void captured_if() {
    cudaStream_t inner;
    CHECK_CUDA(cudaStreamCreate(&inner));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cudaStreamCaptureStatus status;
    cudaGraph_t graph, ended;
    const cudaGraphNode_t *tips;
    size_t count;
    CHECK_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &tips, nullptr, &count));
    cudaGraphConditionalHandle handle;
    CHECK_CUDA(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
    set<<<1, 1, 0, stream>>>(handle, value_);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &tips, nullptr, &count));
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = cudaGraphCondTypeIf;
    params.conditional.size = 1;
    cudaGraphNode_t node;
    CHECK_CUDA(cudaGraphAddNode(&node, graph, tips, nullptr, count, &params));
    CHECK_CUDA(cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, cudaStreamSetCaptureDependencies));
    CHECK_CUDA(cudaStreamBeginCaptureToGraph(inner, params.conditional.phGraph_out[0], nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
    note<<<1, 1, 0, inner>>>(log_, 4, 44);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaStreamEndCapture(inner, &ended));
    note<<<1, 1, 0, stream>>>(log_, 6, 66);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t executable = instantiate(graph);
    for (unsigned value = 0; value < 3; value++) launch("captured if", executable, value);
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaStreamDestroy(inner));
}

// A value with a default begins with it each time. (One without has no value that is known until a launch has set it.)
static void values_with_a_default() {
    cudaGraph_t graph;
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle;
    CHECK_CUDA(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    std::vector<cudaGraph_t> bodies;
    cudaGraphNode_t condition = add_condition(graph, nullptr, handle, cudaGraphCondTypeIf, 1, bodies);
    add_note(bodies[0], nullptr, 3, 33);
    add_set(graph, &condition, handle);
    cudaGraphExec_t executable = instantiate(graph);
    for (unsigned value : {0u, 0u, 1u, 1u, 0u, 0u}) launch("with a default", executable, value);
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
}

// A switch within a while, whose value the body sets from the counter.
static void nested() {
    cudaGraph_t graph;
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle again, choice;
    CHECK_CUDA(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
    std::vector<cudaGraph_t> bodies, cases;
    add_condition(graph, nullptr, again, cudaGraphCondTypeWhile, 1, bodies);
    CHECK_CUDA(cudaGraphConditionalHandleCreate(&choice, bodies[0], 0, 0));
    void *arguments[] = {&again, &value_, &log_};
    int *elsewhere = log_ + 2;
    arguments[2] = &elsewhere;
    cudaGraphNode_t counted = add_kernel(bodies[0], nullptr, (void *)count_down, arguments);
    cudaGraphNode_t chosen = add_set(bodies[0], &counted, choice);
    add_condition(bodies[0], &chosen, choice, cudaGraphCondTypeSwitch, 3, cases);
    for (int i = 0; i < 3; i++) add_note(cases[i], nullptr, i + 1, 70 + i);
    cudaGraphExec_t executable = instantiate(graph);
    for (unsigned value : {1u, 3u, 5u}) launch("nested", executable, value);
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
}

// Launches of one executable graph without waits in between.
static void launches_in_a_row() {
    cudaGraph_t graph;
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle;
    CHECK_CUDA(cudaGraphConditionalHandleCreate(&handle, graph, 2, cudaGraphCondAssignDefault));
    std::vector<cudaGraph_t> bodies;
    cudaGraphNode_t condition = add_condition(graph, nullptr, handle, cudaGraphCondTypeSwitch, 4, bodies);
    for (int i = 0; i < 4; i++) add_note(bodies[i], nullptr, i + 1, 50 + i);
    add_note(graph, &condition, 0, 59);
    cudaGraphExec_t executable = instantiate(graph);
    int zero = 0, result = 0;
    CHECK_CUDA(cudaMemcpy(log_, &zero, sizeof(zero), cudaMemcpyHostToDevice));
    for (int i = 0; i < 3; i++) CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaMemcpy(&result, log_, sizeof(result), cudaMemcpyDeviceToHost));
    printf("in a row: log %d\n", result);
    fflush(stdout);
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
}

int main() {
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaMalloc(&log_, 64));
    CHECK_CUDA(cudaMemset(log_, 0, 64));
    CHECK_CUDA(cudaMalloc(&value_, sizeof(unsigned)));
    choices("if", cudaGraphCondTypeIf, 1, 3);
    choices("if else", cudaGraphCondTypeIf, 2, 3);
    choices("switch of 1", cudaGraphCondTypeSwitch, 1, 3);
    choices("switch of 3", cudaGraphCondTypeSwitch, 3, 5);
    loop("while", false);
    loop("captured while", true);
    captured_if();
    values_with_a_default();
    nested();
    launches_in_a_row();
    return pass();
}

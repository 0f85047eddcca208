// Graphs built node by node: kernels, fills, copies within the device and with the program's memory, host functions, child
// graphs, event records; what is asked of them; executable graphs that are changed, updated and switched off in part.
#include "check.h"

#include <stdlib.h>
#include <vector>

constexpr int COUNT = 20'000;
constexpr size_t BYTES = COUNT * sizeof(int);

__global__ void add(int *values, int amount) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) values[i] += amount;
}

__global__ void multiply(int *values, int factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) values[i] *= factor;
}

static cudaKernelNodeParams kernel(void (*function)(int *, int), int **values, int *amount, void **arguments) {
    arguments[0] = values;
    arguments[1] = amount;
    cudaKernelNodeParams params = {};
    params.func = (void *)function;
    params.gridDim = dim3((COUNT + 127) / 128);
    params.blockDim = dim3(128);
    params.kernelParams = arguments;
    return params;
}

static void require_all(const int *values, int expected, const char *what) {
    for (int i = 0; i < COUNT; i++) REQUIRE(values[i] == expected, "%s: value %d is %d and not %d", what, i, values[i], expected);
}

static void download(std::vector<int> &values, const int *from) {
    CHECK_CUDA(cudaMemcpy(values.data(), from, BYTES, cudaMemcpyDeviceToHost));
}

struct Shared {
    int *input;     // read by the graph's first copy
    int *output;    // written by its copy back
    int *between;   // written by the host function, read by the graph's second copy
    int calls;
};

static void CUDART_CB between_copies(void *data) {
    Shared *shared = (Shared *)data;
    shared->calls++;
    for (int i = 0; i < COUNT; i++) shared->between[i] = shared->output[i] + shared->calls;
}

// Pageable memory in, a kernel, back out, a host function that reads what came and writes what the next copy reads.
static void host_memory_and_functions(cudaStream_t stream, bool pinned) {
    Shared shared = {};
    int *result;
    for (int **memory : {&shared.input, &shared.output, &shared.between, &result}) {
        if (pinned)
            CHECK_CUDA(cudaMallocHost(memory, BYTES));
        else
            *memory = (int *)malloc(BYTES);
    }
    int *device, *second;
    CHECK_CUDA(cudaMalloc(&device, BYTES));
    CHECK_CUDA(cudaMalloc(&second, BYTES));
    cudaGraph_t graph;
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t in, run, out, host, in_again, run_again, out_again;
    CHECK_CUDA(cudaGraphAddMemcpyNode1D(&in, graph, nullptr, 0, device, shared.input, BYTES, cudaMemcpyHostToDevice));
    int amount = 10, factor = 2;
    void *arguments[2];
    cudaKernelNodeParams params = kernel(add, &device, &amount, arguments);
    CHECK_CUDA(cudaGraphAddKernelNode(&run, graph, &in, 1, &params));
    CHECK_CUDA(cudaGraphAddMemcpyNode1D(&out, graph, &run, 1, shared.output, device, BYTES, cudaMemcpyDeviceToHost));
    cudaHostNodeParams call = {between_copies, &shared};
    CHECK_CUDA(cudaGraphAddHostNode(&host, graph, &out, 1, &call));
    CHECK_CUDA(cudaGraphAddMemcpyNode1D(&in_again, graph, &host, 1, second, shared.between, BYTES, cudaMemcpyHostToDevice));
    params = kernel(multiply, &second, &factor, arguments);
    CHECK_CUDA(cudaGraphAddKernelNode(&run_again, graph, &in_again, 1, &params));
    CHECK_CUDA(cudaGraphAddMemcpyNode1D(&out_again, graph, &run_again, 1, result, second, BYTES, cudaMemcpyDeviceToHost));
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    for (int launch = 0; launch < 5; launch++) {
        for (int i = 0; i < COUNT; i++) shared.input[i] = launch * 100;  // read at the launch, not when the node was made
        CHECK_CUDA(cudaGraphLaunch(executable, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        REQUIRE(shared.calls == launch + 1, "the host function ran %d times in %d launches", shared.calls, launch + 1);
        require_all(shared.output, launch * 100 + 10, "first copy back");
        // When pageable memory is read within a launch is not CUDA's promise.
        if (pinned) require_all(result, (launch * 100 + 10 + shared.calls) * 2, "second copy back");
    }
    // The same from other memory, and with the event of a launch instead of the stream's end.
    std::vector<int> other(COUNT, 7);
    CHECK_CUDA(cudaGraphExecMemcpyNodeSetParams1D(executable, in, device, other.data(), BYTES, cudaMemcpyHostToDevice));
    cudaEvent_t done;
    CHECK_CUDA(cudaEventCreate(&done));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaEventRecord(done, stream));
    CHECK_CUDA(cudaEventSynchronize(done));
    if (pinned) require_all(result, (17 + shared.calls) * 2, "after the source was changed");
    // Launches one behind the other; each brings other values to the same memory.
    for (int launch = 0; launch < 5; launch++) CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    REQUIRE(shared.calls == 11, "the host function ran %d times in 11 launches", shared.calls);
    if (pinned) require_all(result, (17 + 11) * 2, "after five launches without a wait");
    CHECK_CUDA(cudaEventDestroy(done));
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
    for (int *memory : {shared.input, shared.output, shared.between, result}) {
        if (pinned)
            CHECK_CUDA(cudaFreeHost(memory));
        else
            free(memory);
    }
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFree(second));
}

// memset 0 -> add 1 on a and, through a child graph, add 2 on b -> a copied to c.
struct Built {
    cudaGraph_t graph;
    cudaGraphNode_t fill_a, fill_b, add_a, child, copy, start, end;
};

static Built build(int *a, int *b, int *c, int amount_a, int amount_b, cudaEvent_t start, cudaEvent_t end) {
    Built built = {};
    cudaGraph_t inner;
    CHECK_CUDA(cudaGraphCreate(&built.graph, 0));
    CHECK_CUDA(cudaGraphCreate(&inner, 0));
    cudaMemsetParams fill = {};
    fill.dst = a;
    fill.value = 0;
    fill.elementSize = 4;
    fill.width = COUNT;
    fill.height = 1;
    CHECK_CUDA(cudaGraphAddEventRecordNode(&built.start, built.graph, nullptr, 0, start));
    CHECK_CUDA(cudaGraphAddMemsetNode(&built.fill_a, built.graph, &built.start, 1, &fill));
    fill.dst = b;
    CHECK_CUDA(cudaGraphAddMemsetNode(&built.fill_b, built.graph, &built.start, 1, &fill));
    void *arguments[2];
    cudaKernelNodeParams params = kernel(add, &a, &amount_a, arguments);
    CHECK_CUDA(cudaGraphAddKernelNode(&built.add_a, built.graph, &built.fill_a, 1, &params));
    params = kernel(add, &b, &amount_b, arguments);
    cudaGraphNode_t first, join;
    CHECK_CUDA(cudaGraphAddKernelNode(&first, inner, nullptr, 0, &params));
    CHECK_CUDA(cudaGraphAddEmptyNode(&join, inner, &first, 1));
    CHECK_CUDA(cudaGraphAddChildGraphNode(&built.child, built.graph, &built.fill_b, 1, inner));
    CHECK_CUDA(cudaGraphDestroy(inner));  // the node has a copy
    cudaGraphNode_t before[2] = {built.add_a, built.child};
    CHECK_CUDA(cudaGraphAddMemcpyNode1D(&built.copy, built.graph, before, 2, c, a, BYTES, cudaMemcpyDeviceToDevice));
    CHECK_CUDA(cudaGraphAddEventRecordNode(&built.end, built.graph, &built.copy, 1, end));
    return built;
}

static void structure(const Built &built) {
    size_t count = 0;
    CHECK_CUDA(cudaGraphGetNodes(built.graph, nullptr, &count));
    REQUIRE(count == 7, "the graph has %zu nodes", count);
    std::vector<cudaGraphNode_t> nodes(10);
    count = nodes.size();
    CHECK_CUDA(cudaGraphGetNodes(built.graph, nodes.data(), &count));
    REQUIRE(count == 7 && nodes[7] == nullptr, "10 nodes were asked for and %zu given", count);
    count = 1;
    cudaGraphNode_t root;
    CHECK_CUDA(cudaGraphGetRootNodes(built.graph, &root, &count));
    REQUIRE(count == 1 && root == built.start, "the root is not the start");
    count = 0;
    CHECK_CUDA(cudaGraphGetEdges(built.graph, nullptr, nullptr, nullptr, &count));
    REQUIRE(count == 7, "the graph has %zu edges", count);
    std::vector<cudaGraphNode_t> from(count), to(count);
    CHECK_CUDA(cudaGraphGetEdges(built.graph, from.data(), to.data(), nullptr, &count));
    size_t found = 0;
    for (size_t i = 0; i < count; i++) found += from[i] == built.add_a && to[i] == built.copy;
    REQUIRE(found == 1, "the edge from the kernel to the copy is there %zu times", found);
    count = 2;
    cudaGraphNode_t pair[2];
    CHECK_CUDA(cudaGraphNodeGetDependencies(built.copy, pair, nullptr, &count));
    REQUIRE(count == 2 && pair[0] != pair[1], "the copy has %zu dependencies", count);
    CHECK_CUDA(cudaGraphNodeGetDependentNodes(built.start, pair, nullptr, &count));
    REQUIRE(count == 2, "%zu nodes depend on the start", count);
    cudaGraphNodeType type;
    CHECK_CUDA(cudaGraphNodeGetType(built.child, &type));
    REQUIRE(type == cudaGraphNodeTypeGraph, "the child node's type is %d", type);
    CHECK_CUDA(cudaGraphNodeGetType(built.end, &type));
    REQUIRE(type == cudaGraphNodeTypeEventRecord, "the end's type is %d", type);
    cudaKernelNodeParams params;
    CHECK_CUDA(cudaGraphKernelNodeGetParams(built.add_a, &params));
    REQUIRE(params.gridDim.x == (COUNT + 127) / 128 && *(int *)params.kernelParams[1] == 1, "the kernel's parameters changed");
    cudaMemsetParams fill;
    CHECK_CUDA(cudaGraphMemsetNodeGetParams(built.fill_b, &fill));
    REQUIRE(fill.elementSize == 4 && fill.width == COUNT, "the fill's parameters changed");
    cudaGraph_t inner;
    CHECK_CUDA(cudaGraphChildGraphNodeGetGraph(built.child, &inner));
    CHECK_CUDA(cudaGraphGetNodes(inner, nullptr, &count));
    REQUIRE(count == 2, "the child graph has %zu nodes", count);
    cudaGraph_t clone;
    cudaGraphNode_t counterpart, none;
    CHECK_CUDA(cudaGraphClone(&clone, built.graph));
    CHECK_CUDA(cudaGraphNodeFindInClone(&counterpart, built.copy, clone));
    CHECK_CUDA(cudaGraphNodeGetDependencies(counterpart, nullptr, nullptr, &count));
    REQUIRE(counterpart != built.copy && count == 2, "the copy in the clone has %zu dependencies", count);
    EXPECT_CUDA(cudaGraphNodeFindInClone(&none, counterpart, clone), cudaErrorInvalidValue);
    CHECK_CUDA(cudaGraphDestroyNode(counterpart));
    CHECK_CUDA(cudaGraphGetNodes(clone, nullptr, &count));
    REQUIRE(count == 6, "a clone without its copy has %zu nodes", count);
    CHECK_CUDA(cudaGraphDestroy(clone));
}

static void wrong_uses(const Built &built, cudaGraphExec_t executable) {
    cudaGraphNode_t node;
    cudaGraphNode_t twice[2] = {built.copy, built.copy};
    EXPECT_CUDA(cudaGraphAddEmptyNode(&node, built.graph, twice, 2), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphAddEmptyNode(nullptr, built.graph, nullptr, 0), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphAddDependencies(built.graph, &built.add_a, &built.copy, nullptr, 1), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphCreate(nullptr, 0), cudaErrorInvalidValue);
    cudaGraph_t other;
    cudaGraphNode_t foreign;
    CHECK_CUDA(cudaGraphCreate(&other, 0));
    CHECK_CUDA(cudaGraphAddEmptyNode(&foreign, other, nullptr, 0));
    EXPECT_CUDA(cudaGraphAddEmptyNode(&node, built.graph, &foreign, 1), cudaErrorInvalidValue);
    cudaMemsetParams fill = {};
    EXPECT_CUDA(cudaGraphMemsetNodeGetParams(built.add_a, &fill), cudaErrorInvalidValue);
    unsigned enabled;
    EXPECT_CUDA(cudaGraphNodeGetEnabled(executable, built.child, &enabled), cudaErrorInvalidValue);
    CHECK_CUDA(cudaGraphDestroy(other));
}

int main() {
    int *a, *b, *c;
    for (int **array : {&a, &b, &c}) CHECK_CUDA(cudaMalloc(array, BYTES));
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    cudaEvent_t start, end;
    CHECK_CUDA(cudaEventCreate(&start));
    CHECK_CUDA(cudaEventCreate(&end));
    host_memory_and_functions(stream, false);
    host_memory_and_functions(stream, true);

    std::vector<int> values(COUNT);
    Built built = build(a, b, c, 1, 2, start, end);
    structure(built);
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaGraphInstantiate(&executable, built.graph, 0));
    unsigned long long flags = 99;
    CHECK_CUDA(cudaGraphExecGetFlags(executable, &flags));
    REQUIRE(flags == 0, "the flags are %llu", flags);
    wrong_uses(built, executable);
    CHECK_CUDA(cudaGraphUpload(executable, stream));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaEventSynchronize(end));
    float elapsed = -1;
    CHECK_CUDA(cudaEventElapsedTime(&elapsed, start, end));
    REQUIRE(elapsed >= 0, "the graph took %f ms", elapsed);
    download(values, c);
    require_all(values.data(), 1, "c");
    download(values, b);
    require_all(values.data(), 2, "b");

    // Another amount for a, for the executable graph alone.
    int amount = 5;
    void *arguments[2];
    cudaKernelNodeParams params = kernel(add, &a, &amount, arguments);
    CHECK_CUDA(cudaGraphExecKernelNodeSetParams(executable, built.add_a, &params));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    download(values, c);
    require_all(values.data(), 5, "c after a change");
    // Without the kernel, and with it again.
    CHECK_CUDA(cudaGraphNodeSetEnabled(executable, built.add_a, 0));
    unsigned enabled = 7;
    CHECK_CUDA(cudaGraphNodeGetEnabled(executable, built.add_a, &enabled));
    REQUIRE(enabled == 0, "a node that was switched off is enabled: %u", enabled);
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    download(values, c);
    require_all(values.data(), 0, "c without the kernel");
    CHECK_CUDA(cudaGraphNodeSetEnabled(executable, built.add_a, 1));

    // An update with a graph of the same shape, and with one of another.
    Built same = build(a, b, c, 30, 40, start, end);
    cudaGraphExecUpdateResultInfo info;
    CHECK_CUDA(cudaGraphExecUpdate(executable, same.graph, &info));
    REQUIRE(info.result == cudaGraphExecUpdateSuccess, "the update's result is %d", info.result);
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    download(values, c);
    require_all(values.data(), 30, "c after an update");
    download(values, b);
    require_all(values.data(), 40, "b after an update");
    cudaGraphNode_t extra;
    CHECK_CUDA(cudaGraphAddEmptyNode(&extra, same.graph, &same.copy, 1));
    EXPECT_CUDA(cudaGraphExecUpdate(executable, same.graph, &info), cudaErrorGraphExecUpdateFailure);
    REQUIRE(info.result == cudaGraphExecUpdateErrorTopologyChanged, "the failed update's result is %d", info.result);

    // The child graph's kernel from another graph.
    cudaGraph_t inner;
    CHECK_CUDA(cudaGraphChildGraphNodeGetGraph(same.child, &inner));
    size_t count = 1;
    cudaGraphNode_t kernel_of_child;
    CHECK_CUDA(cudaGraphGetRootNodes(inner, &kernel_of_child, &count));
    amount = 9;
    params = kernel(add, &b, &amount, arguments);
    CHECK_CUDA(cudaGraphKernelNodeSetParams(kernel_of_child, &params));
    CHECK_CUDA(cudaGraphExecChildGraphNodeSetParams(executable, built.child, inner));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    download(values, b);
    require_all(values.data(), 9, "b after its child graph changed");

    cudaKernelNodeAttrValue value = {};
    value.priority = 0;
    CHECK_CUDA(cudaGraphKernelNodeSetAttribute(built.add_a, cudaLaunchAttributePriority, &value));
    value.priority = 99;
    CHECK_CUDA(cudaGraphKernelNodeGetAttribute(built.add_a, cudaLaunchAttributePriority, &value));
    REQUIRE(value.priority == 0, "the node's priority is %d", value.priority);

    char path[] = "/tmp/graph_nodes_XXXXXX";
    int file = mkstemp(path);
    REQUIRE(file >= 0, "no file could be made in /tmp");
    CHECK_CUDA(cudaGraphDebugDotPrint(built.graph, path, cudaGraphDebugDotFlagsVerbose));
    char text[8] = {};
    REQUIRE(pread(file, text, 7, 0) == 7 && strcmp(text, "digraph") == 0, "the printed graph begins with %s", text);
    close(file);
    unlink(path);

    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(built.graph));
    CHECK_CUDA(cudaGraphDestroy(same.graph));
    CHECK_CUDA(cudaStreamDestroy(stream));
    for (int *array : {a, b, c}) CHECK_CUDA(cudaFree(array));
    return pass();
}

// Memory of graphs: which nodes have the same address, what can be done with it, and that nothing of it is held in the end. Addresses
// are told as names in the order in which they are first seen, sizes in MiB. How much is held in between is each implementation's.
#include "check.h"

#include <cuda_runtime.h>
#include <string>
#include <vector>

constexpr size_t MIB = 1 << 20;

__global__ void fill(int *memory, size_t count, int value) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) memory[i] = value + i;
}

__global__ void check(const int *memory, size_t count, int value, int *wrong) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        if (memory[i] != value + (int)i) atomicAdd(wrong, 1);
}

static cudaStream_t stream;
static int *wrong;
static const char *scene;

static void say(const char *what, cudaError_t error) {
    (void)cudaGetLastError();
    printf("%s: %s: %s\n", scene, what, cudaGetErrorName(error));
    fflush(stdout);
}

#define SAY(call) say(#call, call)

static unsigned long long value_of(cudaGraphMemAttributeType attribute) {
    unsigned long long value = 0;
    CHECK_CUDA(cudaDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

static void require_order(const char *when) {
    unsigned long long used = value_of(cudaGraphMemAttrUsedMemCurrent), used_high = value_of(cudaGraphMemAttrUsedMemHigh);
    unsigned long long reserved = value_of(cudaGraphMemAttrReservedMemCurrent), reserved_high = value_of(cudaGraphMemAttrReservedMemHigh);
    REQUIRE(used <= reserved && used <= used_high && reserved <= reserved_high && used_high <= reserved_high,
            "%s, %s: %llu bytes are used (most %llu), %llu reserved (most %llu)", scene, when, used, used_high, reserved, reserved_high);
}

// At least this much is held now.
static void require_held(const char *when, size_t bytes) {
    require_order(when);
    unsigned long long used = value_of(cudaGraphMemAttrUsedMemCurrent);
    REQUIRE(used >= bytes, "%s, %s: %llu bytes are used, and %zu needed", scene, when, used, bytes);
}

static void require_nothing(const char *when) {
    require_order(when);
    unsigned long long reserved = value_of(cudaGraphMemAttrReservedMemCurrent);
    REQUIRE(reserved == 0, "%s, %s: %llu bytes are still reserved", scene, when, reserved);
}

static std::vector<std::pair<size_t, size_t>> seen;

// A name for an address: a letter for each place that was seen first, with the distance from it if it lies within.
static std::string place(void *memory, size_t bytes) {
    size_t address = (size_t)memory;
    for (size_t i = 0; i < seen.size(); i++) {
        auto [start, size] = seen[i];
        if (address < start + size && address + bytes > start) {
            std::string name(1, 'a' + i);
            long long distance = (long long)(address - start);
            if (distance) name += (distance > 0 ? "+" : "") + std::to_string(distance / 1024) + "K";
            return name;
        }
    }
    seen.push_back({address, bytes});
    return std::string(1, 'a' + seen.size() - 1);
}

static void *add_alloc(cudaGraph_t graph, std::vector<cudaGraphNode_t> after, size_t bytes, cudaGraphNode_t *node, const char *name) {
    cudaMemAllocNodeParams params = {};
    params.poolProps.allocType = cudaMemAllocationTypePinned;
    params.poolProps.location.type = cudaMemLocationTypeDevice;
    params.bytesize = bytes;
    cudaError_t error = cudaGraphAddMemAllocNode(node, graph, after.data(), after.size(), &params);
    (void)cudaGetLastError();
    printf("%s: %s of %.4g: %s at %s\n", scene, name, (double)bytes / MIB, cudaGetErrorName(error), error ? "-" : place(params.dptr, bytes).c_str());
    fflush(stdout);
    return error ? nullptr : params.dptr;
}

static cudaGraphNode_t add_free(cudaGraph_t graph, std::vector<cudaGraphNode_t> after, void *memory) {
    cudaGraphNode_t node = nullptr;
    cudaError_t error = cudaGraphAddMemFreeNode(&node, graph, after.data(), after.size(), memory);
    if (error) say("free node", error);
    return node;
}

static cudaGraphNode_t add_kernel(cudaGraph_t graph, cudaGraphNode_t after, void *function, void **arguments) {
    cudaKernelNodeParams params = {};
    params.func = function;
    params.gridDim = dim3(4);
    params.blockDim = dim3(128);
    params.kernelParams = arguments;
    cudaGraphNode_t node;
    CHECK_CUDA(cudaGraphAddKernelNode(&node, graph, &after, 1, &params));
    return node;
}

// Fills memory and checks it: two nodes.
static cudaGraphNode_t add_use(cudaGraph_t graph, cudaGraphNode_t after, void *memory, size_t bytes, int value) {
    size_t count = bytes / 4;
    void *fill_arguments[] = {&memory, &count, &value}, *check_arguments[] = {&memory, &count, &value, &wrong};
    cudaGraphNode_t filled = add_kernel(graph, after, (void *)fill, fill_arguments);
    return add_kernel(graph, filled, (void *)check, check_arguments);
}

static void require_right() {
    int count = -1;
    CHECK_CUDA(cudaMemcpy(&count, wrong, sizeof(count), cudaMemcpyDeviceToHost));
    printf("%s: wrong values: %d\n", scene, count);
    CHECK_CUDA(cudaMemset(wrong, 0, sizeof(count)));
}

static void reset() {
    seen.clear();
    unsigned long long zero = 0;
    SAY(cudaDeviceSynchronize());
    SAY(cudaDeviceGraphMemTrim(0));
    SAY(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &zero));
    SAY(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &zero));
    require_nothing("at first");
    unsigned long long most = value_of(cudaGraphMemAttrReservedMemHigh) + value_of(cudaGraphMemAttrUsedMemHigh);
    REQUIRE(most == 0, "%s: the most is %llu bytes after it has been set back", scene, most);
}

static void launch_and_tell(cudaGraph_t graph, size_t bytes) {
    cudaGraphExec_t executable;
    // Nodes have addresses; memory comes later.
    require_nothing("made");
    SAY(cudaGraphInstantiate(&executable, graph, 0));
    SAY(cudaGraphUpload(executable, stream));
    SAY(cudaStreamSynchronize(stream));
    for (int i = 0; i < 2; i++) {
        SAY(cudaGraphLaunch(executable, stream));
        SAY(cudaStreamSynchronize(stream));
        require_held("launched", bytes);
    }
    SAY(cudaDeviceGraphMemTrim(0));
    require_order("trimmed");
    SAY(cudaGraphLaunch(executable, stream));
    SAY(cudaStreamSynchronize(stream));
    require_held("launched again", bytes);
    SAY(cudaGraphDestroy(graph));
    SAY(cudaGraphLaunch(executable, stream));
    SAY(cudaStreamSynchronize(stream));
    require_held("launched without the graph", bytes);
    SAY(cudaGraphExecDestroy(executable));
    SAY(cudaDeviceGraphMemTrim(0));
    require_nothing("trimmed at the end");
}

// One after the other: allocated, used, freed; the next after that.
static void chain(const char *name, std::vector<size_t> sizes, bool launches = true) {
    size_t largest = 0;
    scene = name;
    reset();
    cudaGraph_t graph;
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    std::vector<cudaGraphNode_t> after;
    for (size_t i = 0; i < sizes.size(); i++) {
        cudaGraphNode_t node;
        largest = sizes[i] > largest ? sizes[i] : largest;
        void *memory = add_alloc(graph, after, sizes[i], &node, "allocation");
        cudaGraphNode_t used = add_use(graph, node, memory, sizes[i], 100 * i);
        after = {add_free(graph, {used}, memory)};
    }
    if (launches) {
        launch_and_tell(graph, largest);
        require_right();
    } else {
        CHECK_CUDA(cudaGraphDestroy(graph));
    }
}

// Two branches that do not meet, and a third allocation after one of them, and a fourth after both.
static void branches() {
    scene = "branches";
    reset();
    cudaGraph_t graph;
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t root, nodes[4], frees[4];
    CHECK_CUDA(cudaGraphAddEmptyNode(&root, graph, nullptr, 0));
    size_t bytes = 4 * MIB;
    void *left = add_alloc(graph, {root}, bytes, &nodes[0], "left");
    frees[0] = add_free(graph, {add_use(graph, nodes[0], left, bytes, 1)}, left);
    void *right = add_alloc(graph, {root}, bytes, &nodes[1], "right");
    frees[1] = add_free(graph, {add_use(graph, nodes[1], right, bytes, 2)}, right);
    void *third = add_alloc(graph, {frees[0]}, bytes, &nodes[2], "after left");
    frees[2] = add_free(graph, {add_use(graph, nodes[2], third, bytes, 3)}, third);
    void *fourth = add_alloc(graph, {frees[1], frees[2]}, 2 * bytes, &nodes[3], "after both, larger");
    frees[3] = add_free(graph, {add_use(graph, nodes[3], fourth, 2 * bytes, 4)}, fourth);
    launch_and_tell(graph, 2 * bytes);
    require_right();
}

// Memory that two nodes have at the same time, then one that has room in what both had before.
static void overlapping() {
    scene = "overlapping";
    reset();
    cudaGraph_t graph;
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t one, two, three, node;
    void *first = add_alloc(graph, {}, 2 * MIB, &one, "first");
    void *second = add_alloc(graph, {one}, 2 * MIB, &two, "second, beside the first");
    node = add_free(graph, {add_use(graph, two, first, 2 * MIB, 1)}, first);
    void *third = add_alloc(graph, {node}, 2 * MIB, &three, "third, beside the second");
    node = add_free(graph, {add_use(graph, add_use(graph, three, third, 2 * MIB, 3), second, 2 * MIB, 2)}, second);
    add_free(graph, {node}, third);
    launch_and_tell(graph, 4 * MIB);
    require_right();
}

// Memory that the graph does not free, and what frees it.
static void unfreed() {
    scene = "unfreed";
    reset();
    cudaGraph_t graph;
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t node;
    void *memory = add_alloc(graph, {}, 4 * MIB, &node, "allocation");
    add_use(graph, node, memory, 4 * MIB, 5);
    cudaGraphExec_t executable, second, automatic;
    SAY(cudaGraphInstantiate(&executable, graph, 0));
    SAY(cudaGraphInstantiate(&second, graph, 0));
    SAY(cudaGraphLaunch(executable, stream));
    SAY(cudaStreamSynchronize(stream));
    require_held("launched", 4 * MIB);
    SAY(cudaGraphLaunch(executable, stream));
    SAY(cudaFreeAsync(memory, stream));
    SAY(cudaStreamSynchronize(stream));
    SAY(cudaFreeAsync(memory, stream));
    SAY(cudaGraphLaunch(executable, stream));
    SAY(cudaStreamSynchronize(stream));
    require_held("launched again", 4 * MIB);
    SAY(cudaFree(memory));
    SAY(cudaFree(memory));
    SAY(cudaDeviceGraphMemTrim(0));
    SAY(cudaGraphExecDestroy(executable));
    SAY(cudaDeviceGraphMemTrim(0));
    require_nothing("without an executable graph");
    SAY(cudaGraphInstantiate(&automatic, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    for (int i = 0; i < 3; i++) SAY(cudaGraphLaunch(automatic, stream));
    SAY(cudaStreamSynchronize(stream));
    require_held("launched with automatic frees", 4 * MIB);
    SAY(cudaGraphExecDestroy(automatic));
    require_held("executable destroyed", 4 * MIB);
    SAY(cudaGraphDestroy(graph));
    require_held("graph destroyed", 4 * MIB);
    int value = 0;
    SAY(cudaMemcpy(&value, memory, 4, cudaMemcpyDeviceToHost));
    printf("%s: value %d\n", scene, value);
    SAY(cudaFree(memory));
    SAY(cudaDeviceGraphMemTrim(0));
    require_nothing("trimmed at the end");
    require_right();
}

// Two graphs, which are launched one after the other, and then both without a wait in between in two streams.
static void two_graphs() {
    scene = "two graphs";
    reset();
    cudaGraph_t graphs[2];
    cudaGraphExec_t executables[2];
    cudaStream_t other;
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
        CHECK_CUDA(cudaGraphCreate(&graphs[i], 0));
        cudaGraphNode_t node;
        void *memory = add_alloc(graphs[i], {}, 4 * MIB, &node, "allocation");
        add_free(graphs[i], {add_use(graphs[i], node, memory, 4 * MIB, i)}, memory);
    }
    for (int i = 0; i < 2; i++) SAY(cudaGraphInstantiate(&executables[i], graphs[i], 0));
    for (int i = 0; i < 2; i++) {
        SAY(cudaGraphLaunch(executables[i], stream));
        SAY(cudaStreamSynchronize(stream));
        require_held("launched", 4 * MIB);
    }
    for (int round = 0; round < 4; round++)
        for (int i = 0; i < 2; i++) CHECK_CUDA(cudaGraphLaunch(executables[i], i ? other : stream));
    SAY(cudaDeviceSynchronize());
    require_right();
    for (int i = 0; i < 2; i++) {
        SAY(cudaGraphExecDestroy(executables[i]));
        SAY(cudaGraphDestroy(graphs[i]));
    }
    SAY(cudaDeviceGraphMemTrim(0));
    require_nothing("trimmed");
    CHECK_CUDA(cudaStreamDestroy(other));
}

static void captured() {
    scene = "captured";
    reset();
    cudaGraph_t graph;
    void *memory[4] = {};
    size_t sizes[4] = {2 * MIB, 2 * MIB, MIB, 3 * MIB};
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 4; i++) {
        CHECK_CUDA(cudaMallocAsync(&memory[i], sizes[i], stream));
        fill<<<4, 128, 0, stream>>>((int *)memory[i], sizes[i] / 4, i);
        check<<<4, 128, 0, stream>>>((int *)memory[i], sizes[i] / 4, i, wrong);
        printf("%s: allocation at %s\n", scene, place(memory[i], sizes[i]).c_str());
        CHECK_CUDA(cudaFreeAsync(memory[i], stream));
    }
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    launch_and_tell(graph, 3 * MIB);
    require_right();
}

static void mistakes() {
    scene = "mistakes";
    reset();
    cudaGraph_t graph, clone, parent, other;
    cudaGraphNode_t node, freed, child;
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    CHECK_CUDA(cudaGraphCreate(&parent, 0));
    CHECK_CUDA(cudaGraphCreate(&other, 0));
    add_alloc(graph, {}, 0, &node, "nothing");
    void *memory = add_alloc(graph, {}, 2 * MIB, &node, "allocation");
    say("free without an edge", cudaGraphAddMemFreeNode(&freed, graph, nullptr, 0, memory));
    say("free after it", cudaGraphAddMemFreeNode(&freed, graph, &node, 1, memory));
    cudaGraphNode_t again;
    say("a second free", cudaGraphAddMemFreeNode(&again, graph, &freed, 1, memory));
    say("free in another graph", cudaGraphAddMemFreeNode(&again, other, nullptr, 0, memory));
    say("free of an address within", cudaGraphAddMemFreeNode(&again, other, nullptr, 0, (char *)memory + 256));
    SAY(cudaGraphClone(&clone, graph));
    SAY(cudaGraphAddChildGraphNode(&child, parent, nullptr, 0, graph));
    SAY(cudaGraphDestroyNode(node));
    SAY(cudaGraphRemoveDependencies(graph, &node, &freed, nullptr, 1));
    SAY(cudaFree(memory));
    SAY(cudaFreeAsync(memory, stream));
    cudaGraphExec_t first, second;
    SAY(cudaGraphInstantiate(&first, graph, 0));
    SAY(cudaGraphInstantiate(&second, graph, 0));
    SAY(cudaGraphDestroy(graph));
    SAY(cudaGraphLaunch(first, stream));
    SAY(cudaStreamSynchronize(stream));
    SAY(cudaGraphExecDestroy(first));
    SAY(cudaDeviceGraphMemTrim(0));
    require_nothing("at the end");
    unsigned long long one = 1;
    SAY(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &one));
    SAY(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &one));
    SAY(cudaDeviceGetGraphMemAttribute(0, (cudaGraphMemAttributeType)9, &one));
    SAY(cudaDeviceGraphMemTrim(99));
}

int main() {
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMalloc(&wrong, sizeof(int)));
    CHECK_CUDA(cudaMemset(wrong, 0, sizeof(int)));
    chain("equal sizes", {4 * MIB, 4 * MIB, 4 * MIB});
    chain("small sizes", {1024, 1024, 4096, 512});
    chain("smaller sizes", {8 * MIB, 4 * MIB, MIB, 64 * 1024});
    chain("larger sizes", {MIB, 2 * MIB, 5 * MIB, 40 * MIB});
    chain("odd sizes", {3 * MIB + 1024, 100 * 1024, 33 * MIB + 512}, false);
    branches();
    overlapping();
    two_graphs();
    captured();
    unfreed();
    mistakes();
    return pass();
}

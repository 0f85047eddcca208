// Conditional nodes that carry a graph out, or do not, as the value says that a launch begins with; one within the other. Where
// there are none (the software GPU) the first call says so, and that is all there is to see.
#include "check.h"

#include <vector>

constexpr int COUNT = 256;
constexpr size_t BYTES = COUNT * sizeof(int);

__global__ void add(int *values, int amount) { values[threadIdx.x] += amount; }

static cudaGraphNode_t add_kernel(cudaGraph_t graph, const cudaGraphNode_t *after, int *values, int amount) {
    void *arguments[2] = {&values, &amount};
    cudaKernelNodeParams params = {};
    params.func = (void *)add;
    params.gridDim = dim3(1);
    params.blockDim = dim3(COUNT);
    params.kernelParams = arguments;
    cudaGraphNode_t node;
    CHECK_CUDA(cudaGraphAddKernelNode(&node, graph, after, after ? 1 : 0, &params));
    return node;
}

// Adds an `if` to a graph, after a node of it, and gives the graph that it carries out.
static cudaGraph_t add_if(cudaGraph_t graph, const cudaGraphNode_t *after, cudaGraphConditionalHandle handle, cudaGraphNode_t *node) {
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = cudaGraphCondTypeIf;
    params.conditional.size = 1;
    CHECK_CUDA(cudaGraphAddNode(node, graph, after, nullptr, after ? 1 : 0, &params));
    return params.conditional.phGraph_out[0];
}

int main() {
    int *values;
    cudaStream_t stream;
    CHECK_CUDA(cudaMalloc(&values, BYTES));
    CHECK_CUDA(cudaStreamCreate(&stream));
    for (unsigned outer = 0; outer < 2; outer++) {
        for (unsigned inner = 0; inner < 2; inner++) {
            cudaGraph_t graph;
            CHECK_CUDA(cudaGraphCreate(&graph, 0));
            cudaGraphConditionalHandle handle, inner_handle;
            cudaError_t made = cudaGraphConditionalHandleCreate(&handle, graph, outer, cudaGraphCondAssignDefault);
            if (made == cudaErrorNotSupported) {
                printf("conditional nodes are not supported here\n");
                return pass();
            }
            CHECK_CUDA(made);
            CHECK_CUDA(cudaMemset(values, 0, BYTES));
            cudaGraphNode_t first = add_kernel(graph, nullptr, values, 1);
            cudaGraphNode_t branch, inner_branch;
            cudaGraph_t body = add_if(graph, &first, handle, &branch);
            add_kernel(graph, &branch, values, 10);
            cudaGraphNode_t in_body = add_kernel(body, nullptr, values, 100);
            CHECK_CUDA(cudaGraphConditionalHandleCreate(&inner_handle, body, inner, cudaGraphCondAssignDefault));
            cudaGraph_t inner_body = add_if(body, &in_body, inner_handle, &inner_branch);
            add_kernel(inner_body, nullptr, values, 1000);
            cudaGraphNodeType type;
            CHECK_CUDA(cudaGraphNodeGetType(branch, &type));
            REQUIRE(type == cudaGraphNodeTypeConditional, "the conditional node's type is %d", type);
            cudaGraphExec_t executable;
            CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
            for (int i = 0; i < 3; i++) CHECK_CUDA(cudaGraphLaunch(executable, stream));
            std::vector<int> result(COUNT);
            CHECK_CUDA(cudaStreamSynchronize(stream));
            CHECK_CUDA(cudaMemcpy(result.data(), values, BYTES, cudaMemcpyDeviceToHost));
            int expected = 3 * (11 + (outer ? 100 + (inner ? 1000 : 0) : 0));
            for (int i = 0; i < COUNT; i++)
                REQUIRE(result[i] == expected, "with %u and %u value %d is %d and not %d", outer, inner, i, result[i], expected);
            CHECK_CUDA(cudaGraphExecDestroy(executable));
            CHECK_CUDA(cudaGraphDestroy(graph));
        }
    }
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(values));
    return pass();
}

// A graph captured from two streams that fork and join by events, with kernels, a memset and a copy within the device;
// instantiated once and launched 100 times.
#include "check.h"

#include <vector>

constexpr int COUNT = 10'000, LAUNCHES = 100;

__global__ void increment(unsigned *a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) a[i] += 1;
}

__global__ void accumulate(unsigned *to, const unsigned *from) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) to[i] += from[i];
}

__global__ void multiply(unsigned *a, unsigned factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) a[i] *= factor;
}

int main() {
    const size_t bytes = COUNT * sizeof(unsigned);
    const int block = 256, grid = (COUNT + block - 1) / block;
    unsigned *a, *b, *c, *total;
    for (unsigned **array : {&a, &b, &c, &total}) {
        CHECK_CUDA(cudaMalloc(array, bytes));
        CHECK_CUDA(cudaMemset(*array, 0, bytes));
    }
    cudaStream_t main_stream, side_stream;
    cudaEvent_t fork, join;
    CHECK_CUDA(cudaStreamCreate(&main_stream));
    CHECK_CUDA(cudaStreamCreate(&side_stream));
    CHECK_CUDA(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK_CUDA(cudaDeviceSynchronize());

    // a += 1; then b = a on the side stream and c = 2 * a on the main one; then total += b + c.
    CHECK_CUDA(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeGlobal));
    increment<<<grid, block, 0, main_stream>>>(a);
    CHECK_CUDA(cudaEventRecord(fork, main_stream));
    CHECK_CUDA(cudaStreamWaitEvent(side_stream, fork, 0));
    CHECK_CUDA(cudaMemsetAsync(b, 0, bytes, side_stream));
    accumulate<<<grid, block, 0, side_stream>>>(b, a);
    CHECK_CUDA(cudaEventRecord(join, side_stream));
    CHECK_CUDA(cudaMemcpyAsync(c, a, bytes, cudaMemcpyDeviceToDevice, main_stream));
    multiply<<<grid, block, 0, main_stream>>>(c, 2);
    CHECK_CUDA(cudaStreamWaitEvent(main_stream, join, 0));
    accumulate<<<grid, block, 0, main_stream>>>(total, b);
    accumulate<<<grid, block, 0, main_stream>>>(total, c);
    cudaStreamCaptureStatus status;
    CHECK_CUDA(cudaStreamIsCapturing(side_stream, &status));
    REQUIRE(status == cudaStreamCaptureStatusActive, "the side stream's capture status is %d", status);
    cudaGraph_t graph;
    CHECK_CUDA(cudaStreamEndCapture(main_stream, &graph));
    CHECK_CUDA(cudaStreamIsCapturing(main_stream, &status));
    REQUIRE(status == cudaStreamCaptureStatusNone, "after the capture its status is %d", status);

    size_t nodes = 0;
    CHECK_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
    REQUIRE(nodes == 7, "7 operations were captured, the graph has %zu nodes", nodes);
    std::vector<unsigned> result(COUNT);
    CHECK_CUDA(cudaMemcpy(result.data(), total, bytes, cudaMemcpyDeviceToHost));
    REQUIRE(result[0] == 0, "capturing executed the work: the total is %u", result[0]);

    cudaGraphExec_t executable;
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));  // the executable graph lives on without it
    for (int i = 0; i < LAUNCHES; i++) CHECK_CUDA(cudaGraphLaunch(executable, main_stream));
    CHECK_CUDA(cudaStreamSynchronize(main_stream));
    CHECK_CUDA(cudaMemcpy(result.data(), total, bytes, cudaMemcpyDeviceToHost));
    const unsigned expected = 3 * LAUNCHES * (LAUNCHES + 1) / 2;
    for (int i = 0; i < COUNT; i++)
        REQUIRE(result[i] == expected, "total[%d] should be %u after %d launches, is %u", i, expected, LAUNCHES, result[i]);

    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaEventDestroy(fork));
    CHECK_CUDA(cudaEventDestroy(join));
    CHECK_CUDA(cudaStreamDestroy(main_stream));
    CHECK_CUDA(cudaStreamDestroy(side_stream));
    for (unsigned *array : {a, b, c, total}) CHECK_CUDA(cudaFree(array));
    return pass();
}

// Ten short kernels are captured from a stream into a graph, which is launched a hundred times. A launch of the graph is one
// call, and so one message to the server, however many kernels it has.
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                        \
    do {                                                                                   \
        cudaError_t error = (call);                                                        \
        if (error != cudaSuccess) {                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error)); \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

__global__ void add_to(int *value, int amount) { *value += amount; }

int main() {
    int *on_device;
    CHECK(cudaMalloc(&on_device, sizeof(int)));
    CHECK(cudaMemset(on_device, 0, sizeof(int)));

    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    // While a stream is captured nothing runs: what it is given becomes nodes of the graph.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int amount = 1; amount <= 10; amount++) add_to<<<1, 1, 0, stream>>>(on_device, amount);
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));

    cudaGraphExec_t executable;
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int launch = 0; launch < 100; launch++) CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));

    int sum;
    CHECK(cudaMemcpy(&sum, on_device, sizeof(int), cudaMemcpyDeviceToHost));
    if (sum != 100 * 55) {
        fprintf(stderr, "the sum is %d instead of %d\n", sum, 100 * 55);
        return 1;
    }
    printf("100 launches of a graph with 10 kernels: the sum is %d\n", sum);
}

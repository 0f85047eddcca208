// Halves of an array go to the device, are squared and come back, each half in a stream of its own. So the copies of one
// half overlap with the kernel of the other. That takes pinned memory: a copy from pageable memory keeps the call waiting.
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

__global__ void square(float *values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= values[i];
}

int main() {
    const int n = 1 << 18, half = n / 2;
    float *values, *on_device;
    CHECK(cudaMallocHost(&values, n * sizeof(float)));
    CHECK(cudaMalloc(&on_device, n * sizeof(float)));
    for (int i = 0; i < n; i++) values[i] = i % 1000;

    cudaStream_t streams[2];
    cudaEvent_t begin, end[2];
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventRecord(begin));
    for (int part = 0; part < 2; part++) {
        CHECK(cudaStreamCreate(&streams[part]));
        CHECK(cudaEventCreate(&end[part]));
        float *here = values + part * half, *there = on_device + part * half;
        const size_t bytes = half * sizeof(float);
        CHECK(cudaMemcpyAsync(there, here, bytes, cudaMemcpyHostToDevice, streams[part]));
        square<<<half / 256, 256, 0, streams[part]>>>(there, half);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(here, there, bytes, cudaMemcpyDeviceToHost, streams[part]));
        CHECK(cudaEventRecord(end[part], streams[part]));
    }
    // Nothing has waited until here.
    for (int part = 0; part < 2; part++) {
        float milliseconds;
        CHECK(cudaEventSynchronize(end[part]));
        CHECK(cudaEventElapsedTime(&milliseconds, begin, end[part]));
        printf("half %d is back after %.2f ms\n", part, milliseconds);
    }
    for (int i = 0; i < n; i++) {
        float expected = float(i % 1000) * float(i % 1000);
        if (values[i] != expected) {
            fprintf(stderr, "element %d is %g instead of %g\n", i, values[i], expected);
            return 1;
        }
    }
    printf("%d squares are right\n", n);
}

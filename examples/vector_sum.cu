// c = a + b, one thread for each element.
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                        \
    do {                                                                                   \
        cudaError_t error = (call);                                                        \
        if (error != cudaSuccess) {                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error)); \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

__global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

int main() {
    const int n = 1000;
    const size_t bytes = n * sizeof(float);
    std::vector<float> a(n), b(n), c(n);
    for (int i = 0; i < n; i++) {
        a[i] = i;
        b[i] = 2 * i;
    }

    float *on_device[3];
    for (float *&memory : on_device) CHECK(cudaMalloc(&memory, bytes));
    CHECK(cudaMemcpy(on_device[0], a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(on_device[1], b.data(), bytes, cudaMemcpyHostToDevice));
    add<<<(n + 255) / 256, 256>>>(on_device[0], on_device[1], on_device[2], n);
    CHECK(cudaGetLastError());
    // The copy waits for the kernel, which is in the same stream.
    CHECK(cudaMemcpy(c.data(), on_device[2], bytes, cudaMemcpyDeviceToHost));
    for (float *memory : on_device) CHECK(cudaFree(memory));

    for (int i = 0; i < n; i++) {
        if (c[i] != 3.0f * i) {
            fprintf(stderr, "element %d is %g instead of %g\n", i, c[i], 3.0f * i);
            return 1;
        }
    }
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    printf("%d sums on %s are right\n", n, device.name);
}

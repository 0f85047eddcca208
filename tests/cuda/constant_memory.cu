// Constant memory and device variables: whole and partial copies to and from symbols, symbol addresses and sizes, static
// initial values, a variable that holds another's address, changes between launches.
#include "check.h"

#include <vector>

struct Polynomial {
    int degree;
    double coefficients[8];
};

__constant__ float table[256];
__constant__ Polynomial polynomial = {2, {1.0, 2.0, 3.0}};
__device__ int counter = 40;
__device__ unsigned long long squares[16] = {0, 1, 4, 9};
__device__ unsigned long long *squares_pointer = squares;

__global__ void look_up(const unsigned char *indices, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = table[indices[i]];
}

__global__ void evaluate(double x, double *out) {
    double value = 0;
    for (int i = polynomial.degree; i >= 0; i--) value = value * x + polynomial.coefficients[i];
    *out = value;
}

__global__ void count_and_square() {
    atomicAdd(&counter, 1);
    if (threadIdx.x >= 4) squares_pointer[threadIdx.x] = (unsigned long long)threadIdx.x * threadIdx.x;
}

static void check_tables() {
    const int n = 10'000;
    std::vector<unsigned char> indices(n);
    std::vector<float> values(256), out(n);
    uint32_t state = 13;
    for (unsigned char &index : indices) index = next_random(&state);
    for (int i = 0; i < 256; i++) values[i] = i * 0.5f;
    unsigned char *device_indices;
    float *device_out;
    CHECK_CUDA(cudaMalloc(&device_indices, n));
    CHECK_CUDA(cudaMalloc(&device_out, n * sizeof(float)));
    CHECK_CUDA(cudaMemcpy(device_indices, indices.data(), n, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpyToSymbol(table, values.data(), 256 * sizeof(float)));
    for (int round = 0; round < 2; round++) {
        look_up<<<(n + 255) / 256, 256>>>(device_indices, device_out, n);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaMemcpy(out.data(), device_out, n * sizeof(float), cudaMemcpyDeviceToHost));
        for (int i = 0; i < n; i++)
            REQUIRE(out[i] == values[indices[i]], "round %d: table[%d] should be %g, came out as %g", round, indices[i],
                    values[indices[i]], out[i]);
        // For the second round a part in the middle is changed.
        for (int i = 100; i < 150; i++) values[i] = -i;
        CHECK_CUDA(cudaMemcpyToSymbol(table, &values[100], 50 * sizeof(float), 100 * sizeof(float)));
    }
    float back[3];
    CHECK_CUDA(cudaMemcpyFromSymbol(back, table, sizeof(back), 149 * sizeof(float)));
    REQUIRE(back[0] == -149 && back[1] == 75 && back[2] == 75.5f, "table[149..152] came back as %g %g %g", back[0], back[1],
            back[2]);
    CHECK_CUDA(cudaFree(device_indices));
    CHECK_CUDA(cudaFree(device_out));
}

static void check_struct() {
    double *device_value, value;
    CHECK_CUDA(cudaMalloc(&device_value, sizeof(double)));
    evaluate<<<1, 1>>>(2.0, device_value);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(&value, device_value, sizeof(double), cudaMemcpyDeviceToHost));
    REQUIRE(value == 17.0, "1 + 2x + 3x^2 at 2 should be 17, came out as %g", value);
    Polynomial cubic = {3, {0, 0, 0, 1}};
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaMemcpyToSymbolAsync(polynomial, &cubic, sizeof(cubic), 0, cudaMemcpyHostToDevice, stream));
    evaluate<<<1, 1, 0, stream>>>(3.0, device_value);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpyAsync(&value, device_value, sizeof(double), cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    REQUIRE(value == 27.0, "x^3 at 3 should be 27, came out as %g", value);
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(device_value));
}

static void check_device_variables() {
    count_and_square<<<4, 16>>>();
    CHECK_LAUNCH();
    int count = 0;
    CHECK_CUDA(cudaMemcpyFromSymbol(&count, counter, sizeof(count)));
    REQUIRE(count == 40 + 64, "the counter should be 104, is %d", count);

    void *address = nullptr;
    size_t size = 0;
    CHECK_CUDA(cudaGetSymbolAddress(&address, squares));
    CHECK_CUDA(cudaGetSymbolSize(&size, squares));
    REQUIRE(size == 16 * 8, "the size of squares should be 128, is %zu", size);
    unsigned long long values[16];
    CHECK_CUDA(cudaMemcpy(values, address, sizeof(values), cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < 16; i++) REQUIRE(values[i] == i * i, "squares[%u] is %llu", i, values[i]);

    void *pointer = nullptr;
    CHECK_CUDA(cudaMemcpyFromSymbol(&pointer, squares_pointer, sizeof(pointer)));
    REQUIRE(pointer == address, "squares_pointer holds %p, squares is at %p", pointer, address);

    // A symbol's address is as good as any device pointer.
    CHECK_CUDA(cudaGetSymbolAddress(&address, counter));
    CHECK_CUDA(cudaMemset(address, 0, sizeof(int)));
    CHECK_CUDA(cudaMemcpyFromSymbol(&count, counter, sizeof(count)));
    REQUIRE(count == 0, "the cleared counter is %d", count);
}

int main() {
    check_tables();
    check_struct();
    check_device_variables();
    return pass();
}

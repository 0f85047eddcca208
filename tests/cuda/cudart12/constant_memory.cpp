// The device code of ../constant_memory.cu under a 12.x runtime: constant memory and device variables by symbol, a stream, an
// event and pinned memory.
#include "../check.h"
#include "constant_memory.fatbin.h"  // constant_memory[]
#include "registered_module.h"

#include <vector>

// The keys of kernels and variables.
static const char look_up = 0, count_and_square = 0;
static float table[256];
static int counter;

int main() {
    RegisteredModule module(constant_memory);
    module.add_kernel(&look_up, "_Z7look_upPKhPfi");
    module.add_kernel(&count_and_square, "_Z16count_and_squarev");
    module.add_variable(table, "table", sizeof(table), true);
    module.add_variable(&counter, "counter", sizeof(counter), false);
    module.finish();

    int n = 5'000;
    std::vector<unsigned char> indices(n);
    std::vector<float> values(256);
    uint32_t state = 21;
    for (unsigned char &index : indices) index = next_random(&state);
    for (int i = 0; i < 256; i++) values[i] = 1000 - i;
    unsigned char *device_indices;
    float *device_out, *out;
    cudaStream_t stream;
    cudaEvent_t done;
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void **>(&device_indices), n));
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void **>(&device_out), n * sizeof(float)));
    CHECK_CUDA(cudaMallocHost(reinterpret_cast<void **>(&out), n * sizeof(float)));
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaEventCreate(&done));
    CHECK_CUDA(cudaMemcpy(device_indices, indices.data(), n, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpyToSymbolAsync(table, values.data(), sizeof(table), 0, cudaMemcpyHostToDevice, stream));
    void *arguments[] = {&device_indices, &device_out, &n};
    CHECK_CUDA(cudaLaunchKernel(&look_up, dim3{unsigned(n + 127) / 128, 1, 1}, dim3{128, 1, 1}, arguments, 0, stream));
    CHECK_CUDA(cudaMemcpyAsync(out, device_out, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaEventRecord(done, stream));
    CHECK_CUDA(cudaEventSynchronize(done));
    for (int i = 0; i < n; i++)
        REQUIRE(out[i] == values[indices[i]], "table[%d] should be %g, came out as %g", indices[i], values[indices[i]], out[i]);

    CHECK_CUDA(cudaLaunchKernel(&count_and_square, dim3{3, 1, 1}, dim3{16, 1, 1}, nullptr, 0, nullptr));
    int count = 0;
    CHECK_CUDA(cudaMemcpyFromSymbol(&count, &counter, sizeof(count), 0, cudaMemcpyDeviceToHost));
    REQUIRE(count == 40 + 48, "the counter should be 88, is %d", count);
    void *address = nullptr;
    CHECK_CUDA(cudaGetSymbolAddress(&address, &counter));
    CHECK_CUDA(cudaMemcpy(&count, address, sizeof(count), cudaMemcpyDeviceToHost));
    REQUIRE(count == 88, "through its address the counter is %d", count);
    CHECK_CUDA(cudaEventDestroy(done));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFreeHost(out));
    CHECK_CUDA(cudaFree(device_indices));
    CHECK_CUDA(cudaFree(device_out));
    return pass();
}

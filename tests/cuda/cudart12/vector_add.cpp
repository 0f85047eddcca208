// The device code of ../vector_add.cu under a 12.x runtime.
#include "../check.h"
#include "registered_module.h"
#include "vector_add.fatbin.h"  // vector_add[]

#include <vector>

static const char add_kernel = 0;  // the kernel's key

int main() {
    RegisteredModule module(vector_add);
    module.add_kernel(&add_kernel, "_Z3addPKfS0_Pfi");
    module.finish();

    int n = 100'003;
    const size_t bytes = n * sizeof(float);
    std::vector<float> a(n), b(n), c(n);
    uint32_t state = 1;
    for (int i = 0; i < n; i++) {
        a[i] = random_between(&state, -100, 100);
        b[i] = random_between(&state, -100, 100);
    }
    float *device_a, *device_b, *device_c;
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void **>(&device_a), bytes));
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void **>(&device_b), bytes));
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void **>(&device_c), bytes));
    CHECK_CUDA(cudaMemcpy(device_a, a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(device_b, b.data(), bytes, cudaMemcpyHostToDevice));
    void *arguments[] = {&device_a, &device_b, &device_c, &n};
    CHECK_CUDA(cudaLaunchKernel(&add_kernel, dim3{unsigned(n + 255) / 256, 1, 1}, dim3{256, 1, 1}, arguments, 0, nullptr));
    CHECK_CUDA(cudaMemcpy(c.data(), device_c, bytes, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) REQUIRE(c[i] == a[i] + b[i], "element %d: %g + %g came out as %g", i, a[i], b[i], c[i]);
    CHECK_CUDA(cudaFree(device_a));
    CHECK_CUDA(cudaFree(device_b));
    CHECK_CUDA(cudaFree(device_c));

    int version = 0;
    CHECK_CUDA(cudaRuntimeGetVersion(&version));
    REQUIRE(version / 1000 == 12, "the runtime is %d, not 12.x", version);
    return pass();
}

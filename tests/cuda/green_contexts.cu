// Green contexts: a device's multiprocessors are split, a context gets a part, and a kernel in one of its streams runs there.
#include "check.h"

#include <cuda.h>

#include <vector>

constexpr int COUNT = 1 << 16;

__global__ void square(int *out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = i * (i % 1000);
}

template <typename Function>
static Function driver_function(const char *name) {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion(name, &function, 13000, cudaEnableDefault, &found));
    REQUIRE(found == cudaDriverEntryPointSuccess && function, "the driver has no %s", name);
    return reinterpret_cast<Function>(function);
}

#define DRIVER(name) driver_function<decltype(&name)>(#name)

static void require_result(CUresult got, CUresult want, const char *what) {
    REQUIRE(got == want, "%s: the driver returned %d instead of %d", what, got, want);
}

int main() {
    CHECK_CUDA(cudaFree(nullptr));
    cudaDeviceProp properties;
    CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
    CUdevResource all = {}, part = {}, rest = {};
    require_result(DRIVER(cuDeviceGetDevResource)(0, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS, "the device's resource");
    REQUIRE(int(all.sm.smCount) == properties.multiProcessorCount, "the resource has %u multiprocessors, the device %d", all.sm.smCount,
            properties.multiProcessorCount);
    auto split = DRIVER(cuDevSmResourceSplitByCount);
    unsigned groups = 0;
    require_result(split(nullptr, &groups, &all, nullptr, 0, 16), CUDA_SUCCESS, "how many groups there could be");
    REQUIRE(groups >= 1 && groups * 16 <= all.sm.smCount, "%u groups of 16 in %u multiprocessors", groups, all.sm.smCount);
    groups = 1;
    require_result(split(&part, &groups, &all, &rest, 0, 16), CUDA_SUCCESS, "a group");
    REQUIRE(groups == 1 && part.sm.smCount >= 16 && part.sm.smCount + rest.sm.smCount <= all.sm.smCount,
            "of %u multiprocessors the group has %u, the rest %u", all.sm.smCount, part.sm.smCount, rest.sm.smCount);

    CUdevResourceDesc description;
    CUgreenCtx green;
    require_result(DRIVER(cuDevResourceGenerateDesc)(&description, &part, 1), CUDA_SUCCESS, "a description");
    require_result(DRIVER(cuGreenCtxCreate)(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_SUCCESS, "a green context");
    CUdevResource told = {};
    require_result(DRIVER(cuGreenCtxGetDevResource)(green, &told, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS, "its resource");
    REQUIRE(told.sm.smCount == part.sm.smCount, "the green context has %u multiprocessors instead of %u", told.sm.smCount, part.sm.smCount);
    CUcontext context;
    require_result(DRIVER(cuCtxFromGreenCtx)(&context, green), CUDA_SUCCESS, "its context");
    CUstream stream, none;
    auto create_stream = DRIVER(cuGreenCtxStreamCreate);
    require_result(create_stream(&none, green, CU_STREAM_DEFAULT, 0), CUDA_ERROR_INVALID_VALUE, "a blocking stream");
    require_result(create_stream(&stream, green, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS, "a stream");
    CUgreenCtx of_stream = nullptr;
    require_result(DRIVER(cuStreamGetGreenCtx)(stream, &of_stream), CUDA_SUCCESS, "the stream's green context");
    REQUIRE(of_stream == green, "the stream says that it belongs to another green context");

    int *out;
    CHECK_CUDA(cudaMalloc(&out, COUNT * sizeof(int)));
    square<<<COUNT / 256, 256, 0, reinterpret_cast<cudaStream_t>(stream)>>>(out);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(stream)));
    std::vector<int> back(COUNT);
    CHECK_CUDA(cudaMemcpy(back.data(), out, COUNT * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) REQUIRE(back[i] == i * (i % 1000), "element %d is %d", i, back[i]);
    CHECK_CUDA(cudaFree(out));
    CHECK_CUDA(cudaStreamDestroy(reinterpret_cast<cudaStream_t>(stream)));
    require_result(DRIVER(cuGreenCtxDestroy)(green), CUDA_SUCCESS, "the end of the green context");
    return pass();
}

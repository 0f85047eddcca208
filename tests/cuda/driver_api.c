// The driver API alone, from C, with PTX in the source: contexts, modules, memory, streams, events, both ways to pass
// arguments, and the errors that a caller gets at once.
#define _GNU_SOURCE
#include "check.h"

#include <cuda.h>
#include <stdlib.h>

// saxpy: y[i] = alpha * x[i] + y[i].  block_sum: adds up 64 numbers through shared memory.  take_struct: stores the parts of a
// structure passed by value.
static const char ptx[] =
    ".version 7.0\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .global .align 4 .u32 launches = 0;\n"
    ".visible .entry saxpy(.param .u64 x_param, .param .u64 y_param, .param .f32 alpha_param, .param .u32 n_param)\n"
    "{\n"
    "    .reg .pred %p<2>;\n"
    "    .reg .b32 %r<6>;\n"
    "    .reg .f32 %f<5>;\n"
    "    .reg .b64 %rd<8>;\n"
    "    ld.param.u64 %rd1, [x_param];\n"
    "    ld.param.u64 %rd2, [y_param];\n"
    "    ld.param.f32 %f1, [alpha_param];\n"
    "    ld.param.u32 %r1, [n_param];\n"
    "    mov.u32 %r2, %ctaid.x;\n"
    "    mov.u32 %r3, %ntid.x;\n"
    "    mov.u32 %r4, %tid.x;\n"
    "    mad.lo.s32 %r5, %r2, %r3, %r4;\n"
    "    setp.ge.u32 %p1, %r5, %r1;\n"
    "    @%p1 bra DONE;\n"
    "    cvta.to.global.u64 %rd3, %rd1;\n"
    "    cvta.to.global.u64 %rd4, %rd2;\n"
    "    mul.wide.u32 %rd5, %r5, 4;\n"
    "    add.s64 %rd6, %rd3, %rd5;\n"
    "    add.s64 %rd7, %rd4, %rd5;\n"
    "    ld.global.f32 %f2, [%rd6];\n"
    "    ld.global.f32 %f3, [%rd7];\n"
    "    fma.rn.f32 %f4, %f1, %f2, %f3;\n"
    "    st.global.f32 [%rd7], %f4;\n"
    "DONE:\n"
    "    ret;\n"
    "}\n"
    ".visible .entry block_sum(.param .u64 in_param, .param .u64 out_param)\n"
    "{\n"
    "    .shared .align 4 .b8 tile[256];\n"
    "    .reg .pred %p<4>;\n"
    "    .reg .b32 %r<14>;\n"
    "    .reg .b64 %rd<7>;\n"
    "    ld.param.u64 %rd1, [in_param];\n"
    "    ld.param.u64 %rd2, [out_param];\n"
    "    mov.u32 %r1, %tid.x;\n"
    "    mul.wide.u32 %rd3, %r1, 4;\n"
    "    add.s64 %rd4, %rd1, %rd3;\n"
    "    ld.global.u32 %r2, [%rd4];\n"
    "    mov.u32 %r3, tile;\n"
    "    shl.b32 %r4, %r1, 2;\n"
    "    add.s32 %r5, %r3, %r4;\n"
    "    st.shared.u32 [%r5], %r2;\n"
    "    mov.u32 %r6, 32;\n"
    "NEXT:\n"
    "    bar.sync 0;\n"
    "    setp.ge.u32 %p1, %r1, %r6;\n"
    "    @%p1 bra SKIP;\n"
    "    shl.b32 %r7, %r6, 2;\n"
    "    add.s32 %r8, %r5, %r7;\n"
    "    ld.shared.u32 %r9, [%r5];\n"
    "    ld.shared.u32 %r10, [%r8];\n"
    "    add.s32 %r11, %r9, %r10;\n"
    "    st.shared.u32 [%r5], %r11;\n"
    "SKIP:\n"
    "    shr.u32 %r6, %r6, 1;\n"
    "    setp.ne.u32 %p2, %r6, 0;\n"
    "    @%p2 bra NEXT;\n"
    "    setp.ne.u32 %p3, %r1, 0;\n"
    "    @%p3 bra DONE2;\n"
    "    ld.shared.u32 %r12, [tile];\n"
    "    st.global.u32 [%rd2], %r12;\n"
    "    atom.global.add.u32 %r13, [launches], 1;\n"
    "DONE2:\n"
    "    ret;\n"
    "}\n"
    ".visible .entry take_struct(.param .align 8 .b8 parts_param[16], .param .u64 out_param)\n"
    "{\n"
    "    .reg .b32 %r<3>;\n"
    "    .reg .b64 %rd<4>;\n"
    "    ld.param.u64 %rd1, [parts_param];\n"
    "    ld.param.u32 %r1, [parts_param+8];\n"
    "    ld.param.u32 %r2, [parts_param+12];\n"
    "    ld.param.u64 %rd2, [out_param];\n"
    "    st.global.u64 [%rd2], %rd1;\n"
    "    st.global.u32 [%rd2+8], %r1;\n"
    "    st.global.u32 [%rd2+12], %r2;\n"
    "    ret;\n"
    "}\n";

static void check_device(CUdevice device) {
    char name[256] = "";
    CHECK_DRIVER(cuDeviceGetName(name, sizeof(name), device));
    REQUIRE(name[0] != '\0', "the device has no name");
    size_t total = 0;
    CHECK_DRIVER(cuDeviceTotalMem(&total, device));
    int threads = 0, warp = 0;
    CHECK_DRIVER(cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device));
    CHECK_DRIVER(cuDeviceGetAttribute(&warp, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
    REQUIRE(total > (64u << 20) && threads == 1024 && warp == 32, "%s has %zu bytes, %d threads a block, %d a warp", name, total,
            threads, warp);
    CUdevice none;
    CUresult result = cuDeviceGet(&none, 1000);
    REQUIRE(result == CUDA_ERROR_INVALID_DEVICE, "device 1000 gave error %d", result);
    int version = 0;
    CHECK_DRIVER(cuDriverGetVersion(&version));
    REQUIRE(version >= 12000, "the driver's version is %d", version);
}

static void check_saxpy(CUmodule module) {
    CUfunction saxpy;
    CHECK_DRIVER(cuModuleGetFunction(&saxpy, module, "saxpy"));
    unsigned n = 10007;
    const size_t bytes = n * sizeof(float);
    float *x = (float *)malloc(bytes), *y = (float *)malloc(bytes), *result = (float *)malloc(bytes);
    for (unsigned i = 0; i < n; i++) {
        x[i] = (float)(i % 100);
        y[i] = (float)(i % 7);
    }
    CUdeviceptr device_x, device_y;
    CHECK_DRIVER(cuMemAlloc(&device_x, bytes));
    CHECK_DRIVER(cuMemAlloc(&device_y, bytes));
    CHECK_DRIVER(cuMemcpyHtoD(device_x, x, bytes));
    CHECK_DRIVER(cuMemcpyHtoD(device_y, y, bytes));
    CUstream stream;
    CUevent before, after;
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuEventCreate(&before, CU_EVENT_DEFAULT));
    CHECK_DRIVER(cuEventCreate(&after, CU_EVENT_DEFAULT));
    float alpha = 2;
    void *arguments[] = {&device_x, &device_y, &alpha, &n};
    CHECK_DRIVER(cuEventRecord(before, stream));
    CHECK_DRIVER(cuLaunchKernel(saxpy, (n + 255) / 256, 1, 1, 256, 1, 1, 0, stream, arguments, NULL));

    // The same arguments packed in one buffer, each at its own alignment.
    struct {
        CUdeviceptr x, y;
        float alpha;
        unsigned n;
    } packed = {device_x, device_y, 3, n};
    size_t packed_size = sizeof(packed);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &packed_size, CU_LAUNCH_PARAM_END};
    CHECK_DRIVER(cuLaunchKernel(saxpy, (n + 127) / 128, 1, 1, 128, 1, 1, 0, stream, NULL, extra));

    CUlaunchConfig config = {.gridDimX = (n + 63) / 64,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 64,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream};
    alpha = 5;
    CHECK_DRIVER(cuLaunchKernelEx(&config, saxpy, arguments, NULL));
    CHECK_DRIVER(cuEventRecord(after, stream));
    CHECK_DRIVER(cuEventSynchronize(after));
    float milliseconds = -1;
    CHECK_DRIVER(cuEventElapsedTime(&milliseconds, before, after));
    REQUIRE(milliseconds >= 0, "three kernels took %g ms", milliseconds);
    CHECK_DRIVER(cuMemcpyDtoH(result, device_y, bytes));
    for (unsigned i = 0; i < n; i++)
        REQUIRE(result[i] == y[i] + 10 * x[i], "element %u should be %g, is %g", i, y[i] + 10 * x[i], result[i]);

    CUresult refused = cuLaunchKernel(saxpy, 1, 1, 1, 2048, 1, 1, 0, stream, arguments, NULL);
    REQUIRE(refused == CUDA_ERROR_INVALID_VALUE, "a block of 2048 threads gave error %d", refused);
    CHECK_DRIVER(cuEventDestroy(before));
    CHECK_DRIVER(cuEventDestroy(after));
    CHECK_DRIVER(cuStreamDestroy(stream));
    CHECK_DRIVER(cuMemFree(device_x));
    CHECK_DRIVER(cuMemFree(device_y));
    free(x);
    free(y);
    free(result);
}

static void check_shared_memory_and_globals(CUmodule module) {
    CUfunction block_sum;
    CHECK_DRIVER(cuModuleGetFunction(&block_sum, module, "block_sum"));
    int shared = 0;
    CHECK_DRIVER(cuFuncGetAttribute(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, block_sum));
    REQUIRE(shared == 256, "block_sum uses 256 bytes of shared memory, %d were reported", shared);
    CUdeviceptr numbers, sum;
    CHECK_DRIVER(cuMemAlloc(&numbers, 64 * sizeof(unsigned)));
    CHECK_DRIVER(cuMemAlloc(&sum, sizeof(unsigned)));
    CHECK_DRIVER(cuMemsetD32(numbers, 1000001, 64));
    CHECK_DRIVER(cuMemsetD32(sum, 0, 1));
    void *arguments[] = {&numbers, &sum};
    for (int i = 0; i < 3; i++) CHECK_DRIVER(cuLaunchKernel(block_sum, 1, 1, 1, 64, 1, 1, 0, NULL, arguments, NULL));
    unsigned value = 0;
    CHECK_DRIVER(cuMemcpyDtoH(&value, sum, sizeof(value)));
    REQUIRE(value == 64000064, "the sum should be 64000064, is %u", value);
    CUdeviceptr launches;
    size_t size = 0;
    CHECK_DRIVER(cuModuleGetGlobal(&launches, &size, module, "launches"));
    CHECK_DRIVER(cuMemcpyDtoH(&value, launches, sizeof(value)));
    REQUIRE(size == 4 && value == 3, "the global of %zu bytes should be 3, is %u", size, value);
    CHECK_DRIVER(cuMemFree(numbers));
    CHECK_DRIVER(cuMemFree(sum));
}

static void check_struct_argument(CUmodule module) {
    CUfunction take_struct;
    CHECK_DRIVER(cuModuleGetFunction(&take_struct, module, "take_struct"));
    struct Parts {
        uint64_t big;
        uint32_t small[2];
    } parts = {0x1122334455667788u, {77, 88}}, back = {0, {0, 0}};
    CUdeviceptr out;
    CHECK_DRIVER(cuMemAlloc(&out, sizeof(parts)));
    void *arguments[] = {&parts, &out};
    CHECK_DRIVER(cuLaunchKernel(take_struct, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    CHECK_DRIVER(cuMemcpyDtoH(&back, out, sizeof(back)));
    REQUIRE(memcmp(&parts, &back, sizeof(parts)) == 0, "a structure by value came back as %llx %u %u",
            (unsigned long long)back.big, back.small[0], back.small[1]);
    CHECK_DRIVER(cuMemFree(out));
}

static void check_memory(void) {
    CUdeviceptr memory, base;
    size_t size = 0, pitch = 0;
    CHECK_DRIVER(cuMemAlloc(&memory, 1 << 16));
    CHECK_DRIVER(cuMemGetAddressRange(&base, &size, memory + 5000));
    REQUIRE(base == memory && size == 1 << 16, "the allocation around an address is %zu bytes at %llx instead of 65536 at %llx",
            size, base, memory);
    unsigned kind = 0;
    CHECK_DRIVER(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
    REQUIRE(kind == CU_MEMORYTYPE_DEVICE, "device memory is of type %u", kind);

    static unsigned char bytes[1 << 16], want[1 << 16];
    CHECK_DRIVER(cuMemsetD8(memory, 0x11, sizeof(bytes)));
    memset(want, 0x11, sizeof(want));
    CHECK_DRIVER(cuMemsetD16(memory + 100, 0xabcd, 50));
    for (int i = 0; i < 50; i++) memcpy(want + 100 + 2 * i, &(uint16_t){0xabcd}, 2);
    CHECK_DRIVER(cuMemsetD32(memory + 400, 0x01020304, 25));
    for (int i = 0; i < 25; i++) memcpy(want + 400 + 4 * i, &(uint32_t){0x01020304}, 4);
    CHECK_DRIVER(cuMemsetD2D16(memory + 1024, 128, 0x5566, 20, 10));
    CHECK_DRIVER(cuMemsetD2D32(memory + 8192, 256, 0x778899aa, 30, 7));
    for (int row = 0; row < 10; row++)
        for (int i = 0; i < 20; i++) memcpy(want + 1024 + 128 * row + 2 * i, &(uint16_t){0x5566}, 2);
    for (int row = 0; row < 7; row++)
        for (int i = 0; i < 30; i++) memcpy(want + 8192 + 256 * row + 4 * i, &(uint32_t){0x778899aa}, 4);
    CHECK_DRIVER(cuMemcpyDtoD(memory + 20000, memory, 10000));
    memcpy(want + 20000, want, 10000);
    CHECK_DRIVER(cuMemcpyDtoH(bytes, memory, sizeof(bytes)));
    for (size_t i = 0; i < sizeof(bytes); i++)
        REQUIRE(bytes[i] == want[i], "after the memsets byte %zu is %02x instead of %02x", i, bytes[i], want[i]);
    CHECK_DRIVER(cuMemFree(memory));

    CHECK_DRIVER(cuMemAllocPitch(&memory, &pitch, 100, 20, 4));
    REQUIRE(pitch >= 100, "a pitch of %zu is less than the row", pitch);
    CHECK_DRIVER(cuMemFree(memory));
    size_t free_bytes = 0, total = 0;
    CHECK_DRIVER(cuMemGetInfo(&free_bytes, &total));
    REQUIRE(free_bytes > 0 && free_bytes <= total, "%zu of %zu bytes are free", free_bytes, total);
}

static void check_contexts(CUcontext context, CUdevice device) {
    CUcontext current = NULL, popped = NULL;
    CUdevice current_device = -1;
    CHECK_DRIVER(cuCtxGetCurrent(&current));
    CHECK_DRIVER(cuCtxGetDevice(&current_device));
    REQUIRE(current == context && current_device == device, "the current context is %p of device %d", (void *)current,
            current_device);
    CHECK_DRIVER(cuCtxPopCurrent(&popped));
    CHECK_DRIVER(cuCtxGetCurrent(&current));
    REQUIRE(popped == context && current == NULL, "after the pop of %p %p is current", (void *)popped, (void *)current);
    CUdeviceptr memory;
    CUresult result = cuMemAlloc(&memory, 16);
    REQUIRE(result == CUDA_ERROR_INVALID_CONTEXT, "an allocation without a context gave error %d", result);
    CHECK_DRIVER(cuCtxPushCurrent(context));
    CHECK_DRIVER(cuCtxSynchronize());

    CUfunc_cache config = CU_FUNC_CACHE_PREFER_NONE;
    CHECK_DRIVER(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
    CHECK_DRIVER(cuCtxGetCacheConfig(&config));
    REQUIRE(config == CU_FUNC_CACHE_PREFER_L1, "the cache was set to L1, and is %d", (int)config);
    result = cuCtxSetCacheConfig((CUfunc_cache)9);
    REQUIRE(result == CUDA_ERROR_INVALID_VALUE, "an invented division of the cache gave error %d", result);
}

// A second context: its streams are its own, and it ends when nobody holds it any more.
static void check_second_context(CUcontext first, CUmodule module_of_first, CUdevice device) {
    CUcontext second, current = NULL, held = NULL;
    CUstream stream;
    CUfunction function;
    CUdeviceptr memory;
    CHECK_DRIVER(cuMemAlloc(&memory, 256));
    CHECK_DRIVER(cuModuleGetFunction(&function, module_of_first, "block_sum"));
    CHECK_DRIVER(cuCtxCreate(&second, NULL, 0, device));
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuCtxSetCurrent(first));
    void *arguments[] = {&memory, &memory};
    CUresult result = cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, arguments, NULL);
    REQUIRE(result == CUDA_ERROR_INVALID_HANDLE, "a launch into a stream of another context gave error %d", result);
    CHECK_DRIVER(cuCtxSynchronize());
    CHECK_DRIVER(cuMemFree(memory));
    CHECK_DRIVER(cuCtxSetCurrent(second));
    CHECK_DRIVER(cuStreamDestroy(stream));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    CHECK_DRIVER(cuCtxAttach(&held, 0));
    CHECK_DRIVER(cuCtxDetach(held));
    CHECK_DRIVER(cuCtxGetCurrent(&current));
    REQUIRE(held == second && current == second, "held is %p, current %p instead of %p", (void *)held, (void *)current,
            (void *)second);
    CHECK_DRIVER(cuMemAlloc(&memory, 256));
    CHECK_DRIVER(cuCtxDetach(second));
#pragma GCC diagnostic pop
    CHECK_DRIVER(cuCtxGetCurrent(&current));
    REQUIRE(current != second, "a context that nobody holds is still current");
    CHECK_DRIVER(cuCtxSetCurrent(first));
}

int main(void) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUresult early = cuDeviceGet(&device, 0);
    REQUIRE(early == CUDA_ERROR_NOT_INITIALIZED, "before cuInit a call gave error %d", early);
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    check_device(device);
    CHECK_DRIVER(cuCtxCreate(&context, NULL, 0, device));
    check_contexts(context, device);
    CHECK_DRIVER(cuModuleLoadData(&module, ptx));
    check_saxpy(module);
    check_shared_memory_and_globals(module);
    check_struct_argument(module);
    check_memory();

    CUfunction none;
    CUresult missing = cuModuleGetFunction(&none, module, "no_such_kernel");
    REQUIRE(missing == CUDA_ERROR_NOT_FOUND, "a kernel that is not there gave error %d", missing);
    check_second_context(context, module, device);
    CHECK_DRIVER(cuModuleUnload(module));
    CHECK_DRIVER(cuCtxDestroy(context));
    return pass();
}

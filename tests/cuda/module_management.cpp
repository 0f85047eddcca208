// Modules and libraries of the driver API from a fatbin that nvcc made: loading in every form, functions and globals by name,
// two copies of one module side by side, unloading, and images that cannot be loaded.
#include "check.h"
#include "module_kernels.fatbin.h"  // module_kernels[], generated from module_kernels.cu

#include <cuda.h>

#include <vector>

constexpr int COUNT = 1'000;

// Launches `apply` and checks its results for the given value of the global `offset` and of factors[0].
static void check_apply(CUfunction apply, int offset, int first_factor, const char *what) {
    std::vector<int> in(COUNT), out(COUNT);
    for (int i = 0; i < COUNT; i++) in[i] = i;
    CUdeviceptr device_in, device_out;
    CHECK_DRIVER(cuMemAlloc(&device_in, COUNT * sizeof(int)));
    CHECK_DRIVER(cuMemAlloc(&device_out, COUNT * sizeof(int)));
    CHECK_DRIVER(cuMemcpyHtoD(device_in, in.data(), COUNT * sizeof(int)));
    int n = COUNT;
    void *arguments[] = {&device_in, &device_out, &n};
    CHECK_DRIVER(cuLaunchKernel(apply, (COUNT + 127) / 128, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK_DRIVER(cuMemcpyDtoH(out.data(), device_out, COUNT * sizeof(int)));
    for (int i = 0; i < COUNT; i++) {
        int want = i * (i % 4 == 0 ? first_factor : i % 4 + 1) + offset;
        REQUIRE(out[i] == want, "%s: element %d should be %d, is %d", what, i, want, out[i]);
    }
    CHECK_DRIVER(cuMemFree(device_in));
    CHECK_DRIVER(cuMemFree(device_out));
}

static void check_modules() {
    CUmodule first, second;
    CUfunction apply_first, apply_second, none;
    CHECK_DRIVER(cuModuleLoadData(&first, module_kernels));
    CHECK_DRIVER(cuModuleLoadFatBinary(&second, module_kernels));
    CHECK_DRIVER(cuModuleGetFunction(&apply_first, first, "apply"));
    CHECK_DRIVER(cuModuleGetFunction(&apply_second, second, "apply"));

    // Each module has globals of its own.
    CUdeviceptr offset_first, offset_second, factors, unknown;
    size_t size = 0;
    CHECK_DRIVER(cuModuleGetGlobal(&offset_first, &size, first, "offset"));
    REQUIRE(size == sizeof(int), "the global has %zu bytes", size);
    CHECK_DRIVER(cuModuleGetGlobal(&offset_second, nullptr, second, "offset"));
    CHECK_DRIVER(cuModuleGetGlobal(&factors, &size, second, "factors"));
    REQUIRE(size == 4 * sizeof(int) && offset_first != offset_second, "the constant has %zu bytes, the globals are at %llx and %llx",
            size, offset_first, offset_second);
    const int offset = -7, factor = 50;
    CHECK_DRIVER(cuMemcpyHtoD(offset_second, &offset, sizeof(offset)));
    CHECK_DRIVER(cuMemcpyHtoD(factors, &factor, sizeof(factor)));
    check_apply(apply_first, 100, 1, "the first module");
    check_apply(apply_second, -7, 50, "the second module");

    CUresult missing = cuModuleGetFunction(&none, first, "nothing");
    REQUIRE(missing == CUDA_ERROR_NOT_FOUND, "an unknown function gave error %d", missing);
    missing = cuModuleGetGlobal(&unknown, &size, first, "nothing");
    REQUIRE(missing == CUDA_ERROR_NOT_FOUND, "an unknown global gave error %d", missing);
    CHECK_DRIVER(cuModuleUnload(first));
    check_apply(apply_second, -7, 50, "the second module after the first was unloaded");
    CHECK_DRIVER(cuModuleUnload(second));
}

static void check_libraries() {
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    CHECK_DRIVER(cuLibraryLoadData(&library, module_kernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK_DRIVER(cuLibraryGetKernel(&kernel, library, "apply"));
    CHECK_DRIVER(cuKernelGetFunction(&function, kernel));
    check_apply(function, 100, 1, "a library's function");
    // A kernel handle is taken where a function handle is expected.
    check_apply(reinterpret_cast<CUfunction>(kernel), 100, 1, "a library's kernel");
    CUdeviceptr offset;
    size_t size = 0;
    CHECK_DRIVER(cuLibraryGetGlobal(&offset, &size, library, "offset"));
    const int value = 9;
    CHECK_DRIVER(cuMemcpyHtoD(offset, &value, sizeof(value)));
    check_apply(function, 9, 1, "a library after its global was changed");
    int threads = 0;
    CHECK_DRIVER(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    REQUIRE(threads >= 128, "the kernel's blocks may have %d threads", threads);
    size_t parameter_offset = 0, parameter_size = 0;
    CHECK_DRIVER(cuFuncGetParamInfo(function, 2, &parameter_offset, &parameter_size));
    REQUIRE(parameter_offset == 16 && parameter_size == 4, "parameter 2 has %zu bytes at %zu", parameter_size, parameter_offset);
    CUresult past = cuFuncGetParamInfo(function, 3, &parameter_offset, &parameter_size);
    REQUIRE(past == CUDA_ERROR_INVALID_VALUE, "parameter 3 of 3 gave error %d", past);
    CHECK_DRIVER(cuLibraryUnload(library));
}

static void check_bad_images() {
    CUmodule module;
    char log[2048] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, reinterpret_cast<void *>(sizeof(log))};
    const char wrong_ptx[] =
        ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry f()\n{\n    mov.u32 ,;\n}\n";
    CUresult result = cuModuleLoadDataEx(&module, wrong_ptx, 2, options, values);
    REQUIRE(result == CUDA_ERROR_INVALID_PTX, "PTX with a syntax error gave error %d", result);
    REQUIRE(log[0] != '\0', "PTX with a syntax error left no message");
    const char nonsense[64] = "this is no module";
    result = cuModuleLoadData(&module, nonsense);
    REQUIRE(result != CUDA_SUCCESS, "a text that is no module was loaded");
}

int main() {
    CUdevice device;
    CUcontext context;
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_DRIVER(cuCtxSetCurrent(context));
    check_modules();
    check_libraries();
    check_bad_images();
    CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));
    return pass();
}

// Kernels compiled at run time: NVRTC makes PTX, and machine code for the device; the driver API loads and launches both.  NVRTC is opened by name, so that the
// program starts wherever libnvrtc.so.13 (or .12) can be found by the dynamic linker.
#include "check.h"

#include <cuda.h>
#include <nvrtc.h>

#include <dlfcn.h>
#include <random>
#include <string>
#include <vector>

static const char *const source = R"(
template <typename T, int POWER>
__global__ void raise(const T *in, T *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    T value = OFFSET;
    T product = 1;
    for (int p = 0; p < POWER; p++) product *= in[i];
    out[i] = value + product;
}

__constant__ float scale;

extern "C" __global__ void reverse(const float *in, float *out) {
    extern __shared__ float tile[];
    int i = threadIdx.x;
    tile[i] = in[i];
    __syncthreads();
    out[i] = scale * tile[blockDim.x - 1 - i];
}
)";

// The functions of NVRTC that the program uses, found by name.
struct Nvrtc {
    void *library = nullptr;
    decltype(&nvrtcVersion) version;
    decltype(&nvrtcCreateProgram) create_program;
    decltype(&nvrtcDestroyProgram) destroy_program;
    decltype(&nvrtcCompileProgram) compile_program;
    decltype(&nvrtcAddNameExpression) add_name_expression;
    decltype(&nvrtcGetLoweredName) get_lowered_name;
    decltype(&nvrtcGetPTXSize) get_ptx_size;
    decltype(&nvrtcGetPTX) get_ptx;
    decltype(&nvrtcGetCUBINSize) get_cubin_size;
    decltype(&nvrtcGetCUBIN) get_cubin;
    decltype(&nvrtcGetProgramLogSize) get_log_size;
    decltype(&nvrtcGetProgramLog) get_log;
    decltype(&nvrtcGetErrorString) get_error_string;

    template <typename Function>
    void find(Function &function, const char *name) {
        function = reinterpret_cast<Function>(dlsym(library, name));
        REQUIRE(function, "NVRTC has no function %s", name);
    }

    Nvrtc() {
        for (const char *name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"})
            if (!library) library = dlopen(name, RTLD_NOW);
        REQUIRE(library, "NVRTC cannot be opened: %s", dlerror());
        find(version, "nvrtcVersion");
        find(create_program, "nvrtcCreateProgram");
        find(destroy_program, "nvrtcDestroyProgram");
        find(compile_program, "nvrtcCompileProgram");
        find(add_name_expression, "nvrtcAddNameExpression");
        find(get_lowered_name, "nvrtcGetLoweredName");
        find(get_ptx_size, "nvrtcGetPTXSize");
        find(get_ptx, "nvrtcGetPTX");
        find(get_cubin_size, "nvrtcGetCUBINSize");
        find(get_cubin, "nvrtcGetCUBIN");
        find(get_log_size, "nvrtcGetProgramLogSize");
        find(get_log, "nvrtcGetProgramLog");
        find(get_error_string, "nvrtcGetErrorString");
    }
};

#define CHECK_NVRTC(call) \
    do { \
        nvrtcResult result_ = (call); \
        if (result_ != NVRTC_SUCCESS) fail("%s returned %s", #call, nvrtc.get_error_string(result_)); \
    } while (0)

// What NVRTC makes for exactly this device, as CuPy has it made, twice: the second time somebody may have kept the result.
static void check_machine_code(Nvrtc &nvrtc, CUdevice device) {
    int major, minor;
    CHECK_DRIVER(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    CHECK_DRIVER(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    std::mt19937 random(std::random_device{}());
    const unsigned factors[] = {unsigned(random()), unsigned(random())};
    const int threads = 64;
    CUdeviceptr numbers;
    CHECK_DRIVER(cuMemAlloc(&numbers, threads * sizeof(unsigned)));
    for (int round = 0; round < 4; round++) {
        unsigned factor = factors[round % 2];
        std::string architecture = "--gpu-architecture=sm_" + std::to_string(major * 10 + minor);
        std::string define = "-DFACTOR=" + std::to_string(factor) + "u";
        const char *options[] = {architecture.c_str(), define.c_str()};
        nvrtcProgram program;
        const char *const text = "extern \"C\" __global__ void multiply(unsigned *p) { p[threadIdx.x] = (threadIdx.x + 1) * FACTOR; }";
        CHECK_NVRTC(nvrtc.create_program(&program, text, "multiply.cu", 0, nullptr, nullptr));
        CHECK_NVRTC(nvrtc.compile_program(program, 2, options));
        size_t size = 0;
        CHECK_NVRTC(nvrtc.get_cubin_size(program, &size));
        REQUIRE(size > 0, "there is no machine code for %s", architecture.c_str());
        std::vector<char> cubin(size);
        CHECK_NVRTC(nvrtc.get_cubin(program, cubin.data()));
        CHECK_NVRTC(nvrtc.destroy_program(&program));
        CUmodule module;
        CUfunction multiply;
        CHECK_DRIVER(cuModuleLoadData(&module, cubin.data()));
        CHECK_DRIVER(cuModuleGetFunction(&multiply, module, "multiply"));
        void *arguments[] = {&numbers};
        CHECK_DRIVER(cuLaunchKernel(multiply, 1, 1, 1, threads, 1, 1, 0, nullptr, arguments, nullptr));
        unsigned found[threads];
        CHECK_DRIVER(cuMemcpyDtoH(found, numbers, sizeof(found)));
        for (int i = 0; i < threads; i++)
            REQUIRE(found[i] == (i + 1) * factor, "machine code made %u of %d times %u", found[i], i + 1, factor);
        CHECK_DRIVER(cuModuleUnload(module));
    }
    CHECK_DRIVER(cuMemFree(numbers));
}

int main() {
    Nvrtc nvrtc;
    const char *const expression = "raise<double, 3>";
    nvrtcProgram program;
    CHECK_NVRTC(nvrtc.create_program(&program, source, "raise.cu", 0, nullptr, nullptr));
    CHECK_NVRTC(nvrtc.add_name_expression(program, expression));
    const char *options[] = {"--gpu-architecture=compute_75", "--std=c++17", "-DOFFSET=5"};
    nvrtcResult compiled = nvrtc.compile_program(program, 3, options);
    if (compiled != NVRTC_SUCCESS) {
        size_t size = 0;
        CHECK_NVRTC(nvrtc.get_log_size(program, &size));
        std::string log(size, '\0');
        CHECK_NVRTC(nvrtc.get_log(program, &log[0]));
        fail("the kernels did not compile: %s", log.c_str());
    }
    size_t size = 0;
    CHECK_NVRTC(nvrtc.get_ptx_size(program, &size));
    std::string ptx(size, '\0');
    CHECK_NVRTC(nvrtc.get_ptx(program, &ptx[0]));
    const char *lowered = nullptr;
    CHECK_NVRTC(nvrtc.get_lowered_name(program, expression, &lowered));

    CHECK_DRIVER(cuInit(0));
    CUdevice device;
    CUcontext context;
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_DRIVER(cuCtxSetCurrent(context));
    CUmodule module;
    char log[4096] = "";
    CUjit_option jit_options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *jit_values[] = {log, reinterpret_cast<void *>(sizeof(log))};
    CUresult loaded = cuModuleLoadDataEx(&module, ptx.c_str(), 2, jit_options, jit_values);
    REQUIRE(loaded == CUDA_SUCCESS, "NVRTC's PTX could not be loaded: error %d, %s", loaded, log);
    CUfunction raise, reverse;
    CHECK_DRIVER(cuModuleGetFunction(&raise, module, lowered));
    CHECK_DRIVER(cuModuleGetFunction(&reverse, module, "reverse"));
    CHECK_NVRTC(nvrtc.destroy_program(&program));

    int n = 1000;
    std::vector<double> in(n), out(n);
    for (int i = 0; i < n; i++) in[i] = i - 500;
    CUdeviceptr device_in, device_out;
    CHECK_DRIVER(cuMemAlloc(&device_in, n * sizeof(double)));
    CHECK_DRIVER(cuMemAlloc(&device_out, n * sizeof(double)));
    CHECK_DRIVER(cuMemcpyHtoD(device_in, in.data(), n * sizeof(double)));
    void *raise_arguments[] = {&device_in, &device_out, &n};
    CHECK_DRIVER(cuLaunchKernel(raise, (n + 63) / 64, 1, 1, 64, 1, 1, 0, nullptr, raise_arguments, nullptr));
    CHECK_DRIVER(cuMemcpyDtoH(out.data(), device_out, n * sizeof(double)));
    for (int i = 0; i < n; i++)
        REQUIRE(out[i] == 5 + in[i] * in[i] * in[i], "5 + %g^3 came out as %g", in[i], out[i]);

    CUdeviceptr scale_address;
    size_t scale_size = 0;
    CHECK_DRIVER(cuModuleGetGlobal(&scale_address, &scale_size, module, "scale"));
    REQUIRE(scale_size == sizeof(float), "the constant has %zu bytes", scale_size);
    const float scale = 3;
    CHECK_DRIVER(cuMemcpyHtoD(scale_address, &scale, sizeof(scale)));
    const int threads = 96;
    float numbers[threads], reversed[threads];
    for (int i = 0; i < threads; i++) numbers[i] = i;
    CHECK_DRIVER(cuMemcpyHtoD(device_in, numbers, sizeof(numbers)));
    void *reverse_arguments[] = {&device_in, &device_out};
    CHECK_DRIVER(cuLaunchKernel(reverse, 1, 1, 1, threads, 1, 1, sizeof(numbers), nullptr, reverse_arguments, nullptr));
    CHECK_DRIVER(cuMemcpyDtoH(reversed, device_out, sizeof(reversed)));
    for (int i = 0; i < threads; i++)
        REQUIRE(reversed[i] == 3 * numbers[threads - 1 - i], "reversed element %d came out as %g", i, reversed[i]);

    check_machine_code(nvrtc, device);

    CHECK_DRIVER(cuMemFree(device_in));
    CHECK_DRIVER(cuMemFree(device_out));
    CHECK_DRIVER(cuModuleUnload(module));
    CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));
    return pass();
}

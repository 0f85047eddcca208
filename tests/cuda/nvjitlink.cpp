// Code linked at run time: NVRTC makes intermediate code of two sources that call each other, and nvJitLink machine code for the device of
// both. Both are opened by name, so that the program starts wherever libnvrtc.so.13 and libnvJitLink.so.13 can be found by the dynamic
// linker.
#include "check.h"

#include <cuda.h>
#include <nvJitLink.h>
#include <nvrtc.h>

#include <dlfcn.h>
#include <string>
#include <vector>

static const char *const kernel =
    "extern __device__ unsigned changed(unsigned);\n"
    "extern \"C\" __global__ void change(unsigned *numbers) { numbers[threadIdx.x] = changed(numbers[threadIdx.x]); }\n";
static const char *const function = "__device__ unsigned changed(unsigned value) { return value * FACTOR + 7; }\n";

// A library that is opened by one of several names.
static void *opened(std::initializer_list<const char *> names) {
    for (const char *name : names)
        if (void *library = dlopen(name, RTLD_NOW)) return library;
    fail("%s cannot be opened: %s", *names.begin(), dlerror());
}

template <typename Function>
static void find(void *library, Function &function, const char *name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    REQUIRE(function, "there is no function %s", name);
}

struct Compiler {
    decltype(&nvrtcCreateProgram) create;
    decltype(&nvrtcDestroyProgram) destroy;
    decltype(&nvrtcCompileProgram) compile;
    decltype(&nvrtcGetLTOIRSize) get_size;
    decltype(&nvrtcGetLTOIR) get;

    Compiler() {
        void *library = opened({"libnvrtc.so.13", "libnvrtc.so"});
        find(library, create, "nvrtcCreateProgram");
        find(library, destroy, "nvrtcDestroyProgram");
        find(library, compile, "nvrtcCompileProgram");
        find(library, get_size, "nvrtcGetLTOIRSize");
        find(library, get, "nvrtcGetLTOIR");
    }

    std::vector<char> intermediate(const char *source, const std::string &architecture, unsigned factor) {
        std::string define = "-DFACTOR=" + std::to_string(factor) + "u";
        const char *options[] = {architecture.c_str(), define.c_str(), "-dlto", "-rdc=true"};
        nvrtcProgram program;
        REQUIRE(create(&program, source, "source.cu", 0, nullptr, nullptr) == NVRTC_SUCCESS, "no program is made");
        nvrtcResult compiled = compile(program, 4, options);
        REQUIRE(compiled == NVRTC_SUCCESS, "NVRTC: error %d", compiled);
        size_t size = 0;
        REQUIRE(get_size(program, &size) == NVRTC_SUCCESS && size > 0, "there is no intermediate code");
        std::vector<char> code(size);
        REQUIRE(get(program, code.data()) == NVRTC_SUCCESS, "the intermediate code is not given");
        destroy(&program);
        return code;
    }
};

struct Linker {
    nvJitLinkResult (*create)(nvJitLinkHandle *, uint32_t, const char **);
    nvJitLinkResult (*destroy)(nvJitLinkHandle *);
    nvJitLinkResult (*add_data)(nvJitLinkHandle, nvJitLinkInputType, const void *, size_t, const char *);
    nvJitLinkResult (*complete)(nvJitLinkHandle);
    nvJitLinkResult (*get_size)(nvJitLinkHandle, size_t *);
    nvJitLinkResult (*get)(nvJitLinkHandle, void *);
    nvJitLinkResult (*get_log_size)(nvJitLinkHandle, size_t *);
    nvJitLinkResult (*get_log)(nvJitLinkHandle, char *);

    Linker() {
        void *library = opened({"libnvJitLink.so.13", "libnvJitLink.so"});
        find(library, create, "nvJitLinkCreate");
        find(library, destroy, "nvJitLinkDestroy");
        find(library, add_data, "nvJitLinkAddData");
        find(library, complete, "nvJitLinkComplete");
        find(library, get_size, "nvJitLinkGetLinkedCubinSize");
        find(library, get, "nvJitLinkGetLinkedCubin");
        find(library, get_log_size, "nvJitLinkGetErrorLogSize");
        find(library, get_log, "nvJitLinkGetErrorLog");
    }

    void check(nvJitLinkHandle handle, nvJitLinkResult result, const char *what) {
        if (result == NVJITLINK_SUCCESS) return;
        size_t size = 0;
        get_log_size(handle, &size);
        std::string log(size, '\0');
        if (size > 0) get_log(handle, &log[0]);
        fail("%s: error %d, %s", what, result, log.c_str());
    }

    std::vector<char> link(const std::string &architecture, const std::vector<std::vector<char>> &inputs) {
        nvJitLinkHandle handle;
        const char *options[] = {architecture.c_str(), "-lto"};
        nvJitLinkResult result = create(&handle, 2, options);
        REQUIRE(result == NVJITLINK_SUCCESS, "a link for %s is not begun: error %d", architecture.c_str(), result);
        for (const std::vector<char> &input : inputs)
            check(handle, add_data(handle, NVJITLINK_INPUT_LTOIR, input.data(), input.size(), "source"), "a source");
        check(handle, complete(handle), "the link");
        size_t size = 0;
        check(handle, get_size(handle, &size), "the size");
        std::vector<char> code(size);
        check(handle, get(handle, code.data()), "the code");
        destroy(&handle);
        return code;
    }
};

int main() {
    Compiler compiler;
    Linker linker;
    CHECK_DRIVER(cuInit(0));
    CUdevice device;
    CUcontext context;
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_DRIVER(cuCtxSetCurrent(context));
    int major, minor;
    CHECK_DRIVER(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    CHECK_DRIVER(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    std::string architecture = "-arch=sm_" + std::to_string(major * 10 + minor);
    constexpr unsigned threads = 64;
    CUdeviceptr numbers;
    CHECK_DRIVER(cuMemAlloc(&numbers, threads * sizeof(unsigned)));
    // Each twice: the second time somebody may have kept the result.
    for (unsigned factor : {3u, 1000003u, 3u, 1000003u}) {
        std::vector<char> code = linker.link(
            architecture, {compiler.intermediate(kernel, architecture, factor), compiler.intermediate(function, architecture, factor)});
        CUmodule module;
        CUfunction change;
        CHECK_DRIVER(cuModuleLoadData(&module, code.data()));
        CHECK_DRIVER(cuModuleGetFunction(&change, module, "change"));
        unsigned values[threads];
        for (unsigned i = 0; i < threads; i++) values[i] = i;
        CHECK_DRIVER(cuMemcpyHtoD(numbers, values, sizeof(values)));
        void *arguments[] = {&numbers};
        CHECK_DRIVER(cuLaunchKernel(change, 1, 1, 1, threads, 1, 1, 0, nullptr, arguments, nullptr));
        CHECK_DRIVER(cuMemcpyDtoH(values, numbers, sizeof(values)));
        for (unsigned i = 0; i < threads; i++)
            REQUIRE(values[i] == i * factor + 7, "%u of thread %u became %u", factor, i, values[i]);
        CHECK_DRIVER(cuModuleUnload(module));
    }
    CHECK_DRIVER(cuMemFree(numbers));
    CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));
    return pass();
}

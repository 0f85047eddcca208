// A kernel of a library and its function in a context: an attribute that is set of the kernel is the function's, too, also when
// the function was there first, as NCCL sets them.  And parameters in a buffer that is shorter than what the kernel declares,
// as NCCL passes them.
#include "check.h"

#include <cuda.h>

#include <initializer_list>

#define tell(...) (printf(__VA_ARGS__), puts(""))

// Writes its number to where its first parameter says, by way of the last word of its dynamic shared memory.
static const char IMAGE[] = R"(
.version 7.0
.target sm_70
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry write(.param .align 16 .b8 given[256])
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd0, [given];
    ld.param.u32 %r0, [given+8];
    ld.param.u32 %r1, [given+12];
    mov.u32 %r2, dynamic;
    add.u32 %r2, %r2, %r1;
    st.shared.u32 [%r2], %r0;
    ld.shared.u32 %r3, [%r2];
    cvta.to.global.u64 %rd1, %rd0;
    st.global.u32 [%rd1], %r3;
    ret;
}
)";

constexpr int MUCH = 60'000;

struct Given {
    CUdeviceptr to;
    unsigned number;
    unsigned at;
    char rest[240];
};

static CUdeviceptr target;
static unsigned next_number = 1;

// What a launch with so much shared memory and so many bytes of parameters gives: an error, or whether the number arrived.
static void tell_launch(const char *what, CUfunction function, unsigned shared, size_t bytes) {
    char buffer[512] = {};
    const Given given = {target, next_number++, shared - 4, {}};
    memcpy(buffer, &given, sizeof(given));
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    const CUresult launched = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, shared, nullptr, nullptr, extra);
    if (launched != CUDA_SUCCESS) return (void)tell("%s = error %d", what, launched);
    const CUresult ended = cuCtxSynchronize();
    if (ended != CUDA_SUCCESS) return (void)tell("%s = error %d of the kernel", what, ended);
    unsigned found = 0;
    CHECK_DRIVER(cuMemcpyDtoH(&found, target, sizeof(found)));
    tell("%s = %s", what, found == given.number ? "written" : "wrong");
}

static void tell_attributes(const char *what, CUkernel kernel, CUfunction function, CUdevice device) {
    int of_kernel = -1, of_function = -1;
    const auto most = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    CHECK_DRIVER(cuKernelGetAttribute(&of_kernel, most, kernel, device));
    CHECK_DRIVER(cuFuncGetAttribute(&of_function, most, function));
    tell("%s: of the kernel = %d", what, of_kernel);
    tell("%s: of the function = %d", what, of_function);
}

static void tell_shared_memory(CUdevice device) {
    const auto most = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    for (int of_function = 0; of_function <= 1; of_function++) {
        CUlibrary library;
        CUkernel kernel;
        CUfunction function;
        CHECK_DRIVER(cuLibraryLoadData(&library, IMAGE, nullptr, nullptr, 0, nullptr, nullptr, 0));
        CHECK_DRIVER(cuLibraryGetKernel(&kernel, library, "write"));
        CHECK_DRIVER(cuKernelGetFunction(&function, kernel));
        const char *what = of_function ? "set of the function" : "set of the kernel";
        tell_attributes(of_function ? "before it is set of the function" : "before it is set of the kernel", kernel, function, device);
        tell_launch("much shared memory before", function, MUCH, sizeof(Given));
        if (of_function)
            CHECK_DRIVER(cuFuncSetAttribute(function, most, MUCH));
        else
            CHECK_DRIVER(cuKernelSetAttribute(most, MUCH, kernel, device));
        tell_attributes(what, kernel, function, device);
        tell_launch(of_function ? "set of the function, the function" : "set of the kernel, the function", function, MUCH, sizeof(Given));
        tell_launch(of_function ? "set of the function, the kernel" : "set of the kernel, the kernel",
                    reinterpret_cast<CUfunction>(kernel), MUCH, sizeof(Given));
        CHECK_DRIVER(cuLibraryUnload(library));
    }
}

static void tell_parameters() {
    CUmodule module;
    CUfunction function;
    CHECK_DRIVER(cuModuleLoadData(&module, IMAGE));
    CHECK_DRIVER(cuModuleGetFunction(&function, module, "write"));
    for (size_t bytes : {256, 255, 252, 128, 16}) {
        char what[64];
        snprintf(what, sizeof(what), "%zu of 256 bytes of parameters", bytes);
        tell_launch(what, function, 64, bytes);
    }
    CHECK_DRIVER(cuModuleUnload(module));
}

int main() {
    CUdevice device;
    CUcontext context;
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_DRIVER(cuCtxSetCurrent(context));
    CHECK_DRIVER(cuMemAlloc(&target, sizeof(unsigned)));
    tell_shared_memory(device);
    tell_parameters();
    CHECK_DRIVER(cuMemFree(target));
    CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));
    return pass();
}

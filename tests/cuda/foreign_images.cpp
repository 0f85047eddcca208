// Images that this device or this driver cannot run, in every form that the driver API loads: machine code for another architecture, PTX
// of a version to come. Each is refused with the error that names the reason, and good images load afterwards.
#include "check.h"
#include "machine_code_only.fatbin.h"  // machine_code_only[], for compute capability 7.5 alone
#include "module_kernels.fatbin.h"     // module_kernels[], with PTX

#include <cuda.h>

constexpr int BUILT_FOR_MAJOR = 7;

static const char PTX_OF_A_LATER_TIME[] =
    ".version 99.0\n.target sm_75\n.address_size 64\n.visible .entry nothing()\n{\n    ret;\n}\n";

static void require_result(CUresult got, CUresult want, const char *what) {
    const char *name = "an unknown error";
    cuGetErrorName(got, &name);
    REQUIRE(got == want, "%s gave %s instead of error %d", what, name, want);
}

static void check_modules(CUresult foreign) {
    CUmodule module;
    CUjit_option options[] = {CU_JIT_OPTIMIZATION_LEVEL};
    void *level[] = {reinterpret_cast<void *>(uintptr_t(4))};
    require_result(cuModuleLoadData(&module, machine_code_only), foreign, "cuModuleLoadData of foreign machine code");
    require_result(cuModuleLoadFatBinary(&module, machine_code_only), foreign, "cuModuleLoadFatBinary of foreign machine code");
    require_result(cuModuleLoadDataEx(&module, machine_code_only, 1, options, level), foreign, "cuModuleLoadDataEx of foreign machine code");
    require_result(cuModuleLoadData(&module, PTX_OF_A_LATER_TIME), CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "cuModuleLoadData of later PTX");
}

// A library may be refused when it is loaded, or when its code is wanted for a device.
static void check_library(CUresult foreign) {
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    CUresult result = cuLibraryLoadData(&library, machine_code_only, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (result == CUDA_SUCCESS) result = cuLibraryGetKernel(&kernel, library, "_Z3setPi");
    if (result == CUDA_SUCCESS) result = cuKernelGetFunction(&function, kernel);
    require_result(result, foreign, "a library of foreign machine code");
}

static void check_good_image() {
    CUmodule module;
    CUfunction apply;
    CHECK_DRIVER(cuModuleLoadData(&module, module_kernels));
    CHECK_DRIVER(cuModuleGetFunction(&apply, module, "apply"));
    CHECK_DRIVER(cuModuleUnload(module));
    CHECK_DRIVER(cuCtxSynchronize());
}

// A function that no driver has yet is not found; that is no error.
static void check_functions_of_a_later_time() {
    void *function = &function;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    CHECK_DRIVER(cuGetProcAddress("cuSomethingOfALaterTime", &function, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    REQUIRE(function == nullptr && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, "an unknown function has status %d", status);
}

int main() {
    CUdevice device;
    CUcontext context;
    int major = 0;
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_DRIVER(cuCtxSetCurrent(context));
    CUresult foreign = major == BUILT_FOR_MAJOR ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
    check_modules(foreign);
    check_library(foreign);
    check_functions_of_a_later_time();
    check_good_image();
    CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));
    return pass();
}

// The linker and the compiler of the driver: two texts become one program, from memory and from files; logs and times come
// back; what cannot be compiled or linked is refused by the call that brings it.
#include "check.h"

#include <cuda.h>

#include <stdlib.h>

#include <string>
#include <vector>

constexpr int COUNT = 1'000;

static const char KERNEL[] = R"(.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b32 result) change (.param .b32 argument);
.visible .entry change_all(.param .u64 values, .param .u32 count)
{
    .reg .pred %outside;
    .reg .b32 %r<7>;
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [values];
    ld.param.u32 %r0, [count];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    setp.ge.u32 %outside, %r4, %r0;
    @%outside bra DONE;
    cvta.to.global.u64 %d1, %d0;
    mul.wide.u32 %d2, %r4, 4;
    add.s64 %d3, %d1, %d2;
    ld.global.u32 %r5, [%d3];
    {
        .param .b32 argument;
        .param .b32 result;
        st.param.b32 [argument], %r5;
        call.uni (result), change, (argument);
        ld.param.b32 %r6, [result];
    }
    st.global.u32 [%d3], %r6;
DONE:
    ret;
}
)";

static const char FUNCTION[] = R"(.version 7.0
.target sm_75
.address_size 64
.visible .func (.param .b32 result) change (.param .b32 argument)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r0, [argument];
    mul.lo.s32 %r1, %r0, 3;
    add.s32 %r2, %r1, 7;
    st.param.b32 [result], %r2;
    ret;
}
)";

static const char ALONE[] = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing()
{
    ret;
}
)";

static const char WRONG[] = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing()
{
    mov.u32 ,;
}
)";

static void check_program(CUmodule module, const char *what) {
    CUfunction function;
    CHECK_DRIVER(cuModuleGetFunction(&function, module, "change_all"));
    std::vector<int> values(COUNT);
    for (int i = 0; i < COUNT; i++) values[i] = i;
    CUdeviceptr device;
    CHECK_DRIVER(cuMemAlloc(&device, COUNT * sizeof(int)));
    CHECK_DRIVER(cuMemcpyHtoD(device, values.data(), COUNT * sizeof(int)));
    int count = COUNT;
    void *arguments[] = {&device, &count};
    CHECK_DRIVER(cuLaunchKernel(function, (COUNT + 127) / 128, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK_DRIVER(cuMemcpyDtoH(values.data(), device, COUNT * sizeof(int)));
    for (int i = 0; i < COUNT; i++) REQUIRE(values[i] == 3 * i + 7, "%s: element %d is %d", what, i, values[i]);
    CHECK_DRIVER(cuMemFree(device));
}

// A file with a text, which is removed at the end.
struct File {
    char path[32] = "/tmp/causeway-linker-XXXXXX";

    explicit File(const void *bytes, size_t size) {
        int descriptor = mkstemp(path);
        REQUIRE(descriptor >= 0, "no file can be made in /tmp");
        REQUIRE(write(descriptor, bytes, size) == (ssize_t)size, "the file cannot be written");
        close(descriptor);
    }
    ~File() { unlink(path); }
};

static std::vector<char> check_linking() {
    char errors[1024] = "", information[1024] = "";
    float milliseconds = -1;
    CUjit_option options[] = {CU_JIT_WALL_TIME,
                              CU_JIT_INFO_LOG_BUFFER,
                              CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_ERROR_LOG_BUFFER,
                              CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_LOG_VERBOSE};
    void *values[] = {nullptr,
                      information,
                      reinterpret_cast<void *>(sizeof(information)),
                      errors,
                      reinterpret_cast<void *>(sizeof(errors)),
                      reinterpret_cast<void *>(1)};
    CUlinkState linker;
    CHECK_DRIVER(cuLinkCreate(6, options, values, &linker));
    CHECK_DRIVER(cuLinkAddData(linker, CU_JIT_INPUT_PTX, const_cast<char *>(KERNEL), sizeof(KERNEL), "kernel", 0, nullptr, nullptr));
    File function(FUNCTION, strlen(FUNCTION));
    CHECK_DRIVER(cuLinkAddFile(linker, CU_JIT_INPUT_PTX, function.path, 0, nullptr, nullptr));
    void *cubin = nullptr;
    size_t size = 0;
    CHECK_DRIVER(cuLinkComplete(linker, &cubin, &size));
    REQUIRE(cubin && size > 64, "the result has %zu bytes", size);
    memcpy(&milliseconds, &values[0], sizeof(milliseconds));
    REQUIRE(milliseconds >= 0, "linking took %f ms", milliseconds);
    CUmodule module;
    CHECK_DRIVER(cuModuleLoadData(&module, cubin));
    std::vector<char> kept(static_cast<char *>(cubin), static_cast<char *>(cubin) + size);
    CHECK_DRIVER(cuLinkDestroy(linker));
    check_program(module, "the linked program");
    CHECK_DRIVER(cuModuleUnload(module));
    return kept;
}

static void check_files(const std::vector<char> &cubin) {
    File file(cubin.data(), cubin.size());
    CUmodule module;
    CHECK_DRIVER(cuModuleLoad(&module, file.path));
    check_program(module, "a module from a file");
    CHECK_DRIVER(cuModuleUnload(module));

    CUlibrary library;
    CHECK_DRIVER(cuLibraryLoadFromFile(&library, file.path, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK_DRIVER(cuLibraryGetModule(&module, library));
    check_program(module, "a library from a file");
    unsigned kernels = 0;
    CHECK_DRIVER(cuLibraryGetKernelCount(&kernels, library));
    REQUIRE(kernels == 1, "the library has %u kernels", kernels);
    CUkernel kernel;
    CHECK_DRIVER(cuLibraryEnumerateKernels(&kernel, 1, library));
    const char *name = nullptr;
    CHECK_DRIVER(cuKernelGetName(&name, kernel));
    REQUIRE(!strcmp(name, "change_all"), "the kernel is called %s", name);
    CUlibrary owner;
    CHECK_DRIVER(cuKernelGetLibrary(&owner, kernel));
    REQUIRE(owner == library, "the kernel is of another library");
    CHECK_DRIVER(cuLibraryUnload(library));

    CUresult result = cuModuleLoad(&module, "/tmp/causeway-linker-no-such-file");
    REQUIRE(result == CUDA_ERROR_FILE_NOT_FOUND, "a file that is not there gave error %d", result);
}

static void check_options() {
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void *value = reinterpret_cast<void *>(32);
    CUmodule module;
    CUfunction function;
    CHECK_DRIVER(cuModuleLoadDataEx(&module, ALONE, 1, &option, &value));
    CHECK_DRIVER(cuModuleGetFunction(&function, module, "nothing"));
    CHECK_DRIVER(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CHECK_DRIVER(cuCtxSynchronize());
    CHECK_DRIVER(cuModuleUnload(module));
}

static void check_refusals() {
    char errors[1024] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {errors, reinterpret_cast<void *>(sizeof(errors))};
    CUlinkState linker;
    CHECK_DRIVER(cuLinkCreate(2, options, values, &linker));
    CUresult result =
        cuLinkAddData(linker, CU_JIT_INPUT_PTX, const_cast<char *>(WRONG), sizeof(WRONG), "wrong", 0, nullptr, nullptr);
    REQUIRE(result == CUDA_ERROR_INVALID_PTX, "PTX with a syntax error gave error %d", result);
    REQUIRE(errors[0] != '\0', "PTX with a syntax error left no message");
    CHECK_DRIVER(cuLinkDestroy(linker));

    CHECK_DRIVER(cuLinkCreate(0, nullptr, nullptr, &linker));
    CHECK_DRIVER(cuLinkAddData(linker, CU_JIT_INPUT_PTX, const_cast<char *>(KERNEL), sizeof(KERNEL), "kernel", 0, nullptr, nullptr));
    void *cubin;
    size_t size;
    result = cuLinkComplete(linker, &cubin, &size);
    REQUIRE(result != CUDA_SUCCESS, "a program without one of its functions was linked");
    CHECK_DRIVER(cuLinkDestroy(linker));

    // Later than any that there is.
    std::string later = ALONE;
    later.replace(later.find("7.0"), 3, "9.9");
    CUmodule module;
    result = cuModuleLoadData(&module, later.c_str());
    REQUIRE(result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "PTX of version 9.9 gave error %d", result);
}

int main() {
    CUdevice device;
    CUcontext context;
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_DRIVER(cuCtxSetCurrent(context));
    check_files(check_linking());
    check_options();
    check_refusals();
    CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));
    return pass();
}

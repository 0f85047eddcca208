// For programs that print what the driver answers, one line a fact: the same lines natively and through Causeway.
#pragma once

#include "check.h"

#include <cuda.h>

#include <sys/wait.h>

static inline const char *result_name(CUresult result) {
    const char *name = nullptr;
    cuGetErrorName(result, &name);
    return name ? name : "unknown result";
}

// Prints what a call returned; true if it succeeded.
__attribute__((format(printf, 2, 3))) static bool said(CUresult result, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf(": %s\n", result_name(result));
    fflush(stdout);
    return result == CUDA_SUCCESS;
}

#define SAY(call) said((call), "%s", #call)

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
}

// Runs a part in a process of its own, so that one that is killed takes nothing else along. For processes in which CUDA has
// not been started.
static void apart(const char *name, void (*part)()) {
    note("== %s", name);
    pid_t child = fork();
    if (child == 0) {
        alarm(6);
        part();
        fflush(nullptr);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) note("ended by signal %d", WTERMSIG(status));
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) note("ended with %d", WEXITSTATUS(status));
}

static const char transcript_ptx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry add_one(.param .u64 data)\n"
    "{\n"
    "    .reg .b32 %r<6>;\n    .reg .b64 %rd<5>;\n"
    "    ld.param.u64 %rd1, [data];\n    cvta.to.global.u64 %rd2, %rd1;\n"
    "    mov.u32 %r1, %ctaid.x;\n    mov.u32 %r2, %ntid.x;\n    mov.u32 %r3, %tid.x;\n"
    "    mad.lo.s32 %r4, %r1, %r2, %r3;\n    mul.wide.u32 %rd3, %r4, 4;\n    add.s64 %rd4, %rd2, %rd3;\n"
    "    ld.global.u32 %r5, [%rd4];\n    add.u32 %r5, %r5, 1;\n    st.global.u32 [%rd4], %r5;\n"
    "    ret;\n"
    "}\n";

static CUfunction transcript_add_one;

// Starts CUDA with device 0.
static void start() {
    CUcontext context;
    CUmodule module;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) fail("CUDA does not start");
    if (cuModuleLoadData(&module, transcript_ptx) || cuModuleGetFunction(&transcript_add_one, module, "add_one"))
        fail("the module does not load");
}

// A kernel adds 1 to 256 words.
static CUresult add_one(CUdeviceptr data, CUstream stream) {
    void *arguments[] = {&data};
    return cuLaunchKernel(transcript_add_one, 1, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr);
}

static const char *location_name(int type) {
    static const char *const names[] = {"none", "device", "host", "host numa", "host numa current"};
    return type >= 0 && type < 5 ? names[type] : "unknown";
}

// Prints the attributes of a pointer that depend on no address.
static void pointer_attributes(CUdeviceptr pointer, const char *what) {
    unsigned kind = 99;
    int managed = 99, ordinal = 99, mapped = 99, legacy = 99;
    unsigned handle_types = 99, flags = 99;
    CUdeviceptr device = 0;
    void *host = nullptr;
    size_t size = 0;
    CUmemoryPool pool = nullptr;
    CUcontext context = nullptr;
    note("-- pointer attributes of %s", what);
#define ASK(which, place, format, shown) \
    do { \
        CUresult r_ = cuPointerGetAttribute(&place, CU_POINTER_ATTRIBUTE_##which, pointer); \
        if (r_) note("%s: %s", #which, result_name(r_)); \
        else note("%s: " format, #which, shown); \
    } while (0)
    ASK(MEMORY_TYPE, kind, "%u", kind);
    ASK(CONTEXT, context, "%s", context ? "a context" : "null");
    ASK(DEVICE_POINTER, device, "%s", device == pointer ? "the same" : device ? "another" : "null");
    ASK(HOST_POINTER, host, "%s", host == (void *)pointer ? "the same" : host ? "another" : "null");
    ASK(IS_MANAGED, managed, "%d", managed & 0xff);
    ASK(DEVICE_ORDINAL, ordinal, "%d", ordinal);
    ASK(IS_LEGACY_CUDA_IPC_CAPABLE, legacy, "%d", legacy & 0xff);
    // A pool's first allocation need not lie at the start of what the driver has for it.
    ASK(RANGE_SIZE, size, "%zu", size);
    ASK(MAPPED, mapped, "%d", mapped & 0xff);
    ASK(ALLOWED_HANDLE_TYPES, handle_types, "%u", handle_types);
    ASK(ACCESS_FLAGS, flags, "%u", flags);
    ASK(MEMPOOL_HANDLE, pool, "%s", pool ? "a pool" : "null");
#undef ASK
    CUdeviceptr mapped_at = 0;
    CUresult r = cuMemHostGetDevicePointer(&mapped_at, (void *)pointer, 0);
    note("cuMemHostGetDevicePointer: %s %s", result_name(r), mapped_at == pointer ? "same" : "");
    unsigned host_flags = 99;
    r = cuMemHostGetFlags(&host_flags, (void *)pointer);
    note("cuMemHostGetFlags: %s %u", result_name(r), host_flags);
}

// What a context owns ends with it, however it ends: memory of the device, pinned, managed and registered memory, and objects.
// Afterwards the process has neither more memory nor more mappings or descriptors, and what it still names is gone, as a driver
// (580, H100) says.
#include "check.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <malloc.h>

#include <cstdlib>

static const size_t bytes = 8 << 20, FEW = 4096;
static char *registered;

#define CHECK(call) \
    do { \
        int status = (int)(call); \
        REQUIRE(status == 0, "%s (line %d) returned %d", #call, __LINE__, status); \
    } while (0)

#define EXPECT(call, expected) \
    do { \
        int status = (int)(call); \
        REQUIRE(status == (expected), "%s (line %d) returned %d, not %d", #call, __LINE__, status, (int)(expected)); \
    } while (0)

struct Usage {
    long resident, mappings, descriptors;
};

static Usage usage() {
    Usage now = {};
    long whole;
    FILE *file = fopen("/proc/self/statm", "r");
    REQUIRE(file && fscanf(file, "%ld %ld", &whole, &now.resident) == 2, "the memory in use cannot be read");
    fclose(file);
    file = fopen("/proc/self/maps", "r");
    for (int c; (c = fgetc(file)) != EOF;) now.mappings += c == '\n';
    fclose(file);
    for (int i = 0; i < 1024; i++) {
        char name[64];
        snprintf(name, sizeof name, "/proc/self/fd/%d", i);
        now.descriptors += access(name, F_OK) == 0;
    }
    return now;
}

struct Made {
    void *pinned, *portable;
    CUdeviceptr managed, small, memory;
    CUstream stream;
    CUevent event;
};

// One of each kind in the current context, in use until the end.
static Made make() {
    Made made;
    CUdeviceptr on_device;
    CHECK(cuMemHostAlloc(&made.pinned, bytes, 0));
    CHECK(cuMemHostAlloc(&made.portable, bytes, CU_MEMHOSTALLOC_PORTABLE));
    CHECK(cuMemAllocManaged(&made.managed, bytes, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemAllocManaged(&made.small, 4096, CU_MEM_ATTACH_GLOBAL));
    CHECK(cuMemAlloc(&made.memory, bytes));
    CHECK(cuMemHostRegister(registered, bytes, 0));
    CHECK(cuMemHostGetDevicePointer(&on_device, registered, 0));
    CHECK(cuStreamCreate(&made.stream, 0));
    CHECK(cuEventCreate(&made.event, 0));
    // All pages are there, and few of them differ: what carries changes needs memory of its own.
    for (void *host : {made.pinned, made.portable, (void *)made.managed, (void *)registered}) {
        memset(host, 0, bytes);
        memset(host, 1, FEW);
    }
    // Not by a kernel: the runtime, which launches it, would retain the primary context for itself.
    for (CUdeviceptr device : {(CUdeviceptr)made.pinned, made.managed, made.small, on_device})
        CHECK(cuMemsetD8Async(device, 2, FEW, made.stream));
    CHECK(cuEventRecord(made.event, made.stream));
    CHECK(cuMemcpyDtoHAsync(made.portable, made.memory, 4 * FEW, made.stream));
    CHECK(cuMemcpyHtoDAsync(made.memory, made.pinned, 4 * FEW, made.stream));
    return made;
}

// What the program still names when the context has gone.
static void look_for(const Made &made) {
    REQUIRE(registered[0] == 2 && registered[FEW - 1] == 2 && registered[FEW] == 0, "what the device wrote to registered memory has not come: %d", registered[0]);
    CHECK(cuMemHostRegister(registered, bytes, 0));
    CHECK(cuMemHostUnregister(registered));
    EXPECT(cuMemHostUnregister(registered), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    EXPECT(cuMemFreeHost(made.pinned), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemFreeHost(made.portable), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemFree(made.managed), CUDA_ERROR_INVALID_VALUE);
}

static CUcontext create() {
    CUcontext context;
#if CUDA_VERSION >= 13000
    CHECK(cuCtxCreate(&context, nullptr, 0, 0));
#else
    CHECK(cuCtxCreate(&context, 0, 0));
#endif
    return context;
}

enum Way { DESTROY, RELEASE, RESET, DEVICE_RESET, WAYS };
static const char *names[] = {"cuCtxDestroy", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset", "cudaDeviceReset"};

static void round_of(Way way) {
    CUcontext context;
    Made made;
    if (way == DESTROY) {
        context = create();
        made = make();
        CHECK(cuCtxDestroy(context));
    } else if (way == DEVICE_RESET) {
        CHECK(cudaFree(nullptr));
        made = make();
        CHECK(cudaDeviceReset());
    } else {
        CHECK(cuDevicePrimaryCtxRetain(&context, 0));
        CHECK(cuCtxSetCurrent(context));
        made = make();
        CHECK(way == RELEASE ? cuDevicePrimaryCtxRelease(0) : cuDevicePrimaryCtxReset(0));
        if (way == RESET) CHECK(cuDevicePrimaryCtxRelease(0));
    }
    context = create();
    look_for(made);
    CHECK(cuCtxDestroy(context));
}

int main() {
    // What is freed goes back to the system, and is not kept for later.
    mallopt(M_MMAP_THRESHOLD, 64 << 10);
    CHECK(cuInit(0));
    registered = static_cast<char *>(aligned_alloc(4096, bytes));
    for (int way = 0; way < WAYS; way++) {
        Usage before = {};
        for (int round = 0; round < 6; round++) {
            round_of((Way)way);
            if (round == 1) before = usage();
        }
        Usage after = usage();
        long pages = bytes / sysconf(_SC_PAGESIZE);
        REQUIRE(after.resident < before.resident + 2 * pages, "%s leaves memory: %ld pages are resident, %ld before",
                names[way], after.resident, before.resident);
        REQUIRE(after.mappings <= before.mappings + 2, "%s leaves mappings: %ld, %ld before", names[way], after.mappings,
                before.mappings);
        REQUIRE(after.descriptors <= before.descriptors, "%s leaves descriptors: %ld, %ld before", names[way],
                after.descriptors, before.descriptors);
    }
    return pass();
}

// Calls that wait for all work of the context before they return, and calls that do not, although programs may expect it of
// them: the first are used in place of a wait, and the second while a stream waits for what the same thread does next. Which is
// which was measured on NVIDIA's driver (580.159.04 on an H200, 2026-11-30).
#include "check.h"

#include <cuda.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <thread>

constexpr size_t BYTES = 1 << 20;

static const char PTX[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n";

static void *memory, *host, *pages, *managed;
static int *word;
static cudaArray_t array;
static cudaEvent_t event;
static cudaStream_t stream;
static CUmodule module;
static char small[64];
static std::atomic<bool> goes_on, returned;

static void wait_to_go_on(void *) {
    while (!goes_on) usleep(100);
}

static void nothing() {}
static void allocate() { CHECK_CUDA(cudaMalloc(&memory, BYTES)); }
static void free_memory() { CHECK_CUDA(cudaFree(memory)); }
static void allocate_host() { CHECK_CUDA(cudaMallocHost(&host, BYTES)); }
static void free_host() { CHECK_CUDA(cudaFreeHost(host)); }
static void enter_pages() { CHECK_CUDA(cudaHostRegister(pages, BYTES, cudaHostRegisterDefault)); }
static void release_pages() { CHECK_CUDA(cudaHostUnregister(pages)); }
static void allocate_managed() { CHECK_CUDA(cudaMallocManaged(&managed, BYTES)); }
static void free_managed() { CHECK_CUDA(cudaFree(managed)); }
static void make_array() {
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK_CUDA(cudaMallocArray(&array, &format, 64, 64));
}
static void free_array() { CHECK_CUDA(cudaFreeArray(array)); }
static void load() { CHECK_DRIVER(cuModuleLoadData(&module, PTX)); }
static void unload() { CHECK_DRIVER(cuModuleUnload(module)); }
static void allocate_from_pool() {
    CHECK_CUDA(cudaMallocAsync(&memory, BYTES, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
}
static void free_in_stream() { CHECK_CUDA(cudaFreeAsync(memory, stream)); }
static void make_event() { CHECK_CUDA(cudaEventCreate(&event)); }
static void end_event() { CHECK_CUDA(cudaEventDestroy(event)); }
static void copy_on_device() { CHECK_CUDA(cudaMemcpy(word, word + 8, 4, cudaMemcpyDeviceToDevice)); }
static void fill() { CHECK_CUDA(cudaMemset(word, 1, 4)); }
static void copy_to_device() { CHECK_CUDA(cudaMemcpyAsync(word, small, sizeof small, cudaMemcpyHostToDevice, stream)); }

struct Case {
    const char *name;
    void (*before)(), (*call)(), (*after)();
    bool waits;
};

static const Case CASES[] = {
    {"cudaFree", allocate, free_memory, nothing, true},
    {"cudaFree of managed memory", allocate_managed, free_managed, nothing, true},
    {"cudaFreeHost", allocate_host, free_host, nothing, true},
    {"cudaHostUnregister", enter_pages, release_pages, nothing, true},
    {"cudaFreeArray", make_array, free_array, nothing, true},
    {"cuModuleUnload", load, unload, nothing, true},
    {"cudaMalloc", nothing, allocate, free_memory, false},
    {"cudaMallocHost", nothing, allocate_host, free_host, false},
    {"cudaHostRegister", nothing, enter_pages, release_pages, false},
    {"cudaMallocManaged", nothing, allocate_managed, free_managed, false},
    {"cudaFree of memory of a pool", allocate_from_pool, free_memory, nothing, false},
    {"cudaFreeAsync", allocate_from_pool, free_in_stream, nothing, false},
    {"cudaEventCreate", nothing, make_event, end_event, false},
    {"cudaEventDestroy", make_event, end_event, nothing, false},
    {"cudaMemcpy on the device", nothing, copy_on_device, nothing, false},
    {"cudaMemset", nothing, fill, nothing, false},
    {"cudaMemcpyAsync of pageable memory to the device", nothing, copy_to_device, nothing, false},
};

// Makes the call while `busy` stands still. If the call has to wait, the stream goes on meanwhile; else only afterwards.
static void try_beside(cudaStream_t busy, const Case &tried) {
    tried.before();
    CHECK_CUDA(cudaDeviceSynchronize());
    goes_on = returned = false;
    CHECK_CUDA(cudaLaunchHostFunc(busy, wait_to_go_on, nullptr));
    std::thread later([&] {
        for (int i = 0; tried.waits && i < 300 && !returned; i++) usleep(100);
        if (tried.waits) goes_on = true;
    });
    tried.call();
    REQUIRE(!tried.waits || goes_on, "%s has not waited", tried.name);
    returned = goes_on = true;
    later.join();
    CHECK_CUDA(cudaDeviceSynchronize());
    tried.after();
}

int main() {
    cudaStream_t blocking, non_blocking;
    CHECK_CUDA(cudaStreamCreate(&blocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&non_blocking, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMalloc(&word, 64));
    pages = aligned_alloc(4096, BYTES);
    memset(pages, 1, BYTES);
    for (cudaStream_t busy : {blocking, non_blocking})
        for (const Case &tried : CASES) try_beside(busy, tried);
    CHECK_CUDA(cudaFree(word));
    free(pages);
    return pass();
}

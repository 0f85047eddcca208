// Allocates as many MiB as each argument says, and prints what came of it and what CUDA and NVML say of the memory. With `holds` as
// the last argument it keeps the memory until it is killed; with `dies` it ends without freeing anything.
#include "check.h"

#include <cstdlib>
#include <dlfcn.h>
#include <vector>

constexpr size_t MIB = size_t(1) << 20;

// The device's memory as NVML tells of it, where there is NVML.
static void print_nvml() {
    struct {
        unsigned long long total, free, used;
    } memory = {};
    void *device = nullptr, *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) return;
    auto *init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
    auto *find = reinterpret_cast<int (*)(unsigned, void **)>(dlsym(library, "nvmlDeviceGetHandleByIndex_v2"));
    auto *info = reinterpret_cast<int (*)(void *, void *)>(dlsym(library, "nvmlDeviceGetMemoryInfo"));
    REQUIRE(init && find && info, "libnvidia-ml.so.1 lacks a function");
    REQUIRE(init() == 0 && find(0, &device) == 0 && info(device, &memory) == 0, "NVML says nothing of the first device");
    printf("NVML: %llu of %llu MiB are used\n", memory.used / MIB, memory.total / MIB);
}

static void print_info() {
    size_t free = 0, total = 0;
    CHECK_CUDA(cudaMemGetInfo(&free, &total));
    REQUIRE(free <= total, "%zu of %zu bytes are free", free, total);
    printf("CUDA: %zu of %zu MiB are free\n", free / MIB, total / MIB);
}

int main(int count, char **arguments) {
    const char *last = arguments[count - 1];
    const bool holds = strcmp(last, "holds") == 0, dies = strcmp(last, "dies") == 0;
    std::vector<void *> blocks;
    print_info();
    for (int i = 1; i < count - (holds || dies); i++) {
        void *block = nullptr;
        const cudaError_t error = cudaMalloc(&block, atoi(arguments[i]) * MIB);
        printf("%s MiB: %s\n", arguments[i], cudaGetErrorName(error));
        if (error == cudaSuccess) blocks.push_back(block);
    }
    print_info();
    print_nvml();
    printf("done\n");
    fflush(stdout);
    while (holds) pause();
    if (dies) _exit(0);
    for (void *block : blocks) CHECK_CUDA(cudaFree(block));
    return pass();
}

// GPU memory, copies and contexts of the benchmark, through the CUDA driver.
#include "gpu.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int allocation_type, handle_types, location_type, location_id;
    void *security;
    unsigned char flags[8];
} properties;

typedef struct {
    int location_type, location_id, flags;
} access_descriptor;

static void *library, *context;
static int device, devices;

#define CALL(name, types, ...)                                      \
    do {                                                            \
        int(*function) types = (int(*) types)dlsym(library, #name); \
        int status = function == NULL ? -1 : function(__VA_ARGS__); \
        if (status != 0) {                                          \
            fprintf(stderr, "%s ended with %d\n", #name, status);   \
            exit(2);                                                \
        }                                                           \
    } while (0)

void gpu_start(void) {
    gpu_start_on(0);
}

void gpu_start_on(int number) {
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    CALL(cuInit, (unsigned), 0);
    CALL(cuDeviceGetCount, (int *), &devices);
    device = devices > 0 ? number % devices : 0;
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
    gpu_use();
}

void gpu_use(void) {
    CALL(cuCtxSetCurrent, (void *), context);
}

void gpu_reset(void) {
    CALL(cuDevicePrimaryCtxReset_v2, (int), device);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
    gpu_use();
}

void *gpu_allocate_on(int number, size_t bytes) {
    int other = devices > 0 ? number % devices : 0, can_access = 0;
    void *theirs = NULL;
    uint64_t address = 0;
    if (other == device) return NULL;
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &theirs, other);
    CALL(cuDeviceCanAccessPeer, (int *, int, int), &can_access, device, other);
    if (can_access) {
        // Once only: a second time is an error.
        static bool is_enabled;
        if (!is_enabled) CALL(cuCtxEnablePeerAccess, (void *, unsigned), theirs, 0);
        is_enabled = true;
    }
    CALL(cuCtxSetCurrent, (void *), theirs);
    CALL(cuMemAlloc_v2, (uint64_t *, size_t), &address, bytes + 1);
    gpu_use();
    return (void *)address;
}

static size_t rounded(const properties *properties_of, size_t bytes) {
    size_t granularity = 0;
    CALL(cuMemGetAllocationGranularity, (size_t *, const properties *, int), &granularity, properties_of, 0);
    return (bytes + granularity) / granularity * granularity;
}

static properties properties_of(enum memory memory) {
    // Pinned, on this process's device; a descriptor can be had of what is exportable.
    return (properties){1, memory == EXPORTABLE ? 1 : 0, 1, device, NULL, {0}};
}

void *gpu_allocate(enum memory memory, size_t bytes) {
    uint64_t address = 0, allocation = 0;
    void *host = NULL;
    size_t some = bytes + 1;
    properties kind = properties_of(memory);
    switch (memory) {
    case HOST: return malloc(some);
    case DEVICE: CALL(cuMemAlloc_v2, (uint64_t *, size_t), &address, some); break;
    case POOL:
        CALL(cuMemAllocAsync, (uint64_t *, size_t, void *), &address, some, NULL);
        CALL(cuStreamSynchronize, (void *), NULL);
        break;
    case EXPORTABLE:
    case MAPPED: {
        size_t size = rounded(&kind, bytes);
        access_descriptor access = {1, device, 3};
        CALL(cuMemCreate, (uint64_t *, size_t, const properties *, uint64_t), &allocation, size, &kind, 0);
        CALL(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, uint64_t), &address, size, 0, 0, 0);
        CALL(cuMemMap, (uint64_t, size_t, size_t, uint64_t, uint64_t), address, size, 0, allocation, 0);
        CALL(cuMemSetAccess, (uint64_t, size_t, const access_descriptor *, size_t), address, size, &access,
             1);
        CALL(cuMemRelease, (uint64_t), allocation);
        break;
    }
    case MANAGED: CALL(cuMemAllocManaged, (uint64_t *, size_t, unsigned), &address, some, 1); break;
    case PINNED: CALL(cuMemAllocHost_v2, (void **, size_t), &host, some); return host;
    default: abort();
    }
    return (void *)address;
}

void gpu_free(enum memory memory, void *address, size_t bytes) {
    uint64_t number = (uint64_t)address;
    switch (memory) {
    case HOST: free(address); break;
    case PINNED: CALL(cuMemFreeHost, (void *), address); break;
    case DEVICE:
    case MANAGED: CALL(cuMemFree_v2, (uint64_t), number); break;
    case POOL: CALL(cuMemFreeAsync, (uint64_t, void *), number, NULL); break;
    default: {
        properties kind = properties_of(memory);
        size_t size = rounded(&kind, bytes);
        CALL(cuMemUnmap, (uint64_t, size_t), number, size);
        CALL(cuMemAddressFree, (uint64_t, size_t), number, size);
    }
    }
}

void gpu_copy(void *to, const void *from, size_t bytes) {
    if (bytes > 0) CALL(cuMemcpy, (uint64_t, uint64_t, size_t), (uint64_t)to, (uint64_t)from, bytes);
}

void gpu_begin_copy(void *to, const void *from, size_t bytes) {
    static int (*function)(uint64_t, uint64_t, size_t, void *);
    if (function == NULL) *(void **)&function = dlsym(library, "cuMemcpyAsync");
    int status = function == NULL ? -1 : function((uint64_t)to, (uint64_t)from, bytes, NULL);
    if (status != 0) {
        fprintf(stderr, "cuMemcpyAsync ended with %d\n", status);
        exit(2);
    }
}

void gpu_wait(void) {
    static int (*function)(void *);
    if (function == NULL) *(void **)&function = dlsym(library, "cuStreamSynchronize");
    int status = function == NULL ? -1 : function(NULL);
    if (status != 0) {
        fprintf(stderr, "cuStreamSynchronize ended with %d\n", status);
        exit(2);
    }
}

const char *gpu_name(enum memory memory) {
    static const char *names[] = {"host", "device", "pool", "exportable", "mapped", "managed", "pinned"};
    return names[memory];
}

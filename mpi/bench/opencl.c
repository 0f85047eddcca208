// OpenCL buffers of the benchmark, through libOpenCL.so.1.
#include "opencl.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

// As in CL/cl.h.
enum { MAP_READ = 1, MAP_WRITE = 2, ALLOC_HOST_PTR = 1 << 4, BLOCKING = 1, DEVICE_GPU = 1 << 2 };
enum { MAX_PLATFORMS = 16 };
static const uint64_t ANY_DEVICE = 0xffffffff;

static void *library, *context, *queue;

static bool fails(const char *call, int status) {
    if (status != 0) fprintf(stderr, "causeway_mpi_bench: %s of OpenCL ended with %d\n", call, status);
    return status != 0;
}

// A function of the library. The program ends up with NULL where it is missing, which is said.
static void *find(const char *name) {
    void *function = library == NULL ? NULL : dlsym(library, name);
    if (function == NULL) fprintf(stderr, "causeway_mpi_bench: libOpenCL.so.1 has no %s\n", name);
    return function;
}

// A device of a kind, of any platform.
static void *device_of(void *const *platforms, unsigned count, uint64_t kind) {
    int (*devices)(void *, uint64_t, unsigned, void **, unsigned *) = find("clGetDeviceIDs");
    void *device = NULL;
    for (unsigned at = 0; devices != NULL && at < count; at++)
        if (devices(platforms[at], kind, 1, &device, NULL) == 0) return device;
    return NULL;
}

bool opencl_start(void) {
    if (queue != NULL) return true;
    library = dlopen("libOpenCL.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr,
                "causeway_mpi_bench: there is no OpenCL (%s): on Debian and Ubuntu it comes with the package "
                "ocl-icd-libopencl1, and for machines without a GPU with pocl-opencl-icd\n",
                dlerror());
        return false;
    }
    int (*list)(unsigned, void **, unsigned *) = find("clGetPlatformIDs");
    void *(*make_context)(const void *, unsigned, void **, void *, void *, int *) = find("clCreateContext");
    void *(*make_queue)(void *, void *, uint64_t, int *) = find("clCreateCommandQueue");
    if (list == NULL || make_context == NULL || make_queue == NULL) return false;
    void *platforms[MAX_PLATFORMS];
    unsigned count = 0;
    int status = list(MAX_PLATFORMS, platforms, &count);
    if (count > MAX_PLATFORMS) count = MAX_PLATFORMS;
    void *device = status == 0 ? device_of(platforms, count, DEVICE_GPU) : NULL;
    if (device == NULL && status == 0) device = device_of(platforms, count, ANY_DEVICE);
    if (device == NULL) {
        fprintf(stderr, "causeway_mpi_bench: OpenCL knows no device: the driver of a GPU brings one, and for "
                        "machines without a GPU the package pocl-opencl-icd\n");
        return false;
    }
    context = make_context(NULL, 1, &device, NULL, NULL, &status);
    if (fails("clCreateContext", status)) return false;
    queue = make_queue(context, device, 0, &status);
    if (fails("clCreateCommandQueue", status)) queue = NULL;
    return queue != NULL;
}

bool opencl_allocate(enum opencl flag, size_t bytes, struct opencl_memory *memory) {
    void *(*make)(void *, uint64_t, size_t, void *, int *) = find("clCreateBuffer");
    void *(*map)(void *, void *, unsigned, uint64_t, size_t, size_t, unsigned, void *, void *, int *) =
        find("clEnqueueMapBuffer");
    if (make == NULL || map == NULL) return false;
    int status = 0;
    memory->buffer = make(context, (uint64_t)flag | ALLOC_HOST_PTR, bytes, NULL, &status);
    if (fails("clCreateBuffer", status)) return false;
    memory->address =
        map(queue, memory->buffer, BLOCKING, MAP_READ | MAP_WRITE, 0, bytes, 0, NULL, NULL, &status);
    return !fails("clEnqueueMapBuffer", status);
}

void opencl_free(struct opencl_memory *memory) {
    int (*unmap)(void *, void *, void *, unsigned, void *, void *) = find("clEnqueueUnmapMemObject");
    int (*finish)(void *) = find("clFinish");
    int (*release)(void *) = find("clReleaseMemObject");
    if (unmap == NULL || finish == NULL || release == NULL) return;
    fails("clEnqueueUnmapMemObject", unmap(queue, memory->buffer, memory->address, 0, NULL, NULL));
    fails("clFinish", finish(queue));
    fails("clReleaseMemObject", release(memory->buffer));
}

// What a program asks about devices and kernels: properties, attributes, memory, occupancy; each answer must make sense and
// agree with the others.
#include "check.h"

#include <algorithm>

__global__ void with_shared_memory(int *out) {
    __shared__ int values[1024];
    values[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

__global__ void __launch_bounds__(128) bounded(int *out) { out[threadIdx.x] = threadIdx.x; }

__global__ void with_dynamic_memory(int *out, int count) {
    extern __shared__ int values[];
    for (int i = threadIdx.x; i < count; i += blockDim.x) values[i] = i;
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = values[count - 1 - i];
}

static int attribute(cudaDeviceAttr which) {
    int value = 0;
    CHECK_CUDA(cudaDeviceGetAttribute(&value, which, 0));
    return value;
}

static void check_device(const cudaDeviceProp &properties) {
    int driver = 0, runtime = 0;
    CHECK_CUDA(cudaDriverGetVersion(&driver));
    CHECK_CUDA(cudaRuntimeGetVersion(&runtime));
    REQUIRE(driver / 1000 >= runtime / 1000, "the driver's version %d is older than the runtime's %d", driver, runtime);
    REQUIRE(properties.name[0] != '\0', "the device has no name");
    REQUIRE(properties.major * 10 + properties.minor >= 75, "the compute capability is %d.%d", properties.major, properties.minor);

    const struct {
        const char *name;
        int property, value, low, high;
    } pairs[] = {
        {"threads per block", properties.maxThreadsPerBlock, attribute(cudaDevAttrMaxThreadsPerBlock), 1024, 1024},
        {"warp size", properties.warpSize, attribute(cudaDevAttrWarpSize), 32, 32},
        {"multiprocessors", properties.multiProcessorCount, attribute(cudaDevAttrMultiProcessorCount), 1, 100000},
        {"threads per multiprocessor", properties.maxThreadsPerMultiProcessor, attribute(cudaDevAttrMaxThreadsPerMultiProcessor),
         1024, 4096},
        {"shared memory per block", int(properties.sharedMemPerBlock), attribute(cudaDevAttrMaxSharedMemoryPerBlock), 48 << 10,
         48 << 10},
        {"constant memory", int(properties.totalConstMem), attribute(cudaDevAttrTotalConstantMemory), 64 << 10, 64 << 10},
        {"registers per block", properties.regsPerBlock, attribute(cudaDevAttrMaxRegistersPerBlock), 32 << 10, 64 << 10},
        {"block size x", properties.maxThreadsDim[0], attribute(cudaDevAttrMaxBlockDimX), 1024, 1024},
        {"block size z", properties.maxThreadsDim[2], attribute(cudaDevAttrMaxBlockDimZ), 64, 64},
        {"grid size x", properties.maxGridSize[0], attribute(cudaDevAttrMaxGridDimX), 2147483647, 2147483647},
        {"grid size y", properties.maxGridSize[1], attribute(cudaDevAttrMaxGridDimY), 65535, 65535},
        {"major capability", properties.major, attribute(cudaDevAttrComputeCapabilityMajor), 7, 99},
        {"minor capability", properties.minor, attribute(cudaDevAttrComputeCapabilityMinor), 0, 9},
        {"PCI bus", properties.pciBusID, attribute(cudaDevAttrPciBusId), 0, 255},
        {"unified addressing", properties.unifiedAddressing, attribute(cudaDevAttrUnifiedAddressing), 1, 1},
    };
    for (const auto &pair : pairs)
        REQUIRE(pair.property == pair.value && pair.value >= pair.low && pair.value <= pair.high,
                "%s: the property is %d, the attribute %d, expected was %d to %d", pair.name, pair.property, pair.value, pair.low,
                pair.high);

    char bus_id[32] = "";
    int device = -1, devices = 0;
    CHECK_CUDA(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), 0));
    CHECK_CUDA(cudaDeviceGetByPCIBusId(&device, bus_id));
    REQUIRE(device == 0, "the device at %s is number %d instead of 0", bus_id, device);
    CHECK_CUDA(cudaGetDeviceCount(&devices));
    CHECK_CUDA(cudaGetDevice(&device));
    REQUIRE(devices >= 1 && device == 0, "%d devices, the current one is %d", devices, device);
    unsigned char zero[16] = {};
    REQUIRE(memcmp(&properties.uuid, zero, 16) != 0, "the device's UUID is all zero");
}

static void check_memory(const cudaDeviceProp &properties) {
    size_t free_before = 0, free_after = 0, total = 0;
    CHECK_CUDA(cudaMemGetInfo(&free_before, &total));
    REQUIRE(free_before <= total && total <= properties.totalGlobalMem, "%zu bytes free, %zu in total, %zu in the properties",
            free_before, total, properties.totalGlobalMem);
    const size_t size = std::min<size_t>(free_before / 4, 256 << 20);
    void *memory;
    CHECK_CUDA(cudaMalloc(&memory, size));
    CHECK_CUDA(cudaMemGetInfo(&free_after, &total));
    REQUIRE(free_after < free_before, "allocating %zu bytes left %zu free where %zu were before", size, free_after, free_before);
    CHECK_CUDA(cudaFree(memory));
    size_t limit = 0;
    CHECK_CUDA(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
    REQUIRE(limit >= 512, "the stack of a thread is %zu bytes", limit);
    CHECK_CUDA(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
    REQUIRE(limit >= 1 << 20, "the heap of the device is %zu bytes", limit);
}

static void check_kernels(const cudaDeviceProp &properties) {
    cudaFuncAttributes attributes;
    CHECK_CUDA(cudaFuncGetAttributes(&attributes, with_shared_memory));
    REQUIRE(attributes.sharedSizeBytes == 4096, "a kernel with 4096 bytes of shared memory reports %zu", attributes.sharedSizeBytes);
    REQUIRE(attributes.maxThreadsPerBlock > 0 && attributes.maxThreadsPerBlock <= 1024, "its blocks may have %d threads",
            attributes.maxThreadsPerBlock);
    REQUIRE(attributes.numRegs > 0 && attributes.numRegs <= 255, "it uses %d registers", attributes.numRegs);
    REQUIRE(attributes.ptxVersion >= 75 && attributes.binaryVersion >= 75, "its PTX version is %d, its binary version %d",
            attributes.ptxVersion, attributes.binaryVersion);
    CHECK_CUDA(cudaFuncGetAttributes(&attributes, bounded));
    REQUIRE(attributes.maxThreadsPerBlock == 128, "a kernel bounded to 128 threads allows %d", attributes.maxThreadsPerBlock);

    int blocks = 0;
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, with_shared_memory, 1024, 0));
    REQUIRE(blocks >= 1 && blocks * 1024 <= properties.maxThreadsPerMultiProcessor, "%d blocks of 1024 threads fit where %d threads fit",
            blocks, properties.maxThreadsPerMultiProcessor);
    int with_less = 0;
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&with_less, with_dynamic_memory, 64, 40 << 10));
    REQUIRE(with_less >= 1 && size_t(with_less) * (40 << 10) <= properties.sharedMemPerMultiprocessor,
            "%d blocks of 40 KiB fit in %zu bytes", with_less, properties.sharedMemPerMultiprocessor);
    int grid = 0, block = 0;
    CHECK_CUDA(cudaOccupancyMaxPotentialBlockSize(&grid, &block, bounded, 0, 0));
    REQUIRE(block >= 32 && block <= 128 && grid >= properties.multiProcessorCount, "the best launch of a bounded kernel is %d x %d",
            grid, block);
}

// More dynamic shared memory than 48 KiB must be asked for, and then works.
static void check_large_shared_memory(const cudaDeviceProp &properties) {
    const int bytes = int(std::min<size_t>(properties.sharedMemPerBlockOptin, 64 << 10)), count = bytes / int(sizeof(int));
    int *device;
    CHECK_CUDA(cudaMalloc(&device, bytes));
    if (bytes > 48 << 10) {
        with_dynamic_memory<<<1, 256, bytes>>>(device, count);
        EXPECT_CUDA(cudaGetLastError(), cudaErrorInvalidValue);
    }
    CHECK_CUDA(cudaFuncSetAttribute(with_dynamic_memory, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    with_dynamic_memory<<<1, 256, bytes>>>(device, count);
    CHECK_LAUNCH();
    int last = -1;
    CHECK_CUDA(cudaMemcpy(&last, device + count - 1, sizeof(int), cudaMemcpyDeviceToHost));
    REQUIRE(last == 0, "with %d bytes of shared memory the last element is %d", bytes, last);
    CHECK_CUDA(cudaFree(device));
}

int main() {
    cudaDeviceProp properties;
    CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
    check_device(properties);
    check_memory(properties);
    check_kernels(properties);
    check_large_shared_memory(properties);
    return pass();
}

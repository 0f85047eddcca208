// What a driver says of an address, for every sort of memory: the driver's attributes by number, and the runtime's.  See answers.h.
#include "answers.h"

#include <stdlib.h>
#include <sys/mman.h>

__device__ int variable[1000];
__managed__ int managed_variable[1000];

constexpr size_t SIZE = 3 << 20;

static const char *related(unsigned long long value, const void *asked) {
    return value == 0 ? "none" : value == (unsigned long long)asked ? "the address asked for" : "another";
}

// What the context's, the pool's and other numbers are, which differ from run to run.
static void tell_attribute(const char *what, int which, const void *address) {
    static CUcontext context;
    static CUmemoryPool pool;
    REQUIRE_DRIVER(DRIVER(cuCtxGetCurrent)(&context));
    REQUIRE_DRIVER(DRIVER(cuDeviceGetDefaultMemPool)(&pool, 0));
    unsigned long long value[8] = {};
    const CUresult result = DRIVER(cuPointerGetAttribute)(value, CUpointer_attribute(which), CUdeviceptr(address));
    if (result != CUDA_SUCCESS)
        return tell("%s, %d = error %d", what, which, result);
    switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return tell("%s, %d = %s", what, which, !value[0] ? "none" : value[0] == (unsigned long long)context ? "the current one" : "another");
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return tell("%s, %d = %s", what, which, !value[0] ? "none" : value[0] == (unsigned long long)pool ? "the default one" : "another");
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: return tell("%s, %d = %s", what, which, related(value[0], address));
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: return tell("%s, %d = tokens", what, which);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return tell("%s, %d = %s", what, which, value[0] ? "a number" : "0");
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        if (value[0]) return tell("%s, %d = %lld before", what, which, (long long)address - (long long)value[0]);
        return tell("%s, %d = none", what, which);
    default: return tell("%s, %d = %llu", what, which, value[0]);
    }
}

static void tell_address(const char *what, const void *address) {
    for (int which = 0; which <= 22; which++)
        tell_attribute(what, which, address);
    cudaPointerAttributes all = {};
    const cudaError_t error = cudaPointerGetAttributes(&all, address);
    tell("%s, runtime = %d type %d device %d, device pointer %s, host pointer %s", what, error, all.type, all.device,
         related((unsigned long long)all.devicePointer, address), related((unsigned long long)all.hostPointer, address));
    (void)cudaGetLastError();
    CUdeviceptr base = 0;
    size_t size = 0;
    const CUresult result = DRIVER(cuMemGetAddressRange)(&base, &size, CUdeviceptr(address));
    tell("%s, range = %d %lld before, %zu bytes", what, result, result ? 0 : (long long)address - (long long)base, size);
    unsigned flags = 77;
    tell_number(what, 1000, DRIVER(cuMemHostGetFlags)(&flags, const_cast<void *>(address)), flags);
    CUdeviceptr device = 0;
    const CUresult of_device = DRIVER(cuMemHostGetDevicePointer)(&device, const_cast<void *>(address), 0);
    tell("%s, device pointer of host memory = %d %s", what, of_device, of_device ? "none" : related(device, address));
}

static void tell_many(const char *what, const void *address) {
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MAPPED};
    unsigned long long values[5] = {};
    void *places[] = {&values[0], &values[1], &values[2], &values[3], &values[4]};
    const CUresult result = DRIVER(cuPointerGetAttributes)(5, which, places, CUdeviceptr(address));
    tell("%s, several = %d %llu %llu %d %llu %llu", what, result, values[0], values[1], int(values[2]), values[3], values[4]);
}

static char *mapped(CUmemGenericAllocationHandle *handle, size_t *size, bool access) {
    CUmemAllocationProp wanted = {};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    REQUIRE_DRIVER(DRIVER(cuMemGetAllocationGranularity)(size, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUdeviceptr address = 0;
    REQUIRE_DRIVER(DRIVER(cuMemAddressReserve)(&address, 2 * *size, 0, 0, 0));
    REQUIRE_DRIVER(DRIVER(cuMemCreate)(handle, *size, &wanted, 0));
    REQUIRE_DRIVER(DRIVER(cuMemMap)(address, *size, 0, *handle, 0));
    CUmemAccessDesc description = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (access) REQUIRE_DRIVER(DRIVER(cuMemSetAccess)(address, *size, &description, 1));
    return reinterpret_cast<char *>(address);
}

static void tell_managed_range(const char *what, void *address) {
    for (int which = 1; which <= 8; which++) {
        int value = -77;
        tell_number(what, which,
                    DRIVER(cuMemRangeGetAttribute)(&value, sizeof(value), CUmem_range_attribute(which), CUdeviceptr(address), SIZE), value);
    }
}

int main() {
    CHECK_CUDA(cudaFree(nullptr));
    char *device, *ours, *default_pool;
    CHECK_CUDA(cudaMalloc(&device, SIZE + 100));
    tell_address("cudaMalloc", device);
    tell_address("cudaMalloc, inside", device + 12345);
    tell_many("cudaMalloc", device + 5);
    CHECK_CUDA(cudaFree(device));
    tell_address("freed", device);

    CHECK_CUDA(cudaMallocAsync(&default_pool, SIZE + 100, nullptr));
    CHECK_CUDA(cudaDeviceSynchronize());
    tell_address("default pool", default_pool);
    CHECK_CUDA(cudaFreeAsync(default_pool, nullptr));
    cudaMemPoolProps wanted = {};
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location = {cudaMemLocationTypeDevice, 0};
    cudaMemPool_t pool;
    CHECK_CUDA(cudaMemPoolCreate(&pool, &wanted));
    CHECK_CUDA(cudaMallocFromPoolAsync(&ours, SIZE + 100, pool, nullptr));
    CHECK_CUDA(cudaDeviceSynchronize());
    tell_address("own pool", ours + 77);
    CHECK_CUDA(cudaFreeAsync(ours, nullptr));

    const struct {
        const char *what;
        unsigned flags;
    } sorts[] = {
        {"pinned", cudaHostAllocDefault},
        {"pinned, mapped", cudaHostAllocMapped},
        {"pinned, portable", cudaHostAllocPortable},
        {"pinned, write-combined", cudaHostAllocWriteCombined | cudaHostAllocMapped},
    };
    for (const auto &sort : sorts) {
        char *pinned;
        CHECK_CUDA(cudaHostAlloc(&pinned, SIZE + 100, sort.flags));
        tell_address(sort.what, pinned);
        tell_many(sort.what, pinned + 5);
        CHECK_CUDA(cudaFreeHost(pinned));
    }
    char *plain = static_cast<char *>(mmap(nullptr, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(plain != MAP_FAILED, "no memory");
    tell_address("unregistered", plain);
    tell_many("unregistered", plain);
    tell_address("null", nullptr);
    CHECK_CUDA(cudaHostRegister(plain, SIZE, cudaHostRegisterDefault));
    tell_address("registered", plain);
    CHECK_CUDA(cudaHostUnregister(plain));
    CHECK_CUDA(cudaHostRegister(plain, SIZE, cudaHostRegisterMapped | cudaHostRegisterPortable));
    tell_address("registered, mapped", plain + 4097);
    CHECK_CUDA(cudaHostUnregister(plain));
    tell_address("unregistered again", plain);

    char *managed;
    CHECK_CUDA(cudaMallocManaged(&managed, SIZE));
    tell_address("managed", managed);
    tell_many("managed", managed + 5);
    tell_managed_range("managed range", managed);
    CHECK_CUDA(cudaFree(managed));
    CHECK_CUDA(cudaMallocManaged(&managed, SIZE, cudaMemAttachHost));
    tell_address("managed of the host", managed);
    CHECK_CUDA(cudaFree(managed));

    void *of_variable, *of_managed;
    CHECK_CUDA(cudaGetSymbolAddress(&of_variable, variable));
    CHECK_CUDA(cudaGetSymbolAddress(&of_managed, managed_variable));
    tell_address("variable", of_variable);
    tell_address("managed variable", of_managed);

    CUmemGenericAllocationHandle handle;
    size_t size;
    char *address = mapped(&handle, &size, true);
    tell_address("mapping", address);
    tell_address("reservation behind a mapping", address + size);
    CUmemGenericAllocationHandle again = 0;
    CUresult result = DRIVER(cuMemRetainAllocationHandle)(&again, address);
    tell("mapping, retained = %d same %d", result, again == handle);
    CUmemAllocationProp told = {};
    result = DRIVER(cuMemGetAllocationPropertiesFromHandle)(&told, handle);
    tell("mapping, properties = %d type %d handles %d location %d %d", result, told.type, told.requestedHandleTypes, told.location.type,
         told.location.id);
    tell_address("mapping without access", mapped(&handle, &size, false));
    return pass();
}

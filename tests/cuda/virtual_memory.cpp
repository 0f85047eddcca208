// Virtual memory management: addresses, memory, and which memory lies where, changed while kernels use it in between; pointer
// attributes of both kinds of memory; wrong uses.
#include "check.h"

#include <cuda.h>

#include <string>
#include <vector>

static const char ptx[] =
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

#define REFUSED(call) REQUIRE((call) != CUDA_SUCCESS, "%s (line %d) is not refused", #call, __LINE__)

static CUdevice device;
static CUfunction add_one;

static CUmemAllocationProp properties() {
    CUmemAllocationProp asked = {};
    asked.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    asked.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return asked;
}

static void add_to(CUdeviceptr data, size_t bytes) {
    void *arguments[] = {&data};
    CHECK_DRIVER(cuLaunchKernel(add_one, (unsigned)(bytes / 4 / 256), 1, 1, 256, 1, 1, 0, 0, arguments, nullptr));
}

static void require_words(CUdeviceptr data, size_t bytes, unsigned value, const char *what) {
    std::vector<unsigned> host(bytes / 4);
    CHECK_DRIVER(cuMemcpyDtoH(host.data(), data, bytes));
    for (size_t i = 0; i < host.size(); i++)
        REQUIRE(host[i] == value, "%s: word %zu is %u, not %u", what, i, host[i], value);
}

template <typename T>
static T attribute(CUpointer_attribute which, CUdeviceptr address) {
    T value = {};
    CHECK_DRIVER(cuPointerGetAttribute(&value, which, address));
    return value;
}

static void check_mapping() {
    CUmemAllocationProp asked = properties();
    size_t unit, recommended;
    CHECK_DRIVER(cuMemGetAllocationGranularity(&unit, &asked, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_DRIVER(cuMemGetAllocationGranularity(&recommended, &asked, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    REQUIRE(unit > 0 && recommended % unit == 0, "granularity %zu, recommended %zu", unit, recommended);

    // Handles for a fabric have a granularity everywhere, and memory with them where the machine has IMEX.
    CUmemAllocationProp fabric = asked;
    fabric.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    size_t of_fabric;
    CHECK_DRIVER(cuMemGetAllocationGranularity(&of_fabric, &fabric, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    CUmemGenericAllocationHandle for_fabric;
    CUresult made = cuMemCreate(&for_fabric, of_fabric, &fabric, 0);
    if (made == CUDA_SUCCESS) CHECK_DRIVER(cuMemRelease(for_fabric));
    REQUIRE(made == CUDA_SUCCESS || made == CUDA_ERROR_NOT_PERMITTED, "memory with handles for a fabric: %d", made);

    CUdeviceptr base, other;
    CHECK_DRIVER(cuMemAddressReserve(&base, 8 * unit, 0, 0, 0));
    CHECK_DRIVER(cuMemAddressReserve(&other, 4 * unit, 4 * unit, 0, 0));
    REQUIRE(other % (4 * unit) == 0 && (other >= base + 8 * unit || other + 4 * unit <= base), "%#llx and %#llx", base, other);

    CUmemGenericAllocationHandle first, second;
    CHECK_DRIVER(cuMemCreate(&first, unit, &asked, 0));
    CHECK_DRIVER(cuMemCreate(&second, 2 * unit, &asked, 0));
    CHECK_DRIVER(cuMemMap(base, unit, 0, first, 0));
    CHECK_DRIVER(cuMemMap(base + unit, 2 * unit, 0, second, 0));
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_DRIVER(cuMemSetAccess(base, 3 * unit, &access, 1));

    // Neighbouring mappings are one range to kernels and copies.
    CHECK_DRIVER(cuMemsetD32(base, 5, 3 * unit / 4));
    add_to(base, 3 * unit);
    require_words(base, 3 * unit, 6, "both mappings");

    unsigned long long flags = 0;
    CUmemLocation location = access.location;
    CHECK_DRIVER(cuMemGetAccess(&flags, &location, base + unit));
    REQUIRE(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "the access is %llu", flags);
    CUmemGenericAllocationHandle again;
    CHECK_DRIVER(cuMemRetainAllocationHandle(&again, (void *)(base + unit + 100)));
    CUmemAllocationProp told;
    CHECK_DRIVER(cuMemGetAllocationPropertiesFromHandle(&told, again));
    REQUIRE(told.type == asked.type && told.location.id == device, "the properties are not those that were asked for");

    // The same memory at a second place; what is released stays where it is mapped.
    CHECK_DRIVER(cuMemMap(other, 2 * unit, 0, again, 0));
    CHECK_DRIVER(cuMemSetAccess(other, 2 * unit, &access, 1));
    CHECK_DRIVER(cuMemRelease(again));
    CHECK_DRIVER(cuMemRelease(second));
    CHECK_DRIVER(cuMemRelease(first));
    add_to(other, 2 * unit);
    require_words(base + unit, 2 * unit, 7, "memory that is mapped twice");
    require_words(base, unit, 6, "memory that is mapped once");

    REFUSED(cuMemFree(base));
    REFUSED(cuMemUnmap(base, unit / 2));
    CHECK_DRIVER(cuCtxSynchronize());
    CHECK_DRIVER(cuMemUnmap(base, 3 * unit));
    require_words(other, 2 * unit, 7, "what is left after unmapping");
    CHECK_DRIVER(cuMemUnmap(other, 2 * unit));
    REFUSED(cuMemRetainAllocationHandle(&again, (void *)base));

    // The addresses are of use again.
    CHECK_DRIVER(cuMemCreate(&first, unit, &asked, 0));
    CHECK_DRIVER(cuMemMap(base + unit, unit, 0, first, 0));
    CHECK_DRIVER(cuMemSetAccess(base + unit, unit, &access, 1));
    CHECK_DRIVER(cuMemsetD32(base + unit, 1, unit / 4));
    require_words(base + unit, unit, 1, "other memory at the same place");
    REFUSED(cuMemMap(base + unit, unit, 0, first, 0));
    CHECK_DRIVER(cuMemUnmap(base + unit, unit));
    CHECK_DRIVER(cuMemRelease(first));
    CHECK_DRIVER(cuMemAddressFree(base, 8 * unit));
    CHECK_DRIVER(cuMemAddressFree(other, 4 * unit));
    REFUSED(cuMemAddressFree(other, 4 * unit));
}

static void check_wrong_uses() {
    CUmemAllocationProp asked = properties();
    size_t unit, available, total;
    CHECK_DRIVER(cuMemGetAllocationGranularity(&unit, &asked, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_DRIVER(cuMemGetInfo(&available, &total));
    CUdeviceptr base;
    CUmemGenericAllocationHandle handle;
    REQUIRE(cuMemCreate(&handle, (2 * total + unit - 1) / unit * unit, &asked, 0) == CUDA_ERROR_OUT_OF_MEMORY,
            "twice the memory of the device can be made");
    REFUSED(cuMemCreate(&handle, unit + 1, &asked, 0));
    REFUSED(cuMemAddressReserve(&base, unit + 1, 0, 0, 0));
    CHECK_DRIVER(cuMemCreate(&handle, unit, &asked, 0));
    REFUSED(cuMemMap(0x1000, unit, 0, handle, 0));
    CHECK_DRIVER(cuMemAddressReserve(&base, unit, 0, 0, 0));
    REFUSED(cuMemMap(base, 2 * unit, 0, handle, 0));
    CHECK_DRIVER(cuMemMap(base, unit, 0, handle, 0));
    CHECK_DRIVER(cuMemRelease(handle));
    // Without access nothing can be copied there.
    unsigned word = 1;
    REFUSED(cuMemcpyHtoD(base, &word, sizeof word));
    CHECK_DRIVER(cuMemUnmap(base, unit));
    CHECK_DRIVER(cuMemAddressFree(base, unit));
}

static void check_attributes() {
    CUdeviceptr memory, start;
    size_t size;
    CHECK_DRIVER(cuMemAlloc(&memory, 1000));
    CUdeviceptr inside = memory + 10;
    CHECK_DRIVER(cuMemGetAddressRange(&start, &size, inside));
    REQUIRE(start == memory && size == 1000, "the range is %zu bytes from %lld on", size, (long long)(start - memory));
    REQUIRE(attribute<CUmemorytype>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside) == CU_MEMORYTYPE_DEVICE, "it is not device memory");
    REQUIRE(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside) == inside, "its device pointer is another one");
    REQUIRE(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside) == memory, "it starts elsewhere");
    REQUIRE(attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside) == 1000, "it has another size");
    REQUIRE(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside) == device, "it is another device's");
    REQUIRE(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, inside) == 1, "it is not mapped");
    REQUIRE(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside) == 0, "it is managed");
    REQUIRE(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside) == 1, "it cannot be shared by IPC");
    REQUIRE(attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside) == 0, "it has handles");
    REQUIRE(attribute<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside) == 3, "it cannot be read and written");
    REQUIRE(attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside) == nullptr, "it is a pool's");
    CUdeviceptr mapping = attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside);
    size_t mapped = attribute<size_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside);
    REQUIRE(mapping <= memory && memory + 1000 <= mapping + mapped, "the mapping does not hold it");
    CUdeviceptr second;
    CHECK_DRIVER(cuMemAlloc(&second, 1000));
    REQUIRE(attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, inside) !=
                attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, second), "two buffers have one number");
    CUmemGenericAllocationHandle handle;
    REFUSED(cuMemRetainAllocationHandle(&handle, (void *)memory));
    CHECK_DRIVER(cuMemFree(second));
    CHECK_DRIVER(cuMemFree(memory));
    REQUIRE(cuMemGetAddressRange(&start, &size, 0x12345000) == CUDA_ERROR_NOT_FOUND, "an address of nothing has a range");

    CUmemoryPool pool;
    CHECK_DRIVER(cuDeviceGetDefaultMemPool(&pool, device));
    CHECK_DRIVER(cuMemAllocAsync(&memory, 1000, nullptr));
    REQUIRE(attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory) == pool, "it is another pool's");
    REQUIRE(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory) == 0, "it can be shared by IPC");
    CHECK_DRIVER(cuMemFreeAsync(memory, nullptr));
    CUmemAccess_flags flags;
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    CHECK_DRIVER(cuMemPoolGetAccess(&flags, pool, &location));
    REQUIRE(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "the pool's own device has access %d", (int)flags);
}

// What a synchronous copy from pageable memory writes to may be unmapped as soon as it has returned. CUDA itself does not promise that.
static void unmap_at_once() {
    CUmemAllocationProp asked = properties();
    size_t unit;
    CHECK_DRIVER(cuMemGetAllocationGranularity(&unit, &asked, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUdeviceptr base;
    CUmemGenericAllocationHandle memory;
    CHECK_DRIVER(cuMemAddressReserve(&base, unit, 0, 0, 0));
    CHECK_DRIVER(cuMemCreate(&memory, unit, &asked, 0));
    CUmemAccessDesc access = {asked.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (int round = 0; round < 20; round++) {
        std::vector<char> bytes(unit, (char)round);
        CHECK_DRIVER(cuMemMap(base, unit, 0, memory, 0));
        CHECK_DRIVER(cuMemSetAccess(base, unit, &access, 1));
        CHECK_DRIVER(cuMemcpyHtoD(base, bytes.data(), unit));
        CHECK_DRIVER(cuMemUnmap(base, unit));
    }
    CHECK_DRIVER(cuMemMap(base, unit, 0, memory, 0));
    CHECK_DRIVER(cuMemSetAccess(base, unit, &access, 1));
    require_words(base, unit, 0x13131313, "memory that was unmapped meanwhile");
    CHECK_DRIVER(cuMemUnmap(base, unit));
    CHECK_DRIVER(cuMemRelease(memory));
    CHECK_DRIVER(cuMemAddressFree(base, unit));
}

int main(int argc, char **argv) {
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    int supported = 0;
    CHECK_DRIVER(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device));
    REQUIRE(supported, "the device says that it has no virtual memory management");
    CUcontext context;
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_DRIVER(cuCtxSetCurrent(context));
    CUmodule module;
    CHECK_DRIVER(cuModuleLoadData(&module, ptx));
    CHECK_DRIVER(cuModuleGetFunction(&add_one, module, "add_one"));
    if (argc > 1 && argv[1] == std::string("unmap_at_once")) {
        unmap_at_once();
    } else {
        check_mapping();
        check_attributes();
        check_wrong_uses();
    }
    CHECK_DRIVER(cuCtxSynchronize());
    CHECK_DRIVER(cuModuleUnload(module));
    CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));
    return pass();
}

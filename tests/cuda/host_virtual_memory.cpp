// Memory of the host that the program makes and maps itself (cuMemCreate): who may use it, what kernels, copies and the host
// see of each other's writes, at one address and at two, and what is refused.
#include "transcript.h"

#include <cstring>
#include <ctime>
#include <initializer_list>
#include <vector>

static const size_t words = 256;

static CUmemAllocationProp props(int type, int id = 0, int handles = 0) {
    CUmemAllocationProp made = {};
    made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made.requestedHandleTypes = (CUmemAllocationHandleType)handles;
    made.location = {(CUmemLocationType)type, id};
    return made;
}

static CUmemAccessDesc access_of(int type, int flags) {
    CUmemAccessDesc made = {};
    made.location = {(CUmemLocationType)type, 0};
    made.flags = (CUmemAccess_flags)flags;
    return made;
}

static size_t granularity() {
    CUmemAllocationProp asked = props(CU_MEM_LOCATION_TYPE_HOST_NUMA);
    size_t unit = 0;
    if (cuMemGetAllocationGranularity(&unit, &asked, CU_MEM_ALLOC_GRANULARITY_MINIMUM) || unit == 0) fail("no granularity");
    return unit > 2 << 20 ? unit : 2 << 20;
}

static void device_attributes() {
    start();
    int of_host = -1, of_nodes = -1;
    SAY(cuDeviceGetAttribute(&of_host, CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    SAY(cuDeviceGetAttribute(&of_nodes, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    note("memory of the host: %d, of its nodes: %d", of_host, of_nodes);
}

static void accesses(CUdeviceptr address) {
    for (int type : {CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST_NUMA}) {
        CUmemLocation location = {(CUmemLocationType)type, 0};
        unsigned long long flags = 9;
        CUresult result = cuMemGetAccess(&flags, &location, address);
        note("access of %s: %s %llu", location_name(type), result_name(result), flags);
    }
}

static bool open_to_both(CUdeviceptr base, size_t size) {
    CUmemAccessDesc both[] = {access_of(CU_MEM_LOCATION_TYPE_DEVICE, 3), access_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, 3)};
    return said(cuMemSetAccess(base, size, both, 2), "access for both");
}

// The host writes, a kernel adds, the host reads.
static void take_turns(CUdeviceptr data, unsigned seed) {
    volatile unsigned *host = (volatile unsigned *)data;
    for (unsigned i = 0; i < words; i++) host[i] = seed + i;
    SAY(add_one(data, 0));
    SAY(cuStreamSynchronize(0));
    note("the host reads %u %u", host[0] - seed, host[words - 1] - seed);
}

static void use(int type, size_t units) {
    start();
    size_t unit = granularity(), size = units * unit;
    CUmemAllocationProp asked = props(type), told = {};
    CUmemGenericAllocationHandle memory, again;
    CUdeviceptr base, other;
    if (!said(cuMemCreate(&memory, size, &asked, 0), "memory of %s", location_name(type))) return;
    SAY(cuMemGetAllocationPropertiesFromHandle(&told, memory));
    note("it is of %s %d, with handles %d", location_name(told.location.type), told.location.id, told.requestedHandleTypes);
    SAY(cuMemAddressReserve(&base, size, 0, 0, 0));
    SAY(cuMemAddressReserve(&other, size, 0, 0, 0));
    SAY(cuMemMap(base, size, 0, memory, 0));
    accesses(base);
    if (!open_to_both(base, size)) return;
    accesses(base);
    pointer_attributes(base + 4, "memory of the host");

    unsigned seed = (unsigned)time(nullptr), copied[words] = {};
    volatile unsigned *host = (volatile unsigned *)base;
    note("first it holds %u", host[size / 4 - 1]);
    take_turns(base, seed);
    take_turns(base + size - words * 4, seed + 7);
    SAY(cuMemcpyDtoH(copied, base, sizeof copied));
    note("copied: %u %u", copied[0] - seed, copied[words - 1] - seed);
    std::vector<unsigned> large(size / 4, seed);
    SAY(cuMemcpyHtoD(base, large.data(), size));
    note("the host reads %u %u %u", host[0] - seed, host[size / 8] - seed, host[size / 4 - 1] - seed);
    SAY(cuMemsetD32Async(base, seed + 3, words / 2, 0));
    SAY(add_one(base, 0));
    SAY(cuStreamSynchronize(0));
    note("the host reads %u %u %u", host[0] - seed, host[words / 2 - 1] - seed, host[words / 2] - seed);

    // As host memory of a copy it is the same memory, in order with kernels.
    CUdeviceptr of_device;
    SAY(cuMemAlloc(&of_device, sizeof copied));
    SAY(cuMemsetD32(of_device, seed, words));
    SAY(cuMemcpyDtoHAsync((void *)base, of_device, sizeof copied, 0));
    SAY(add_one(base, 0));
    SAY(cuMemcpyHtoDAsync(of_device, (void *)base, sizeof copied, 0));
    SAY(add_one(of_device, 0));
    SAY(cuMemcpyDtoH(copied, of_device, sizeof copied));
    note("there and back: %u %u, and the host reads %u", copied[0] - seed, copied[words - 1] - seed, host[words - 1] - seed);

    // At a second address, of which the first one's writes are seen, and the other way round.
    SAY(cuMemRetainAllocationHandle(&again, (void *)(base + 100)));
    SAY(cuMemMap(other, size, 0, again, 0));
    if (!open_to_both(other, size)) return;
    volatile unsigned *there = (volatile unsigned *)other;
    for (int round = 0; round < 20; round++) {
        volatile unsigned *to = round % 2 ? host : there, *from = round % 2 ? there : host;
        for (unsigned i = 0; i < words; i++) to[i] = round;
        if (add_one(round % 3 ? base : other, 0) || cuStreamSynchronize(0)) return note("round %d: refused", round);
        for (unsigned i = 0; i < words; i++)
            if (from[i] != (unsigned)round + 1 || to[i] != (unsigned)round + 1) return note("round %d: %u %u", round, from[i], to[i]);
    }
    note("twenty rounds at two addresses");

    // What was written there stays when the address goes, and the memory when its handles do.
    for (unsigned i = 0; i < words; i++) there[i] = seed + i;
    SAY(cuMemUnmap(other, size));
    SAY(add_one(base, 0));
    SAY(cuStreamSynchronize(0));
    note("the host reads %u %u", host[0] - seed, host[words - 1] - seed);
    SAY(cuMemRelease(again));
    SAY(cuMemRelease(memory));
    take_turns(base, seed);
    SAY(cuMemRetainAllocationHandle(&again, (void *)base));
    SAY(cuMemUnmap(base, size));
    SAY(cuMemMap(other, size, 0, again, 0));
    if (!open_to_both(other, size)) return;
    note("at another address the host reads %u", there[words - 1] - seed);
    SAY(add_one(other, 0));
    SAY(cuStreamSynchronize(0));
    note("the host reads %u", there[words - 1] - seed);
    SAY(cuMemUnmap(other, size));
    SAY(cuMemRelease(again));
    said(cuMemRelease(again), "release once more");
    SAY(cuMemAddressFree(base, size));
    SAY(cuMemAddressFree(other, size));
    SAY(cuMemFree(of_device));
}

static void of_host() { use(CU_MEM_LOCATION_TYPE_HOST, 1); }
static void of_node() { use(CU_MEM_LOCATION_TYPE_HOST_NUMA, 3); }

static void mistakes() {
    start();
    size_t unit = granularity();
    CUmemGenericAllocationHandle memory;
    CUmemAllocationProp asked = props(CU_MEM_LOCATION_TYPE_HOST, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    said(cuMemCreate(&memory, unit, &asked, 0), "memory of the host with descriptors");
    asked = props(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
    said(cuMemCreate(&memory, unit, &asked, 0), "memory of this thread's node");
    asked = props(CU_MEM_LOCATION_TYPE_HOST_NUMA, -3);
    said(cuMemCreate(&memory, unit, &asked, 0), "memory of a node that is not there");
    asked = props(CU_MEM_LOCATION_TYPE_HOST);
    said(cuMemCreate(&memory, unit + 1, &asked, 0), "a size that is no multiple");
    said(cuMemCreate(&memory, (size_t)1 << 50, &asked, 0), "more than there is");
    CUdeviceptr base;
    SAY(cuMemCreate(&memory, unit, &asked, 0));
    SAY(cuMemAddressReserve(&base, 2 * unit, 0, 0, 0));
    said(cuMemMap(base, 2 * unit, 0, memory, 0), "map more than it has");
    SAY(cuMemMap(base, unit, 0, memory, 0));
    said(cuMemMap(base, unit, 0, memory, 0), "map over it");
    CUmemAccessDesc entry = access_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, 2);
    said(cuMemSetAccess(base, unit, &entry, 1), "access to write alone");
    entry = access_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, 3);
    said(cuMemSetAccess(base, 2 * unit, &entry, 1), "access to more than is mapped");
    said(cuMemAddressFree(base, 2 * unit), "free addresses in use");
    int descriptor;
    said(cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "export it");
    said(cuMemFree(base), "cuMemFree of it");
    SAY(cuMemUnmap(base, unit));
    SAY(cuMemRelease(memory));
    SAY(cuMemAddressFree(base, 2 * unit));
}

static CUdeviceptr mapped_for(int type) {
    start();
    size_t unit = granularity();
    CUmemAllocationProp asked = props(CU_MEM_LOCATION_TYPE_HOST);
    CUmemGenericAllocationHandle memory;
    CUdeviceptr base = 0;
    SAY(cuMemCreate(&memory, unit, &asked, 0));
    SAY(cuMemAddressReserve(&base, unit, 0, 0, 0));
    SAY(cuMemMap(base, unit, 0, memory, 0));
    CUmemAccessDesc entry = access_of(type, 3);
    SAY(cuMemSetAccess(base, unit, &entry, 1));
    return base;
}

static void closed_to_the_device() {
    CUdeviceptr base = mapped_for(CU_MEM_LOCATION_TYPE_HOST_NUMA);
    *(volatile unsigned *)base = 5;
    note("the host reads %u", *(volatile unsigned *)base);
    SAY(add_one(base, 0));
    SAY(cuStreamSynchronize(0));
}

static void closed_to_the_host() {
    CUdeviceptr base = mapped_for(CU_MEM_LOCATION_TYPE_DEVICE);
    SAY(cuMemsetD32(base, 5, words));
    SAY(add_one(base, 0));
    unsigned copied[words] = {};
    SAY(cuMemcpyDtoH(copied, base, sizeof copied));
    note("copied: %u", copied[0]);
    CUmemAccessDesc entry = access_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, 3);
    SAY(cuMemSetAccess(base, granularity(), &entry, 1));
    note("the host reads %u", *(volatile unsigned *)base);
    entry = access_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
    SAY(cuMemSetAccess(base, granularity(), &entry, 1));
    note("the host reads %u", *(volatile unsigned *)base);
}

// Causeway shares such memory with no other process.
static void exported() {
    start();
    CUmemAllocationProp asked = props(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle memory;
    CUresult result = cuMemCreate(&memory, granularity(), &asked, 0);
    REQUIRE(result == CUDA_ERROR_NOT_SUPPORTED, "memory for other processes: %s", result_name(result));
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "exported")) {
        exported();
        return pass();
    }
    apart("device attributes", device_attributes);
    apart("memory of the host", of_host);
    apart("memory of a node", of_node);
    apart("mistakes", mistakes);
    apart("memory that is closed to the device", closed_to_the_device);
    apart("memory that is closed to the host", closed_to_the_host);
    return pass();
}

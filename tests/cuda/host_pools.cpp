// Pools whose memory lies in the host: who makes them, who reaches their memory, and what is said about it.
#include "transcript.h"

#include <ctime>
#include <initializer_list>

static CUmemPoolProps props(int type, int id, int kind = CU_MEM_ALLOCATION_TYPE_PINNED, int handles = 0) {
    CUmemPoolProps made = {};
    made.allocType = (CUmemAllocationType)kind;
    made.handleTypes = (CUmemAllocationHandleType)handles;
    made.location.type = (CUmemLocationType)type;
    made.location.id = id;
    return made;
}

static void device_attributes() {
    start();
    int pools = -1, of_nodes = -1;
    SAY(cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 0));
    SAY(cuDeviceGetAttribute(&of_nodes, CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 0));
    note("pools of the host: %d, of its nodes: %d", pools, of_nodes);
}

static void creation() {
    start();
    for (int kind : {0, 1, 2, 3, 77})
        for (int type : {0, 1, 2, 3, 4, 5, 99})
            for (int id : {0, -1, 1000}) {
                CUmemPoolProps asked = props(type, id, kind);
                CUmemoryPool pool = (CUmemoryPool)0x77;
                CUresult result = cuMemPoolCreate(&pool, &asked);
                said(result, "create kind %d at %s %d, %s", kind, location_name(type), id, pool == (CUmemoryPool)0x77 ? "untouched" : "written");
                if (result == CUDA_SUCCESS) {
                    for (int other : {1, 2, 3, 4}) {
                        CUmemLocation location = {};
                        location.type = (CUmemLocationType)other;
                        CUmemAccess_flags flags = (CUmemAccess_flags)9;
                        CUresult asked_access = cuMemPoolGetAccess(&flags, pool, &location);
                        note("   access of %s: %s %d", location_name(other), result_name(asked_access), flags);
                    }
                    said(cuMemPoolDestroy(pool), "   destroy");
                }
            }
    for (int handles : {1, 2, 8, 16}) {
        CUmemPoolProps asked = props(CU_MEM_LOCATION_TYPE_HOST, 0, 1, handles);
        CUmemoryPool pool;
        said(cuMemPoolCreate(&pool, &asked), "create at host with handles %d", handles);
    }
    CUmemPoolProps asked = props(2, 0);
    CUmemoryPool pool;
    said(cuMemPoolCreate(nullptr, &asked), "create to null");
    said(cuMemPoolCreate(&pool, nullptr), "create from null");
    asked.reserved[3] = 1;
    if (said(cuMemPoolCreate(&pool, &asked), "create with a reserved byte")) cuMemPoolDestroy(pool);
}

static void defaults() {
    start();
    CUmemoryPool of_device;
    SAY(cuDeviceGetDefaultMemPool(&of_device, 0));
    for (int kind : {0, 1, 2, 3})
        for (int type : {0, 1, 2, 3, 4, 5})
            for (int id : {0, 1000}) {
                CUmemLocation location = {};
                location.type = (CUmemLocationType)type;
                location.id = id;
                CUmemoryPool pool = (CUmemoryPool)0x77, current = (CUmemoryPool)0x77;
                CUresult first = cuMemGetDefaultMemPool(&pool, &location, (CUmemAllocationType)kind);
                CUresult second = cuMemGetMemPool(&current, &location, (CUmemAllocationType)kind);
                note("kind %d at %s %d: default %s, current %s%s%s", kind, location_name(type), id, result_name(first), result_name(second),
                     first == 0 && pool == of_device ? ", the device's" : "", first == 0 && second == 0 && pool == current ? ", the same" : "");
                if (first == 0 && type != 1) said(cuMemPoolDestroy(pool), "   destroying it");
            }
    CUmemLocation host = {};
    host.type = CU_MEM_LOCATION_TYPE_HOST;
    said(cuMemGetDefaultMemPool(nullptr, &host, CU_MEM_ALLOCATION_TYPE_PINNED), "default to null");
    CUmemoryPool pool;
    said(cuMemGetDefaultMemPool(&pool, nullptr, CU_MEM_ALLOCATION_TYPE_PINNED), "default of null");
}

static void setting() {
    start();
    CUmemoryPool of_device;
    cuDeviceGetDefaultMemPool(&of_device, 0);
    for (int kind : {1, 2})
        for (int type : {0, 1, 2, 3, 4}) {
            CUmemPoolProps asked = props(type, 0, kind);
            CUmemoryPool pool;
            if (cuMemPoolCreate(&pool, &asked) != CUDA_SUCCESS) continue;
            note("a pool of kind %d at %s", kind, location_name(type));
            if (type > 1) said(cuDeviceSetMemPool(0, pool), "   as the device's");
            for (int set_kind : {1, 2})
                for (int other : {0, 1, 2, 3, 4}) {
                    CUmemLocation location = {};
                    location.type = (CUmemLocationType)other;
                    CUresult result = cuMemSetMemPool(&location, (CUmemAllocationType)set_kind, pool);
                    CUmemoryPool now = nullptr;
                    CUresult asked_now = cuMemGetMemPool(&now, &location, (CUmemAllocationType)set_kind);
                    note("   set for kind %d at %s: %s, then %s %s", set_kind, location_name(other), result_name(result), result_name(asked_now),
                         now == pool ? "it" : "another");
                }
            CUmemoryPool current;
            cuDeviceGetMemPool(&current, 0);
            note("   the device's: %s", current == pool ? "it" : "another");
            CUdeviceptr data = 0;
            if (said(cuMemAllocAsync(&data, 4096, 0), "   cuMemAllocAsync")) {
                unsigned memory = 0;
                cuPointerGetAttribute(&memory, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, data);
                note("   of memory type %u", memory);
                said(cuMemFreeAsync(data, 0), "   freeing it");
            }
            cuStreamSynchronize(0);
            cuDeviceSetMemPool(0, of_device);
            said(cuMemPoolDestroy(pool), "   destroy while it is current");
        }
}

static void accesses(CUmemoryPool pool) {
    for (int to : {1, 2, 3, 4})
        for (int what : {3, 1, 0, 3}) {
            CUmemAccessDesc entry = {};
            entry.location.type = (CUmemLocationType)to;
            entry.flags = (CUmemAccess_flags)what;
            CUresult result = cuMemPoolSetAccess(pool, &entry, 1);
            CUmemAccess_flags flags = (CUmemAccess_flags)9;
            CUresult after = cuMemPoolGetAccess(&flags, pool, &entry.location);
            note("access %d to %s: %s, then %s %d", what, location_name(to), result_name(result), result_name(after), flags);
        }
}

static unsigned long long attribute(CUmemoryPool pool, CUmemPool_attribute which) {
    cuuint64_t value = 99;
    cuMemPoolGetAttribute(pool, which, &value);
    return value;
}

// The words that the host wrote, with one added by a kernel each time, seen by host, kernel and copies in turn.
static void use(int type, int kind, size_t size) {
    start();
    CUmemPoolProps asked = props(type, 0, kind);
    CUmemoryPool pool;
    if (!said(cuMemPoolCreate(&pool, &asked), "pool of kind %d at %s", kind, location_name(type))) return;
    CUstream stream;
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    CUdeviceptr data = 0;
    if (!said(cuMemAllocFromPoolAsync(&data, size, pool, stream), "allocate %zu", size)) return;
    SAY(cuStreamSynchronize(stream));
    pointer_attributes(data, "memory of the pool");
    accesses(pool);
    unsigned words[256] = {}, seed = (unsigned)time(nullptr);
    volatile unsigned *host = (volatile unsigned *)data;
    for (unsigned i = 0; i < 256; i++) host[i] = seed + i;
    SAY(add_one(data, stream));
    SAY(cuStreamSynchronize(stream));
    note("the host reads %u %u", host[0] - seed, host[255] - seed);
    SAY(cuMemcpy((CUdeviceptr)words, data, sizeof words));
    note("copied: %u %u", words[0] - seed, words[255] - seed);
    SAY(cuMemsetD32Async(data, seed, 128, stream));
    SAY(add_one(data, stream));
    SAY(cuStreamSynchronize(stream));
    note("the host reads %u %u %u", host[0] - seed, host[127] - seed, host[128] - seed);
    note("used %llu", attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    SAY(cuMemFreeAsync(data, stream));
    SAY(cuStreamSynchronize(stream));
    note("used %llu, %llu at most", attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
    SAY(cuMemPoolTrimTo(pool, 0));
    note("reserved after trimming: %llu", attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));

    // One after the other in a stream, each uses what the one before may have left.
    for (int round = 0; round < 20; round++) {
        CUdeviceptr again;
        if (cuMemAllocFromPoolAsync(&again, size, pool, stream)) return note("round %d: no memory", round);
        if (cuMemsetD32Async(again, round, 256, stream) || add_one(again, stream) ||
            cuMemcpyAsync((CUdeviceptr)words, again, sizeof words, stream) || cuMemFreeAsync(again, stream))
            return note("round %d: refused", round);
        if (cuStreamSynchronize(stream) || words[0] != (unsigned)round + 1 || words[255] != (unsigned)round + 1)
            return note("round %d: %u %u", round, words[0], words[255]);
    }
    note("twenty rounds");
    SAY(cuMemAllocFromPoolAsync(&data, 100, pool, stream));
    SAY(cuStreamSynchronize(stream));
    SAY(cuMemFree(data));
    SAY(cuMemAllocFromPoolAsync(&data, 100, pool, stream));
    SAY(cuStreamSynchronize(stream));
    said(cuMemFreeHost((void *)data), "cuMemFreeHost of it");
    SAY(cuMemAllocFromPoolAsync(&data, (size_t)1 << 50, pool, stream));
    SAY(cuMemAllocFromPoolAsync(&data, 4096, pool, stream));
    SAY(cuMemPoolDestroy(pool));
    host = (volatile unsigned *)data;
    SAY(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < 256; i++) host[i] = seed;
    SAY(add_one(data, stream));
    SAY(cuStreamSynchronize(stream));
    note("after the end of the pool the host reads %u", host[255] - seed);
    SAY(cuMemFreeAsync(data, stream));
    SAY(cuStreamSynchronize(stream));
}

static void host_pool() { use(CU_MEM_LOCATION_TYPE_HOST, 1, 3 << 20); }
static void numa_pool() { use(CU_MEM_LOCATION_TYPE_HOST_NUMA, 1, 100000); }
static void managed_pool() { use(CU_MEM_LOCATION_TYPE_DEVICE, 2, 100000); }
static void managed_host_pool() { use(CU_MEM_LOCATION_TYPE_HOST, 2, 3 << 20); }
static void managed_nowhere_pool() { use(CU_MEM_LOCATION_TYPE_NONE, 2, 4096); }

static void limited() {
    start();
    CUmemPoolProps asked = props(CU_MEM_LOCATION_TYPE_HOST, 0);
    asked.maxSize = 4 << 20;
    CUmemoryPool pool;
    if (!said(cuMemPoolCreate(&pool, &asked), "host pool of at most 4 MiB")) return;
    CUdeviceptr first, second;
    said(cuMemAllocFromPoolAsync(&first, 3 << 20, pool, 0), "3 MiB of it");
    said(cuMemAllocFromPoolAsync(&second, 30 << 20, pool, 0), "30 MiB more");
}

static void default_host_pool() {
    start();
    CUmemLocation location = {};
    location.type = CU_MEM_LOCATION_TYPE_HOST;
    CUmemoryPool pool;
    if (!SAY(cuMemGetDefaultMemPool(&pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED))) return;
    CUdeviceptr data;
    CUmemAccessDesc entry = {};
    entry.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    entry.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    SAY(cuMemPoolSetAccess(pool, &entry, 1));
    if (!SAY(cuMemAllocFromPoolAsync(&data, 4096, pool, 0))) return;
    SAY(cuStreamSynchronize(0));
    for (int i = 0; i < 256; i++) ((unsigned *)data)[i] = i;
    SAY(add_one(data, 0));
    SAY(cuStreamSynchronize(0));
    note("the host reads %u %u", ((unsigned *)data)[0], ((unsigned *)data)[255]);
    SAY(cuMemFreeAsync(data, 0));
}

static void CUDA_CB hold(void *flag) {
    while (!__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE)) usleep(100);
}

// What one stream frees behind work that has not begun is no other stream's: that writes to memory of its own meanwhile.
static void reuse(int type, int kind) {
    start();
    CUmemPoolProps asked = props(type, 0, kind);
    CUmemoryPool pool;
    if (!SAY(cuMemPoolCreate(&pool, &asked))) return;
    CUmemAccessDesc entry = {};
    entry.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    entry.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    SAY(cuMemPoolSetAccess(pool, &entry, 1));
    CUstream one, other;
    cuStreamCreate(&one, CU_STREAM_NON_BLOCKING);
    cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
    CUevent written;
    cuEventCreate(&written, CU_EVENT_DISABLE_TIMING);
    CUdeviceptr first, second;
    unsigned words[256] = {}, seed = (unsigned)time(nullptr);
    int flag = 0;
    SAY(cuMemAllocFromPoolAsync(&first, 65536, pool, one));
    SAY(cuMemsetD32Async(first, 0, 16384, one));
    SAY(cuStreamSynchronize(one));
    SAY(cuLaunchHostFunc(one, hold, &flag));
    SAY(cuMemsetD32Async(first, seed, 16384, one));
    SAY(cuEventRecord(written, one));
    SAY(cuMemFreeAsync(first, one));
    SAY(cuMemAllocFromPoolAsync(&second, 65536, pool, other));
    SAY(cuMemsetD32Async(second, seed + 1, 16384, other));
    SAY(cuStreamWaitEvent(other, written, 0));
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    SAY(cuMemcpyAsync((CUdeviceptr)words, second, sizeof words, other));
    SAY(cuStreamSynchronize(other));
    SAY(cuStreamSynchronize(one));
    note("the other stream finds %u %u", words[0] - seed, words[255] - seed);
    SAY(cuMemFreeAsync(second, other));
    SAY(cuMemPoolDestroy(pool));
    SAY(cuStreamSynchronize(other));
}

static void host_reuse() { reuse(CU_MEM_LOCATION_TYPE_HOST, 1); }
static void managed_reuse() { reuse(CU_MEM_LOCATION_TYPE_NONE, 2); }

// Such memory cannot be a graph's.
static void capture() {
    start();
    CUmemPoolProps asked = props(CU_MEM_LOCATION_TYPE_HOST, 0);
    CUmemoryPool pool;
    if (!SAY(cuMemPoolCreate(&pool, &asked))) return;
    CUstream stream;
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUdeviceptr data = 0;
    SAY(cuMemAllocFromPoolAsync(&data, 4096, pool, stream));
    CUgraph graph = nullptr;
    SAY(cuStreamEndCapture(stream, &graph));
}

int main() {
    apart("device attributes", device_attributes);
    apart("creation", creation);
    apart("defaults", defaults);
    apart("setting", setting);
    apart("a pool in host memory", host_pool);
    apart("a pool in memory of a NUMA node", numa_pool);
    apart("a managed pool of a device", managed_pool);
    apart("a managed pool of the host", managed_host_pool);
    apart("a managed pool of no place", managed_nowhere_pool);
    apart("a limit", limited);
    apart("the default host pool", default_host_pool);
    apart("reuse of host memory", host_reuse);
    apart("reuse of managed memory", managed_reuse);
    apart("capture", capture);
    return pass();
}

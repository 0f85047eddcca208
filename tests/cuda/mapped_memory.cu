// Host memory that kernels reach: mapped pinned memory with and without asking for its device pointer, registered memory, both
// ways, in structures, by host functions, and what CUDA refuses.
#include "check.h"

#include <sys/mman.h>
#include <vector>

constexpr int COUNT = 5000;

__global__ void add(int *data, int n, int amount) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += amount;
}

// Writes every second element, so that host and device write to the same cache lines.
__global__ void fill_odd(int *data, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && i % 2 == 1) data[i] = value;
}

struct Work {
    int count;
    const int *from;
    int *to;
};

__global__ void copy_work(Work work) {
    for (int i = threadIdx.x; i < work.count; i += blockDim.x) work.to[i] = work.from[i] * 2;
}

// The structure lies in device memory, and the kernel follows the addresses that it finds there.
__global__ void copy_stored_work(const Work *works, int count) {
    for (int each = 0; each < count; each++)
        for (int i = threadIdx.x; i < works[each].count; i += blockDim.x) works[each].to[i] = works[each].from[i] * 2;
}

// An address at a multiple of 4 only, and iterators that begin right behind their memory.
struct __attribute__((packed)) Packed {
    int count;
    int *data;
};

__global__ void add_packed(Packed packed) { packed.data[0] += packed.count; }

__global__ void copy_backwards(const int *end, int *to, int count) {
    for (int i = 0; i < count; i++) to[i] = end[-1 - i];
}

__global__ void fetch(cudaTextureObject_t texture, int *to) { *to = tex1Dfetch<int>(texture, 1); }

static int *fresh(int value) {
    int *memory;
    CHECK_CUDA(cudaMallocHost(&memory, 4096));
    for (int i = 0; i < 1024; i++) memory[i] = value + i;
    return memory;
}

// Pinned memory whose first use is on the device's side of something, each time other memory.
static void first_uses(cudaStream_t stream) {
    int *device, found = 0;
    CHECK_CUDA(cudaMalloc(&device, 4096));
    auto require = [&](int expected, const char *what) {
        CHECK_CUDA(cudaDeviceSynchronize());
        CHECK_CUDA(cudaMemcpy(&found, device, sizeof found, cudaMemcpyDeviceToHost));
        REQUIRE(found == expected, "%s: %d instead of %d", what, found, expected);
    };
    CHECK_CUDA(cudaMemcpy(device, fresh(100), 4, cudaMemcpyDeviceToDevice));
    require(100, "a copy that is said to be within the device");
    CHECK_CUDA(cudaMemcpyPeerAsync(device, 0, fresh(200), 0, 4, stream));
    require(200, "a copy between peers");
    int *destination = fresh(0);
    CHECK_CUDA(cudaMemcpy2D(destination, 4, device, 4, 4, 1, cudaMemcpyDeviceToDevice));
    CHECK_CUDA(cudaDeviceSynchronize());
    REQUIRE(destination[0] == 200, "rows within the device: %d", destination[0]);

    cudaGraph_t graph;
    cudaGraphExec_t executable;
    const int *captured = fresh(300);
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(cudaMemcpyAsync(device, captured, 4, cudaMemcpyDeviceToDevice, stream));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    require(300, "a copy in a graph");
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));

    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear = {fresh(400), cudaCreateChannelDesc<int>(), 4096};
    cudaTextureDesc description = {};
    cudaTextureObject_t texture;
    CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    fetch<<<1, 1>>>(texture, device);
    CHECK_LAUNCH();
    require(401, "a texture");
    CHECK_CUDA(cudaDestroyTextureObject(texture));

    int *packed = fresh(500);
    add_packed<<<1, 1>>>(Packed{7, packed});
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    REQUIRE(packed[0] == 507, "a packed structure: %d", packed[0]);
    copy_backwards<<<1, 1>>>(fresh(600) + 1024, device, 2);
    CHECK_LAUNCH();
    require(600 + 1023, "an iterator that goes backwards");

    int *managed;
    CHECK_CUDA(cudaMallocManaged(&managed, 4096));
    EXPECT_CUDA(cudaFreeAsync(managed, stream), cudaErrorNotSupported);
    CHECK_CUDA(cudaFree(managed));
    CHECK_CUDA(cudaFree(device));
}

static void run_add(int *data, int amount, cudaStream_t stream = 0) {
    add<<<(COUNT + 255) / 256, 256, 0, stream>>>(data, COUNT, amount);
    CHECK_LAUNCH();
}

static void require_all(const int *data, int first, int step, const char *what) {
    for (int i = 0; i < COUNT; i++)
        REQUIRE(data[i] == first + i * step, "%s: element %d should be %d, is %d", what, i, first + i * step, data[i]);
}

// What one side writes before a call that waits, the other sees after it.
static void both_ways(int *host, int *device, const char *what) {
    for (int i = 0; i < COUNT; i++) host[i] = i;
    run_add(device, 1000);
    CHECK_CUDA(cudaDeviceSynchronize());
    require_all(host, 1000, 1, what);
    for (int round = 0; round < 20; round++) {
        host[round] += 1;
        run_add(device, 1);
        CHECK_CUDA(cudaStreamSynchronize(0));
        REQUIRE(host[round] == 1000 + 2 * round + 2, "%s, round %d: %d", what, round, host[round]);
    }
    for (int i = 0; i < 20; i++) host[i] -= 1;
    cudaEvent_t event;
    CHECK_CUDA(cudaEventCreate(&event));
    run_add(device, -1020);
    CHECK_CUDA(cudaEventRecord(event));
    cudaError_t state;
    while ((state = cudaEventQuery(event)) == cudaErrorNotReady) usleep(100);
    CHECK_CUDA(state);
    require_all(host, 0, 1, what);
    CHECK_CUDA(cudaEventDestroy(event));

    for (int i = 0; i < COUNT; i += 2) host[i] = -i;
    fill_odd<<<(COUNT + 255) / 256, 256>>>(device, COUNT, 7);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < COUNT; i++) {
        int want = i % 2 ? 7 : -i;
        REQUIRE(host[i] == want, "%s, both write: element %d should be %d, is %d", what, i, want, host[i]);
    }
    // Work given to two streams, the host writing between the launches.
    cudaStream_t streams[2];
    for (auto &stream : streams) CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    add<<<1, 256, 0, streams[0]>>>(device, 256, 1);
    host[2000] = 5;
    add<<<1, 256, 0, streams[1]>>>(device + 2000, 256, 1);
    CHECK_LAUNCH();
    for (auto &stream : streams) CHECK_CUDA(cudaStreamSynchronize(stream));
    REQUIRE(host[2000] == 6 && host[0] == 1 && host[1] == 8, "%s, two streams: %d %d %d", what, host[2000], host[0], host[1]);
    for (auto &stream : streams) CHECK_CUDA(cudaStreamDestroy(stream));
}

static void copies(int *host, int *device, const char *what) {
    std::vector<int> plain(COUNT);
    int *other;
    CHECK_CUDA(cudaMalloc(&other, COUNT * sizeof(int)));
    for (int i = 0; i < COUNT; i++) host[i] = i;
    // In stream order: the kernel's result is what is copied, although nobody has waited for it.
    run_add(device, 5);
    CHECK_CUDA(cudaMemcpyAsync(other, host, COUNT * sizeof(int), cudaMemcpyDefault));
    run_add(other, 5);
    CHECK_CUDA(cudaMemcpy(plain.data(), other, COUNT * sizeof(int), cudaMemcpyDeviceToHost));
    require_all(plain.data(), 10, 1, what);
    CHECK_CUDA(cudaMemcpyAsync(host, other, COUNT * sizeof(int), cudaMemcpyDeviceToHost));
    run_add(device, 1);
    CHECK_CUDA(cudaStreamSynchronize(0));
    require_all(host, 11, 1, what);
    for (int i = 0; i < COUNT; i++) plain[i] = 3 * i;
    CHECK_CUDA(cudaMemcpy(host, plain.data(), COUNT * sizeof(int), cudaMemcpyDefault));
    require_all(host, 0, 3, what);
    CHECK_CUDA(cudaMemset(device, 0, COUNT * sizeof(int)));
    require_all(host, 0, 0, what);
    CHECK_CUDA(cudaFree(other));
}

static void CUDART_CB double_all(void *data) {
    int *numbers = static_cast<int *>(data);
    for (int i = 0; i < COUNT; i++) numbers[i] *= 2;
}

int main() {
    const size_t bytes = COUNT * sizeof(int);
    int can_map = 0, unified = 0;
    CHECK_CUDA(cudaDeviceGetAttribute(&can_map, cudaDevAttrCanMapHostMemory, 0));
    CHECK_CUDA(cudaDeviceGetAttribute(&unified, cudaDevAttrUnifiedAddressing, 0));
    REQUIRE(can_map == 1 && unified == 1, "host memory can be mapped: %d, unified addresses: %d", can_map, unified);

    int *host, *device;
    CHECK_CUDA(cudaHostAlloc(&host, bytes, cudaHostAllocMapped));
    CHECK_CUDA(cudaHostGetDevicePointer(&device, host, 0));
    REQUIRE(device == host, "pinned memory at %p has the device pointer %p", (void *)host, (void *)device);
    both_ways(host, device, "mapped memory");
    copies(host, device, "copies of mapped memory");
    int *inside;
    CHECK_CUDA(cudaHostGetDevicePointer(&inside, host + 7, 0));
    REQUIRE(inside == device + 7, "a pointer inside is %p", (void *)inside);

    // Unified addresses: nobody asks for a device pointer.
    int *plain, *result;
    CHECK_CUDA(cudaMallocHost(&plain, bytes));
    CHECK_CUDA(cudaMallocHost(&result, bytes));
    for (int i = 0; i < COUNT; i++) plain[i] = i;
    copy_work<<<1, 128>>>(Work{COUNT, plain, result});
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    require_all(result, 0, 2, "addresses in a structure");
    both_ways(plain, plain, "pinned memory");

    // Nobody asks for a device pointer, and the addresses come in a structure that is copied to the device, from pageable and from
    // pinned memory; one leads to the middle of its memory.
    for (bool is_pinned : {false, true}) {
        int *from, *to;
        CHECK_CUDA(cudaMallocHost(&from, bytes));
        CHECK_CUDA(cudaMallocHost(&to, bytes));
        Work pageable[2], *works = pageable, *stored;
        if (is_pinned) CHECK_CUDA(cudaMallocHost(&works, sizeof pageable));
        works[0] = Work{100, from, to};
        works[1] = Work{COUNT - 100, from + 100, to + 100};
        CHECK_CUDA(cudaMalloc(&stored, sizeof pageable));
        CHECK_CUDA(cudaMemcpyAsync(stored, works, sizeof pageable, cudaMemcpyHostToDevice));
        for (int round = 1; round < 4; round++) {
            for (int i = 0; i < COUNT; i++) from[i] = round + i * round;
            copy_stored_work<<<1, 128>>>(stored, 2);
            CHECK_LAUNCH();
            CHECK_CUDA(cudaDeviceSynchronize());
            require_all(to, 2 * round, 2 * round, is_pinned ? "addresses copied from pinned memory" : "addresses copied from a structure");
        }
        CHECK_CUDA(cudaFree(stored));
        CHECK_CUDA(cudaFreeHost(from));
        CHECK_CUDA(cudaFreeHost(to));
        if (is_pinned) CHECK_CUDA(cudaFreeHost(works));
    }

    // Memsets of pinned memory that no kernel has had.
    unsigned char *filled, *waited;
    CHECK_CUDA(cudaMallocHost(&filled, 4096));
    CHECK_CUDA(cudaMallocHost(&waited, 4096));
    CHECK_CUDA(cudaMemsetAsync(filled, 5, 4096));
    CHECK_CUDA(cudaMemset(waited, 6, 4096));
    CHECK_CUDA(cudaStreamSynchronize(0));
    REQUIRE(filled[0] == 5 && filled[4095] == 5 && waited[4095] == 6, "memsets left %d, %d, %d", filled[0], filled[4095], waited[4095]);
    CHECK_CUDA(cudaFreeHost(filled));
    CHECK_CUDA(cudaFreeHost(waited));

    // A host function between two kernels.
    for (int i = 0; i < COUNT; i++) plain[i] = i;
    run_add(plain, 1);
    CHECK_CUDA(cudaLaunchHostFunc(0, double_all, plain));
    run_add(plain, 1);
    CHECK_CUDA(cudaDeviceSynchronize());
    require_all(plain, 3, 2, "a host function between kernels");

    // A captured kernel finds at each launch what the host has written before it.
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    run_add(plain, 1, stream);
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < COUNT; i++) plain[i] = round * i;
        CHECK_CUDA(cudaGraphLaunch(exec, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        require_all(plain, 1, round, "a graph");
    }
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaGraphDestroy(graph));
    first_uses(stream);
    CHECK_CUDA(cudaStreamDestroy(stream));

    // Registered memory has a device pointer of its own; not at the beginning of a page, to make it harder.
    size_t area = bytes + 8192;
    char *mapping = static_cast<char *>(mmap(nullptr, area, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(mapping != MAP_FAILED, "mmap failed");
    int *registered = reinterpret_cast<int *>(mapping + 256);
    CHECK_CUDA(cudaHostRegister(registered, bytes, cudaHostRegisterMapped));
    CHECK_CUDA(cudaHostGetDevicePointer(&device, registered, 0));
    both_ways(registered, device, "registered memory");
    copies(registered, device, "copies of registered memory");
    cudaPointerAttributes attributes;
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, registered + 3));
    REQUIRE(attributes.type == cudaMemoryTypeHost && attributes.devicePointer == device + 3, "registered memory has the device pointer %p",
            attributes.devicePointer);
    CHECK_CUDA(cudaHostUnregister(registered));
    EXPECT_CUDA(cudaHostUnregister(registered), cudaErrorHostMemoryNotRegistered);
    EXPECT_CUDA(cudaHostGetDevicePointer(&device, registered, 0), cudaErrorInvalidValue);
    CHECK_CUDA(cudaHostRegister(registered, bytes, cudaHostRegisterDefault));
    EXPECT_CUDA(cudaHostRegister(registered, bytes, cudaHostRegisterDefault), cudaErrorHostMemoryAlreadyRegistered);
    CHECK_CUDA(cudaHostUnregister(registered));
    munmap(mapping, area);

    // Much memory, of which little changes.
    const size_t many = (size_t(64) << 20) / sizeof(int);
    int *large;
    CHECK_CUDA(cudaHostAlloc(&large, many * sizeof(int), cudaHostAllocMapped));
    for (size_t i = 0; i < many; i++) large[i] = int(i);
    copy_work<<<1, 128>>>(Work{COUNT, large + many - COUNT, large});
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < COUNT; i++) REQUIRE(large[i] == 2 * int(many - COUNT + i), "large: element %d is %d", i, large[i]);
    CHECK_CUDA(cudaFreeHost(large));

    CHECK_CUDA(cudaFreeHost(result));
    CHECK_CUDA(cudaFreeHost(plain));
    CHECK_CUDA(cudaFreeHost(host));
    EXPECT_CUDA(cudaHostGetDevicePointer(&device, host, 0), cudaErrorInvalidValue);
    return pass();
}

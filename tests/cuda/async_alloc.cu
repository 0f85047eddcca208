// Stream-ordered allocation: memory that is allocated, used and freed in the order of a stream, from the device's own pool and
// from one that the program makes.
#include "check.h"

#include <cstring>
#include <vector>

constexpr int COUNT = 5'000;

__global__ void fill(int *data, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) data[i] = value + i;
}

__global__ void add(int *to, const int *from) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) to[i] += from[i];
}

constexpr int GRID = (COUNT + 127) / 128;
constexpr size_t BYTES = COUNT * sizeof(int);

static void require_total(const int *device, int scale, int offset, const char *what) {
    std::vector<int> total(COUNT);
    CHECK_CUDA(cudaMemcpy(total.data(), device, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        REQUIRE(total[i] == scale * i + offset, "%s: element %d should be %d, is %d", what, i, scale * i + offset, total[i]);
}

// Many allocations that live for two kernels each, on two streams; the second waits for the first by an event.
static void check_streams(int *total) {
    cudaStream_t first, second;
    cudaEvent_t filled;
    CHECK_CUDA(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming));
    CHECK_CUDA(cudaMemset(total, 0, BYTES));
    CHECK_CUDA(cudaDeviceSynchronize());
    const int rounds = 100;
    for (int round = 0; round < rounds; round++) {
        int *temporary;
        CHECK_CUDA(cudaMallocAsync(&temporary, BYTES, first));
        fill<<<GRID, 128, 0, first>>>(temporary, round);
        CHECK_CUDA(cudaEventRecord(filled, first));
        CHECK_CUDA(cudaStreamWaitEvent(second, filled, 0));
        add<<<GRID, 128, 0, second>>>(total, temporary);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaFreeAsync(temporary, second));
    }
    CHECK_CUDA(cudaStreamSynchronize(second));
    require_total(total, rounds, rounds * (rounds - 1) / 2, "two streams");
    CHECK_CUDA(cudaEventDestroy(filled));
    CHECK_CUDA(cudaStreamDestroy(first));
    CHECK_CUDA(cudaStreamDestroy(second));
}

static void check_pool(int *total) {
    cudaMemPoolProps properties;
    memset(&properties, 0, sizeof(properties));
    properties.allocType = cudaMemAllocationTypePinned;
    properties.handleTypes = cudaMemHandleTypeNone;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = 0;
    cudaMemPool_t pool, current;
    CHECK_CUDA(cudaMemPoolCreate(&pool, &properties));
    unsigned long long threshold = ~0ull, used = 0;
    CHECK_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    threshold = 0;
    CHECK_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    REQUIRE(threshold == ~0ull, "the release threshold is %llu", threshold);

    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    int *a, *b;
    CHECK_CUDA(cudaMallocFromPoolAsync(&a, BYTES, pool, stream));
    CHECK_CUDA(cudaDeviceSetMemPool(0, pool));
    CHECK_CUDA(cudaDeviceGetMemPool(&current, 0));
    REQUIRE(current == pool, "the device's pool was not changed");
    CHECK_CUDA(cudaMallocAsync(&b, BYTES, stream));
    REQUIRE(a != b, "two allocations got the same address");
    fill<<<GRID, 128, 0, stream>>>(a, 5);
    fill<<<GRID, 128, 0, stream>>>(b, 7);
    add<<<GRID, 128, 0, stream>>>(b, a);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpyAsync(total, b, BYTES, cudaMemcpyDeviceToDevice, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    REQUIRE(used >= 2 * BYTES, "two allocations of %zu bytes use %llu bytes of the pool", BYTES, used);
    CHECK_CUDA(cudaFreeAsync(a, stream));
    CHECK_CUDA(cudaFreeAsync(b, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    REQUIRE(used == 0, "after both were freed %llu bytes of the pool are in use", used);
    CHECK_CUDA(cudaMemPoolTrimTo(pool, 0));
    require_total(total, 2, 12, "from a pool");

    cudaMemPool_t standard;
    CHECK_CUDA(cudaDeviceGetDefaultMemPool(&standard, 0));
    CHECK_CUDA(cudaDeviceSetMemPool(0, standard));
    CHECK_CUDA(cudaMemPoolDestroy(pool));
    CHECK_CUDA(cudaStreamDestroy(stream));
}

int main() {
    int supported = 0;
    CHECK_CUDA(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
    REQUIRE(supported, "the device says that it has no memory pools");
    int *total;
    CHECK_CUDA(cudaMalloc(&total, BYTES));
    check_streams(total);
    check_pool(total);
    // Memory of the stream-ordered allocator may also be freed by cudaFree.
    int *mixed;
    CHECK_CUDA(cudaMallocAsync(&mixed, BYTES, 0));
    fill<<<GRID, 128>>>(mixed, 1);
    CHECK_LAUNCH();
    require_total(mixed, 1, 1, "the default stream");
    CHECK_CUDA(cudaFree(mixed));
    CHECK_CUDA(cudaFree(total));
    return pass();
}

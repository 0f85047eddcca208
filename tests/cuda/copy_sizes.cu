// Copies of every size around which an implementation may change its way, at odd addresses, from and to ordinary, pinned and registered
// memory, with and without waiting; without, other bytes are on their way to the same place before them.  Each direction is checked for
// itself, by a kernel and by the CPU, and nothing beside the destination may change.
#include "check.h"

#include <vector>

constexpr size_t KIB = 1024, MIB = 1024 * KIB;
constexpr size_t MAX_COPY = 32 * MIB + 1;
constexpr size_t MARGIN = 64;                    // bytes that are looked at on either side of a destination
constexpr size_t ROOM = MAX_COPY + 3 * MARGIN;    // the largest copy, its margins and an odd offset
constexpr uint8_t UNTOUCHED = 0xa5;
constexpr size_t CHUNK = 128;                    // bytes a thread of a kernel looks at

constexpr uint32_t EARLIER = 1'000'000;          // what the seed of an earlier copy to the same place has more

enum Host { PAGEABLE, PINNED, REGISTERED };
static const char *const HOST_NAMES[] = {"pageable", "pinned", "registered"};

// The byte at `index` of the data that belongs to `seed`.
__host__ __device__ inline uint8_t pattern(size_t index, uint32_t seed) {
    return uint8_t(((uint32_t(index) + seed) * 2654435761u) >> 24);
}

__global__ void write_pattern(uint8_t *bytes, size_t size, uint32_t seed) {
    size_t first = (blockIdx.x * size_t(blockDim.x) + threadIdx.x) * CHUNK;
    for (size_t i = first; i < first + CHUNK && i < size; i++) bytes[i] = pattern(i, seed);
}

// The byte at `index` of a margin, a destination of `size` bytes, and a margin.
__host__ __device__ inline uint8_t expected(size_t index, size_t size, uint32_t seed) {
    return index < MARGIN || index >= MARGIN + size ? UNTOUCHED : pattern(index - MARGIN, seed);
}

// The lowest place, counted from the margin on, at which a byte is not as expected.
__global__ void find_wrong_byte(const uint8_t *margin, size_t size, uint32_t seed, unsigned long long *wrong) {
    size_t first = (blockIdx.x * size_t(blockDim.x) + threadIdx.x) * CHUNK;
    for (size_t i = first; i < first + CHUNK && i < size + 2 * MARGIN; i++)
        if (margin[i] != expected(i, size, seed)) atomicMin(wrong, (unsigned long long)i);
}

static unsigned blocks_for(size_t size) { return unsigned((size / CHUNK + 64) / 64); }

struct Buffers {
    uint8_t *device, *host;
    unsigned long long *wrong;
};

static void check_to_device(const Buffers &buffers, Host kind, size_t size, size_t host_at, size_t device_at, bool async, uint32_t seed) {
    uint8_t *from = buffers.host + MARGIN + host_at, *to = buffers.device + MARGIN + device_at;
    for (size_t i = 0; i < size; i++) from[i] = pattern(i, seed);
    CHECK_CUDA(cudaMemset(to - MARGIN, UNTOUCHED, size + 2 * MARGIN));
    if (async) {
        if (kind == PAGEABLE) {
            for (size_t i = 0; i < size; i++) from[i] = pattern(i, seed + EARLIER);
            CHECK_CUDA(cudaMemcpyAsync(to, from, size, cudaMemcpyHostToDevice, cudaStreamPerThread));
            for (size_t i = 0; i < size; i++) from[i] = pattern(i, seed);
        } else {
            // The same bytes, but each at the place behind its own.
            CHECK_CUDA(cudaMemcpyAsync(to, from - 1, size, cudaMemcpyHostToDevice, cudaStreamPerThread));
        }
        CHECK_CUDA(cudaMemcpyAsync(to, from, size, cudaMemcpyHostToDevice, cudaStreamPerThread));
        // The call has taken what it needs from ordinary memory.
        if (kind == PAGEABLE) memset(from, 0, size);
        CHECK_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
    } else {
        CHECK_CUDA(cudaMemcpy(to, from, size, cudaMemcpyHostToDevice));
        memset(from, 0, size);
    }
    unsigned long long wrong = ~0ull;
    CHECK_CUDA(cudaMemcpy(buffers.wrong, &wrong, sizeof(wrong), cudaMemcpyHostToDevice));
    find_wrong_byte<<<blocks_for(size + 2 * MARGIN), 64>>>(to - MARGIN, size, seed, buffers.wrong);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(&wrong, buffers.wrong, sizeof(wrong), cudaMemcpyDeviceToHost));
    REQUIRE(wrong == ~0ull, "%zu bytes to the device from %s memory, offsets %zu and %zu%s: byte %lld is wrong", size, HOST_NAMES[kind],
            host_at, device_at, async ? ", asynchronous" : "", (long long)wrong - (long long)MARGIN);
}

static void check_from_device(const Buffers &buffers, Host kind, size_t size, size_t host_at, size_t device_at, bool async, uint32_t seed) {
    uint8_t *to = buffers.host + MARGIN + host_at, *from = buffers.device + MARGIN + device_at;
    memset(to - MARGIN, UNTOUCHED, size + 2 * MARGIN);
    if (async) {
        write_pattern<<<blocks_for(size), 64, 0, cudaStreamPerThread>>>(from, size, seed + EARLIER);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToHost, cudaStreamPerThread));
    }
    write_pattern<<<blocks_for(size), 64, 0, cudaStreamPerThread>>>(from, size, seed);
    CHECK_LAUNCH();
    if (async) {
        CHECK_CUDA(cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToHost, cudaStreamPerThread));
        // A copy into ordinary memory is complete when the call returns.
        if (kind != PAGEABLE) CHECK_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
    } else {
        CHECK_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
        CHECK_CUDA(cudaMemcpy(to, from, size, cudaMemcpyDeviceToHost));
    }
    const uint8_t *margin = to - MARGIN;
    for (size_t i = 0; i < size + 2 * MARGIN; i++) {
        uint8_t want = expected(i, size, seed), got = margin[i];
        bool is_earlier = async && got == expected(i, size, seed + EARLIER);
        REQUIRE(got == want, "%zu bytes from the device to %s memory, offsets %zu and %zu%s: byte %lld should be %d, came out as %d%s",
                size, HOST_NAMES[kind], host_at, device_at, async ? ", asynchronous" : "", (long long)i - (long long)MARGIN, want, got,
                is_earlier ? ", as in the copy before" : "");
    }
}

int main() {
    std::vector<size_t> sizes = {0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 4 * KIB - 1, 4 * KIB, 4 * KIB + 1};
    for (size_t boundary : {64 * KIB, 256 * KIB, 1 * MIB, 8 * MIB})
        for (size_t size : {boundary - 1, boundary, boundary + 1}) sizes.push_back(size);
    sizes.push_back(MAX_COPY);

    std::vector<uint8_t> pageable(ROOM), registered(ROOM);
    uint8_t *pinned, *device;
    unsigned long long *wrong;
    CHECK_CUDA(cudaMallocHost(&pinned, ROOM));
    CHECK_CUDA(cudaHostRegister(registered.data(), ROOM, cudaHostRegisterDefault));
    CHECK_CUDA(cudaMalloc(&device, ROOM));
    CHECK_CUDA(cudaMalloc(&wrong, sizeof(*wrong)));

    uint32_t seed = 1;
    uint8_t *const hosts[] = {pageable.data(), pinned, registered.data()};
    const size_t offsets[][2] = {{0, 0}, {1, 0}, {0, 3}, {7, 5}};
    for (Host kind : {PAGEABLE, PINNED, REGISTERED})
        for (size_t size : sizes)
            for (const size_t *offset : offsets) {
                // Long copies at one pair of odd offsets only, for time.
                if (size > 2 * MIB && offset != offsets[3]) continue;
                const Buffers buffers = {device, hosts[kind], wrong};
                for (bool async : {false, true}) {
                    if (size == MAX_COPY && async) continue;
                    check_to_device(buffers, kind, size, offset[0], offset[1], async, seed++);
                    check_from_device(buffers, kind, size, offset[0], offset[1], async, seed++);
                }
            }

    CHECK_CUDA(cudaHostUnregister(registered.data()));
    CHECK_CUDA(cudaFreeHost(pinned));
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFree(wrong));
    return pass();
}

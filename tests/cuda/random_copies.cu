// Copies of random sizes at random places in random directions, several under way at a time, each one checked byte by byte.
//
// random_copies [seed] [copies] [largest, KiB]
#include "check.h"

#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

constexpr int STREAMS = 4;

static uint8_t pattern(size_t index, uint32_t seed) { return uint8_t(((uint32_t(index) + seed) * 2654435761u) >> 24); }

// A round trip of one copy: from host memory to the device and, in the same stream, back to another place.
struct Copy {
    size_t bytes;
    uint8_t *from, *device, *back;
    uint32_t seed;
};

int main(int argc, char **argv) {
    uint32_t seed = argc > 1 ? strtoul(argv[1], nullptr, 10) : 1;
    int copies = argc > 2 ? atoi(argv[2]) : 100;
    size_t largest = (argc > 3 ? strtoul(argv[3], nullptr, 10) : 2048) << 10;
    std::mt19937 random(seed);
    auto below = [&](size_t limit) { return size_t(random()) % limit; };

    // Each stream has room for its own copy, of pageable or pinned memory by turns.
    size_t room = 2 * largest;
    std::vector<uint8_t> pageable(2 * STREAMS * room);
    uint8_t *pinned, *device;
    CHECK_CUDA(cudaMallocHost(&pinned, 2 * STREAMS * room));
    CHECK_CUDA(cudaMalloc(&device, STREAMS * room));
    cudaStream_t streams[STREAMS];
    for (auto &stream : streams) CHECK_CUDA(cudaStreamCreate(&stream));

    for (int begun = 0; begun < copies; begun += STREAMS) {
        Copy under_way[STREAMS];
        for (int i = 0; i < STREAMS; i++) {
            Copy &copy = under_way[i];
            // Every magnitude as likely as any other.
            size_t magnitude = size_t(1) << below(32);
            copy.bytes = 1 + below(magnitude < largest ? magnitude : largest);
            uint8_t *host = (below(2) ? pinned : pageable.data()) + 2 * i * room;
            copy.from = host + below(room - copy.bytes);
            copy.back = host + room + below(room - copy.bytes);
            copy.device = device + i * room + below(room - copy.bytes);
            copy.seed = random();
            for (size_t at = 0; at < copy.bytes; at++) copy.from[at] = pattern(at, copy.seed);
            CHECK_CUDA(cudaMemcpyAsync(copy.device, copy.from, copy.bytes, cudaMemcpyHostToDevice, streams[i]));
            CHECK_CUDA(cudaMemcpyAsync(copy.back, copy.device, copy.bytes, cudaMemcpyDeviceToHost, streams[i]));
        }
        for (int i = 0; i < STREAMS; i++) {
            CHECK_CUDA(cudaStreamSynchronize(streams[i]));
            const Copy &copy = under_way[i];
            for (size_t at = 0; at < copy.bytes; at++)
                REQUIRE(copy.back[at] == pattern(at, copy.seed), "seed %u, copy %d: byte %zu of %zu is wrong", seed, begun + i, at, copy.bytes);
        }
    }
    for (auto &stream : streams) CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFreeHost(pinned));
    return pass();
}

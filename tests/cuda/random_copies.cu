// Copies of random sizes at random places in random directions, several under way at a time, also to the same host memory. Every byte is
// checked: where copies overlap, it is that of the last one.
//
// random_copies [seed] [copies] [largest, KiB]
#include "check.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

constexpr int STREAMS = 4;
constexpr int TURNS = 3;  // round trips of a stream before it is waited for

static uint8_t pattern(size_t index, uint32_t seed) { return uint8_t(((uint32_t(index) + seed) * 2654435761u) >> 24); }

// A round trip of one copy: from host memory to the device and, in the same stream, back to another place, at once or behind the others.
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

    // Each stream has room for the sources of its copies and one for what comes back, of pageable or pinned memory by turns.
    size_t room = 2 * largest, rooms = TURNS + 1;
    std::vector<uint8_t> pageable(STREAMS * rooms * room), expected(room);
    uint8_t *pinned, *device;
    CHECK_CUDA(cudaMallocHost(&pinned, STREAMS * rooms * room));
    CHECK_CUDA(cudaMalloc(&device, STREAMS * TURNS * room));
    cudaStream_t streams[STREAMS];
    for (auto &stream : streams) CHECK_CUDA(cudaStreamCreate(&stream));

    for (int begun = 0; begun < copies; begun += STREAMS * TURNS) {
        Copy under_way[STREAMS * TURNS];
        uint8_t *hosts[STREAMS];
        const bool is_back_at_once = below(2);
        auto bring_back = [&](int n) {
            const Copy &copy = under_way[n];
            CHECK_CUDA(cudaMemcpyAsync(copy.back, copy.device, copy.bytes, cudaMemcpyDeviceToHost, streams[n % STREAMS]));
        };
        for (uint8_t *&host : hosts) host = below(2) ? pinned : pageable.data();
        for (int n = 0; n < STREAMS * TURNS; n++) {
            // The streams by turns; what a stream brings back goes to the same room each time.
            const int i = n % STREAMS, turn = n / STREAMS;
            Copy &copy = under_way[n];
            // Every magnitude as likely as any other.
            size_t magnitude = size_t(1) << below(32);
            copy.bytes = 1 + below(magnitude < largest ? magnitude : largest);
            uint8_t *host = hosts[i] + i * rooms * room;
            copy.from = host + turn * room + below(room - copy.bytes);
            // Most of what comes back overlaps what came before it: nearer places are as likely as farther ones.
            copy.back = host + TURNS * room + below(std::min(size_t(1) << below(32), room - copy.bytes));
            copy.device = device + n * room + below(room - copy.bytes);
            copy.seed = random();
            for (size_t at = 0; at < copy.bytes; at++) copy.from[at] = pattern(at, copy.seed);
            CHECK_CUDA(cudaMemcpyAsync(copy.device, copy.from, copy.bytes, cudaMemcpyHostToDevice, streams[i]));
            if (is_back_at_once) bring_back(n);
        }
        for (int n = 0; n < STREAMS * TURNS && !is_back_at_once; n++) bring_back(n);
        for (int i = 0; i < STREAMS; i++) {
            CHECK_CUDA(cudaStreamSynchronize(streams[i]));
            const uint8_t *back = hosts[i] + (i * rooms + TURNS) * room;
            for (int n = i; n < STREAMS * TURNS; n += STREAMS)
                for (size_t at = 0; at < under_way[n].bytes; at++) expected[under_way[n].back - back + at] = pattern(at, under_way[n].seed);
            for (int n = i; n < STREAMS * TURNS; n += STREAMS) {
                const Copy &copy = under_way[n];
                for (size_t at = 0; at < copy.bytes; at++) {
                    const uint8_t want = expected[copy.back - back + at];
                    REQUIRE(copy.back[at] == want, "seed %u, copy %d, turn %d of its stream: byte %zu of %zu should be %d, is %d", seed,
                            begun + n, n / STREAMS, at, copy.bytes, want, copy.back[at]);
                }
            }
        }
    }
    for (auto &stream : streams) CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFreeHost(pinned));
    return pass();
}

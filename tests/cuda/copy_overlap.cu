// Asynchronous copies of one, two and three dimensions in several streams at once, beside kernels and beside each other: from and to
// pinned memory with nothing waited for until the end, from ordinary memory that is written to again as soon as a call returns, and
// from several threads.  Every byte that arrives is checked, and every byte beside it.
#include "check.h"

#include <deque>
#include <string>
#include <thread>
#include <vector>

constexpr int STREAMS = 4;
constexpr int ROUNDS = 3;
constexpr uint8_t UNTOUCHED = 0x5a;

// A box of bytes in a larger volume whose rows are `pitch` bytes apart and whose planes have `rows` rows.
struct Box {
    int dimensions;
    size_t width, height, depth, pitch, rows, offset;

    size_t volume() const { return offset + pitch * rows * depth; }
    __host__ __device__ size_t at(size_t x, size_t y, size_t z) const { return offset + x + pitch * (y + rows * z); }
};

// One of each kind of copy, on either side of the sizes at which an implementation may change its way.
static const Box BOXES[] = {
    {1, 50'001, 1, 1, 50'001, 1, 3},
    {1, 1'300'003, 1, 1, 1'300'003, 1, 1},
    {2, 1'001, 61, 1, 1'203, 61, 5},
    {2, 4'097, 251, 1, 4'111, 251, 2},
    {3, 33, 20, 30, 41, 23, 7},
    {3, 513, 45, 37, 517, 47, 0},
};

__host__ __device__ inline uint8_t pattern(size_t index, uint32_t seed) {
    return uint8_t(((uint32_t(index) + seed) * 2654435761u) >> 24);
}

// Keeps a stream busy for a while, so that what follows in it is queued.
__global__ void keep_busy(uint32_t *sink, int turns) {
    uint32_t state = threadIdx.x;
    for (int i = 0; i < turns; i++) state = state * 1664525u + 1013904223u;
    sink[threadIdx.x] = state;
}

// Adds 1 to every byte of the box: a thread for every 64 bytes of a row.
__global__ void add_one(uint8_t *bytes, Box box) {
    size_t first = (blockIdx.x * size_t(blockDim.x) + threadIdx.x) * 64;
    for (size_t x = first; x < first + 64 && x < box.width; x++) bytes[box.at(x, blockIdx.y, blockIdx.z)]++;
}

static void copy(uint8_t *to, const uint8_t *from, const Box &box, cudaMemcpyKind kind, cudaStream_t stream) {
    if (box.dimensions == 1) {
        CHECK_CUDA(cudaMemcpyAsync(to + box.offset, from + box.offset, box.width, kind, stream));
    } else if (box.dimensions == 2) {
        CHECK_CUDA(cudaMemcpy2DAsync(to + box.offset, box.pitch, from + box.offset, box.pitch, box.width, box.height, kind, stream));
    } else {
        cudaMemcpy3DParms parameters = {};
        parameters.srcPtr = make_cudaPitchedPtr(const_cast<uint8_t *>(from) + box.offset, box.pitch, box.width, box.rows);
        parameters.dstPtr = make_cudaPitchedPtr(to + box.offset, box.pitch, box.width, box.rows);
        parameters.extent = make_cudaExtent(box.width, box.height, box.depth);
        parameters.kind = kind;
        CHECK_CUDA(cudaMemcpy3DAsync(&parameters, stream));
    }
}

static void launch_add_one(uint8_t *device, const Box &box, cudaStream_t stream) {
    add_one<<<dim3(unsigned((box.width + 64 * 64 - 1) / (64 * 64)), box.height, box.depth), 64, 0, stream>>>(device, box);
    CHECK_LAUNCH();
}

static void fill(uint8_t *host, const Box &box, uint32_t seed) {
    for (size_t i = 0; i < box.volume(); i++) host[i] = pattern(i, seed);
}

// What came back is the data of `seed` with 1 added inside of the box, and nothing outside of it.
static void check(const char *what, const uint8_t *host, const Box &box, uint32_t seed) {
    std::vector<uint8_t> want(box.volume(), UNTOUCHED);
    for (size_t z = 0; z < box.depth; z++)
        for (size_t y = 0; y < box.height; y++)
            for (size_t x = 0; x < box.width; x++) want[box.at(x, y, z)] = uint8_t(pattern(box.at(x, y, z), seed) + 1);
    for (size_t i = 0; i < box.volume(); i++)
        REQUIRE(host[i] == want[i], "%s, box of %zu x %zu x %zu bytes: byte %zu should be %d, came out as %d", what, box.width, box.height,
                box.depth, i, want[i], host[i]);
}

// A stream with memory on the device for each round.
struct Lane {
    cudaStream_t stream;
    uint8_t *device[ROUNDS];
    uint32_t *sink;

    explicit Lane(size_t volume) {
        CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (uint8_t *&memory : device) CHECK_CUDA(cudaMalloc(&memory, volume));
        CHECK_CUDA(cudaMalloc(&sink, 64 * sizeof(uint32_t)));
    }
    ~Lane() {
        CHECK_CUDA(cudaStreamDestroy(stream));
        for (uint8_t *memory : device) CHECK_CUDA(cudaFree(memory));
        CHECK_CUDA(cudaFree(sink));
    }
    Lane(const Lane &) = delete;
    Lane &operator=(const Lane &) = delete;

    void occupy() const {
        keep_busy<<<1, 64, 0, stream>>>(sink, 20'000);
        CHECK_LAUNCH();
    }
};

static uint32_t seed_of(int stream, int round) { return 1 + stream * 1000 + round * 77; }

// Everything is in flight at once; nothing is waited for before the last call was made.  To each place there go other bytes first: to the
// device those of the next round, and back what is there before the kernel.
static void pinned_copies(const Box &box) {
    std::deque<Lane> lanes;
    for (int s = 0; s < STREAMS; s++) lanes.emplace_back(box.volume());
    uint8_t *in[STREAMS][ROUNDS], *out[STREAMS][ROUNDS];
    for (int s = 0; s < STREAMS; s++)
        for (int round = 0; round < ROUNDS; round++) {
            CHECK_CUDA(cudaMallocHost(&in[s][round], box.volume()));
            CHECK_CUDA(cudaMallocHost(&out[s][round], box.volume()));
            fill(in[s][round], box, seed_of(s, round));
            memset(out[s][round], UNTOUCHED, box.volume());
        }
    for (int round = 0; round < ROUNDS; round++)
        for (int s = 0; s < STREAMS; s++) {
            if (round == 0) lanes[s].occupy();
            copy(lanes[s].device[round], in[s][(round + 1) % ROUNDS], box, cudaMemcpyHostToDevice, lanes[s].stream);
            copy(lanes[s].device[round], in[s][round], box, cudaMemcpyHostToDevice, lanes[s].stream);
            copy(out[s][round], lanes[s].device[round], box, cudaMemcpyDeviceToHost, lanes[s].stream);
            launch_add_one(lanes[s].device[round], box, lanes[s].stream);
            copy(out[s][round], lanes[s].device[round], box, cudaMemcpyDeviceToHost, lanes[s].stream);
        }
    for (int s = STREAMS - 1; s >= 0; s--) {
        CHECK_CUDA(cudaStreamSynchronize(lanes[s].stream));
        for (int round = 0; round < ROUNDS; round++) {
            const std::string what = "pinned memory, round " + std::to_string(round) + " of stream " + std::to_string(s);
            check(what.c_str(), out[s][round], box, seed_of(s, round));
        }
    }
    for (int s = 0; s < STREAMS; s++)
        for (int round = 0; round < ROUNDS; round++) {
            CHECK_CUDA(cudaFreeHost(in[s][round]));
            CHECK_CUDA(cudaFreeHost(out[s][round]));
        }
}

// All streams take their data from one buffer, which is written to again as soon as a call has returned.
static void pageable_copies(const char *what, const Box &box, int streams) {
    std::deque<Lane> lanes;
    for (int s = 0; s < streams; s++) lanes.emplace_back(box.volume());
    std::vector<uint8_t> host(box.volume());
    for (int round = 0; round < ROUNDS; round++)
        for (int s = 0; s < streams; s++) {
            if (round == 0) lanes[s].occupy();
            fill(host.data(), box, seed_of(s, round));
            copy(lanes[s].device[round], host.data(), box, cudaMemcpyHostToDevice, lanes[s].stream);
            memset(host.data(), 0xee, box.volume());
            launch_add_one(lanes[s].device[round], box, lanes[s].stream);
        }
    for (int round = 0; round < ROUNDS; round++)
        for (int s = 0; s < streams; s++) {
            memset(host.data(), UNTOUCHED, box.volume());
            copy(host.data(), lanes[s].device[round], box, cudaMemcpyDeviceToHost, lanes[s].stream);
            // A copy into ordinary memory is complete when the call returns.
            check(what, host.data(), box, seed_of(s, round));
        }
}

int main() {
    for (const Box &box : BOXES) {
        pinned_copies(box);
        pageable_copies("ordinary memory", box, STREAMS);
    }
    std::vector<std::thread> threads;
    for (const Box &box : BOXES) threads.emplace_back([&box] { pageable_copies("ordinary memory, several threads", box, 1); });
    for (std::thread &thread : threads) thread.join();
    return pass();
}

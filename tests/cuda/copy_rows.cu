// Rows of asynchronous copies of pinned memory, longer than the processor's caches, in two streams at once, with nothing waited for
// until the end of a row: an implementation may carry a copy by another way when others stand before it.  Each repetition first brings
// back what the one before it left on the device, to where its own words come behind.  Every word is checked.
//
// copy_rows [MiB of a row] [repetitions]
#include "check.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

constexpr size_t KIB = 1 << 10;
constexpr int STREAMS = 2;

// Lengths of the copies of a row, over and over: on either side of the sizes at which an implementation may change its way, and some that
// end within a page.
static const size_t LENGTHS[] = {16384 * KIB, 4096 * KIB + 8, 12288 * KIB - 8, 64 * KIB, 24576 * KIB + 4104, 1024 * KIB, 5120 * KIB};

// Different for every word and every repetition, so that bytes of another place or time are noticed.
static uint64_t word(size_t index, int repetition) { return (index + 1) * 0x9e3779b97f4a7c15u + repetition; }

struct Part {
    size_t start, length;
};

static std::vector<Part> parts(size_t bytes) {
    std::vector<Part> parts;
    for (size_t start = 0, i = 0; start < bytes; start += parts.back().length, i++)
        parts.push_back({start, std::min(LENGTHS[i % (sizeof LENGTHS / sizeof *LENGTHS)], bytes - start)});
    return parts;
}

int main(int argc, char **argv) {
    size_t bytes = (argc > 1 ? strtoul(argv[1], nullptr, 10) : 192) << 20;
    int repetitions = argc > 2 ? atoi(argv[2]) : 2;
    size_t count = bytes / sizeof(uint64_t);
    uint64_t *source, *back;
    char *device;
    CHECK_CUDA(cudaMallocHost(&source, bytes));
    CHECK_CUDA(cudaMallocHost(&back, bytes));
    CHECK_CUDA(cudaMalloc(&device, bytes));
    CHECK_CUDA(cudaMemset(device, 0xff, bytes));
    CHECK_CUDA(cudaDeviceSynchronize());
    cudaStream_t streams[STREAMS];
    for (cudaStream_t &stream : streams) CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::vector<Part> row = parts(bytes);
    for (int repetition = 0; repetition < repetitions; repetition++) {
        for (size_t i = 0; i < count; i++) source[i] = word(i, repetition);
        std::fill(back, back + count, 0);
        auto bring_back = [&] {
            for (size_t i = 0; i < row.size(); i++) {
                char *to = (char *)back + row[i].start;
                CHECK_CUDA(cudaMemcpyAsync(to, device + row[i].start, row[i].length, cudaMemcpyDeviceToHost, streams[i % STREAMS]));
            }
        };
        bring_back();
        for (size_t i = 0; i < row.size(); i++) {
            char *from = (char *)source + row[i].start;
            CHECK_CUDA(cudaMemcpyAsync(device + row[i].start, from, row[i].length, cudaMemcpyHostToDevice, streams[i % STREAMS]));
        }
        bring_back();
        for (cudaStream_t stream : streams) CHECK_CUDA(cudaStreamSynchronize(stream));
        for (size_t i = 0; i < count; i++)
            REQUIRE(back[i] == word(i, repetition), "repetition %d, word %zu of %zu: %llx, which is of repetition %lld", repetition, i,
                    count, (long long)back[i], (long long)(back[i] - word(i, 0)));
    }
    for (cudaStream_t stream : streams) CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFreeHost(back));
    CHECK_CUDA(cudaFreeHost(source));
    return pass();
}

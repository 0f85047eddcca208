// Uploads the same data several times, changed here and there in between, and looks at what is on the device each time: for
// clients that spare themselves what the server has already.
//
// upload_again [MiB] [seed]
#include "check.h"

#include <cstdlib>
#include <vector>

static const size_t word_bytes = sizeof(uint64_t);

static void must_be_there(const void *device, const std::vector<uint64_t> &source, const char *when) {
    std::vector<uint64_t> back(source.size());
    CHECK_CUDA(cudaMemcpy(back.data(), device, back.size() * word_bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < source.size(); i++)
        REQUIRE(back[i] == source[i], "%s: word %zu is %llx", when, i, (long long)back[i]);
}

int main(int argc, char **argv) {
    size_t bytes = (argc > 1 ? strtoul(argv[1], nullptr, 10) : 32) << 20;
    uint64_t seed = argc > 2 ? strtoull(argv[2], nullptr, 10) : 1;
    std::vector<uint64_t> source(bytes / word_bytes);
    for (size_t i = 0; i < source.size(); i++) source[i] = (i + 1 + (seed << 40)) * 0x9e3779b97f4a7c15u;
    uint64_t *first, *second;
    CHECK_CUDA(cudaMalloc(&first, bytes));
    CHECK_CUDA(cudaMalloc(&second, bytes));
    auto upload = [&](void *to) { CHECK_CUDA(cudaMemcpy(to, source.data(), bytes, cudaMemcpyHostToDevice)); };
    upload(first);
    must_be_there(first, source, "new data");
    upload(second);
    must_be_there(second, source, "the same data at another place");
    // The program may change its memory as soon as a copy has returned.
    upload(first);
    source[source.size() / 2] ^= 1;
    upload(second);
    must_be_there(second, source, "data with one changed bit");
    source[source.size() / 2] ^= 1;
    must_be_there(first, source, "what was uploaded before the change");
    // Pieces that end in the middle, and one behind the other in a stream.
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaMemsetAsync(second, 0, bytes, stream));
    size_t part = bytes - 5 * word_bytes;
    CHECK_CUDA(cudaMemcpyAsync(second, source.data(), part, cudaMemcpyHostToDevice, stream));
    source[0] = 7;
    CHECK_CUDA(cudaMemcpyAsync(second, source.data(), 2 << 20, cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    for (size_t i = source.size() - 5; i < source.size(); i++) source[i] = 0;
    must_be_there(second, source, "copies in a stream");
    return pass();
}

// Managed memory of many megabytes: host and device change long and short stretches in turns, and both always see all of it.
#include "check.h"
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

// Longer than what a reply about changed memory names at a time.
constexpr size_t BYTES = (70 << 20) + 12345;

__global__ void add(unsigned char *bytes, size_t count, unsigned char value) {
    for (size_t at = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; at < count; at += static_cast<size_t>(gridDim.x) * blockDim.x)
        bytes[at] += value;
}

// Counts the bytes that are not what they should be.
__global__ void compare(const unsigned char *bytes, const unsigned char *wanted, size_t count, unsigned *wrong) {
    for (size_t at = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; at < count; at += static_cast<size_t>(gridDim.x) * blockDim.x)
        if (bytes[at] != wanted[at]) atomicAdd(wrong, 1U);
}

static uint64_t state = 0x9e3779b97f4a7c15;

static uint64_t random_number() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

struct Stretch {
    size_t at, count;
};

// Short ones, ones about as long as a page or a block, and long ones; some end with the memory.
static Stretch random_stretch(size_t most) {
    size_t limits[] = {1, 7, 64, 4096, 65536, 1 << 20, most};
    size_t count = 1 + random_number() % limits[random_number() % 7];
    size_t at = random_number() % 8 == 0 ? BYTES - count : random_number() % (BYTES - count + 1);
    return {at, count};
}

// One thread waits for much managed memory again and again, another one works with memory of its own, which it gets and gives back.
static void two_threads() {
    constexpr size_t MUCH = 24 << 20, LITTLE = 50000;
    unsigned char *much;
    CHECK_CUDA(cudaMallocManaged(&much, MUCH));
    std::atomic<bool> ends{false};
    std::thread other([&] {
        cudaStream_t stream;
        CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        unsigned char *kept;
        CHECK_CUDA(cudaHostAlloc(&kept, LITTLE, cudaHostAllocMapped));
        for (int round = 1; round < 6 || !ends; round++) {
            unsigned char *own;
            CHECK_CUDA(cudaHostAlloc(&own, LITTLE, cudaHostAllocMapped));
            for (unsigned char *bytes : {own, kept}) {
                memset(bytes, round, LITTLE);
                add<<<2, 256, 0, stream>>>(bytes, LITTLE, 1);
                CHECK_CUDA(cudaGetLastError());
                CHECK_CUDA(cudaStreamSynchronize(stream));
                for (size_t at = 0; at < LITTLE; at++)
                    if (bytes[at] != static_cast<unsigned char>(round + 1)) fail("beside a wait: byte %zu is %d in round %d", at, bytes[at], round);
            }
            CHECK_CUDA(cudaFreeHost(own));
        }
        CHECK_CUDA(cudaFreeHost(kept));
        CHECK_CUDA(cudaStreamDestroy(stream));
    });
    for (int round = 1; round < 5; round++) {
        CHECK_CUDA(cudaMemsetAsync(much, round, MUCH));
        CHECK_CUDA(cudaStreamSynchronize(0));
        for (size_t at = 0; at < MUCH; at++)
            if (much[at] != round) fail("waited for beside another thread: byte %zu is %d in round %d", at, much[at], round);
    }
    ends = true;
    other.join();
    CHECK_CUDA(cudaFree(much));
}

int main() {
    unsigned char *memory, *copy;
    unsigned *wrong;
    CHECK_CUDA(cudaMallocManaged(&memory, BYTES));
    CHECK_CUDA(cudaMallocManaged(&wrong, sizeof *wrong));
    CHECK_CUDA(cudaMalloc(&copy, BYTES));
    std::vector<unsigned char> model(BYTES);

    auto host_is_right = [&](const char *when) {
        if (memcmp(memory, model.data(), BYTES) == 0) return;
        for (size_t at = 0; at < BYTES; at++)
            if (memory[at] != model[at]) fail("%s: byte %zu is %d on the host and should be %d", when, at, memory[at], model[at]);
    };
    auto device_is_right = [&](const char *when) {
        CHECK_CUDA(cudaMemcpy(copy, model.data(), BYTES, cudaMemcpyHostToDevice));
        *wrong = 0;
        compare<<<64, 256>>>(memory, copy, BYTES, wrong);
        CHECK_CUDA(cudaDeviceSynchronize());
        if (*wrong != 0) fail("%s: %u bytes on the device are not what they should be", when, *wrong);
    };

    host_is_right("new memory");
    for (int round = 0; round < 3; round++) {
        // All of it by the device, another value each time.
        unsigned char value = 0x21 + 0x40 * round;
        CHECK_CUDA(cudaMemset(memory, value, BYTES));
        CHECK_CUDA(cudaDeviceSynchronize());
        memset(model.data(), value, BYTES);
        host_is_right("all of it set by the device");

        for (int step = 0; step < 6; step++) {
            for (int change = 0; change < 3; change++) {
                Stretch host = random_stretch(step == 3 ? BYTES / 3 : 100000);
                for (size_t at = host.at; at < host.at + host.count; at++) memory[at] = model[at] = static_cast<unsigned char>(random_number());
            }
            Stretch device = random_stretch(1 << 20);
            unsigned char added = 1 + random_number() % 255;
            add<<<16, 256>>>(memory + device.at, device.count, added);
            CHECK_CUDA(cudaGetLastError());
            CHECK_CUDA(cudaDeviceSynchronize());
            for (size_t at = device.at; at < device.at + device.count; at++) model[at] += added;
            host_is_right("after a step");
        }
        device_is_right("after a round");
    }
    CHECK_CUDA(cudaFree(copy));
    CHECK_CUDA(cudaFree(wrong));
    CHECK_CUDA(cudaFree(memory));
    two_threads();
    return pass();
}

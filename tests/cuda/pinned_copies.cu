// Large copies between pinned memory and the device, in order with kernels that change what is copied, each one checked; the best
// rates are printed.
//
// pinned_copies [MiB] [repetitions]
#include "check.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

static double seconds() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

static uint64_t word(size_t index, uint64_t seed) { return (index + 1) * 0x9e3779b97f4a7c15u + seed; }

__global__ void add(uint64_t *words, size_t count, uint64_t number) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) words[i] += number;
}

struct Pinned {
    uint64_t *words;
    bool is_registered;

    Pinned(size_t bytes, bool is_registered) : is_registered(is_registered) {
        if (is_registered) {
            REQUIRE(posix_memalign((void **)&words, 4096, bytes) == 0, "no memory");
            CHECK_CUDA(cudaHostRegister(words, bytes, cudaHostRegisterDefault));
        } else {
            CHECK_CUDA(cudaMallocHost(&words, bytes));
        }
    }
    ~Pinned() {
        if (!is_registered) {
            CHECK_CUDA(cudaFreeHost(words));
            return;
        }
        CHECK_CUDA(cudaHostUnregister(words));
        free(words);
    }
};

static double best_to_device, best_from_device;

static void repeat(uint64_t *device, uint64_t *other, size_t count, bool is_registered, int repetition) {
    size_t bytes = count * sizeof(uint64_t);
    Pinned first(bytes, is_registered), second(bytes, is_registered), back(bytes, is_registered), again(bytes, is_registered);
    for (size_t i = 0; i < count; i++) first.words[i] = word(i, repetition), second.words[i] = word(i, ~uint64_t(repetition));

    double begun = seconds();
    CHECK_CUDA(cudaMemcpy(device, first.words, bytes, cudaMemcpyHostToDevice));
    double sent = seconds();
    CHECK_CUDA(cudaMemcpy(back.words, device, bytes, cudaMemcpyDeviceToHost));
    double received = seconds();
    best_to_device = std::max(best_to_device, bytes / (sent - begun) / 1e6);
    best_from_device = std::max(best_from_device, bytes / (received - sent) / 1e6);
    REQUIRE(memcmp(first.words, back.words, bytes) == 0, "what came back is not what was sent");

    // Each copy comes after the kernel before it and before the one behind it, and after the copy to the same place before it.
    cudaStream_t stream, behind;
    cudaEvent_t event;
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaStreamCreateWithFlags(&behind, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK_CUDA(cudaMemcpyAsync(again.words, device, bytes, cudaMemcpyDeviceToHost, stream));
    add<<<64, 256, 0, stream>>>(device, count, 1);
    CHECK_CUDA(cudaMemcpyAsync(again.words, device, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaMemcpyAsync(device, second.words, bytes, cudaMemcpyHostToDevice, stream));
    add<<<64, 256, 0, stream>>>(device, count, 2);
    CHECK_CUDA(cudaEventRecord(event, stream));
    CHECK_CUDA(cudaStreamWaitEvent(behind, event, 0));
    CHECK_CUDA(cudaMemsetAsync(other, repetition, bytes, behind));
    CHECK_CUDA(cudaMemcpyAsync(back.words, other, bytes, cudaMemcpyDeviceToHost, behind));
    CHECK_CUDA(cudaMemcpyAsync(other, device, bytes, cudaMemcpyDeviceToDevice, behind));
    CHECK_CUDA(cudaMemcpyAsync(back.words, other, bytes, cudaMemcpyDeviceToHost, behind));
    CHECK_CUDA(cudaStreamSynchronize(behind));
    for (size_t i = 0; i < count; i++) {
        const uint64_t first_word = word(i, repetition) + 1, second_word = word(i, ~uint64_t(repetition)) + 2;
        REQUIRE(again.words[i] == first_word, "repetition %d: word %zu was copied out of turn: %llx instead of %llx", repetition, i,
                (long long)again.words[i], (long long)first_word);
        REQUIRE(back.words[i] == second_word, "repetition %d: word %zu was changed out of turn: %llx instead of %llx", repetition, i,
                (long long)back.words[i], (long long)second_word);
    }
    CHECK_CUDA(cudaEventDestroy(event));
    CHECK_CUDA(cudaStreamDestroy(behind));

    // The memory goes while copies are under way; they must end first.
    CHECK_CUDA(cudaMemcpyAsync(other, first.words, bytes, cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudaMemcpyAsync(again.words, other, bytes, cudaMemcpyDeviceToHost, stream));
    if (repetition % 2) {
        CHECK_CUDA(cudaStreamSynchronize(stream));
        REQUIRE(memcmp(first.words, again.words, bytes) == 0, "repetition %d: what came in the end is not what was sent", repetition);
    }
    CHECK_CUDA(cudaStreamDestroy(stream));
}

int main(int argc, char **argv) {
    size_t bytes = (argc > 1 ? strtoul(argv[1], nullptr, 10) : 8) << 20;
    int repetitions = argc > 2 ? atoi(argv[2]) : 3;
    for (int repetition = 0; repetition < repetitions; repetition++) {
        // New memory each time, at addresses that had other memory before.
        uint64_t *device, *other;
        CHECK_CUDA(cudaMalloc(&device, bytes));
        CHECK_CUDA(cudaMalloc(&other, bytes));
        for (bool is_registered : {false, true}) repeat(device, other, bytes / sizeof(uint64_t), is_registered, repetition);
        printf("repetition %d done\n", repetition);
        fflush(stdout);
        CHECK_CUDA(cudaFree(device));
        CHECK_CUDA(cudaFree(other));
    }
    printf("best to_device_MB/s %.1f from_device_MB/s %.1f\n", best_to_device, best_from_device);
    return pass();
}

// Copies between pageable memory and the device, as often as asked, each one checked and the best one's rate printed.
//
// copy_rate [MiB, or a number with K for KiB] [repetitions]
#include "check.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

static double seconds() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

// Different for every word and every repetition, so that bytes of another place or time are noticed.
static uint64_t word(size_t index, int repetition) { return (index + 1) * 0x9e3779b97f4a7c15u + repetition; }

int main(int argc, char **argv) {
    char *unit = nullptr;
    size_t bytes = argc > 1 ? strtoul(argv[1], &unit, 10) : 32;
    bytes <<= unit && *unit == 'K' ? 10 : 20;
    int repetitions = argc > 2 ? atoi(argv[2]) : 2;
    std::vector<uint64_t> source(bytes / sizeof(uint64_t)), back(source.size());
    void *device;
    CHECK_CUDA(cudaMalloc(&device, bytes));
    std::vector<double> to_device, from_device;
    for (int repetition = 0; repetition < repetitions; repetition++) {
        for (size_t i = 0; i < source.size(); i++) source[i] = word(i, repetition);
        std::fill(back.begin(), back.end(), 0);
        printf("repetition %d begins\n", repetition);
        fflush(stdout);
        double begun = seconds();
        CHECK_CUDA(cudaMemcpy(device, source.data(), bytes, cudaMemcpyHostToDevice));
        double sent = seconds();
        CHECK_CUDA(cudaMemcpy(back.data(), device, bytes, cudaMemcpyDeviceToHost));
        double received = seconds();
        to_device.push_back(bytes / (sent - begun) / 1e6);
        from_device.push_back(bytes / (received - sent) / 1e6);
        for (size_t i = 0; i < source.size(); i++)
            REQUIRE(back[i] == source[i], "word %zu of repetition %d came back as %llx", i, repetition, (long long)back[i]);
        printf("to_device_MB/s %.1f from_device_MB/s %.1f\n", to_device.back(), from_device.back());
        fflush(stdout);
    }
    std::sort(to_device.begin(), to_device.end());
    std::sort(from_device.begin(), from_device.end());
    printf("best to_device_MB/s %.1f from_device_MB/s %.1f\n", to_device.back(), from_device.back());
    return pass();
}

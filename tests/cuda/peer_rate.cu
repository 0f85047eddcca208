// Large copies between two devices, as often as asked, each one checked, and the rates printed.
//
// peer_rate [MiB] [repetitions]
#include "check.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

static double seconds() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

__global__ void fill(unsigned *out, unsigned words, unsigned seed) {
    const unsigned step = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) out[i] = (i + seed) * 2654435761u;
}

__global__ void compare(const unsigned *in, unsigned words, unsigned seed, unsigned *wrong) {
    const unsigned step = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
        if (in[i] != (i + seed) * 2654435761u) atomicAdd(wrong, 1);
    }
}

int main(int argc, char **argv) {
    const size_t bytes = (argc > 1 ? strtoul(argv[1], nullptr, 10) : 64) << 20;
    const int repetitions = argc > 2 ? atoi(argv[2]) : 3;
    const unsigned words = (unsigned)(bytes / 4);
    int devices = 0;
    CHECK_CUDA(cudaGetDeviceCount(&devices));
    if (devices < 2) return pass();
    unsigned *memory[2], *wrong[2];
    for (int device = 0; device < 2; device++) {
        CHECK_CUDA(cudaSetDevice(device));
        CHECK_CUDA(cudaMalloc(&memory[device], bytes));
        CHECK_CUDA(cudaMalloc(&wrong[device], sizeof(unsigned)));
        CHECK_CUDA(cudaMemset(wrong[device], 0, sizeof(unsigned)));
    }
    for (int repetition = 0; repetition < repetitions; repetition++) {
        double rates[2];
        for (int to = 0; to < 2; to++) {
            const int from = 1 - to;
            CHECK_CUDA(cudaSetDevice(from));
            fill<<<8, 64>>>(memory[from], words, 2 * repetition + to);
            CHECK_CUDA(cudaDeviceSynchronize());
            CHECK_CUDA(cudaSetDevice(to));
            CHECK_CUDA(cudaDeviceSynchronize());
            const double begun = seconds();
            CHECK_CUDA(cudaMemcpyPeerAsync(memory[to], to, memory[from], from, bytes));
            CHECK_CUDA(cudaDeviceSynchronize());
            rates[to] = bytes / (seconds() - begun) / 1e6;
            compare<<<8, 64>>>(memory[to], words, 2 * repetition + to, wrong[to]);
            unsigned found = 1;
            CHECK_CUDA(cudaMemcpy(&found, wrong[to], sizeof found, cudaMemcpyDeviceToHost));
            REQUIRE(found == 0, "%u words are wrong in repetition %d to device %d", found, repetition, to);
        }
        printf("to_device_0_MB/s %.1f to_device_1_MB/s %.1f\n", rates[0], rates[1]);
        fflush(stdout);
    }
    return pass();
}

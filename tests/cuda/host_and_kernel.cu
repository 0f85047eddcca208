// A kernel and the host follow each other's writes while both run: memory that both really have in common.
#include <cuda_runtime.h>
#include <time.h>

#include "check.h"

enum { ROUNDS = 200, NUMBERS = 1 << 20 };

__global__ void answer(volatile int *question, volatile int *reply) {
    for (int round = 1; round <= ROUNDS; round++) {
        while (*question != round) {}
        *reply = 3 * round;
        __threadfence_system();
    }
}

__global__ void twice(unsigned *numbers) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    numbers[i] *= 2;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void talk(void) {
    int *words, *device;
    CHECK_CUDA(cudaHostAlloc(&words, 2 * 128 * sizeof(int), cudaHostAllocMapped));
    CHECK_CUDA(cudaHostGetDevicePointer(&device, words, 0));
    volatile int *question = words, *reply = words + 128;
    answer<<<1, 1>>>(device, device + 128);
    // The launch may still be on its way: this is not a call that waits for it.
    CHECK_CUDA(cudaStreamQuery(0) == cudaErrorNotReady ? cudaSuccess : cudaErrorUnknown);
    (void)cudaGetLastError();
    for (int round = 1; round <= ROUNDS; round++) {
        *question = round;
        double limit = now() + 20;
        while (*reply != 3 * round) REQUIRE(now() < limit, "the kernel has not answered round %d: %d", round, *reply);
    }
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaFreeHost(words));
}

// Memory that is allocated, used by kernels and copies, and freed, over and over.
static void use(void) {
    unsigned *device;
    CHECK_CUDA(cudaMalloc(&device, NUMBERS * sizeof(unsigned)));
    for (unsigned round = 0; round < 5; round++) {
        unsigned *host, *other;
        CHECK_CUDA(cudaMallocHost(&host, NUMBERS * sizeof(unsigned)));
        CHECK_CUDA(cudaMallocHost(&other, NUMBERS * sizeof(unsigned)));
        for (unsigned i = 0; i < NUMBERS; i++) {
            REQUIRE(host[i] == 0, "new memory holds %u at %u", host[i], i);
            host[i] = i + round;
        }
        twice<<<NUMBERS / 256, 256>>>(host);
        CHECK_CUDA(cudaMemcpyAsync(device, host, NUMBERS * sizeof(unsigned), cudaMemcpyHostToDevice, 0));
        twice<<<NUMBERS / 256, 256>>>(device);
        CHECK_CUDA(cudaMemcpyAsync(other, device, NUMBERS * sizeof(unsigned), cudaMemcpyDeviceToHost, 0));
        twice<<<NUMBERS / 256, 256>>>(other);
        CHECK_CUDA(cudaDeviceSynchronize());
        for (unsigned i = 0; i < NUMBERS; i++)
            REQUIRE(other[i] == 8 * (i + round), "round %u: %u at %u", round, other[i], i);
        // A synchronous copy has read its source when it returns, and an image of two dimensions its own rows.
        CHECK_CUDA(cudaMemcpy(device, host, NUMBERS * sizeof(unsigned), cudaMemcpyHostToDevice));
        memset(host, 0xff, NUMBERS * sizeof(unsigned));
        CHECK_CUDA(cudaMemcpy2D(other, 2048, device, 4096, 1000, 512, cudaMemcpyDeviceToHost));
        for (unsigned row = 0; row < 512; row++) {
            unsigned first = other[row * 512], last = other[row * 512 + 249];
            REQUIRE(first == 2 * (row * 1024 + round) && last == 2 * (row * 1024 + 249 + round), "row %u: %u ... %u", row,
                    first, last);
        }
        CHECK_CUDA(cudaFreeHost(host));
        CHECK_CUDA(cudaFreeHost(other));
    }
    CHECK_CUDA(cudaFree(device));
}

int main(void) {
    talk();
    use();
    return pass();
}

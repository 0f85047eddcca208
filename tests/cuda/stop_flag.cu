// A kernel that runs until the program writes a word of pinned memory, which it does with work under way: without
// another call, from another thread, in memory that another allocation and much pinned memory lie beside.
#include "check.h"

#include <cuda_runtime.h>
#include <pthread.h>

enum { COUNT = 1 << 20, ROUNDS = 3 };

__global__ void run_until(volatile int *stop, int value, int *rounds) {
    int count = 0;
    while (*stop != value) count++;
    *rounds = count > 0 ? value : -value;
}

static void *stop_later(void *stop) {
    usleep(30000);
    *(volatile int *)stop += 1;
    return NULL;
}

static void in_pinned_memory(int registered) {
    int *stop, *device_stop, *device, rounds = 0;
    if (registered) {
        REQUIRE(posix_memalign((void **)&stop, 4096, COUNT) == 0, "no memory");
        memset(stop, 0, COUNT);
        CHECK_CUDA(cudaHostRegister(stop, COUNT, cudaHostRegisterMapped));
    } else {
        CHECK_CUDA(cudaHostAlloc(&stop, COUNT, cudaHostAllocMapped));
    }
    CHECK_CUDA(cudaHostGetDevicePointer(&device_stop, stop, 0));
    CHECK_CUDA(cudaMalloc(&device, sizeof *device));
    for (int round = 1; round <= ROUNDS; round++) {
        // What goes on before does not count as a word alone.
        for (int i = 1024; i < 2048; i++) stop[i] = round;
        run_until<<<1, 1>>>(device_stop + 7, round, device);
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, stop_later, stop + 7) == 0, "no thread can be started");
        if (round == 1) {
            while (cudaStreamQuery(0) == cudaErrorNotReady) usleep(1000);
            (void)cudaGetLastError();
        }
        CHECK_CUDA(cudaDeviceSynchronize());
        pthread_join(thread, NULL);
        CHECK_CUDA(cudaMemcpy(&rounds, device, sizeof rounds, cudaMemcpyDeviceToHost));
        REQUIRE(rounds == round || rounds == -round, "round %d brought %d", round, rounds);
        REQUIRE(stop[7] == round && stop[1024] == round, "the memory holds %d and %d", stop[7], stop[1024]);
    }
    CHECK_CUDA(cudaFree(device));
    if (registered) {
        CHECK_CUDA(cudaHostUnregister(stop));
        free(stop);
    } else {
        CHECK_CUDA(cudaFreeHost(stop));
    }
}

int main(void) {
    int *other;
    CHECK_CUDA(cudaHostAlloc(&other, COUNT, cudaHostAllocMapped));
    other[5] = 5;
    in_pinned_memory(0);
    in_pinned_memory(1);
    REQUIRE(other[5] == 5, "memory that nobody used holds %d", other[5]);
    CHECK_CUDA(cudaFreeHost(other));
    return pass();
}

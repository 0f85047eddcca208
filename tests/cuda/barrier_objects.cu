// cuda::barrier: split arrival and waiting, threads that leave, a producer and its consumers, and asynchronous copies to shared memory.
#include "check.h"

#include <cooperative_groups.h>
#include <cuda/barrier>

#include <cuda_runtime.h>
#include <vector>

// Every barrier is initialised by one thread before the others use it.
#pragma nv_diag_suppress static_var_with_dynamic_init

using Barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr unsigned THREADS = 192, ROUNDS = 20;

// Each thread writes, arrives, does something of its own, waits, and reads what its neighbour wrote.
__global__ void neighbours(unsigned *out) {
    __shared__ Barrier barrier;
    __shared__ unsigned words[THREADS];
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    __syncthreads();
    unsigned sum = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        words[threadIdx.x] = round * 1000 + threadIdx.x + blockIdx.x;
        auto token = barrier.arrive();
        sum += round;
        barrier.wait(std::move(token));
        sum += words[(threadIdx.x + 1) % blockDim.x];
        barrier.arrive_and_wait();
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Threads leave one after the other; those that are left go on.
__global__ void leavers(unsigned *out) {
    __shared__ Barrier barrier;
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    __syncthreads();
    unsigned rounds = 0;
    while (rounds < threadIdx.x % 32) {
        barrier.arrive_and_wait();
        rounds++;
    }
    barrier.arrive_and_drop();
    out[threadIdx.x] = rounds;
}

// One warp fills two buffers in turn, the others use them.
__global__ void pipeline(unsigned *out) {
    __shared__ Barrier filled[2], used[2];
    __shared__ unsigned buffers[2][32];
    if (threadIdx.x < 2) {
        init(&filled[threadIdx.x], blockDim.x);
        init(&used[threadIdx.x], blockDim.x);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        for (unsigned round = 0; round < ROUNDS; round++) {
            used[round % 2].arrive_and_wait();
            buffers[round % 2][threadIdx.x] = round * 100 + threadIdx.x;
            (void)filled[round % 2].arrive();
        }
    } else {
        unsigned sum = 0;
        (void)used[0].arrive();
        (void)used[1].arrive();
        for (unsigned round = 0; round < ROUNDS; round++) {
            filled[round % 2].arrive_and_wait();
            sum += buffers[round % 2][threadIdx.x % 32];
            if (round + 2 < ROUNDS) (void)used[round % 2].arrive();
        }
        out[threadIdx.x] = sum;
    }
}

// Copies to shared memory, of which a barrier learns that they are done.
__global__ void copies(const int4 *in, int4 *out) {
    __shared__ Barrier barrier;
    __shared__ int4 words[THREADS];
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    __syncthreads();
    cuda::memcpy_async(&words[threadIdx.x], &in[threadIdx.x], cuda::aligned_size_t<16>(sizeof(int4)), barrier);
    barrier.arrive_and_wait();
    out[threadIdx.x] = words[blockDim.x - 1 - threadIdx.x];
}

int main() {
    unsigned *device;
    std::vector<unsigned> host(2 * THREADS);
    CHECK_CUDA(cudaMalloc(&device, host.size() * 4));
    auto fetch = [&] { CHECK_CUDA(cudaMemcpy(host.data(), device, host.size() * 4, cudaMemcpyDeviceToHost)); };

    neighbours<<<2, THREADS>>>(device);
    fetch();
    for (unsigned i = 0; i < 2 * THREADS; i++) {
        unsigned expected = 0;
        for (unsigned round = 0; round < ROUNDS; round++) expected += round * 1001 + (i % THREADS + 1) % THREADS + i / THREADS;
        REQUIRE(host[i] == expected, "neighbours: thread %u has %u, not %u", i, host[i], expected);
    }
    leavers<<<1, THREADS>>>(device);
    fetch();
    for (unsigned i = 0; i < THREADS; i++) REQUIRE(host[i] == i % 32, "leavers: thread %u has %u", i, host[i]);
    pipeline<<<1, THREADS>>>(device);
    fetch();
    for (unsigned i = 32; i < THREADS; i++) {
        unsigned expected = ROUNDS * (ROUNDS - 1) / 2 * 100 + ROUNDS * (i % 32);
        REQUIRE(host[i] == expected, "pipeline: thread %u has %u, not %u", i, host[i], expected);
    }
    int4 *in, *out;
    std::vector<int4> words(THREADS);
    for (int i = 0; i < (int)THREADS; i++) words[i] = {i, 2 * i, 3 * i, 4 * i};
    CHECK_CUDA(cudaMalloc(&in, THREADS * sizeof(int4)));
    CHECK_CUDA(cudaMalloc(&out, THREADS * sizeof(int4)));
    CHECK_CUDA(cudaMemcpy(in, words.data(), THREADS * sizeof(int4), cudaMemcpyHostToDevice));
    copies<<<1, THREADS>>>(in, out);
    CHECK_CUDA(cudaMemcpy(words.data(), out, THREADS * sizeof(int4), cudaMemcpyDeviceToHost));
    for (int i = 0; i < (int)THREADS; i++) {
        int from = THREADS - 1 - i;
        REQUIRE(words[i].x == from && words[i].w == 4 * from, "copies: thread %d has %d and %d", i, words[i].x, words[i].w);
    }
    CHECK_CUDA(cudaDeviceSynchronize());
    return pass();
}

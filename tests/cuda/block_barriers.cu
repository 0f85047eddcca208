// Barriers and pipelines of the CUDA C++ library in shared memory, for the threads of one block: phases of a barrier, one
// that threads leave, producers and consumers, and copies from global memory that a barrier or a pipeline waits for.  Results
// are compared with the CPU's, for data that differ each time.
#include "check.h"

// The library's barriers are meant to be declared so, and made by `init`.
#pragma nv_diag_suppress static_var_with_dynamic_init

#include <cuda/barrier>
#include <cuda/pipeline>
#include <cooperative_groups.h>

#include <random>
#include <vector>

namespace cg = cooperative_groups;

constexpr int THREADS = 128, ROUNDS = 9;

using Barrier = cuda::barrier<cuda::thread_scope_block>;

// Each round adds to every value that of its right neighbour, with a phase of the barrier between reading and writing.
__global__ void phases(int *values) {
    __shared__ Barrier barrier;
    __shared__ int row[THREADS];
    int i = threadIdx.x;
    if (i == 0) init(&barrier, THREADS);
    row[i] = values[i];
    __syncthreads();
    for (int round = 0; round < ROUNDS; round++) {
        int sum = row[i] + row[(i + 1) % THREADS];
        barrier.arrive_and_wait();
        row[i] = sum;
        auto token = barrier.arrive();
        barrier.wait(std::move(token));
    }
    values[i] = row[i];
}

// Thread i leaves after i % ROUNDS + 1 rounds; thread 0, which stays, counts how many took part in each.
__global__ void leaving(int *counts) {
    __shared__ Barrier barrier;
    __shared__ int present[ROUNDS + 1];
    int i = threadIdx.x;
    if (i == 0) init(&barrier, THREADS);
    if (i <= ROUNDS) present[i] = 0;
    __syncthreads();
    int last = i == 0 ? ROUNDS : i % ROUNDS + 1;
    for (int round = 0; round < last; round++) {
        atomicAdd(&present[round], 1);
        if (round + 1 == last && i != 0) barrier.arrive_and_drop();
        else barrier.arrive_and_wait();
    }
    if (i == 0)
        for (int round = 0; round < ROUNDS; round++) counts[round] = present[round];
}

// One half of the block makes numbers which the other half adds up, through a buffer of one row.
__global__ void hand_over(const int *values, int rounds, long long *sums) {
    __shared__ Barrier full, empty;
    __shared__ int row[THREADS / 2];
    if (threadIdx.x == 0) init(&full, THREADS), init(&empty, THREADS);
    __syncthreads();
    int i = threadIdx.x % (THREADS / 2);
    if (threadIdx.x < THREADS / 2) {
        for (int round = 0; round < rounds; round++) {
            empty.arrive_and_wait();
            row[i] = values[i] * (round + 1);
            (void)full.arrive();
        }
    } else {
        long long sum = 0;
        (void)empty.arrive();
        for (int round = 0; round < rounds; round++) {
            full.arrive_and_wait();
            sum += row[(i + round) % (THREADS / 2)];
            if (round + 1 < rounds) (void)empty.arrive();
        }
        sums[i] = sum;
    }
}

// Parities: a thread that waits for a phase by its parity alone.
__global__ void parities(int *order) {
    __shared__ Barrier barrier;
    if (threadIdx.x == 0) init(&barrier, THREADS);
    __syncthreads();
    for (int round = 0; round < ROUNDS; round++) {
        if (threadIdx.x == THREADS - 1) order[round] = round * 3;
        (void)barrier.arrive();
        barrier.wait_parity(round & 1);
        if (threadIdx.x == round) order[ROUNDS + round] = order[round] + 1;
    }
}

// Copies in the background that a barrier waits for.
__global__ void copies(const int *values, int rows, long long *sums) {
    __shared__ Barrier barrier;
    __shared__ alignas(16) int row[THREADS];
    if (threadIdx.x == 0) init(&barrier, THREADS);
    __syncthreads();
    auto block = cg::this_thread_block();
    long long sum = 0;
    for (int i = 0; i < rows; i++) {
        cuda::memcpy_async(block, row, values + i * THREADS, cuda::aligned_size_t<16>(sizeof row), barrier);
        barrier.arrive_and_wait();
        sum += row[(threadIdx.x + i) % THREADS];
        block.sync();
    }
    sums[threadIdx.x] = sum;
}

// Two rows under way at a time.
__global__ void piped(const int *values, int rows, long long *sums) {
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    __shared__ alignas(16) int stages[2][THREADS];
    auto block = cg::this_thread_block();
    auto pipeline = cuda::make_pipeline(block, &state);
    long long sum = 0;
    int begun = 0;
    for (int i = 0; i < rows; i++) {
        for (; begun < rows && begun < i + 2; begun++) {
            pipeline.producer_acquire();
            cuda::memcpy_async(block, stages[begun % 2], values + begun * THREADS, sizeof stages[0], pipeline);
            pipeline.producer_commit();
        }
        pipeline.consumer_wait();
        sum += stages[i % 2][(threadIdx.x * 3 + i) % THREADS];
        pipeline.consumer_release();
    }
    sums[threadIdx.x] = sum;
}

// A pipeline of each thread by itself.
__global__ void piped_alone(const int *values, int rows, long long *sums) {
    __shared__ int stages[2][THREADS];
    auto pipeline = cuda::make_pipeline();
    long long sum = 0;
    int begun = 0, t = threadIdx.x;
    for (int i = 0; i < rows; i++) {
        for (; begun < rows && begun < i + 2; begun++) {
            pipeline.producer_acquire();
            cuda::memcpy_async(&stages[begun % 2][t], values + begun * THREADS + t, sizeof(int), pipeline);
            pipeline.producer_commit();
        }
        pipeline.consumer_wait();
        sum += stages[i % 2][t];
        pipeline.consumer_release();
    }
    sums[t] = sum;
}

template <typename T>
static std::vector<T> from(const T *device, size_t n) {
    std::vector<T> host(n);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaMemcpy(host.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

#define SAME(what, i, found, wanted) \
    REQUIRE((found) == (wanted), "%s: number %d is %lld instead of %lld", what, int(i), (long long)(found), (long long)(wanted))

int main() {
    std::mt19937 random(std::random_device{}());
    int rows = 3 + int(random() % 20);
    std::vector<int> values(size_t(rows) * THREADS);
    for (int &value : values) value = int(random() % 2001) - 1000;
    int *device, *numbers;
    long long *sums;
    CHECK_CUDA(cudaMalloc(&device, values.size() * sizeof(int)));
    CHECK_CUDA(cudaMalloc(&numbers, THREADS * sizeof(int)));
    CHECK_CUDA(cudaMalloc(&sums, THREADS * sizeof(long long)));
    CHECK_CUDA(cudaMemcpy(device, values.data(), values.size() * sizeof(int), cudaMemcpyHostToDevice));

    CHECK_CUDA(cudaMemcpy(numbers, values.data(), THREADS * sizeof(int), cudaMemcpyHostToDevice));
    phases<<<1, THREADS>>>(numbers);
    std::vector<int> row(values.begin(), values.begin() + THREADS);
    for (int round = 0; round < ROUNDS; round++) {
        std::vector<int> before = row;
        for (int i = 0; i < THREADS; i++) row[i] = before[i] + before[(i + 1) % THREADS];
    }
    auto phased = from(numbers, THREADS);
    for (int i = 0; i < THREADS; i++) SAME("phases", i, phased[i], row[i]);

    leaving<<<1, THREADS>>>(numbers);
    auto present = from(numbers, ROUNDS);
    for (int round = 0; round < ROUNDS; round++) {
        int count = 1;
        for (int i = 1; i < THREADS; i++) count += round < i % ROUNDS + 1;
        SAME("leaving", round, present[round], count);
    }

    hand_over<<<1, THREADS>>>(device, rows, sums);
    auto handed = from(sums, THREADS / 2);
    for (int i = 0; i < THREADS / 2; i++) {
        long long sum = 0;
        for (int round = 0; round < rows; round++) sum += values[(i + round) % (THREADS / 2)] * (round + 1);
        SAME("handing over", i, handed[i], sum);
    }

    parities<<<1, THREADS>>>(numbers);
    auto order = from(numbers, 2 * ROUNDS);
    for (int round = 0; round < ROUNDS; round++) SAME("parities", round, order[ROUNDS + round], round * 3 + 1);

    copies<<<1, THREADS>>>(device, rows, sums);
    auto copied = from(sums, THREADS);
    piped<<<1, THREADS>>>(device, rows, sums);
    auto through = from(sums, THREADS);
    piped_alone<<<1, THREADS>>>(device, rows, sums);
    auto alone = from(sums, THREADS);
    for (int i = 0; i < THREADS; i++) {
        long long sum = 0, threefold = 0, straight = 0;
        for (int j = 0; j < rows; j++) {
            sum += values[j * THREADS + (i + j) % THREADS];
            threefold += values[j * THREADS + (i * 3 + j) % THREADS];
            straight += values[j * THREADS + i];
        }
        SAME("copies", i, copied[i], sum);
        SAME("a pipeline", i, through[i], threefold);
        SAME("a thread's pipeline", i, alone[i], straight);
    }
    return pass();
}

// One PE of a job of the SHMEM facade, in the way in which public examples of that API are written: a ring,
// signals, atomic operations, waits, collectives, streams. Started as PE PMI_RANK of PMI_SIZE, with
// CAUSEWAY_DEVICE_NONCE.
//
// shmem_basics [MODE]: `set`, without atomic operations, which a forced proxy does not make; `size`, the last
// PE allocates another size; `outside`, it puts to memory that is not symmetric.
#include <cstdlib>
#include <string>
#include <vector>

#include <nvshmem.h>
#include <nvshmemx.h>

#include "check.h"

enum { COUNT = 5000, BINS = 16 };

// What each PE has found wrong, by the line.
__device__ int wrong_line;

#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) atomicCAS(&wrong_line, 0, __LINE__);                                               \
    } while (0)

static void expect_none(const char *what) {
    printf("%s\n", what);
    fflush(stdout);
    CHECK_CUDA(cudaDeviceSynchronize());
    int line = 0;
    CHECK_CUDA(cudaMemcpyFromSymbol(&line, wrong_line, sizeof line));
    REQUIRE(line == 0, "%s: what line %d expects does not hold", what, line);
}

// The number that a PE passes on is the one before it.
__global__ void ring_shift(int *destination) {
    int me = nvshmem_my_pe(), pes = nvshmem_n_pes();
    nvshmem_int_p(destination, me, (me + 1) % pes);
    nvshmem_barrier_all();
    EXPECT(*static_cast<volatile int *>(destination) == (me + pes - 1) % pes);
    EXPECT(nvshmem_int_g(destination, (me + 1) % pes) == me);
    nvshmem_barrier_all();
}

// Each PE sends the next one a message that differs each time, and waits for the one before.
__global__ void ping_pong(float *to, float *from, uint64_t *signal, int rounds, bool is_nbi) {
    int me = nvshmem_my_pe(), pes = nvshmem_n_pes(), next = (me + 1) % pes, before = (me + pes - 1) % pes;
    for (int round = 1; round <= rounds; round++) {
        for (int at = threadIdx.x; at < COUNT; at += blockDim.x)
            from[at] = static_cast<float>(round * 1000 + me * 10 + at);
        __syncthreads();
        if (is_nbi)
            nvshmemx_float_put_signal_nbi_block(to, from, COUNT, signal, round, NVSHMEM_SIGNAL_SET, next);
        else
            nvshmemx_putmem_signal_block(to, from, COUNT * sizeof(float), signal, round, NVSHMEM_SIGNAL_SET,
                                         next);
        if (threadIdx.x == 0)
            EXPECT(nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, round) == static_cast<uint64_t>(round));
        __syncthreads();
        for (int at = threadIdx.x; at < COUNT; at += blockDim.x)
            EXPECT(to[at] == static_cast<float>(round * 1000 + before * 10 + at));
        // Nobody writes over what another one still reads.
        nvshmemx_barrier_all_block();
    }
}

// All threads of all PEs count into bins of PE 0, by operations of several kinds and sizes.
__global__ void histogram(unsigned int *bins, unsigned long long *sum, int *max_seen, unsigned int *bits) {
    int me = nvshmem_my_pe();
    unsigned int at = threadIdx.x + blockIdx.x * blockDim.x;
    nvshmem_uint_atomic_inc(bins + at % BINS, 0);
    unsigned long long before = nvshmem_ulonglong_atomic_fetch_add(sum, at + 1, 0);
    EXPECT(before < 1000000);
    nvshmem_uint_atomic_or(bits, 1u << (me * 4 + at % 4), 0);
    // The greatest by comparing and exchanging.
    int seen = nvshmem_int_atomic_fetch(max_seen, 0), mine = static_cast<int>(1000 * me + at);
    while (seen < mine) {
        int found = nvshmem_int_atomic_compare_swap(max_seen, seen, mine, 0);
        if (found == seen) break;
        seen = found;
    }
}

__global__ void check_histogram(const unsigned int *bins, const unsigned long long *sum, const int *max_seen,
                                const unsigned int *bits, unsigned int threads, int pes) {
    if (nvshmem_my_pe() != 0) return;
    for (int bin = 0; bin < BINS; bin++) EXPECT(bins[bin] == pes * threads / BINS);
    EXPECT(*sum == static_cast<unsigned long long>(pes) * threads * (threads + 1) / 2);
    EXPECT(*max_seen == static_cast<int>(1000 * (pes - 1) + threads - 1));
    EXPECT(*bits == (pes == 8 ? ~0u : (1u << 4 * pes) - 1));
}

// Atomic operations of one thread, one after the other, on a word of the next PE.
__global__ void all_atomics(long *word, float *real, unsigned int *half) {
    int next = (nvshmem_my_pe() + 1) % nvshmem_n_pes();
    nvshmem_long_atomic_set(word, -7, next);
    EXPECT(nvshmem_long_atomic_fetch_inc(word, next) == -7);
    nvshmem_long_atomic_inc(word, next);
    nvshmem_long_atomic_add(word, -10, next);
    EXPECT(nvshmem_long_atomic_swap(word, 12, next) == -15);
    EXPECT(nvshmem_long_atomic_compare_swap(word, 11, 1, next) == 12);
    EXPECT(nvshmem_long_atomic_compare_swap(word, 12, 5, next) == 12);
    EXPECT(nvshmem_long_atomic_fetch(word, next) == 5);
    nvshmem_float_atomic_set(real, 1.5f, next);
    EXPECT(nvshmem_float_atomic_swap(real, -2.25f, next) == 1.5f);
    EXPECT(nvshmem_float_atomic_fetch(real, next) == -2.25f);
    // Two neighbours in one word of eight bytes.
    nvshmem_uint_atomic_set(half, 0xf0f0u, next);
    nvshmem_uint_atomic_set(half + 1, 0xffffffffu, next);
    EXPECT(nvshmem_uint_atomic_fetch_and(half, 0xff00u, next) == 0xf0f0u);
    EXPECT(nvshmem_uint_atomic_fetch_xor(half, 0xffffu, next) == 0xf000u);
    EXPECT(nvshmem_uint_atomic_fetch_or(half, 0x10000u, next) == 0x0fffu);
    EXPECT(nvshmem_uint_atomic_fetch_add(half, 0xffff0000u, next) == 0x10fffu);
    EXPECT(nvshmem_uint_atomic_fetch(half, next) == 0x00000fffu);
    EXPECT(nvshmem_uint_atomic_fetch(half + 1, next) == 0xffffffffu);
    nvshmem_barrier_all();
}

// Puts of odd lengths from memory that is not symmetric, and gets to there.
__global__ void own_memory(char *symmetric, char *own, char *back, size_t bytes) {
    int me = nvshmem_my_pe(), next = (me + 1) % nvshmem_n_pes(),
        before = (me + nvshmem_n_pes() - 1) % nvshmem_n_pes();
    for (size_t at = threadIdx.x; at < bytes; at += blockDim.x) own[at] = static_cast<char>(at * 7 + me);
    nvshmemx_putmem_block(symmetric + 3, own, bytes, next);
    nvshmemx_barrier_all_block();
    for (size_t at = threadIdx.x; at < bytes; at += blockDim.x)
        EXPECT(symmetric[at + 3] == static_cast<char>(at * 7 + before));
    nvshmemx_getmem_warp(back, symmetric + 3, bytes, next);
    __syncthreads();
    for (size_t at = threadIdx.x; at < bytes; at += blockDim.x)
        EXPECT(back[at] == static_cast<char>(at * 7 + me));
    if (threadIdx.x == 0) {
        short value = static_cast<short>(me - 300);
        nvshmem_barrier_all();
        nvshmem_short_iput(reinterpret_cast<short *>(symmetric), &value, 1, 1, 1, next);
        nvshmem_quiet();
        EXPECT(nvshmem_short_g(reinterpret_cast<short *>(symmetric), next) == value);
        nvshmem_barrier_all();
    }
}

// Each PE raises its flag at all others; one thread waits for all, for any, and for some.
__global__ void flags(int *raised, int *marks, size_t *numbers) {
    int me = nvshmem_my_pe(), pes = nvshmem_n_pes();
    for (int pe = 0; pe < pes; pe++) nvshmem_int_p(raised + me, me + 1, pe);
    nvshmem_int_wait_until_all(raised, pes, nullptr, NVSHMEM_CMP_GT, 0);
    EXPECT(nvshmem_int_test_all(raised, pes, nullptr, NVSHMEM_CMP_NE, 0));
    EXPECT(!nvshmem_int_test(raised, NVSHMEM_CMP_LT, 1));
    for (int pe = 0; pe < pes; pe++) marks[pe] = pe != pes - 1;
    EXPECT(nvshmem_int_wait_until_any(raised, pes, marks, NVSHMEM_CMP_EQ, pes) ==
           static_cast<size_t>(pes - 1));
    EXPECT(nvshmem_int_wait_until_some(raised, pes, numbers, nullptr, NVSHMEM_CMP_LE, 1) == 1 &&
           numbers[0] == 0);
    EXPECT(nvshmem_int_test_any(raised, pes, nullptr, NVSHMEM_CMP_GT, pes) == SIZE_MAX);
    for (int pe = 0; pe < pes; pe++) marks[pe] = pe + 1;
    nvshmem_int_wait_until_all_vector(raised, pes, nullptr, NVSHMEM_CMP_EQ, marks);
    nvshmem_int_wait_until(raised + me, NVSHMEM_CMP_GE, me + 1);
    nvshmem_barrier_all();
}

// PEs 0 and 1, between which nothing but the functions' order keeps these from being seen: a flag before what
// was written in front of it, and two writes that each is done before its writer reads, of which neither is
// read.
__global__ void litmus(unsigned long long *words, unsigned long long rounds) {
    int me = nvshmem_my_pe(), other = 1 - me;
    unsigned long long *message = words, *flag = words + 1, *written = words + 2, *seen = words + 3,
                       *taken = words + 4;
    for (unsigned long long round = 1; me < 2 && round <= rounds; round++) {
        if (me == 0) {
            nvshmem_ulonglong_p(message, round, other);
            nvshmem_fence();
            nvshmem_ulonglong_p(flag, round, other);
            nvshmem_ulonglong_wait_until(taken, NVSHMEM_CMP_EQ, round);
        } else {
            nvshmem_ulonglong_wait_until(flag, NVSHMEM_CMP_EQ, round);
            EXPECT(*static_cast<volatile unsigned long long *>(message) == round);
            nvshmem_ulonglong_p(taken, round, other);
        }
        nvshmem_ulonglong_p(written, round, other);
        nvshmem_quiet();
        unsigned long long found = *static_cast<volatile unsigned long long *>(written);
        // What each has found, for the other one: 1 where it was this round's.
        nvshmem_ulonglong_p(seen, 2 * round + (found == round), other);
        nvshmem_ulonglong_wait_until(seen, NVSHMEM_CMP_GE, 2 * round);
        EXPECT(found == round || *static_cast<volatile unsigned long long *>(seen) == 2 * round + 1);
    }
    nvshmem_barrier_all();
}

__global__ void collectives(int *to, int *from, double *real, size_t count) {
    int me = nvshmem_my_pe(), pes = nvshmem_n_pes();
    for (size_t at = threadIdx.x; at < count; at += blockDim.x) from[at] = static_cast<int>(at) + 100000 * me;
    nvshmemx_int_fcollect_block(NVSHMEM_TEAM_WORLD, to, from, count);
    for (size_t at = threadIdx.x; at < count * pes; at += blockDim.x)
        EXPECT(to[at] == static_cast<int>(at % count + 100000 * (at / count)));
    nvshmemx_barrier_all_block();
    nvshmemx_int_broadcast_block(NVSHMEM_TEAM_WORLD, to, from, count, pes - 1);
    for (size_t at = threadIdx.x; at < count; at += blockDim.x)
        EXPECT(to[at] == static_cast<int>(at) + 100000 * (pes - 1));
    nvshmemx_barrier_all_block();
    nvshmemx_int_sum_reduce_block(NVSHMEM_TEAM_WORLD, to, from, count);
    nvshmemx_int_max_reduce_block(NVSHMEM_TEAM_WORLD, from, from, count);
    for (size_t at = threadIdx.x; at < count; at += blockDim.x) {
        EXPECT(to[at] == static_cast<int>(at) * pes + 100000 * (pes * (pes - 1) / 2));
        EXPECT(from[at] == static_cast<int>(at) + 100000 * (pes - 1));
    }
    for (int pe = threadIdx.x; pe < pes; pe += blockDim.x) real[pe] = 10 * me + pe;
    nvshmemx_double_alltoall_block(NVSHMEM_TEAM_WORLD, real + pes, real, 1);
    for (int pe = threadIdx.x; pe < pes; pe += blockDim.x) EXPECT(real[pes + pe] == 10 * pe + me);
    nvshmemx_barrier_all_block();
}

__global__ void put_outside(int *own, int pe) { nvshmem_int_p(own, 1, pe); }

__global__ void wait_for_numbers(const long *to, uint64_t *signal, int from_pe) {
    nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, 1);
    for (int at = 0; at < COUNT; at++) EXPECT(to[at] == 10L * at + from_pe);
}

__global__ void send_numbers(long *to, long *from, uint64_t *signal, int pe) {
    for (int at = threadIdx.x; at < COUNT; at += blockDim.x) from[at] = 10L * at + nvshmem_my_pe();
    __syncthreads();
    nvshmemx_long_put_signal_block(to, from, COUNT, signal, 1, NVSHMEM_SIGNAL_SET, pe);
}

// A copy in the default stream that waits for a kernel, which waits for another PE: proxies' copies go on.
static void copy_during_a_kernel(int me, int pes) {
    long *from = static_cast<long *>(nvshmem_calloc(2 * COUNT, sizeof(long))), *to = from + COUNT, found = 0;
    uint64_t *signal = static_cast<uint64_t *>(nvshmem_calloc(1, sizeof(uint64_t)));
    cudaStream_t blocking;
    CHECK_CUDA(cudaStreamCreate(&blocking));
    if (me == 0 && pes > 1) wait_for_numbers<<<1, 1, 0, blocking>>>(to, signal, pes - 1);
    // Time for the copy to begin; a copy that begins later finds the numbers all the same.
    else if (me == pes - 1) usleep(300000);
    if (me == pes - 1 && me != 0) send_numbers<<<1, 128>>>(to, from, signal, 0);
    if (me == 0 && pes > 1) {
        CHECK_CUDA(cudaMemcpy(&found, to + COUNT - 1, sizeof found, cudaMemcpyDeviceToHost));
        REQUIRE(found == 10L * (COUNT - 1) + pes - 1, "the last number is %ld", found);
    }
    CHECK_CUDA(cudaStreamSynchronize(blocking));
    if (pes > 1) expect_none("copy_during_a_kernel");
    nvshmem_barrier_all();
    CHECK_CUDA(cudaStreamDestroy(blocking));
    nvshmem_free(signal);
    nvshmem_free(from);
}

// What the host puts into a stream, and what it does itself.
static void from_host(int me, int pes) {
    int next = (me + 1) % pes, before = (me + pes - 1) % pes;
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    long *from = static_cast<long *>(nvshmem_calloc(2 * COUNT, sizeof(long))), *to = from + COUNT;
    uint64_t *signal = static_cast<uint64_t *>(nvshmem_calloc(1, sizeof(uint64_t)));
    std::vector<long> numbers(COUNT), found(COUNT);
    for (int at = 0; at < COUNT; at++) numbers[at] = 1000L * me + at;
    CHECK_CUDA(cudaMemcpyAsync(from, numbers.data(), COUNT * sizeof(long), cudaMemcpyHostToDevice, stream));
    nvshmemx_long_put_signal_on_stream(to, from, COUNT, signal, 5, NVSHMEM_SIGNAL_SET, next, stream);
    nvshmemx_signal_wait_until_on_stream(signal, NVSHMEM_CMP_EQ, 5, stream);
    CHECK_CUDA(cudaMemcpyAsync(found.data(), to, COUNT * sizeof(long), cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    for (int at = 0; at < COUNT; at++)
        REQUIRE(found[at] == 1000L * before + at, "number %d is %ld", at, found[at]);
    nvshmemx_barrier_all_on_stream(stream);
    nvshmemx_long_p_on_stream(to, 77 + me, next, stream);
    nvshmemx_barrier_all_on_stream(stream);
    nvshmemx_long_sum_reduce_on_stream(NVSHMEM_TEAM_WORLD, from, to, 1, stream);
    CHECK_CUDA(cudaMemcpyAsync(found.data(), from, sizeof(long), cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    REQUIRE(found[0] == 77L * pes + pes * (pes - 1) / 2, "the sum is %ld", found[0]);
    nvshmemx_long_broadcast_on_stream(NVSHMEM_TEAM_WORLD, from + 1, from, 1, pes - 1, stream);
    nvshmemx_fcollectmem_on_stream(NVSHMEM_TEAM_WORLD, from + 2, to, sizeof(long), stream);
    CHECK_CUDA(cudaMemcpyAsync(found.data(), from, (2 + pes) * sizeof(long), cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    REQUIRE(found[1] == found[0], "what was broadcast is %ld", found[1]);
    for (int pe = 0; pe < pes; pe++)
        REQUIRE(found[2 + pe] == 77 + (pe + pes - 1) % pes, "of PE %d came %ld", pe, found[2 + pe]);
    REQUIRE(nvshmem_long_g(to, next) == 77 + me, "the host got something else");
    nvshmem_barrier_all();
    nvshmem_long_p(to + 1, 9 + me, next);
    nvshmem_long_put(to + 2, to + 1, 1, next);
    nvshmem_barrier_all();
    REQUIRE(nvshmem_long_g(to + 1, me) == 9 + before, "the host's number has not come");
    REQUIRE(nvshmem_ptr(to, me) == to && nvshmem_ptr(numbers.data(), me) == nullptr, "an address is wrong");
    nvshmem_free(signal);
    nvshmem_free(from);
    CHECK_CUDA(cudaStreamDestroy(stream));
}

// Objects lie at the same offset everywhere, and memory that was freed is used again.
static void heap(int me) {
    char *first = static_cast<char *>(nvshmem_malloc(1000)),
         *second = static_cast<char *>(nvshmem_align(4096, 100000));
    REQUIRE(first != nullptr && second != nullptr && reinterpret_cast<uintptr_t>(second) % 4096 == 0,
            "no memory");
    nvshmem_free(first);
    REQUIRE(nvshmem_malloc(900) == first, "what was freed is not used again");
    nvshmem_free(first);
    nvshmem_free(second);
    REQUIRE(nvshmem_malloc(0) == nullptr && nvshmem_malloc(1ul << 40) == nullptr, "a heap without an end");
    REQUIRE(nvshmem_ptr(first, me) == first, "an object is at another address");
}

int main(int count, char **arguments) {
    std::string mode = count > 1 ? arguments[1] : "";
    REQUIRE(getenv("CUDA_MODULE_LOADING") != nullptr, "kernels would be loaded while others wait");
    nvshmem_init();
    int me = nvshmem_my_pe(), pes = nvshmem_n_pes(), devices = 1;
    CHECK_CUDA(cudaGetDeviceCount(&devices));
    CHECK_CUDA(cudaSetDevice(me % devices));
    if (mode == "size") {
        REQUIRE(nvshmem_malloc(me == pes - 1 ? 64 : 32) == nullptr, "different sizes were allocated");
        nvshmem_finalize();
        return pass();
    }
    if (mode == "outside") {
        int *own;
        nvshmem_barrier_all();
        CHECK_CUDA(cudaMalloc(&own, sizeof(int)));
        if (me == pes - 1) put_outside<<<1, 1>>>(own, 0);
        REQUIRE(me != pes - 1 || cudaDeviceSynchronize() != cudaSuccess, "a kernel goes on behind an error");
        // Says why, and ends the program.
        nvshmem_barrier_all();
        fail("a put to memory that is not symmetric was done");
    }
    int *words = static_cast<int *>(nvshmem_calloc(64, sizeof(int)));
    float *numbers = static_cast<float *>(nvshmem_malloc(2 * COUNT * sizeof(float)));
    uint64_t *signal = static_cast<uint64_t *>(nvshmem_calloc(16, sizeof(uint64_t)));
    REQUIRE(words != nullptr && numbers != nullptr && signal != nullptr, "no memory");
    ring_shift<<<1, 1>>>(words);
    expect_none("ring_shift");
    int rounds = 5;
    for (bool is_nbi : {false, true}) {
        void *of_kernel[] = {&numbers, nullptr, &signal, &rounds, &is_nbi};
        float *second = numbers + COUNT;
        of_kernel[1] = &second;
        CHECK_CUDA(cudaMemset(signal, 0, sizeof *signal));
        CHECK_CUDA(cudaDeviceSynchronize());
        nvshmem_barrier_all();
        REQUIRE(nvshmemx_collective_launch(reinterpret_cast<const void *>(ping_pong), 1, 128, of_kernel, 0,
                                           0) == 0,
                "no launch");
        expect_none("ping_pong");
    }
    unsigned int *bins = static_cast<unsigned int *>(nvshmem_calloc(BINS + 1, sizeof(unsigned int)));
    unsigned long long *sum =
        static_cast<unsigned long long *>(nvshmem_calloc(1, sizeof(unsigned long long)));
    int *max_seen = static_cast<int *>(nvshmem_calloc(1, sizeof(int)));
    // One fourth of the bits of a word each.
    if (pes <= 8 && mode != "set") {
        histogram<<<2, 32>>>(bins, sum, max_seen, bins + BINS);
        CHECK_CUDA(cudaDeviceSynchronize());
        nvshmem_barrier_all();
        check_histogram<<<1, 1>>>(bins, sum, max_seen, bins + BINS, 64, pes);
        expect_none("histogram");
        all_atomics<<<1, 1>>>(reinterpret_cast<long *>(signal + 2), numbers,
                              reinterpret_cast<unsigned int *>(signal + 4));
        expect_none("all_atomics");
    }
    char *own;
    CHECK_CUDA(cudaMalloc(&own, 4096));
    own_memory<<<1, 32>>>(reinterpret_cast<char *>(numbers), own, own + 2048, 1201);
    expect_none("own_memory");
    CHECK_CUDA(cudaFree(own));
    flags<<<1, 1>>>(words + 8, words + 24, reinterpret_cast<size_t *>(signal + 8));
    expect_none("flags");
    if (pes > 1) {
        unsigned long long *litmus_words =
            static_cast<unsigned long long *>(nvshmem_calloc(8, sizeof(unsigned long long)));
        litmus<<<1, 1>>>(litmus_words, 300);
        expect_none("litmus");
        nvshmem_free(litmus_words);
    }
    int *gathered = static_cast<int *>(nvshmem_malloc((pes + 1) * COUNT * sizeof(int)));
    collectives<<<1, 64>>>(gathered, gathered + pes * COUNT, reinterpret_cast<double *>(numbers), COUNT);
    expect_none("collectives");
    from_host(me, pes);
    printf("from_host\n");
    copy_during_a_kernel(me, pes);
    printf("copy_during_a_kernel\n");
    heap(me);
    nvshmem_free(gathered);
    nvshmem_finalize();
    return pass();
}

// What a synchronous copy brought to the device is there for whatever comes next, also in a stream that is in no order
// with the copy's, and also when the copy found its own stream busy. A long one is done when it returns, and so is what
// came before it. That CUDA itself promises for pinned memory alone: long copies from pageable memory are tried with the argument
// `pageable`, and by themselves with `alone`, or `alone unasked` if nobody asks how far they are.
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdlib.h>

#include "check.h"

enum { NUMBERS = 1000, ROUNDS = 20, COPIES_IN_A_ROW = 200 };

static const long long LONG = 2 * 1000 * 1000;

__global__ void spin(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
}

__global__ void add(const int *numbers, int *sums) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < NUMBERS) sums[i] += numbers[i];
}

__global__ void append(const int *number, int *list, int position) { list[position] = *number; }

// The kernel in the other stream reads what the copy before it wrote, however long the copy's own stream takes.
static void busy_stream(cudaStream_t other, int *numbers, int *sums) {
    int host[NUMBERS], found[NUMBERS], expected = 0;
    CHECK_CUDA(cudaMemset(sums, 0, sizeof host));
    CHECK_CUDA(cudaDeviceSynchronize());
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < NUMBERS; i++) host[i] = round;
        expected += round;
        spin<<<1, 1>>>(LONG);
        CHECK_CUDA(cudaMemcpy(numbers, host, sizeof host, cudaMemcpyHostToDevice));
        for (int i = 0; i < NUMBERS; i++) host[i] = -1;
        add<<<(NUMBERS + 127) / 128, 128, 0, other>>>(numbers, sums);
        CHECK_CUDA(cudaStreamSynchronize(other));
    }
    CHECK_CUDA(cudaMemcpy(found, sums, sizeof found, cudaMemcpyDeviceToHost));
    for (int i = 0; i < NUMBERS; i++)
        REQUIRE(found[i] == expected, "the sum at %d should be %d, is %d", i, expected, found[i]);
}

// A stream that is made after the copy finds its bytes, too; and each of many small copies is seen in turn.
static void new_stream(int *number, int *list) {
    int found[COPIES_IN_A_ROW];
    spin<<<1, 1>>>(LONG);
    int value = 0;
    CHECK_CUDA(cudaMemcpy(number, &value, sizeof value, cudaMemcpyHostToDevice));
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    append<<<1, 1, 0, stream>>>(number, list, 0);
    for (int i = 1; i < COPIES_IN_A_ROW; i++) {
        CHECK_CUDA(cudaStreamSynchronize(stream));
        value = 3 * i;
        CHECK_CUDA(cudaMemcpy(number, &value, sizeof value, cudaMemcpyHostToDevice));
        append<<<1, 1, 0, stream>>>(number, list, i);
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaMemcpy(found, list, sizeof found, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COPIES_IN_A_ROW; i++)
        REQUIRE(found[i] == 3 * i, "copy %d should have been seen as %d, was %d", i, 3 * i, found[i]);
}

// More commands in front of the copy than a stream takes at once.
static void long_queue(cudaStream_t other, int *number, int *list) {
    for (int i = 0; i < 2000; i++) spin<<<1, 1>>>(1000);
    int value = 77, found = 0;
    CHECK_CUDA(cudaMemcpy(number, &value, sizeof value, cudaMemcpyHostToDevice));
    append<<<1, 1, 0, other>>>(number, list, 0);
    CHECK_CUDA(cudaMemcpyAsync(&found, list, sizeof found, cudaMemcpyDeviceToHost, other));
    CHECK_CUDA(cudaStreamSynchronize(other));
    REQUIRE(found == value, "behind a long queue %d was seen instead of %d", found, value);
}

static const size_t SIZES[] = {65540, 300000, 1 << 20, (6 << 20) + 4};
enum { MAX_BYTES = (6 << 20) + 4, LONG_COPIES = 12 };

__global__ void count_others(const int *numbers, size_t count, int value, int *others) {
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += step)
        if (numbers[i] != value) atomicAdd(others, 1);
}

// Long copies out of memory that changes as soon as they return, each looked at by a stream that is in no order with them.
static void long_copies(int *host, int *numbers, int *others, cudaStream_t other, const char *kind, int is_asked) {
    int found = 0;
    for (int round = 1; round <= LONG_COPIES; round++) {
        size_t count = SIZES[round % 4] / sizeof(int);
        for (size_t i = 0; i < count; i++) host[i] = round;
        CHECK_CUDA(cudaMemcpy(numbers, host, count * sizeof(int), cudaMemcpyHostToDevice));
        memset(host, 0xff, count * sizeof(int));
        if (is_asked) EXPECT_CUDA(cudaStreamQuery(0), cudaSuccess);
        count_others<<<4, 64, 0, other>>>(numbers, count, round, others);
        CHECK_CUDA(cudaDeviceSynchronize());
    }
    CHECK_CUDA(cudaMemcpy(&found, others, sizeof found, cudaMemcpyDeviceToHost));
    REQUIRE(found == 0, "%d numbers of long copies from %s memory were not seen", found, kind);
}

// One after the other without a wait between them, more than may be under way at once; the last one counts.
static void many_long_copies(int *host, int *numbers, int *others, cudaStream_t other) {
    size_t count = SIZES[1] / sizeof(int);
    int found = 0;
    for (int round = 1; round <= 500; round++) {
        for (size_t i = 0; i < count; i++) host[i] = round;
        CHECK_CUDA(cudaMemcpy(numbers, host, count * sizeof(int), cudaMemcpyHostToDevice));
    }
    count_others<<<4, 64, 0, other>>>(numbers, count, 500, others);
    CHECK_CUDA(cudaStreamSynchronize(other));
    CHECK_CUDA(cudaMemcpy(&found, others, sizeof found, cudaMemcpyDeviceToHost));
    REQUIRE(found == 0, "%d numbers of the last of many copies were not seen", found);
}

// A long copy waits for the work before it in its stream.
static void behind_work(int *host, int *numbers, int *others) {
    size_t count = SIZES[2] / sizeof(int);
    cudaEvent_t before;
    CHECK_CUDA(cudaEventCreateWithFlags(&before, cudaEventDisableTiming));
    for (int round = 0; round < 5; round++) {
        int found = 0;
        for (size_t i = 0; i < count; i++) host[i] = 1000 + round;
        spin<<<1, 1>>>(LONG);
        CHECK_CUDA(cudaEventRecord(before, 0));
        CHECK_CUDA(cudaMemcpy(numbers, host, SIZES[2], cudaMemcpyHostToDevice));
        EXPECT_CUDA(cudaEventQuery(before), cudaSuccess);
        count_others<<<4, 64>>>(numbers, count, 1000 + round, others);
        CHECK_CUDA(cudaMemcpy(&found, others, sizeof found, cudaMemcpyDeviceToHost));
        REQUIRE(found == 0, "%d numbers of copy %d behind a kernel were not seen", found, round);
    }
    CHECK_CUDA(cudaEventDestroy(before));
}

// Another thread gives work to the copy's stream meanwhile.
static volatile int is_over;

static void *launch_now_and_then(void *work) {
    (void)work;
    while (!is_over) {
        spin<<<1, 1>>>(1000);
        usleep(50);
    }
    return NULL;
}

static void beside_launches(int *host, int *numbers, int *others, cudaStream_t other, const char *kind) {
    pthread_t thread;
    is_over = 0;
    if (pthread_create(&thread, NULL, launch_now_and_then, NULL) != 0) fail("no thread could be started");
    long_copies(host, numbers, others, other, kind, 0);
    is_over = 1;
    pthread_join(thread, NULL);
    CHECK_CUDA(cudaDeviceSynchronize());
}

static void long_ones(int *host, int *numbers, int *others, cudaStream_t other, const char *kind) {
    long_copies(host, numbers, others, other, kind, 1);
    many_long_copies(host, numbers, others, other);
    behind_work(host, numbers, others);
    beside_launches(host, numbers, others, other, kind);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    int is_pageable = mode[0] != 0, *host, *numbers, *sums;
    cudaStream_t other;
    if (is_pageable) {
        host = (int *)malloc(MAX_BYTES);
        REQUIRE(host != NULL, "no memory");
    } else {
        CHECK_CUDA(cudaMallocHost(&host, MAX_BYTES));
    }
    memset(host, 0, MAX_BYTES);
    CHECK_CUDA(cudaMalloc(&numbers, MAX_BYTES));
    CHECK_CUDA(cudaMalloc(&sums, NUMBERS * sizeof(int)));
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMemset(sums, 0, NUMBERS * sizeof(int)));
    CHECK_CUDA(cudaDeviceSynchronize());
    if (strcmp(mode, "alone") == 0) {
        long_copies(host, numbers, sums, other, "pageable", argc == 2);
    } else {
        long_ones(host, numbers, sums, other, is_pageable ? "pageable" : "pinned");
    }
    if (is_pageable) {
        free(host);
    } else {
        busy_stream(other, numbers, sums);
        new_stream(numbers, sums);
        long_queue(other, numbers, sums);
        CHECK_CUDA(cudaFreeHost(host));
    }
    CHECK_CUDA(cudaStreamDestroy(other));
    CHECK_CUDA(cudaFree(numbers));
    CHECK_CUDA(cudaFree(sums));
    return pass();
}

// What a synchronous copy brought to the device is there for whatever comes next, also in a stream that is in no order
// with the copy's, and also when the copy found its own stream busy.
#include <cuda_runtime.h>

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

int main(void) {
    int *numbers, *sums;
    cudaStream_t other;
    CHECK_CUDA(cudaMalloc(&numbers, NUMBERS * sizeof(int)));
    CHECK_CUDA(cudaMalloc(&sums, NUMBERS * sizeof(int)));
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    busy_stream(other, numbers, sums);
    new_stream(numbers, sums);
    long_queue(other, numbers, sums);
    CHECK_CUDA(cudaStreamDestroy(other));
    CHECK_CUDA(cudaFree(numbers));
    CHECK_CUDA(cudaFree(sums));
    return pass();
}

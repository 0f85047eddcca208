// printf from kernels.  The whole standard output must equal expected/device_printf.txt: text of the host and
// of the device in the order in which the program made them, since the device's output appears at the call
// that waits for its kernel.
#include "check.h"

__global__ void print_formats() {
    printf("integers: %d %i %5d|%-5d|%05d|%+d|%u\n", -1, 2, 3, 4, 5, 6, 7u);
    printf("bases: %x %X %#x %o %#o\n", 255, 255, 255, 8, 8);
    printf("long: %ld %lu %lld %llu\n", -1234567890123l, 1234567890123ul, -9000000000000000000ll,
           18000000000000000000ull);
    printf("short: %hd\n", short(-7));
    printf("floats: %f %.2f %10.3f|%-10.1f|%e %.3E %g %G\n", 3.25, 3.14159, -2.5, 1.0, 12345.678, 0.00012,
           1e-10, 1e20);
    printf("a float is passed as a double: %f\n", 0.5f);
    printf("star: %*d|%-*d|\n", 6, 42, 6, 42);
    printf("text: %s|%10s|%-10s|%c%c\n", "plain", "right", "left", 'o', 'k');
    printf("pointer: %p\n", (void *)0x1234abcd);
    printf("percent: 100%%\n");
    printf("nothing to convert\n");
}

// The threads take turns, so the order of their lines is fixed.
__global__ void print_in_turn() {
    for (int turn = 0; turn < blockDim.x; turn++) {
        if (turn == threadIdx.x) printf("block %d thread %d\n", blockIdx.x, threadIdx.x);
        __syncthreads();
    }
}

// printf returns how many arguments it was given.
__global__ void count_arguments(int *counts) {
    counts[0] = printf("no argument\n");
    counts[1] = printf("two arguments: %d %f\n", 1, 2.0);
}

int main() {
    CHECK_CUDA(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 << 20));
    size_t buffer = 0;
    CHECK_CUDA(cudaDeviceGetLimit(&buffer, cudaLimitPrintfFifoSize));
    REQUIRE(buffer >= 2 << 20, "a printf buffer of 2 MiB was asked for, there are %zu bytes", buffer);

    printf("host: before any kernel\n");
    fflush(stdout);
    print_formats<<<1, 1>>>();
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    printf("host: between two kernels\n");
    fflush(stdout);

    print_in_turn<<<1, 4>>>();
    CHECK_LAUNCH();
    print_in_turn<<<1, 2>>>();
    CHECK_LAUNCH();
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaStreamSynchronize(0));

    int *device_counts, counts[2];
    CHECK_CUDA(cudaMalloc(&device_counts, sizeof(counts)));
    count_arguments<<<1, 1, 0, stream>>>(device_counts);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaMemcpy(counts, device_counts, sizeof(counts), cudaMemcpyDeviceToHost));
    REQUIRE(counts[0] == 0 && counts[1] == 2, "printf with 0 and with 2 arguments returned %d and %d",
            counts[0], counts[1]);
    CHECK_CUDA(cudaFree(device_counts));
    CHECK_CUDA(cudaStreamDestroy(stream));
    printf("host: after the last kernel\n");
    return pass();
}

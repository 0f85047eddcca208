// Has as many MiB of device memory as the first argument says, besides memory of every other kind, changes all of it in each of so
// many cycles as the second one says, does nothing in between for so many seconds as the third one says (or, for 0, until SIGUSR1
// comes), and checks every byte afterwards, where a server may have taken the device memory away meanwhile. Prints how long the
// first call after each pause took. `polls` as the fourth argument leaves a kernel running in the pauses.
#include "check.h"

#include <csignal>
#include <cstdlib>
#include <thread>
#include <time.h>

constexpr unsigned SMALL = 1 << 16;

__device__ unsigned variable[SMALL];

__device__ __host__ unsigned next(unsigned value, unsigned cycle) { return value * 1664525u + 1013904223u + cycle; }

// What an element is after so many cycles.
__device__ __host__ unsigned expected(size_t index, unsigned cycles) {
    unsigned value = (unsigned)(index ^ (index >> 32)) * 2654435761u;
    for (unsigned cycle = 0; cycle < cycles; cycle++) value = next(value, cycle);
    return value;
}

__global__ void begin(unsigned *memory, size_t count) {
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += stride) memory[i] = expected(i, 0);
}

__global__ void change(unsigned *memory, size_t count, unsigned cycle) {
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += stride) memory[i] = next(memory[i], cycle);
}

__global__ void change_variable(unsigned cycle) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    variable[i] = next(variable[i], cycle);
}

__global__ void count_wrong(const unsigned *memory, size_t count, unsigned cycles, unsigned long long *wrong) {
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += stride)
        if (memory[i] != expected(i, cycles)) atomicAdd(wrong, 1ull);
}

__global__ void poll(volatile unsigned *flag) {
    while (*flag == 0) __nanosleep(100'000);
}

static double seconds_now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static void check_bytes(const char *what, const unsigned *memory, unsigned cycles) {
    for (unsigned i = 0; i < SMALL; i++)
        REQUIRE(memory[i] == expected(i, cycles), "%s: element %u is %u, not %u, after %u cycles", what, i, memory[i],
                expected(i, cycles), cycles);
}

int main(int count, char **arguments) {
    const size_t elements = (count > 1 ? atoi(arguments[1]) : 16) * ((size_t)1 << 20) / sizeof(unsigned);
    const unsigned cycles = count > 2 ? atoi(arguments[2]) : 2;
    const double pause_seconds = count > 3 ? atof(arguments[3]) : 0.1;
    const bool polls = count > 4 && strcmp(arguments[4], "polls") == 0;
    // Before any thread is there, which would take it else.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    REQUIRE(sigprocmask(SIG_BLOCK, &signals, nullptr) == 0, "a signal cannot be blocked");

    cudaStream_t first, second;
    cudaEvent_t event;
    CHECK_CUDA(cudaStreamCreate(&first));
    CHECK_CUDA(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreate(&event));
    unsigned *large, *of_pool, *of_thread, *managed, *pinned, *mapped, *flag;
    unsigned long long *wrong;
    const size_t bytes = SMALL * sizeof(unsigned);
    CHECK_CUDA(cudaMalloc(&large, elements * sizeof(unsigned)));
    CHECK_CUDA(cudaMallocAsync(&of_pool, bytes, first));
    CHECK_CUDA(cudaMalloc(&of_thread, bytes));
    CHECK_CUDA(cudaMallocManaged(&managed, bytes));
    CHECK_CUDA(cudaMallocHost(&pinned, bytes));
    CHECK_CUDA(cudaHostAlloc(&mapped, bytes, cudaHostAllocMapped));
    CHECK_CUDA(cudaHostAlloc(&flag, sizeof *flag, cudaHostAllocMapped));
    CHECK_CUDA(cudaMalloc(&wrong, sizeof *wrong));
    CHECK_CUDA(cudaMemset(wrong, 0, sizeof *wrong));
    begin<<<1024, 256, 0, first>>>(large, elements);
    for (unsigned *memory : {of_pool, of_thread, managed, mapped}) begin<<<64, 256, 0, first>>>(memory, SMALL);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaStreamSynchronize(first));
    memcpy(pinned, mapped, bytes);
    CHECK_CUDA(cudaMemcpyToSymbol(variable, pinned, bytes));
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaStreamBeginCapture(second, cudaStreamCaptureModeRelaxed));
    CHECK_CUDA(cudaMemcpyAsync(pinned, mapped, bytes, cudaMemcpyDefault, second));
    CHECK_CUDA(cudaStreamEndCapture(second, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));

    for (unsigned cycle = 0; cycle < cycles; cycle++) {
        change<<<1024, 256, 0, first>>>(large, elements, cycle);
        for (unsigned *memory : {of_pool, managed, mapped}) change<<<64, 256, 0, first>>>(memory, SMALL, cycle);
        change_variable<<<SMALL / 256, 256, 0, first>>>(cycle);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaEventRecord(event, first));
        // In order behind the first stream; the graph brings what is mapped to the pinned memory.
        CHECK_CUDA(cudaStreamWaitEvent(second, event, 0));
        CHECK_CUDA(cudaGraphLaunch(executable, second));
        std::thread([=] {
            change<<<64, 256, 0, cudaStreamPerThread>>>(of_thread, SMALL, cycle);
            CHECK_LAUNCH();
            CHECK_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
        }).join();
        CHECK_CUDA(cudaDeviceSynchronize());
        if (polls) {
            *(volatile unsigned *)flag = 0;
            poll<<<1, 1, 0, second>>>(flag);
            CHECK_LAUNCH();
            REQUIRE(cudaStreamQuery(second) == cudaErrorNotReady, "the kernel does not poll");
        }
        printf("idle %u\n", cycle);
        fflush(stdout);
        int signal = 0;
        if (pause_seconds > 0)
            std::this_thread::sleep_for(std::chrono::duration<double>(pause_seconds));
        else
            REQUIRE(sigwait(&signals, &signal) == 0, "a signal cannot be waited for");
        // What a host has of it without a call is there all the time.
        check_bytes("pinned memory", pinned, cycle + 1);
        const double start = seconds_now();
        if (polls) *(volatile unsigned *)flag = 1;
        REQUIRE(cudaEventQuery(event) == cudaSuccess, "an event that was recorded is not done after a pause");
        CHECK_CUDA(cudaMemsetAsync(wrong, 0, sizeof *wrong, first));
        CHECK_CUDA(cudaStreamSynchronize(first));
        printf("the first calls after the pause took %.3f s\n", seconds_now() - start);
        if (polls) CHECK_CUDA(cudaStreamSynchronize(second));
        count_wrong<<<1024, 256, 0, first>>>(large, elements, cycle + 1, wrong);
        for (unsigned *memory : {of_pool, of_thread, managed, mapped})
            count_wrong<<<64, 256, 0, first>>>(memory, SMALL, cycle + 1, wrong);
        CHECK_LAUNCH();
        unsigned long long found = 1;
        CHECK_CUDA(cudaMemcpyAsync(&found, wrong, sizeof found, cudaMemcpyDefault, first));
        CHECK_CUDA(cudaStreamSynchronize(first));
        REQUIRE(found == 0, "%llu elements are wrong in cycle %u", found, cycle);
        check_bytes("managed memory", managed, cycle + 1);
        check_bytes("mapped memory", mapped, cycle + 1);
        static unsigned copy[SMALL];
        CHECK_CUDA(cudaMemcpyFromSymbol(copy, variable, bytes));
        check_bytes("a variable", copy, cycle + 1);
        CHECK_CUDA(cudaMemcpy(copy, large, bytes, cudaMemcpyDefault));
        check_bytes("device memory", copy, cycle + 1);
        printf("right %u\n", cycle);
        fflush(stdout);
    }
    CHECK_CUDA(cudaFree(large));
    CHECK_CUDA(cudaFreeAsync(of_pool, first));
    CHECK_CUDA(cudaDeviceSynchronize());
    return pass();
}

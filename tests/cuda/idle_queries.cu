// What is known to be done is said at once, and nothing is said to be done before it is: queries and waits of idle
// streams, loops of queries while a kernel runs, events recorded before and after, threads that post while others wait.
// With any argument only what concerns waits for the device.
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdlib.h>

#include "check.h"

__global__ void spin(long long cycles, int *flag, int value) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
    *flag = value;
}

__global__ void add(unsigned *counter) { atomicAdd(counter, 1u); }

static const long long LONG = 20 * 1000 * 1000;

static int read_flag(const int *device) {
    int value = 0;
    CHECK_CUDA(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

// As many questions about things that are done as a caching allocator asks in a training step or two.
static void idle(cudaStream_t stream, int *flag) {
    cudaEvent_t event;
    CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventQuery(event));
    spin<<<1, 1, 0, stream>>>(1, flag, 1);
    CHECK_CUDA(cudaEventRecord(event, stream));
    CHECK_CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < 1000; i++) {
        CHECK_CUDA(cudaEventQuery(event));
        CHECK_CUDA(cudaEventSynchronize(event));
        CHECK_CUDA(cudaStreamQuery(stream));
        CHECK_CUDA(cudaStreamQuery(0));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        CHECK_CUDA(cudaDeviceSynchronize());
    }
    CHECK_CUDA(cudaEventDestroy(event));
}

static int not_ready;

// An answer to a query that comes right after a launch. It may be "done" where this process had to wait for its turn on the
// processor, but only if the result is there.
static void judge(cudaError_t seen, const int *flag, int expected, const char *when) {
    if (seen == cudaErrorNotReady) {
        not_ready++;
        (void)cudaGetLastError();
        return;
    }
    CHECK_CUDA(seen);
    int value = read_flag(flag);
    REQUIRE(value == expected, "%s: done, and the flag is %d, not %d", when, value, expected);
}

// A query says "not ready" while the kernel runs, and "done" only when its result is there.
static void polled(cudaStream_t stream, int *flag) {
    cudaEvent_t before, after;
    CHECK_CUDA(cudaEventCreateWithFlags(&before, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventCreateWithFlags(&after, cudaEventDisableTiming));
    for (int round = 2; round < 6; round++) {
        CHECK_CUDA(cudaEventRecord(before, stream));
        spin<<<1, 1, 0, stream>>>(LONG, flag, round);
        CHECK_CUDA(cudaEventRecord(after, stream));
        CHECK_CUDA(cudaEventSynchronize(before));
        CHECK_CUDA(cudaEventQuery(before));
        cudaError_t seen = round % 2 ? cudaEventQuery(after) : cudaStreamQuery(stream);
        judge(seen, flag, round, "right after the launch");
        while ((seen = round % 2 ? cudaEventQuery(after) : cudaStreamQuery(stream)) == cudaErrorNotReady) {}
        CHECK_CUDA(seen);
        (void)cudaGetLastError();
        // Recorded again, it is pending again.
        spin<<<1, 1, 0, stream>>>(LONG, flag, -round);
        CHECK_CUDA(cudaEventRecord(after, stream));
        seen = cudaEventQuery(after);
        judge(seen, flag, -round, "after another record");
        CHECK_CUDA(cudaEventSynchronize(after));
        CHECK_CUDA(cudaEventQuery(after));
        int value = read_flag(flag);
        REQUIRE(value == -round, "round %d: the kernel wrote %d", round, value);
    }
    CHECK_CUDA(cudaEventDestroy(before));
    CHECK_CUDA(cudaEventDestroy(after));
}

// The legacy stream is not idle while a blocking stream works that it is in order with.
static void legacy(int *flag) {
    cudaStream_t blocking;
    CHECK_CUDA(cudaStreamCreate(&blocking));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaMemsetAsync(flag, 0, sizeof *flag, 0));
    CHECK_CUDA(cudaStreamSynchronize(0));
    spin<<<1, 1, 0, blocking>>>(LONG, flag, 77);
    spin<<<1, 1>>>(1, flag, 78);
    cudaError_t seen = cudaStreamQuery(0);
    judge(seen, flag, 78, "the legacy stream behind a blocking one");
    CHECK_CUDA(cudaStreamSynchronize(0));
    CHECK_CUDA(cudaStreamQuery(blocking));
    REQUIRE(read_flag(flag) == 78, "the kernels ran in the wrong order");
    CHECK_CUDA(cudaStreamDestroy(blocking));
}

// Who has waited for the default stream has waited for the device, unless a stream is at work that is not in order with it;
// one that was destroyed meanwhile is at work, too.
static void device(int *flag) {
    for (int i = 0; i < 300; i++) {
        spin<<<1, 1>>>(1, flag, i);
        CHECK_CUDA(cudaStreamSynchronize(0));
        CHECK_CUDA(cudaDeviceSynchronize());
    }
    int *other;
    CHECK_CUDA(cudaMalloc(&other, sizeof *other));
    for (int round = 1; round < 5; round++) {
        cudaStream_t apart;
        CHECK_CUDA(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
        spin<<<1, 1, 0, apart>>>(LONG, flag, -round);
        if (round % 2) CHECK_CUDA(cudaStreamDestroy(apart));
        CHECK_CUDA(cudaMemsetAsync(other, 0, sizeof *other, 0));
        CHECK_CUDA(cudaStreamSynchronize(0));
        CHECK_CUDA(cudaDeviceSynchronize());
        int value = read_flag(flag);
        REQUIRE(value == -round, "the device is done, and the flag is %d, not %d", value, -round);
        if (round % 2 == 0) CHECK_CUDA(cudaStreamDestroy(apart));
    }
    CHECK_CUDA(cudaFree(other));
}

static unsigned *counters;
static int stop;

static void *post(void *argument) {
    long index = (long)argument;
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 1; i <= 200; i++) {
        add<<<1, 1, 0, stream>>>(counters + index);
        CHECK_CUDA(cudaGetLastError());
        unsigned value = 0;
        if (i % 2) {
            CHECK_CUDA(cudaStreamSynchronize(stream));
        } else {
            cudaError_t seen;
            while ((seen = cudaStreamQuery(stream)) == cudaErrorNotReady) {}
            CHECK_CUDA(seen);
            (void)cudaGetLastError();
        }
        CHECK_CUDA(cudaMemcpyAsync(&value, counters + index, sizeof value, cudaMemcpyDeviceToHost, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        REQUIRE(value == (unsigned)i, "thread %ld: %u launches are done, not %d", index, value, i);
    }
    CHECK_CUDA(cudaStreamDestroy(stream));
    return NULL;
}

static void *synchronize(void *) {
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) CHECK_CUDA(cudaDeviceSynchronize());
    return NULL;
}

int main(int argc, char **) {
    int *flag;
    cudaStream_t stream;
    CHECK_CUDA(cudaMalloc(&flag, sizeof *flag));
    device(flag);
    if (argc > 1) return pass();
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    idle(stream, flag);
    polled(stream, flag);
    legacy(flag);
    REQUIRE(not_ready > 0, "no query ever found a kernel of %lld cycles at work", LONG);

    CHECK_CUDA(cudaMalloc(&counters, 4 * sizeof *counters));
    CHECK_CUDA(cudaMemset(counters, 0, 4 * sizeof *counters));
    CHECK_CUDA(cudaDeviceSynchronize());
    pthread_t threads[4], waiting;
    pthread_create(&waiting, NULL, synchronize, NULL);
    for (long i = 0; i < 4; i++) pthread_create(threads + i, NULL, post, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(waiting, NULL);
    CHECK_CUDA(cudaStreamDestroy(stream));
    return pass();
}

// Streams and events: order within a stream, waits between streams, the legacy default stream, priorities, queries, timing,
// host functions and callbacks.
#include "check.h"

#include <vector>

// One thread that is busy for a while, so that what must wait for it would be seen not to.
__global__ void slow_write(unsigned *out, unsigned value, int iterations) {
    unsigned x = value;
    for (int i = 0; i < iterations; i++) x = x * 1664525u + 1013904223u;
    *out = x == 12345u ? value + 1 : value;
}

__global__ void add_to(const unsigned *in, unsigned *out, unsigned addend) { *out = *in + addend; }

constexpr int BUSY = 400'000;

static unsigned *words;  // device memory for all the checks

static unsigned read_word(int index) {
    unsigned value;
    CHECK_CUDA(cudaMemcpy(&value, words + index, sizeof(value), cudaMemcpyDeviceToHost));
    return value;
}

static void check_wait_between_streams() {
    cudaStream_t first, second;
    cudaEvent_t written;
    CHECK_CUDA(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
    for (unsigned round = 1; round <= 5; round++) {
        slow_write<<<1, 1, 0, first>>>(words, 100 * round, BUSY);
        CHECK_CUDA(cudaEventRecord(written, first));
        CHECK_CUDA(cudaStreamWaitEvent(second, written, 0));
        add_to<<<1, 1, 0, second>>>(words, words + 1, 7);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaStreamSynchronize(second));
        unsigned value = read_word(1);
        REQUIRE(value == 100 * round + 7, "round %u: the second stream did not wait for the first: %u", round, value);
    }
    CHECK_CUDA(cudaEventQuery(written));
    CHECK_CUDA(cudaStreamSynchronize(first));
    CHECK_CUDA(cudaStreamQuery(first));
    CHECK_CUDA(cudaEventDestroy(written));
    CHECK_CUDA(cudaStreamDestroy(first));
    CHECK_CUDA(cudaStreamDestroy(second));
}

// A blocking stream and the default stream wait for each other without any event.
static void check_legacy_default_stream() {
    cudaStream_t blocking, other;
    CHECK_CUDA(cudaStreamCreate(&blocking));
    CHECK_CUDA(cudaStreamCreate(&other));
    slow_write<<<1, 1, 0, blocking>>>(words, 500, BUSY);
    add_to<<<1, 1>>>(words, words + 1, 1);
    add_to<<<1, 1, 0, other>>>(words + 1, words + 2, 1);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaStreamSynchronize(other));
    unsigned value = read_word(2);
    REQUIRE(value == 502, "the default stream did not order two blocking streams: %u instead of 502", value);
    // Destroying a stream with work in it lets the work finish.
    slow_write<<<1, 1, 0, blocking>>>(words + 3, 77, BUSY);
    CHECK_CUDA(cudaStreamDestroy(blocking));
    CHECK_CUDA(cudaStreamDestroy(other));
    CHECK_CUDA(cudaDeviceSynchronize());
    REQUIRE(read_word(3) == 77, "work of a destroyed stream was lost: %u instead of 77", read_word(3));
}

static void check_timing() {
    cudaEvent_t start, middle, stop;
    CHECK_CUDA(cudaEventCreate(&start));
    CHECK_CUDA(cudaEventCreateWithFlags(&middle, cudaEventBlockingSync));
    CHECK_CUDA(cudaEventCreate(&stop));
    CHECK_CUDA(cudaEventQuery(start));  // an event that was never recorded counts as done
    float milliseconds = 0;
    EXPECT_CUDA(cudaEventElapsedTime(&milliseconds, start, stop), cudaErrorInvalidResourceHandle);
    CHECK_CUDA(cudaEventRecord(start));
    slow_write<<<1, 1>>>(words, 1, BUSY);
    CHECK_CUDA(cudaEventRecord(middle));
    slow_write<<<1, 1>>>(words, 2, BUSY);
    CHECK_CUDA(cudaEventRecord(stop));
    CHECK_CUDA(cudaEventSynchronize(stop));
    float to_middle = 0, from_middle = 0;
    CHECK_CUDA(cudaEventElapsedTime(&milliseconds, start, stop));
    CHECK_CUDA(cudaEventElapsedTime(&to_middle, start, middle));
    CHECK_CUDA(cudaEventElapsedTime(&from_middle, middle, stop));
    REQUIRE(to_middle > 0 && from_middle > 0, "two kernels took %g and %g ms", to_middle, from_middle);
    REQUIRE(is_close(to_middle + from_middle, milliseconds, 0.01), "%g ms and %g ms do not add up to %g ms", to_middle,
            from_middle, milliseconds);
    CHECK_CUDA(cudaEventDestroy(start));
    CHECK_CUDA(cudaEventDestroy(middle));
    CHECK_CUDA(cudaEventDestroy(stop));

    cudaEvent_t untimed;
    CHECK_CUDA(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventRecord(untimed));
    CHECK_CUDA(cudaEventSynchronize(untimed));
    EXPECT_CUDA(cudaEventElapsedTime(&milliseconds, untimed, untimed), cudaErrorInvalidResourceHandle);
    CHECK_CUDA(cudaEventDestroy(untimed));
    // Both refusals above are also the last error; take it away for the checks that follow.
    (void)cudaGetLastError();
}

struct HostCall {
    const unsigned *copied;       // pinned memory that a copy before this call filled
    std::vector<unsigned> *seen;  // what the calls saw, in their order
};

static void host_function(void *data) {
    HostCall *call = static_cast<HostCall *>(data);
    call->seen->push_back(*call->copied);
}

static void stream_callback(cudaStream_t, cudaError_t status, void *data) {
    HostCall *call = static_cast<HostCall *>(data);
    call->seen->push_back(status == cudaSuccess ? *call->copied + 1000 : unsigned(status));
}

// Host functions run in stream order, after the copies before them and before the work behind them, which copies to the same word again.
static void check_host_functions() {
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    const int rounds = 10;
    unsigned *copied;
    CHECK_CUDA(cudaMallocHost(&copied, sizeof(unsigned)));
    *copied = 0;
    std::vector<unsigned> seen;
    std::vector<HostCall> calls(2 * rounds);
    for (int i = 0; i < 2 * rounds; i++) {
        calls[i] = {copied, &seen};
        slow_write<<<1, 1, 0, stream>>>(words, 10 + i, BUSY / 10);
        CHECK_CUDA(cudaMemcpyAsync(copied, words, sizeof(unsigned), cudaMemcpyDeviceToHost, stream));
        if (i % 2 == 0)
            CHECK_CUDA(cudaLaunchHostFunc(stream, host_function, &calls[i]));
        else
            CHECK_CUDA(cudaStreamAddCallback(stream, stream_callback, &calls[i], 0));
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
    REQUIRE(seen.size() == 2 * rounds, "%d host functions were enqueued, %zu ran", 2 * rounds, seen.size());
    for (int i = 0; i < 2 * rounds; i++) {
        unsigned expected = 10 + i + (i % 2 == 0 ? 0 : 1000);
        REQUIRE(seen[i] == expected, "host function %d saw %u instead of %u", i, seen[i], expected);
    }
    CHECK_CUDA(cudaFreeHost(copied));
    CHECK_CUDA(cudaStreamDestroy(stream));
}

static void check_properties() {
    int least, greatest;
    CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    REQUIRE(greatest <= least, "the greatest priority %d is lower than the least %d", greatest, least);
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    int priority = 99;
    unsigned flags = 99;
    CHECK_CUDA(cudaStreamGetPriority(stream, &priority));
    CHECK_CUDA(cudaStreamGetFlags(stream, &flags));
    REQUIRE(priority == greatest && flags == cudaStreamNonBlocking, "a stream of priority %d has %d, flags %u", greatest, priority,
            flags);
    slow_write<<<1, 1, 0, stream>>>(words, 3, BUSY);
    CHECK_LAUNCH();
    cudaError_t state = cudaStreamQuery(stream);
    REQUIRE(state == cudaSuccess || state == cudaErrorNotReady, "a busy stream's state is %s", cudaGetErrorName(state));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaStreamQuery(stream));
    (void)cudaGetLastError();
    CHECK_CUDA(cudaStreamDestroy(stream));
}

int main() {
    CHECK_CUDA(cudaMalloc(&words, 16 * sizeof(unsigned)));
    check_wait_between_streams();
    check_legacy_default_stream();
    check_timing();
    check_host_functions();
    check_properties();
    CHECK_CUDA(cudaFree(words));
    return pass();
}

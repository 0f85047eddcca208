// Records of one event in several streams: the event stands for its newest record, whatever an earlier one still waits for,
// and what waited for an earlier one goes on waiting for that.  The first stream stands behind a host function until the
// program has seen the newest record, and has a copy from pinned memory before its own.
#include "check.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <thread>

constexpr int WORDS = 1 << 18;
constexpr size_t BYTES = WORDS * sizeof(unsigned);

static std::atomic<bool> is_released;
static unsigned *pinned, *source, *seen;
static cudaStream_t standing, second, waiting, other;

__global__ void copy_words(const unsigned *from, unsigned *to) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    to[at] = from[at];
}

static void wait_for_release(void *) {
    while (!is_released) usleep(100);
}

static unsigned word(unsigned round, unsigned at) { return round * 2654435761u + at; }

// The stream stands; what it gets then writes the words of a round to `source`.
static void stand(cudaStream_t stream, unsigned round) {
    for (unsigned at = 0; at < WORDS; at++) pinned[at] = word(round, at);
    CHECK_CUDA(cudaLaunchHostFunc(stream, wait_for_release, nullptr));
    CHECK_CUDA(cudaMemcpyAsync(source, pinned, BYTES, cudaMemcpyHostToDevice, stream));
}

static void must_stand(cudaStream_t stream) {
    cudaError_t status = cudaStreamQuery(stream);
    if (status != cudaErrorNotReady) fail("a stream that stands is %s", cudaGetErrorName(status));
}

static void must_be_recorded(cudaEvent_t event) {
    CHECK_CUDA(cudaEventSynchronize(event));
    CHECK_CUDA(cudaEventQuery(event));
}

static void release() {
    is_released = true;
    CHECK_CUDA(cudaDeviceSynchronize());
    is_released = false;
}

// `waiting` has waited for the record behind the copy, so it has seen all of it.
static void must_have_seen(unsigned round) {
    static unsigned words[WORDS];
    CHECK_CUDA(cudaMemcpy(words, seen, BYTES, cudaMemcpyDeviceToHost));
    for (unsigned at = 0; at < WORDS; at++)
        if (words[at] != word(round, at)) fail("round %u: word %u is %u, not %u", round, at, words[at], word(round, at));
}

static void see() {
    copy_words<<<WORDS / 256, 256, 0, waiting>>>(source, seen);
    CHECK_LAUNCH();
}

// One newer record, with a wait for the earlier one.
static void record_once(unsigned round, cudaEvent_t event) {
    stand(standing, round);
    CHECK_CUDA(cudaEventRecord(event, standing));
    CHECK_CUDA(cudaStreamWaitEvent(waiting, event, 0));
    see();
    CHECK_CUDA(cudaEventRecord(event, other));
    must_be_recorded(event);
    must_stand(standing);
    must_stand(waiting);
    release();
    must_have_seen(round);
    must_be_recorded(event);
}

// Two streams that stand record it, then one that does not, and again.
static void record_often(unsigned round, cudaEvent_t event) {
    stand(standing, round);
    CHECK_CUDA(cudaEventRecord(event, standing));
    CHECK_CUDA(cudaStreamWaitEvent(waiting, event, 0));
    see();
    CHECK_CUDA(cudaLaunchHostFunc(second, wait_for_release, nullptr));
    CHECK_CUDA(cudaMemcpyAsync(source, pinned, BYTES, cudaMemcpyHostToDevice, second));
    CHECK_CUDA(cudaEventRecord(event, second));
    for (int again = 0; again < 20; again++) {
        CHECK_CUDA(cudaEventRecord(event, other));
        must_be_recorded(event);
        CHECK_CUDA(cudaEventRecord(event, again % 2 ? standing : second));
    }
    CHECK_CUDA(cudaEventRecord(event, other));
    must_be_recorded(event);
    must_stand(standing);
    must_stand(second);
    release();
    must_have_seen(round);
    must_be_recorded(event);
}

// A wait that is held up does not hold up a newer record either.
static void wait_behind_work(unsigned round, cudaEvent_t event) {
    CHECK_CUDA(cudaEventRecord(event, other));
    stand(waiting, round);
    CHECK_CUDA(cudaStreamWaitEvent(waiting, event, 0));
    see();
    CHECK_CUDA(cudaEventRecord(event, other));
    must_be_recorded(event);
    must_stand(waiting);
    release();
    must_have_seen(round);
}

// Times are those of the newest records.
static void take_times(unsigned round) {
    cudaEvent_t start, end;
    CHECK_CUDA(cudaEventCreate(&start));
    CHECK_CUDA(cudaEventCreate(&end));
    stand(standing, round);
    CHECK_CUDA(cudaEventRecord(start, standing));
    CHECK_CUDA(cudaEventRecord(end, standing));
    CHECK_CUDA(cudaEventRecord(start, other));
    CHECK_CUDA(cudaEventRecord(end, other));
    must_be_recorded(end);
    float milliseconds = -1;
    CHECK_CUDA(cudaEventElapsedTime(&milliseconds, start, end));
    if (milliseconds < 0 || milliseconds > 10'000) fail("%g ms between the newest records", milliseconds);
    // Destroyed with its earlier record still to come.
    CHECK_CUDA(cudaEventDestroy(start));
    must_stand(standing);
    release();
    CHECK_CUDA(cudaEventDestroy(end));
}

// While one thread waits for the event or asks for it, another records it in a stream that does not stand: whichever comes
// first, the stream of the record before still stands.
static void record_beside_wait(unsigned round, cudaEvent_t event) {
    CHECK_CUDA(cudaLaunchHostFunc(standing, wait_for_release, nullptr));
    CHECK_CUDA(cudaEventRecord(event, standing));
    std::atomic<bool> is_waiting{false};
    std::thread waiter([&] {
        is_waiting = true;
        if (round % 2) {
            CHECK_CUDA(cudaEventSynchronize(event));
        } else {
            cudaError_t status = cudaEventQuery(event);
            if (status != cudaSuccess && status != cudaErrorNotReady) fail("an event is %s", cudaGetErrorName(status));
        }
    });
    while (!is_waiting) sched_yield();
    for (unsigned turns = round % 37 * 20; turns > 0; turns--) asm volatile("");
    CHECK_CUDA(cudaEventRecord(event, other));
    CHECK_CUDA(cudaStreamSynchronize(other));
    if (round % 2 == 0) waiter.join();
    must_stand(standing);
    release();
    if (round % 2) waiter.join();
}

int main() {
    CHECK_CUDA(cudaHostAlloc(&pinned, BYTES, 0));
    CHECK_CUDA(cudaMalloc(&source, BYTES));
    CHECK_CUDA(cudaMalloc(&seen, BYTES));
    for (cudaStream_t *stream : {&standing, &second, &waiting, &other})
        CHECK_CUDA(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    // A driver loads a kernel at its first launch, for which it may wait for streams that stand.
    see();
    CHECK_CUDA(cudaDeviceSynchronize());
    cudaEvent_t event;
    for (unsigned flags : {cudaEventDefault, cudaEventDisableTiming, cudaEventBlockingSync}) {
        CHECK_CUDA(cudaEventCreateWithFlags(&event, flags));
        record_once(flags * 10 + 1, event);
        record_often(flags * 10 + 2, event);
        wait_behind_work(flags * 10 + 3, event);
        CHECK_CUDA(cudaEventDestroy(event));
    }
    take_times(9);
    CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (unsigned round = 0; round < 600; round++) record_beside_wait(round, event);
    CHECK_CUDA(cudaEventDestroy(event));
    return pass();
}

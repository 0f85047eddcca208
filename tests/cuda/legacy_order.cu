// Order of blocking streams by calls in the legacy default stream: what one stream gets afterwards comes behind what another
// one held before, also by calls that put no work into the stream. What NVIDIA's driver puts in order so, and what it does
// not, was measured (driver 580.159.04 on an H200, 2026-11-30).
#include "check.h"

#include <unistd.h>

#include <atomic>

constexpr size_t BYTES = 1 << 20;

static cudaStream_t one, other;
static int *word;
static void *pooled, *managed;
static cudaEvent_t event, done, unrecorded;
static std::atomic<bool> goes_on;

static void wait_to_go_on(void *) {
    while (!goes_on) usleep(100);
}

static void fill() { CHECK_CUDA(cudaMemsetAsync(word + 8, 1, 4, nullptr)); }
static void record() { CHECK_CUDA(cudaEventRecord(event, nullptr)); }
static void wait_for_done() { CHECK_CUDA(cudaStreamWaitEvent(nullptr, done, 0)); }
static void free_pooled() { CHECK_CUDA(cudaFreeAsync(pooled, nullptr)); }
static void host_function() { CHECK_CUDA(cudaLaunchHostFunc(nullptr, [](void *) {}, nullptr)); }
static void attach() { CHECK_CUDA(cudaStreamAttachMemAsync(nullptr, managed, 0, cudaMemAttachGlobal)); }
static void prefetch() {
#if CUDART_VERSION >= 13000
    CHECK_CUDA(cudaMemPrefetchAsync(managed, BYTES, {cudaMemLocationTypeDevice, 0}, 0, nullptr));
#else
    CHECK_CUDA(cudaMemPrefetchAsync(managed, BYTES, 0, nullptr));
#endif
}

static void nothing() {}
static void copy_no_bytes() { CHECK_CUDA(cudaMemcpyAsync(word, word + 8, 0, cudaMemcpyDeviceToDevice, nullptr)); }
static void fill_no_bytes() { CHECK_CUDA(cudaMemsetAsync(word + 8, 1, 0, nullptr)); }
static void wait_for_unrecorded() { CHECK_CUDA(cudaStreamWaitEvent(nullptr, unrecorded, 0)); }
static void allocate() { CHECK_CUDA(cudaMallocAsync(&pooled, BYTES, nullptr)); }

struct Case {
    const char *name;
    void (*call)();
    bool puts_in_order;
};

static const Case CASES[] = {
    {"a fill", fill, true},
    {"a record", record, true},
    {"a wait for an event that is done", wait_for_done, true},
    {"memory freed in order", free_pooled, true},
    {"a host function", host_function, true},
    {"managed memory attached", attach, true},
    {"managed memory prefetched", prefetch, true},
    {"nothing", nothing, false},
    {"a copy of no bytes", copy_no_bytes, false},
    {"a fill of no bytes", fill_no_bytes, false},
    {"a wait for an event that was never recorded", wait_for_unrecorded, false},
    {"memory allocated in order", allocate, false},
};

// What the word holds at the end: the bytes of the stream that was last.
static int last_byte(const Case &tried, bool ends_first) {
    int bytes = 0;
    goes_on = false;
    CHECK_CUDA(cudaLaunchHostFunc(one, wait_to_go_on, nullptr));
    CHECK_CUDA(cudaMemsetAsync(word, 1, 4, one));
    if (ends_first) CHECK_CUDA(cudaStreamDestroy(one));
    tried.call();
    CHECK_CUDA(cudaMemsetAsync(word, 2, 4, other));
    if (tried.puts_in_order) {
        // Long enough for a stream that nothing holds up.
        usleep(20'000);
        REQUIRE(cudaStreamQuery(other) == cudaErrorNotReady, "%s: the other stream did not wait", tried.name);
    } else {
        CHECK_CUDA(cudaStreamSynchronize(other));
    }
    goes_on = true;
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaMemcpy(&bytes, word, 4, cudaMemcpyDeviceToHost));
    if (ends_first) CHECK_CUDA(cudaStreamCreate(&one));
    return bytes & 255;
}

int main() {
    CHECK_CUDA(cudaStreamCreate(&one));
    CHECK_CUDA(cudaStreamCreate(&other));
    CHECK_CUDA(cudaMalloc(&word, 64));
    CHECK_CUDA(cudaMallocManaged(&managed, BYTES));
    for (cudaEvent_t *made : {&event, &done, &unrecorded}) CHECK_CUDA(cudaEventCreate(made));
    CHECK_CUDA(cudaEventRecord(done, one));
    CHECK_CUDA(cudaStreamSynchronize(one));
    // Once for what the first use makes.
    CHECK_CUDA(cudaMallocAsync(&pooled, BYTES, one));
    CHECK_CUDA(cudaFreeAsync(pooled, one));
    CHECK_CUDA(cudaMemsetAsync(word, 0, 4, other));
    for (bool ends_first : {false, true}) {
        for (const Case &tried : CASES) {
            if (tried.call == free_pooled) CHECK_CUDA(cudaMallocAsync(&pooled, BYTES, one));
            CHECK_CUDA(cudaDeviceSynchronize());
            const int last = last_byte(tried, ends_first);
            const char *ended = ends_first ? ", the first stream destroyed" : "";
            REQUIRE(last == (tried.puts_in_order ? 2 : 1), "%s%s: stream %d was last", tried.name, ended, last);
            if (tried.call == allocate) CHECK_CUDA(cudaFree(pooled));
        }
    }
    CHECK_CUDA(cudaFree(managed));
    CHECK_CUDA(cudaFree(word));
    return pass();
}

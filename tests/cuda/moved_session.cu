// A program whose session is moved while it works.  Two threads launch kernels that count themselves, in streams that wait for
// each other's events, copy to the device and back, and check every number, until the file of the argument is there; both the
// memory of each thread and a variable of the module have to know of every launch, once.  `refused` as the second argument has
// an array, which no server can take over, `idle` waits for the file without a call.
#include "check.h"

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

constexpr unsigned COUNT = 1 << 16;
constexpr size_t BYTES = COUNT * sizeof(unsigned);

__device__ unsigned long long launches;
__device__ unsigned table[COUNT];
// The program sets it by its address.
__device__ unsigned cleared = 5;

__global__ void step(unsigned *data, unsigned *own) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = data[i] * 3 + i + cleared;
    atomicAdd(&table[i], 1u);
    if (i == 0) {
        atomicAdd(own, 1u);
        atomicAdd(&launches, 1ull);
    }
}

static std::atomic<unsigned long long> launched;
static cudaEvent_t events[2];

static void work(unsigned number, const char *end, bool idle) {
    unsigned *data, *own, *copy;
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMalloc(&data, BYTES));
    CHECK_CUDA(cudaMalloc(&own, sizeof *own));
    CHECK_CUDA(cudaMalloc(&copy, BYTES));
    CHECK_CUDA(cudaMemset(own, 0, sizeof *own));
    std::vector<unsigned> expected(COUNT), found(COUNT);
    for (unsigned i = 0; i < COUNT; i++) expected[i] = i * (number + 7);
    CHECK_CUDA(cudaMemcpy(data, expected.data(), BYTES, cudaMemcpyHostToDevice));
    unsigned steps = 0;
    for (unsigned round = 0;; round++) {
        const bool is_last = access(end, F_OK) == 0;
        const unsigned batch = round % 17 + 1;
        for (unsigned launch = 0; launch < batch; launch++) step<<<COUNT / 256, 256, 0, stream>>>(data, own);
        CHECK_LAUNCH();
        for (unsigned launch = 0; launch < batch; launch++)
            for (unsigned i = 0; i < COUNT; i++) expected[i] = expected[i] * 3 + i;
        steps += batch;
        launched += batch;
        CHECK_CUDA(cudaEventRecord(events[number], stream));
        CHECK_CUDA(cudaStreamWaitEvent(stream, events[1 - number], 0));
        CHECK_CUDA(cudaMemcpyAsync(copy, data, BYTES, cudaMemcpyDeviceToDevice, stream));
        CHECK_CUDA(cudaMemcpyAsync(found.data(), copy, BYTES, cudaMemcpyDeviceToHost, stream));
        CHECK_CUDA(cudaEventSynchronize(events[number]));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        for (unsigned i = 0; i < COUNT; i++)
            REQUIRE(found[i] == expected[i], "round %u: number %u is %u instead of %u", round, i, found[i], expected[i]);
        unsigned counted;
        CHECK_CUDA(cudaMemcpyAsync(&counted, own, sizeof counted, cudaMemcpyDeviceToHost, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        REQUIRE(counted == steps, "%u launches were counted instead of %u", counted, steps);
        // The bytes of this go to the device while the session may be on its way.
        if (round % 3 == 0) CHECK_CUDA(cudaMemcpyAsync(data, expected.data(), BYTES, cudaMemcpyHostToDevice, stream));
        if (is_last) break;
        if (round == 0 && number == 0) {
            puts("running");
            fflush(stdout);
        }
        while (idle && access(end, F_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaFree(data));
    CHECK_CUDA(cudaFree(own));
    CHECK_CUDA(cudaFree(copy));
    CHECK_CUDA(cudaStreamDestroy(stream));
}

int main(int count, char **arguments) {
    REQUIRE(count >= 2, "give a file whose being there ends the program");
    const char *how = count > 2 ? arguments[2] : "";
    for (cudaEvent_t &event : events) CHECK_CUDA(cudaEventCreate(&event));
    const unsigned zero = 0;
    CHECK_CUDA(cudaMemcpyToSymbol(cleared, &zero, sizeof zero));
    cudaArray_t array = nullptr;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    if (strcmp(how, "refused") == 0) CHECK_CUDA(cudaMallocArray(&array, &format, 16, 16));
    const bool idle = strcmp(how, "idle") == 0;
    std::thread other(work, 1, arguments[1], idle);
    work(0, arguments[1], idle);
    other.join();
    unsigned long long counted;
    CHECK_CUDA(cudaMemcpyFromSymbol(&counted, launches, sizeof counted));
    REQUIRE(counted == launched, "%llu launches were counted instead of %llu", counted, launched.load());
    static unsigned found[COUNT];
    CHECK_CUDA(cudaMemcpyFromSymbol(found, table, BYTES));
    for (unsigned i = 0; i < COUNT; i++) REQUIRE(found[i] == counted, "entry %u of the table is %u instead of %llu", i, found[i], counted);
    return pass();
}

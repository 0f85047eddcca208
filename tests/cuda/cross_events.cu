// Two threads, a stream each; in every round each stream waits for the event that the other thread recorded.  The threads meet
// on the host only to know that both events are recorded; all the waiting for data is done by the streams.
#include "check.h"

#include <pthread.h>

#include <thread>

constexpr int ROUNDS = 150;

struct Side {
    unsigned *value;        // written by this side's stream in every round
    unsigned *mismatches;   // how often this side's stream read something else from the other side than it should
    cudaStream_t stream;
    cudaEvent_t written, read;
};

__global__ void write_value(unsigned *value, unsigned round) {
    // Some work first, so that a missing wait would show.
    unsigned x = round;
    for (int i = 0; i < 5'000; i++) x = x * 1664525u + 1013904223u;
    *value = x == 1u ? 0 : round;
}

__global__ void compare(const unsigned *value, unsigned round, unsigned *mismatches) {
    if (*value != round) *mismatches += 1;
}

static Side sides[2];
static pthread_barrier_t meeting;

static void run(int id) {
    Side &own = sides[id], &other = sides[1 - id];
    for (unsigned round = 1; round <= ROUNDS; round++) {
        write_value<<<1, 1, 0, own.stream>>>(own.value, round);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaEventRecord(own.written, own.stream));
        pthread_barrier_wait(&meeting);
        CHECK_CUDA(cudaStreamWaitEvent(own.stream, other.written, 0));
        compare<<<1, 1, 0, own.stream>>>(other.value, round, own.mismatches);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaEventRecord(own.read, own.stream));
        pthread_barrier_wait(&meeting);
        // The next round's value must not be written before the other side has read this one's.
        CHECK_CUDA(cudaStreamWaitEvent(own.stream, other.read, 0));
    }
    CHECK_CUDA(cudaStreamSynchronize(own.stream));
}

int main() {
    pthread_barrier_init(&meeting, nullptr, 2);
    for (Side &side : sides) {
        CHECK_CUDA(cudaMalloc(&side.value, sizeof(unsigned)));
        CHECK_CUDA(cudaMalloc(&side.mismatches, sizeof(unsigned)));
        CHECK_CUDA(cudaMemset(side.value, 0, sizeof(unsigned)));
        CHECK_CUDA(cudaMemset(side.mismatches, 0, sizeof(unsigned)));
        CHECK_CUDA(cudaStreamCreateWithFlags(&side.stream, cudaStreamNonBlocking));
        CHECK_CUDA(cudaEventCreateWithFlags(&side.written, cudaEventDisableTiming));
        CHECK_CUDA(cudaEventCreateWithFlags(&side.read, cudaEventDisableTiming));
    }
    CHECK_CUDA(cudaDeviceSynchronize());
    std::thread first(run, 0), second(run, 1);
    first.join();
    second.join();
    for (int id = 0; id < 2; id++) {
        unsigned mismatches = 0;
        CHECK_CUDA(cudaMemcpy(&mismatches, sides[id].mismatches, sizeof(mismatches), cudaMemcpyDeviceToHost));
        REQUIRE(mismatches == 0, "stream %d read a wrong value of the other %u times in %d rounds", id, mismatches, ROUNDS);
    }
    for (Side &side : sides) {
        CHECK_CUDA(cudaFree(side.value));
        CHECK_CUDA(cudaFree(side.mismatches));
        CHECK_CUDA(cudaStreamDestroy(side.stream));
        CHECK_CUDA(cudaEventDestroy(side.written));
        CHECK_CUDA(cudaEventDestroy(side.read));
    }
    pthread_barrier_destroy(&meeting);
    return pass();
}

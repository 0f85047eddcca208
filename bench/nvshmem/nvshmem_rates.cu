// What NVSHMEM takes between two GPUs for what `causeway bench device` measures: put with signal, barrier,
// signals in a second, an atomic operation. Two processes of one host with a GPU each, which this program
// starts itself.
//
//   nvshmem_rates RUNS
//
// Prints a line for each figure, as bench/device does: `row`, what is measured, `nvshmem`, the bytes of a
// message, a count, the figure, its unit, with tabs between. Bytes are compared. To be compiled where NVSHMEM
// is: nvcc -rdc=true -arch=sm_90 -I.../nvshmem/include, with libnvshmem_host.so.3 and libnvshmem_device.a.
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <nvshmem.h>
#include <nvshmemx.h>

using u64 = unsigned long long;

[[noreturn]] static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("nvshmem_rates: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    fflush(nullptr);
    _exit(1);
}

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        cudaError_t error_ = (call);                                                                         \
        if (error_ != cudaSuccess) fail("%s: %s", #call, cudaGetErrorString(error_));                        \
    } while (0)

// The largest message of the ping-pong, and threads of a block that signals.
constexpr u64 MAX_BYTES = 1 << 20;
constexpr unsigned THREADS = 256;

__global__ void __launch_bounds__(1024)
    ping_pong(char *data, uint64_t *cell, u64 bytes, u64 first, unsigned rounds, int rank) {
    bool is_alone = blockDim.x == 1;
    auto send = [&](u64 value) {
        if (is_alone)
            nvshmem_putmem_signal(data + MAX_BYTES, data, bytes, cell, value, NVSHMEM_SIGNAL_SET, 1 - rank);
        else
            nvshmemx_putmem_signal_block(data + MAX_BYTES, data, bytes, cell, value, NVSHMEM_SIGNAL_SET, 1 - rank);
    };
    for (u64 round = first; round < first + rounds; round++) {
        if (rank == 0) send(round);
        if (threadIdx.x == 0) nvshmem_signal_wait_until(cell, NVSHMEM_CMP_GE, round);
        __syncthreads();
        if (rank == 1) send(round);
    }
    nvshmem_quiet();
}

__global__ void meet_often(unsigned times) {
    for (unsigned time = 0; time < times; time++) nvshmemx_barrier_all_block();
}

__global__ void signal_often(uint64_t *cells, unsigned times, int peer) {
    for (unsigned time = 1; time <= times; time++)
        nvshmemx_signal_op(cells + threadIdx.x + blockDim.x * blockIdx.x, time, NVSHMEM_SIGNAL_SET, peer);
    nvshmem_quiet();
}

__global__ void add_often(uint64_t *cell, unsigned times, int peer) {
    for (unsigned time = 0; time < times; time++) nvshmem_uint64_atomic_fetch_add(cell, 1, peer);
}

// One of the two processes.
class Rank {
  public:
    Rank(int rank, int runs) : rank_(rank), runs_(runs) {
        data_ = static_cast<char *>(nvshmem_malloc(2 * MAX_BYTES));
        cudaDeviceProp properties;
        CHECK(cudaGetDeviceProperties(&properties, rank));
        most_blocks_ = static_cast<unsigned>(properties.multiProcessorCount);
        cells_ = static_cast<uint64_t *>(nvshmem_malloc(8ull * THREADS * most_blocks_));
        if (data_ == nullptr || cells_ == nullptr) fail("there is no symmetric memory");
        CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    }

    void measure() {
        for (int run = 0; run <= runs_; run++) {
            is_counted_ = run > 0;
            for (u64 bytes = 8; bytes <= MAX_BYTES; bytes *= bytes == 8 ? 32 : 16) latency(bytes);
            barrier();
            for (unsigned blocks = 1; blocks < most_blocks_; blocks *= 4) rate(blocks);
            rate(most_blocks_);
            addition();
        }
    }

  private:
    // Seconds until what `launch` starts has ended, which both ranks begin together.
    double time(const std::function<void()> &launch) {
        CHECK(cudaStreamSynchronize(stream_));
        nvshmem_barrier_all();
        auto start = std::chrono::steady_clock::now();
        launch();
        CHECK(cudaStreamSynchronize(stream_));
        CHECK(cudaGetLastError());
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }

    void report_row(const char *what, u64 bytes, u64 count, double value, const char *unit) const {
        if (rank_ == 0 && is_counted_)
            printf("row\t%s\tnvshmem\t%llu\t%llu\t%.6g\t%s\n", what, bytes, count, value, unit);
    }

    void clear() {
        CHECK(cudaMemset(cells_, 0, 8ull * THREADS * most_blocks_));
        CHECK(cudaDeviceSynchronize());
        nvshmem_barrier_all();
    }

    void latency(u64 bytes) {
        unsigned rounds = bytes > 65536 ? 200 : 1000, threads = bytes <= 256     ? 1
                                                                : bytes <= 65536 ? 256
                                                                                 : 1024;
        clear();
        std::vector<unsigned char> sent(bytes), found(bytes);
        seed_++;
        // What the other rank has is known: both count seeds alike.
        auto byte = [&](u64 at, int rank) {
            return static_cast<unsigned char>(at * 31 + at / 256 * 7 + seed_ + 91 * rank);
        };
        for (u64 at = 0; at < bytes; at++) sent[at] = byte(at, rank_);
        CHECK(cudaMemcpy(data_, sent.data(), bytes, cudaMemcpyHostToDevice));
        double seconds =
            time([&] { ping_pong<<<1, threads, 0, stream_>>>(data_, cells_, bytes, 1, rounds, rank_); });
        CHECK(cudaMemcpy(found.data(), data_ + MAX_BYTES, bytes, cudaMemcpyDeviceToHost));
        for (u64 at = 0; at < bytes; at++)
            if (found[at] != byte(at, 1 - rank_)) fail("byte %llu of %llu is wrong", at, bytes);
        report_row("latency", bytes, 1, seconds / rounds / 2 * 1e6, "us");
    }

    void barrier() {
        unsigned times = 1000;
        double seconds = time([&] { meet_often<<<1, 64, 0, stream_>>>(times); });
        report_row("barrier", 8, 2, seconds / times * 1e6, "us");
    }

    void rate(unsigned blocks) {
        unsigned times = 2000;
        clear();
        double seconds = time([&] {
            if (rank_ == 0) signal_often<<<blocks, THREADS, 0, stream_>>>(cells_, times, 1);
        });
        nvshmem_barrier_all();
        std::vector<uint64_t> found(blocks * THREADS);
        CHECK(cudaMemcpy(found.data(), cells_, 8 * found.size(), cudaMemcpyDeviceToHost));
        for (uint64_t value : found)
            if (rank_ == 1 && value != times) fail("a signal is %llu", static_cast<u64>(value));
        report_row("rate_by_blocks", 8, blocks, static_cast<double>(blocks) * THREADS * times / seconds / 1e6,
             "M/s");
    }

    void addition() {
        unsigned times = 500;
        clear();
        double seconds = time([&] {
            if (rank_ == 0) add_often<<<1, 1, 0, stream_>>>(cells_, times, 1);
        });
        nvshmem_barrier_all();
        uint64_t found;
        CHECK(cudaMemcpy(&found, cells_, sizeof found, cudaMemcpyDeviceToHost));
        if (rank_ == 1 && found != times) fail("%llu was counted", static_cast<u64>(found));
        report_row("atomic_add", 8, 1, seconds / times * 1e6, "us");
    }

    const int rank_, runs_;
    unsigned most_blocks_, seed_ = 0;
    bool is_counted_ = false;
    char *data_;
    uint64_t *cells_;
    cudaStream_t stream_;
};

// Both ends of a pipe by which the first rank tells the second one of the team.
static int run(int rank, int runs, const int ends[2]) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    CHECK(cudaSetDevice(rank));
    CHECK(cudaFree(nullptr));
    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    if (rank == 0) {
        if (nvshmemx_get_uniqueid(&id) != 0) fail("NVSHMEM makes no number of a team");
        if (write(ends[1], &id, sizeof id) != sizeof id) fail("the other rank cannot be told");
    } else if (read(ends[0], &id, sizeof id) != sizeof id) {
        fail("the first rank says nothing");
    }
    nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
    if (nvshmemx_set_attr_uniqueid_args(rank, 2, &id, &attributes) != 0 ||
        nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes) != 0)
        fail("NVSHMEM does not start");
    Rank(rank, runs).measure();
    nvshmem_barrier_all();
    nvshmem_finalize();
    return 0;
}

int main(int count, char **arguments) {
    int runs = count == 2 ? atoi(arguments[1]) : 0, ends[2];
    if (runs <= 0) fail("usage: %s RUNS", arguments[0]);
    if (pipe(ends) != 0) fail("there is no pipe");
    // Before either of them has a CUDA context, which no child inherits.
    pid_t child = fork();
    if (child < 0) fail("the second rank cannot be started");
    int status = run(child == 0 ? 1 : 0, runs, ends), ended = 0;
    if (child != 0 && (waitpid(child, &ended, 0) != child || ended != 0)) fail("the second rank has failed");
    return status;
}

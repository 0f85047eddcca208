// Asynchronous copies to host memory, behind each of them one of a word that says so: a host thread that finds the word finds all bytes
// of what lies before it, too, whatever memory either goes to and whichever way the stream puts them in order. Each round has data of
// its own.
//
// polled_copies [case]
#include "check.h"

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

constexpr size_t KIB = 1 << 10, MIB = 1 << 20;
constexpr unsigned ROUNDS = 3, COPIES = 4;

enum Kind { PINNED, REGISTERED, PAGEABLE, KINDS };
static const char *const KIND_NAMES[] = {"pinned", "registered", "pageable"};

// Host memory of whole pages.
struct Host {
    unsigned char *bytes;
    size_t size;
    Kind kind;

    Host(size_t wanted, Kind kind) : size((wanted + 4095) / 4096 * 4096), kind(kind) {
        if (kind == PINNED) {
            CHECK_CUDA(cudaHostAlloc(&bytes, size, cudaHostAllocDefault));
        } else {
            bytes = static_cast<unsigned char *>(aligned_alloc(4096, size));
            REQUIRE(bytes, "no memory");
            if (kind == REGISTERED) CHECK_CUDA(cudaHostRegister(bytes, size, cudaHostRegisterDefault));
        }
        memset(bytes, 0, size);
    }
    ~Host() {
        if (kind == PINNED) {
            CHECK_CUDA(cudaFreeHost(bytes));
            return;
        }
        if (kind == REGISTERED) CHECK_CUDA(cudaHostUnregister(bytes));
        free(bytes);
    }
    Host(const Host &) = delete;
    Host &operator=(const Host &) = delete;
};

struct Device {
    unsigned char *bytes;
    explicit Device(size_t size) { CHECK_CUDA(cudaMalloc(&bytes, size)); }
    ~Device() { CHECK_CUDA(cudaFree(bytes)); }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;
};

struct Stream {
    cudaStream_t handle;
    Stream() { CHECK_CUDA(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
    ~Stream() { CHECK_CUDA(cudaStreamDestroy(handle)); }
};

// How data and the word behind it are in order.
enum Order { ONE_STREAM, EVENT, ROWS, ORDERS };
static const char *const ORDER_NAMES[] = {"in one stream", "behind an event", "rows in one stream"};

// Polls the words one after the other, and looks at the data before each as soon as it has come.
static void poll(const Host &data, const Host &words, size_t length, unsigned round, std::string what) {
    for (unsigned copy = 0; copy < COPIES; copy++) {
        const unsigned value = round * COPIES + copy + 1;
        auto *word = reinterpret_cast<uint32_t *>(words.bytes + copy * 64);
        while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) std::this_thread::yield();
        const unsigned char *found = data.bytes + copy * length;
        size_t wrong = 0, last = 0;
        for (size_t i = 0; i < length; i++)
            if (found[i] != (unsigned char)value) wrong++, last = i;
        REQUIRE(!wrong, "%s, round %u: behind the word of copy %u, %zu of %zu bytes had not come, the last one byte %zu", what.c_str(),
                round, copy, wrong, length, last);
    }
}

static void run(Kind data_kind, Kind word_kind, size_t length, Order order) {
    const std::string what = std::to_string(length / KIB) + " KiB of " + KIND_NAMES[data_kind] + " memory and a word of " +
                             KIND_NAMES[word_kind] + " memory, " + ORDER_NAMES[order];
    Host data(COPIES * length, data_kind), words(COPIES * 64, word_kind);
    Device from(COPIES * length), values(COPIES * 64);
    Stream first, second;
    cudaEvent_t event;
    CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned copy = 0; copy < COPIES; copy++) {
            const unsigned value = round * COPIES + copy + 1;
            CHECK_CUDA(cudaMemsetAsync(from.bytes + copy * length, value, length, first.handle));
            CHECK_CUDA(cudaMemcpyAsync(values.bytes + copy * 64, &value, sizeof value, cudaMemcpyHostToDevice, first.handle));
        }
        CHECK_CUDA(cudaStreamSynchronize(first.handle));
        std::thread poller(poll, std::cref(data), std::cref(words), length, round, what);
        for (unsigned copy = 0; copy < COPIES; copy++) {
            const size_t at = copy * length;
            if (order == ROWS) {
                // Two copies of every second row: the bytes are packed on their way.
                const size_t row = 1024, rows = length / row / 2;
                for (size_t odd : {0, 1})
                    CHECK_CUDA(cudaMemcpy2DAsync(data.bytes + at + odd * row, 2 * row, from.bytes + at + odd * row, 2 * row, row, rows,
                                                 cudaMemcpyDeviceToHost, first.handle));
            } else {
                CHECK_CUDA(cudaMemcpyAsync(data.bytes + at, from.bytes + at, length, cudaMemcpyDeviceToHost, first.handle));
            }
            cudaStream_t stream = first.handle;
            if (order == EVENT) {
                CHECK_CUDA(cudaEventRecord(event, first.handle));
                CHECK_CUDA(cudaStreamWaitEvent(second.handle, event, 0));
                stream = second.handle;
            }
            CHECK_CUDA(cudaMemcpyAsync(words.bytes + copy * 64, values.bytes + copy * 64, 4, cudaMemcpyDeviceToHost, stream));
        }
        CHECK_CUDA(cudaDeviceSynchronize());
        poller.join();
    }
    CHECK_CUDA(cudaEventDestroy(event));
}

int main(int argc, char **argv) {
    const std::string only = argc > 1 ? argv[1] : "";
    for (int order = 0; order < ORDERS; order++)
        for (int data = 0; data < KINDS; data++)
            for (int word = 0; word < KINDS; word++) {
                // What the program waits for is in place before the next copy begins.
                if (data == PAGEABLE && word != PAGEABLE) continue;
                if (!only.empty() && only != std::string(KIND_NAMES[data]) + "-" + KIND_NAMES[word]) continue;
                for (size_t length : {64 * KIB, MIB, 4 * MIB})
                    if (length <= MIB || order == ONE_STREAM) run(Kind(data), Kind(word), length, Order(order));
            }
    return pass();
}

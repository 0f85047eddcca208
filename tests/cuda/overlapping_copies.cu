// Asynchronous copies to host memory to which another copy is still under way. Where a stream, an event, the legacy stream or a graph
// puts them in order, what came last must stay, and what reads it in between must find what came before; where nothing does, none of
// them may wait for the other. Every word says of which repetition it is.
//
// overlapping_copies [case]
#include "check.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

constexpr size_t KIB = 1 << 10, MIB = 1 << 20;
constexpr unsigned STREAMS = 4;

// A word is made of its place, its repetition and its stream; repetition 0 is what was there before the first copy.
constexpr uint32_t REPETITION = 1u << 22, STREAM = 1u << 28;

__host__ __device__ inline uint32_t word(size_t place, unsigned repetition, unsigned stream = 0) {
    return uint32_t(place) + repetition * REPETITION + stream * STREAM;
}

__global__ void fill(uint32_t *words, size_t count, unsigned repetition, unsigned stream) {
    const size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += step) words[i] = word(i, repetition, stream);
}

// Makes words of one repetition those of a later one.
__global__ void advance(uint32_t *words, size_t count, unsigned repetitions) {
    const size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += step) words[i] += repetitions * REPETITION;
}

__global__ void count_differences(const uint32_t *words, const uint32_t *others, size_t count, unsigned *differences) {
    const size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += step)
        if (words[i] != others[i]) atomicAdd(differences, 1);
}

__global__ void do_nothing() {}

static unsigned blocks_for(size_t count) { return unsigned(std::min<size_t>((count + 1023) / 1024, 64)); }

static void launch_fill(uint32_t *words, size_t count, unsigned repetition, cudaStream_t stream, unsigned stream_number = 0) {
    fill<<<blocks_for(count), 64, 0, stream>>>(words, count, repetition, stream_number);
    CHECK_LAUNCH();
}

static void copy_down(uint32_t *to, const uint32_t *from, size_t bytes, cudaStream_t stream) {
    CHECK_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
}

// The words of a copy from its place `first` on.
static void require_words(const uint32_t *words, size_t first, size_t count, unsigned repetition, unsigned stream,
                          const std::string &what) {
    for (size_t i = 0; i < count; i++) {
        const uint32_t got = words[i];
        REQUIRE(got == word(first + i, repetition, stream),
                "%s: word %zu of %zu, which should be word %zu of repetition %u of stream %u, is word %u of repetition %u of stream %u",
                what.c_str(), i, count, first + i, repetition, stream, got % REPETITION, got % STREAM / REPETITION, got / STREAM);
    }
}

enum Kind { REGISTERED, PINNED };
static const char *const KIND_NAMES[] = {"registered", "pinned"};

static std::string describe(const char *what, Kind kind, size_t bytes) {
    return std::string(what) + ", " + KIND_NAMES[kind] + " memory, " + std::to_string(bytes) + " bytes";
}

// Host memory that asynchronous copies go to, filled with zeros.
struct Host {
    uint32_t *words;
    Kind kind;

    Host(size_t bytes, Kind kind) : kind(kind) {
        if (kind == REGISTERED) {
            REQUIRE(posix_memalign((void **)&words, 4096, bytes) == 0, "no memory");
            CHECK_CUDA(cudaHostRegister(words, bytes, cudaHostRegisterDefault));
        } else {
            CHECK_CUDA(cudaHostAlloc(&words, bytes, cudaHostAllocDefault));
        }
        memset(words, 0, bytes);
    }
    ~Host() {
        if (kind == REGISTERED) {
            CHECK_CUDA(cudaHostUnregister(words));
            free(words);
        } else {
            CHECK_CUDA(cudaFreeHost(words));
        }
    }
    Host(const Host &) = delete;
    Host &operator=(const Host &) = delete;
};

// A stream with device memory of its own, and an event to put others behind it.
struct Lane {
    cudaStream_t stream;
    cudaEvent_t event;
    uint32_t *device;

    explicit Lane(size_t bytes, unsigned flags = cudaStreamNonBlocking) {
        CHECK_CUDA(cudaStreamCreateWithFlags(&stream, flags));
        CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        CHECK_CUDA(cudaMalloc(&device, bytes));
    }
    ~Lane() {
        CHECK_CUDA(cudaFree(device));
        CHECK_CUDA(cudaEventDestroy(event));
        CHECK_CUDA(cudaStreamDestroy(stream));
    }
    Lane(const Lane &) = delete;
    Lane &operator=(const Lane &) = delete;

    void record() const { CHECK_CUDA(cudaEventRecord(event, stream)); }
    void wait_for(const Lane &other) const { CHECK_CUDA(cudaStreamWaitEvent(stream, other.event, 0)); }
    void synchronize() const { CHECK_CUDA(cudaStreamSynchronize(stream)); }
};

// Counts on the device, for what only a kernel sees.
struct Counter {
    unsigned *device;

    Counter() {
        CHECK_CUDA(cudaMalloc(&device, sizeof *device));
        CHECK_CUDA(cudaMemset(device, 0, sizeof *device));
        CHECK_CUDA(cudaDeviceSynchronize());
    }
    ~Counter() { CHECK_CUDA(cudaFree(device)); }
    Counter(const Counter &) = delete;
    Counter &operator=(const Counter &) = delete;

    unsigned value() const {
        unsigned value = ~0u;
        CHECK_CUDA(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
        return value;
    }
};

struct Amount {
    size_t bytes;
    unsigned repetitions;
};

// On either side of the sizes at which an implementation may change its way.
static const Amount AMOUNTS[] = {{4 * KIB, 40}, {64 * KIB, 40}, {64 * KIB + 4, 40}, {256 * KIB, 40},
                                 {MIB, 20},     {4 * MIB, 5},   {16 * MIB, 2}};
static const size_t SIZES[] = {4 * KIB, 64 * KIB, 64 * KIB + 4, 256 * KIB, MIB};

enum Wait { EVENT, DEVICE, EACH_STREAM, COPY };
static const char *const WAIT_NAMES[] = {"an event in the legacy stream", "the whole device", "each stream", "a cudaMemcpy"};

static void wait_for_all(Wait wait, const std::vector<cudaStream_t> &streams, const uint32_t *device) {
    cudaEvent_t event;
    uint32_t some_word;
    switch (wait) {
    case EVENT:
        CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        CHECK_CUDA(cudaEventRecord(event, cudaStreamLegacy));
        CHECK_CUDA(cudaEventSynchronize(event));
        CHECK_CUDA(cudaEventDestroy(event));
        break;
    case DEVICE:
        CHECK_CUDA(cudaDeviceSynchronize());
        break;
    case EACH_STREAM:
        for (cudaStream_t stream : streams) CHECK_CUDA(cudaStreamSynchronize(stream));
        break;
    case COPY:
        CHECK_CUDA(cudaMemcpy(&some_word, device, sizeof some_word, cudaMemcpyDeviceToHost));
        break;
    }
}

// Each stream brings what a kernel wrote to its own place on the host, over and over; then one wait for all of them.
static void four_streams_with(Wait wait, Kind kind, const Amount &amount) {
    const size_t count = amount.bytes / sizeof(uint32_t);
    std::vector<Lane *> lanes;
    std::vector<Host *> hosts;
    std::vector<cudaStream_t> streams;
    for (unsigned s = 0; s < STREAMS; s++) {
        lanes.push_back(new Lane(amount.bytes, cudaStreamDefault));
        hosts.push_back(new Host(amount.bytes, kind));
        streams.push_back(lanes[s]->stream);
    }
    for (unsigned repetition = 1; repetition <= amount.repetitions; repetition++)
        for (unsigned s = 0; s < STREAMS; s++) {
            launch_fill(lanes[s]->device, count, repetition, streams[s], s);
            copy_down(hosts[s]->words, lanes[s]->device, amount.bytes, streams[s]);
        }
    wait_for_all(wait, streams, lanes[0]->device);
    const std::string what = describe("four streams", kind, amount.bytes) + ", waited for by " + WAIT_NAMES[wait];
    for (unsigned s = 0; s < STREAMS; s++) require_words(hosts[s]->words, 0, count, amount.repetitions, s, what);
    for (Lane *lane : lanes) delete lane;
    for (Host *host : hosts) delete host;
}

static void four_streams(Kind kind) {
    for (Wait wait : {EVENT, DEVICE, EACH_STREAM, COPY})
        for (const Amount &amount : AMOUNTS)
            // The largest ones with one kind of wait alone, for time.
            if (amount.bytes <= MIB || wait == EVENT) four_streams_with(wait, kind, amount);
}

// Two streams bring their memory to the same place by turns, each behind the other's event.
static void two_streams_by_turns(Kind kind) {
    for (const Amount &amount : AMOUNTS) {
        const size_t count = amount.bytes / sizeof(uint32_t);
        Lane first(amount.bytes), second(amount.bytes);
        Host host(amount.bytes, kind);
        for (unsigned repetition = 1; repetition <= amount.repetitions; repetition++) {
            const Lane &lane = repetition % 2 ? first : second, &other = repetition % 2 ? second : first;
            launch_fill(lane.device, count, repetition, lane.stream);
            if (repetition > 1) lane.wait_for(other);
            copy_down(host.words, lane.device, amount.bytes, lane.stream);
            lane.record();
        }
        (amount.repetitions % 2 ? first : second).synchronize();
        require_words(host.words, 0, count, amount.repetitions, 0, describe("two streams by turns", kind, amount.bytes));
        CHECK_CUDA(cudaDeviceSynchronize());
    }
}

// Rows with gaps on either side; the gaps on the host stay as they were.
static void rows(Kind kind) {
    struct {
        size_t width, height, host_pitch, device_pitch;
    } shapes[] = {{1024, 4, 1024, 1024}, {1024, 4, 1536, 1280}, {4096, 16, 4160, 4096}, {1000, 300, 1024, 1200}, {4100, 256, 4352, 4608}};
    const unsigned repetitions = 20;
    for (const auto &shape : shapes) {
        Lane lane(shape.device_pitch * shape.height);
        Host host(shape.host_pitch * shape.height, kind);
        for (unsigned repetition = 1; repetition <= repetitions; repetition++) {
            launch_fill(lane.device, shape.device_pitch * shape.height / sizeof(uint32_t), repetition, lane.stream);
            CHECK_CUDA(cudaMemcpy2DAsync(host.words, shape.host_pitch, lane.device, shape.device_pitch, shape.width, shape.height,
                                         cudaMemcpyDeviceToHost, lane.stream));
        }
        lane.synchronize();
        const std::string what = describe("rows", kind, shape.width) + " in each of " + std::to_string(shape.height);
        const size_t width = shape.width / sizeof(uint32_t), host_pitch = shape.host_pitch / sizeof(uint32_t);
        for (size_t row = 0; row < shape.height; row++) {
            const uint32_t *words = host.words + row * host_pitch;
            require_words(words, row * shape.device_pitch / sizeof(uint32_t), width, repetitions, 0, what);
            for (size_t i = width; i < host_pitch; i++) REQUIRE(words[i] == 0, "%s: %#x beside row %zu", what.c_str(), words[i], row);
        }
    }
}

// A graph of a kernel, a copy down, a copy up from there, and a comparison of both; launched again and again.
static void graph(Kind kind) {
    const unsigned launches = 20;
    for (size_t bytes : SIZES) {
        const size_t count = bytes / sizeof(uint32_t);
        Lane lane(bytes), copied(bytes);
        Host host(bytes, kind);
        Counter differences;
        launch_fill(lane.device, count, 0, lane.stream);
        cudaGraph_t graph;
        cudaGraphExec_t executable;
        CHECK_CUDA(cudaStreamBeginCapture(lane.stream, cudaStreamCaptureModeThreadLocal));
        advance<<<blocks_for(count), 64, 0, lane.stream>>>(lane.device, count, 1);
        copy_down(host.words, lane.device, bytes, lane.stream);
        CHECK_CUDA(cudaMemcpyAsync(copied.device, host.words, bytes, cudaMemcpyHostToDevice, lane.stream));
        count_differences<<<blocks_for(count), 64, 0, lane.stream>>>(copied.device, lane.device, count, differences.device);
        CHECK_CUDA(cudaStreamEndCapture(lane.stream, &graph));
        CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
        for (unsigned launch = 1; launch <= launches; launch++) CHECK_CUDA(cudaGraphLaunch(executable, lane.stream));
        lane.synchronize();
        const std::string what = describe("a graph launched 20 times", kind, bytes);
        require_words(host.words, 0, count, launches, 0, what + ", what was copied down");
        std::vector<uint32_t> back(count);
        CHECK_CUDA(cudaMemcpy(back.data(), copied.device, bytes, cudaMemcpyDeviceToHost));
        require_words(back.data(), 0, count, launches, 0, what + ", what was copied up again");
        const unsigned different = differences.value();
        REQUIRE(different == 0, "%s: %u words came up as others than went down", what.c_str(), different);
        CHECK_CUDA(cudaGraphExecDestroy(executable));
        CHECK_CUDA(cudaGraphDestroy(graph));
    }
}

// A graph of two copies down behind each other, of which the second is half as long; launched again and again.
static void graph_of_copies_down(Kind kind) {
    const unsigned launches = 20;
    for (size_t bytes : SIZES) {
        const size_t count = bytes / sizeof(uint32_t), half = count / 2;
        Lane lane(bytes);
        Host host(bytes, kind);
        launch_fill(lane.device, count, 0, lane.stream);
        cudaGraph_t graph;
        cudaGraphExec_t executable;
        CHECK_CUDA(cudaStreamBeginCapture(lane.stream, cudaStreamCaptureModeThreadLocal));
        for (size_t words : {count, half}) {
            advance<<<blocks_for(count), 64, 0, lane.stream>>>(lane.device, count, 1);
            copy_down(host.words, lane.device, words * sizeof(uint32_t), lane.stream);
        }
        CHECK_CUDA(cudaStreamEndCapture(lane.stream, &graph));
        CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
        for (unsigned launch = 1; launch <= launches; launch++) CHECK_CUDA(cudaGraphLaunch(executable, lane.stream));
        lane.synchronize();
        const std::string what = describe("a graph of copies down launched 20 times", kind, bytes);
        require_words(host.words, 0, half, 2 * launches, 0, what + ", the second copy");
        require_words(host.words + half, half, count - half, 2 * launches - 1, 0, what + ", the first copy");
        CHECK_CUDA(cudaGraphExecDestroy(executable));
        CHECK_CUDA(cudaGraphDestroy(graph));
    }
}

// Two blocking streams, which an empty kernel in the legacy stream puts in order.
static void legacy_stream(Kind kind) {
    for (const Amount &amount : AMOUNTS) {
        const size_t count = amount.bytes / sizeof(uint32_t);
        Lane first(amount.bytes, cudaStreamDefault), second(amount.bytes, cudaStreamDefault);
        Host host(amount.bytes, kind);
        for (unsigned repetition = 1; repetition <= amount.repetitions; repetition++) {
            const Lane &lane = repetition % 2 ? first : second;
            launch_fill(lane.device, count, repetition, lane.stream);
            copy_down(host.words, lane.device, amount.bytes, lane.stream);
            do_nothing<<<1, 1, 0, cudaStreamLegacy>>>();
            CHECK_LAUNCH();
        }
        (amount.repetitions % 2 ? first : second).synchronize();
        require_words(host.words, 0, count, amount.repetitions, 0, describe("order by the legacy stream", kind, amount.bytes));
        CHECK_CUDA(cudaDeviceSynchronize());
    }
}

// One stream copies down, another one behind it copies up from there and brings what it got to a place of its own; the next copy down
// comes behind that.
static void read_after_write(Kind kind) {
    const unsigned repetitions = 10;
    for (size_t bytes : SIZES) {
        const size_t count = bytes / sizeof(uint32_t);
        Lane writer(bytes), reader(bytes);
        Host host(bytes, kind), results(repetitions * bytes, kind);
        for (unsigned repetition = 1; repetition <= repetitions; repetition++) {
            launch_fill(writer.device, count, repetition, writer.stream);
            if (repetition > 1) writer.wait_for(reader);
            copy_down(host.words, writer.device, bytes, writer.stream);
            writer.record();
            reader.wait_for(writer);
            CHECK_CUDA(cudaMemcpyAsync(reader.device, host.words, bytes, cudaMemcpyHostToDevice, reader.stream));
            reader.record();
            advance<<<blocks_for(count), 64, 0, reader.stream>>>(reader.device, count, repetitions);
            CHECK_LAUNCH();
            copy_down(results.words + (repetition - 1) * count, reader.device, bytes, reader.stream);
        }
        reader.synchronize();
        const std::string what = describe("a copy up behind a copy down", kind, bytes);
        require_words(host.words, 0, count, repetitions, 0, what + ", on the host");
        for (unsigned repetition = 1; repetition <= repetitions; repetition++)
            require_words(results.words + (repetition - 1) * count, 0, count, repetitions + repetition, 0,
                          what + ", repetition " + std::to_string(repetition));
    }
}

struct Change {
    uint32_t *words;
    size_t count;
    unsigned repetition, later;
    size_t wrong;
    uint32_t wrong_word;
};

// Looks at what the copy before it brought, and makes it what a later repetition would have brought.
static void CUDART_CB change_words(void *data) {
    Change &change = *static_cast<Change *>(data);
    for (size_t i = 0; i < change.count; i++) {
        if (change.words[i] != word(i, change.repetition)) {
            change.wrong++;
            change.wrong_word = change.words[i];
        }
        change.words[i] = word(i, change.later);
    }
}

// A host function changes what a copy brought; the next copy up takes the changed words, and the next copy down replaces them.
static void host_function(Kind kind) {
    const unsigned repetitions = 10;
    for (size_t bytes : SIZES) {
        const size_t count = bytes / sizeof(uint32_t);
        Lane lane(bytes), changed(bytes), copied(bytes);
        Host host(bytes, kind);
        Counter differences;
        std::vector<Change> changes(repetitions + 1);
        for (unsigned repetition = 1; repetition <= repetitions; repetition++) {
            Change &change = changes[repetition];
            change = {host.words, count, repetition, repetitions + repetition, 0, 0};
            launch_fill(lane.device, count, repetition, lane.stream);
            copy_down(host.words, lane.device, bytes, lane.stream);
            CHECK_CUDA(cudaLaunchHostFunc(lane.stream, change_words, &change));
            CHECK_CUDA(cudaMemcpyAsync(copied.device, host.words, bytes, cudaMemcpyHostToDevice, lane.stream));
            launch_fill(changed.device, count, change.later, lane.stream);
            count_differences<<<blocks_for(count), 64, 0, lane.stream>>>(copied.device, changed.device, count, differences.device);
            CHECK_LAUNCH();
        }
        launch_fill(lane.device, count, repetitions + 1, lane.stream);
        copy_down(host.words, lane.device, bytes, lane.stream);
        lane.synchronize();
        const std::string what = describe("a host function between copies", kind, bytes);
        for (unsigned repetition = 1; repetition <= repetitions; repetition++) {
            const Change &change = changes[repetition];
            REQUIRE(change.wrong == 0, "%s: the function of repetition %u found %zu of %zu wrong words, one of repetition %u", what.c_str(),
                    repetition, change.wrong, count, change.wrong_word % STREAM / REPETITION);
        }
        const unsigned different = differences.value();
        REQUIRE(different == 0, "%s: %u words came up as others than the function wrote", what.c_str(), different);
        require_words(host.words, 0, count, repetitions + 1, 0, what + ", in the end");
    }
}

// Copies by turns to two places that have half of their memory in common.
static void shifted_by_half(Kind kind) {
    for (const Amount &amount : AMOUNTS) {
        const size_t count = amount.bytes / sizeof(uint32_t), half = count / 2;
        Lane lane(amount.bytes);
        Host host(amount.bytes + half * sizeof(uint32_t), kind);
        unsigned last[2] = {};
        for (unsigned repetition = 1; repetition <= amount.repetitions; repetition++) {
            const unsigned place = repetition % 2;
            launch_fill(lane.device, count, repetition, lane.stream);
            copy_down(host.words + place * half, lane.device, amount.bytes, lane.stream);
            last[place] = repetition;
        }
        lane.synchronize();
        const std::string what = describe("copies shifted by half", kind, amount.bytes);
        if (last[1] > last[0]) {
            require_words(host.words, 0, half, last[0], 0, what + ", the lower one");
            require_words(host.words + half, 0, count, last[1], 0, what + ", the upper one");
        } else {
            require_words(host.words, 0, count, last[0], 0, what + ", the lower one");
            require_words(host.words + count, count - half, half, last[1], 0, what + ", the upper one");
        }
    }
}

// What puts the second of two copies behind the first, and what the second one is.
enum Order { ONE_STREAM, EVENTS, LEGACY };
static const char *const ORDER_NAMES[] = {"one stream", "two streams and an event", "two streams and the legacy one"};
enum Second { WHOLE, SMALL, ROWS, SYNCHRONOUS, FROM_HOST, MEMSET, KERNEL };
static const char *const SECOND_NAMES[] = {"a copy", "a small copy", "a copy of rows", "a synchronous copy", "a copy on the host",
                                           "a memset", "a kernel"};
constexpr size_t SMALL_WORDS = 1024, ROW_WORDS = 256, ROW_PITCH = 1024;

// Whether what comes second writes word i of so many.
static bool is_written_by(Second second, size_t i, size_t count) {
    if (second == SMALL) return i >= count / 2 && i < count / 2 + SMALL_WORDS;
    return second != ROWS || i % ROW_PITCH < ROW_WORDS;
}

static void write_second(Second second, uint32_t *to, const uint32_t *device, const uint32_t *host, size_t count, unsigned repetition,
                         cudaStream_t stream) {
    const size_t bytes = count * sizeof(uint32_t), pitch = ROW_PITCH * sizeof(uint32_t), width = ROW_WORDS * sizeof(uint32_t);
    uint32_t *mapped;
    switch (second) {
    case WHOLE:
        copy_down(to, device, bytes, stream);
        break;
    case SMALL:
        copy_down(to + count / 2, device + count / 2, SMALL_WORDS * sizeof(uint32_t), stream);
        break;
    case ROWS:
        CHECK_CUDA(cudaMemcpy2DAsync(to, pitch, device, pitch, width, count / ROW_PITCH, cudaMemcpyDeviceToHost, stream));
        break;
    case SYNCHRONOUS:
        CHECK_CUDA(cudaMemcpy(to, device, bytes, cudaMemcpyDeviceToHost));
        break;
    case FROM_HOST:
        CHECK_CUDA(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToHost, stream));
        break;
    case MEMSET:
        CHECK_CUDA(cudaHostGetDevicePointer(&mapped, to, 0));
        CHECK_CUDA(cudaMemsetAsync(mapped, 0x5a, bytes, stream));
        break;
    case KERNEL:
        CHECK_CUDA(cudaHostGetDevicePointer(&mapped, to, 0));
        launch_fill(mapped, count, repetition, stream);
        break;
    }
}

// What comes next in the other stream comes behind what is in the first one.
static void put_behind(Order order, const Lane &first, const Lane &other) {
    if (order == EVENTS) {
        first.record();
        other.wait_for(first);
    } else if (order == LEGACY) {
        do_nothing<<<1, 1, 0, cudaStreamLegacy>>>();
        CHECK_LAUNCH();
    }
}

// Two writes to each of many places, the first one a copy.
static void pairs_with(Order order, Second second, Kind kind, size_t bytes) {
    const unsigned places = 16;
    const size_t count = bytes / sizeof(uint32_t);
    Lane first(bytes, cudaStreamDefault), other(bytes, cudaStreamDefault);
    Host host(places * bytes, kind), sources(places * bytes, kind);
    const cudaStream_t stream = order == ONE_STREAM ? first.stream : other.stream;
    for (unsigned place = 0; place < places; place++) {
        uint32_t *to = host.words + place * count, *source = sources.words + place * count;
        const unsigned earlier = 2 * place + 1, later = earlier + 1;
        for (size_t i = 0; i < count && second == FROM_HOST; i++) source[i] = word(i, later);
        launch_fill(first.device, count, earlier, first.stream);
        launch_fill(other.device, count, later, stream);
        copy_down(to, first.device, bytes, first.stream);
        put_behind(order, first, other);
        write_second(second, to, other.device, source, count, later, stream);
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const std::string what = describe(SECOND_NAMES[second], kind, bytes) + ", behind a copy, " + ORDER_NAMES[order];
    for (unsigned place = 0; place < places; place++)
        for (size_t i = 0; i < count; i++) {
            const unsigned repetition = 2 * place + (is_written_by(second, i, count) ? 2 : 1);
            const uint32_t got = host.words[place * count + i];
            const uint32_t want = second == MEMSET ? 0x5a5a5a5a : word(i, repetition);
            REQUIRE(got == want, "%s: word %zu of %zu at place %u should be %#x, of repetition %u, is %#x, of repetition %u",
                    what.c_str(), i, count, place, want, repetition, got, got % STREAM / REPETITION);
        }
    CHECK_CUDA(cudaDeviceSynchronize());
}

static void pairs_of(std::initializer_list<Second> seconds, std::initializer_list<Order> orders, Kind kind) {
    for (Second second : seconds)
        for (Order order : orders)
            for (size_t bytes : {64 * KIB, MIB}) pairs_with(order, second, kind, bytes);
}

static void pairs(Kind kind) {
    pairs_of({WHOLE, SMALL, ROWS}, {ONE_STREAM, EVENTS, LEGACY}, kind);
    pairs_of({SYNCHRONOUS, FROM_HOST, MEMSET, KERNEL}, {ONE_STREAM}, kind);
}

// Copies up from many places, to each of which a copy down comes behind that.
static void write_after_read(Kind kind) {
    const unsigned places = 16;
    for (Order order : {ONE_STREAM, EVENTS, LEGACY})
        for (size_t bytes : {4 * KIB, 64 * KIB, MIB}) {
            const size_t count = bytes / sizeof(uint32_t);
            Lane first(places * bytes, cudaStreamDefault), other(bytes, cudaStreamDefault);
            Host host(places * bytes, kind);
            const cudaStream_t stream = order == ONE_STREAM ? first.stream : other.stream;
            for (unsigned place = 0; place < places; place++)
                for (size_t i = 0; i < count; i++) host.words[place * count + i] = word(i, 2 * place + 1);
            for (unsigned place = 0; place < places; place++) {
                uint32_t *at = host.words + place * count;
                launch_fill(other.device, count, 2 * place + 2, stream);
                CHECK_CUDA(cudaMemcpyAsync(first.device + place * count, at, bytes, cudaMemcpyHostToDevice, first.stream));
                put_behind(order, first, other);
                copy_down(at, other.device, bytes, stream);
            }
            CHECK_CUDA(cudaStreamSynchronize(stream));
            std::vector<uint32_t> back(places * count);
            CHECK_CUDA(cudaMemcpy(back.data(), first.device, places * bytes, cudaMemcpyDeviceToHost));
            const std::string what = describe("a copy down behind a copy up", kind, bytes) + ", " + ORDER_NAMES[order];
            for (unsigned place = 0; place < places; place++) {
                require_words(host.words + place * count, 0, count, 2 * place + 2, 0, what + ", on the host");
                require_words(back.data() + place * count, 0, count, 2 * place + 1, 0, what + ", on the device");
            }
        }
}

struct Gate {
    std::atomic<bool> is_open{false}, gave_up{false};
};

// Stops its stream until the gate is opened, but not for ever: a deadlock shall end in a FAIL line.
static void CUDART_CB wait_at_gate(void *data) {
    Gate &gate = *static_cast<Gate *>(data);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!gate.is_open && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    gate.gave_up = !gate.is_open;
}

// A stream is stopped before its copy down; another one, in no order with it, copies to a place that begins so many words behind.
static void beside_stopped_copy(Kind kind, size_t bytes, size_t shift, const char *name) {
    const size_t count = bytes / sizeof(uint32_t);
    const std::string what = describe(name, kind, bytes);
    Lane stopped(bytes), free_lane(bytes);
    Host host(2 * bytes, kind);
    launch_fill(stopped.device, count, 1, stopped.stream, 0);
    launch_fill(free_lane.device, count, 1, free_lane.stream, 1);
    CHECK_CUDA(cudaDeviceSynchronize());
    Gate gate;
    CHECK_CUDA(cudaLaunchHostFunc(stopped.stream, wait_at_gate, &gate));
    copy_down(host.words, stopped.device, bytes, stopped.stream);
    for (unsigned repetition = 1; repetition <= 3; repetition++) {
        launch_fill(free_lane.device, count, repetition, free_lane.stream, 1);
        copy_down(host.words + shift, free_lane.device, bytes, free_lane.stream);
    }
    free_lane.synchronize();
    REQUIRE(!gate.gave_up, "%s: a copy waited for one that nothing puts before it", what.c_str());
    require_words(host.words + shift, 0, count, 3, 1, what + ", while the other stream is stopped");
    for (size_t i = 0; i < shift; i++) REQUIRE(host.words[i] == 0, "%s: a stopped stream's copy wrote %#x", what.c_str(), host.words[i]);
    REQUIRE(!gate.gave_up, "%s: the gate opened by itself", what.c_str());
    gate.is_open = true;
    stopped.synchronize();
    require_words(host.words, 0, count, 1, 0, what + ", the copy that was stopped");
    require_words(host.words + count, count - shift, shift, 3, 1, what + ", behind the copy that was stopped");
}

static void no_order(Kind kind) {
    for (size_t bytes : SIZES) {
        const size_t count = bytes / sizeof(uint32_t);
        beside_stopped_copy(kind, bytes, count, "a copy beside a stopped one");
        beside_stopped_copy(kind, bytes, count / 2, "a copy over half of a stopped one");
    }
}

static const struct {
    const char *name;
    void (*run)(Kind kind);
} CASES[] = {
    {"four_streams", four_streams},
    {"two_streams_by_turns", two_streams_by_turns},
    {"rows", rows},
    {"graph", graph},
    {"graph_of_copies_down", graph_of_copies_down},
    {"legacy_stream", legacy_stream},
    {"read_after_write", read_after_write},
    {"write_after_read", write_after_read},
    {"host_function", host_function},
    {"shifted_by_half", shifted_by_half},
    {"pairs", pairs},
    {"no_order", no_order},
};

int main(int argc, char **argv) {
    bool found = false;
    for (const auto &one : CASES) {
        if (argc > 1 && strcmp(argv[1], one.name) != 0) continue;
        found = true;
        for (Kind kind : {REGISTERED, PINNED}) one.run(kind);
    }
    REQUIRE(found, "there is no case %s", argv[1]);
    return pass();
}

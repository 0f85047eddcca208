// Rounds of random asynchronous work, each of which shows whether any of it was lost, done twice or done out of order: a
// launch counts itself, and every step of a buffer depends on the one before.  Streams, events, graphs, callbacks and copies
// of both kinds and directions take part; what must come of them is computed beside.
//
// counted_rounds [seed...]: one round a seed; without any, one for each number on standard input.  Each prints a line.
#include "check.h"

#include <atomic>
#include <cstdlib>
#include <utility>
#include <vector>

constexpr int STREAMS = 3, SMALL = 64, LARGE = 96 << 10, BUFFERS = 5;
// Large buffers go over lanes, small ones with the commands.
constexpr int LENGTHS[BUFFERS] = {SMALL, SMALL, SMALL, LARGE, LARGE};

__device__ unsigned launches;

__global__ void step(unsigned *data, int count, unsigned factor, unsigned summand) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) atomicAdd(&launches, 1);
    if (i < count) data[i] = data[i] * factor + summand;
}

static std::atomic<unsigned> called;

static void CUDART_CB count_call(void *) { called++; }

// A buffer, whose content is known; what touches it is in the order of its stream.
struct Buffer {
    unsigned *device;
    std::vector<unsigned> expected;
    int stream;

    int count() const { return (int)expected.size(); }
    size_t bytes() const { return expected.size() * sizeof(unsigned); }
};

// What a copy must have brought when all is done.
struct Fetched {
    unsigned *memory;
    bool is_pinned;
    std::vector<unsigned> expected;
};

struct State {
    cudaStream_t streams[STREAMS];
    Buffer buffers[BUFFERS];
    cudaGraphExec_t graph;
    std::vector<Fetched> fetched;
    std::vector<std::pair<unsigned *, bool>> sources;
    unsigned launched, calls, random;

    unsigned below(unsigned limit) { return next_random(&random) % limit; }
};

static unsigned *host_memory(size_t bytes, bool is_pinned) {
    unsigned *memory = (unsigned *)(is_pinned ? nullptr : malloc(bytes));
    if (is_pinned) CHECK_CUDA(cudaMallocHost(&memory, bytes));
    return memory;
}

static void free_host_memory(unsigned *memory, bool is_pinned) {
    if (is_pinned) CHECK_CUDA(cudaFreeHost(memory));
    else free(memory);
}

static void expect_step(Buffer &buffer, unsigned factor, unsigned summand) {
    for (unsigned &value : buffer.expected) value = value * factor + summand;
}

static void launch(State &state, Buffer &buffer) {
    unsigned factor = 2 * state.below(1000) + 3, summand = state.below(100000) + 1;
    int count = buffer.count();
    step<<<(count + 255) / 256, 256, 0, state.streams[buffer.stream]>>>(buffer.device, count, factor, summand);
    CHECK_LAUNCH();
    expect_step(buffer, factor, summand);
    state.launched++;
}

// Two steps of the first buffer and a call of the host, of which the launches know nothing that comes later.
static cudaGraphExec_t make_graph(State &state) {
    Buffer &buffer = state.buffers[0];
    cudaStream_t stream = state.streams[buffer.stream];
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    step<<<1, 256, 0, stream>>>(buffer.device, buffer.count(), 5u, 7u);
    CHECK_CUDA(cudaLaunchHostFunc(stream, count_call, nullptr));
    step<<<1, 256, 0, stream>>>(buffer.device, buffer.count(), 11u, 13u);
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return executable;
}

static void launch_graph(State &state) {
    Buffer &buffer = state.buffers[0];
    CHECK_CUDA(cudaGraphLaunch(state.graph, state.streams[buffer.stream]));
    expect_step(buffer, 5, 7);
    expect_step(buffer, 11, 13);
    state.launched += 2;
    state.calls++;
}

static void upload(State &state, Buffer &buffer) {
    bool is_pinned = state.below(2);
    unsigned *source = host_memory(buffer.bytes(), is_pinned);
    unsigned first = state.below(1000000), between = state.below(1000);
    for (int i = 0; i < buffer.count(); i++) source[i] = buffer.expected[i] = first + between * i;
    CHECK_CUDA(cudaMemcpyAsync(buffer.device, source, buffer.bytes(), cudaMemcpyHostToDevice, state.streams[buffer.stream]));
    // Pageable memory is the program's again at once.
    if (!is_pinned) memset(source, 0xee, buffer.bytes());
    state.sources.push_back({source, is_pinned});
}

static void download(State &state, Buffer &buffer) {
    bool is_pinned = state.below(4) != 0;
    unsigned *memory = host_memory(buffer.bytes(), is_pinned);
    CHECK_CUDA(cudaMemcpyAsync(memory, buffer.device, buffer.bytes(), cudaMemcpyDeviceToHost, state.streams[buffer.stream]));
    state.fetched.push_back({memory, is_pinned, buffer.expected});
}

// A copy from a buffer of another stream, between which events keep the order.
static void copy(State &state, Buffer &to, Buffer &from) {
    if (&to == &from || to.count() != from.count()) return;
    cudaStream_t reads = state.streams[to.stream], writes = state.streams[from.stream];
    cudaEvent_t event;
    CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventRecord(event, writes));
    CHECK_CUDA(cudaStreamWaitEvent(reads, event, 0));
    CHECK_CUDA(cudaMemcpyAsync(to.device, from.device, to.bytes(), cudaMemcpyDeviceToDevice, reads));
    CHECK_CUDA(cudaEventRecord(event, reads));
    CHECK_CUDA(cudaStreamWaitEvent(writes, event, 0));
    CHECK_CUDA(cudaEventDestroy(event));
    to.expected = from.expected;
}

// The buffer goes on in other memory, and on another stream.
static void replace(State &state, Buffer &buffer) {
    if (&buffer == &state.buffers[0]) return;
    unsigned *device;
    CHECK_CUDA(cudaMalloc(&device, buffer.bytes()));
    CHECK_CUDA(cudaMemcpyAsync(device, buffer.device, buffer.bytes(), cudaMemcpyDeviceToDevice, state.streams[buffer.stream]));
    CHECK_CUDA(cudaStreamSynchronize(state.streams[buffer.stream]));
    CHECK_CUDA(cudaFree(buffer.device));
    buffer.device = device;
    buffer.stream = state.below(STREAMS);
}

static void wait(State &state, Buffer &buffer) {
    cudaStream_t stream = state.streams[buffer.stream];
    cudaEvent_t event;
    switch (state.below(3)) {
    case 0: CHECK_CUDA(cudaStreamSynchronize(stream)); break;
    case 1:
        CHECK_CUDA(cudaEventCreate(&event));
        CHECK_CUDA(cudaEventRecord(event, stream));
        CHECK_CUDA(cudaEventSynchronize(event));
        CHECK_CUDA(cudaEventDestroy(event));
        break;
    default:
        cudaError_t status;
        while ((status = cudaStreamQuery(stream)) == cudaErrorNotReady) usleep(200);
        CHECK_CUDA(status);
    }
}

static void act(State &state) {
    Buffer &buffer = state.buffers[state.below(BUFFERS)];
    switch (state.below(12)) {
    case 0: case 1: case 2: launch(state, buffer); break;
    case 3: launch_graph(state); break;
    case 4: case 5: upload(state, buffer); break;
    case 6: case 7: download(state, buffer); break;
    case 8: copy(state, buffer, state.buffers[state.below(BUFFERS)]); break;
    case 9: replace(state, buffer); break;
    case 10:
        CHECK_CUDA(cudaLaunchHostFunc(state.streams[buffer.stream], count_call, nullptr));
        state.calls++;
        break;
    default: wait(state, buffer);
    }
}

// Whether all is as it must be, and a number that stands for it.
static unsigned check(State &state) {
    unsigned hash = 0, counted;
    CHECK_CUDA(cudaDeviceSynchronize());
    for (Fetched &fetched : state.fetched) {
        for (size_t i = 0; i < fetched.expected.size(); i++)
            REQUIRE(fetched.memory[i] == fetched.expected[i], "number %zu of a copy is %u instead of %u", i,
                    fetched.memory[i], fetched.expected[i]);
        free_host_memory(fetched.memory, fetched.is_pinned);
    }
    state.fetched.clear();
    for (auto [memory, is_pinned] : state.sources) free_host_memory(memory, is_pinned);
    state.sources.clear();
    for (Buffer &buffer : state.buffers) {
        std::vector<unsigned> found(buffer.count());
        CHECK_CUDA(cudaMemcpy(found.data(), buffer.device, buffer.bytes(), cudaMemcpyDeviceToHost));
        for (int i = 0; i < buffer.count(); i++) {
            REQUIRE(found[i] == buffer.expected[i], "number %d of buffer %ld is %u instead of %u", i,
                    (long)(&buffer - state.buffers), found[i], buffer.expected[i]);
            hash = hash * 31 + found[i];
        }
    }
    CHECK_CUDA(cudaMemcpyFromSymbol(&counted, launches, sizeof counted));
    REQUIRE(counted == state.launched, "%u launches were counted, not %u", counted, state.launched);
    REQUIRE(called == state.calls, "%u calls were counted, not %u", called.load(), state.calls);
    return hash;
}

static void run_round(State &state, unsigned seed) {
    state.random = seed;
    for (Buffer &buffer : state.buffers) {
        CHECK_CUDA(cudaMemset(buffer.device, (int)(seed & 0x7f), buffer.bytes()));
        for (unsigned &value : buffer.expected) value = (seed & 0x7f) * 0x01010101u;
    }
    // The null stream's work comes before that of the others, and after it.
    for (int i = 0; i < 16; i++) act(state);
    printf("round %u gives %08x\n", seed, check(state));
    fflush(stdout);
}

int main(int count, char **arguments) {
    State state = {};
    for (cudaStream_t &stream : state.streams) CHECK_CUDA(cudaStreamCreate(&stream));
    for (int i = 0; i < BUFFERS; i++) {
        Buffer &buffer = state.buffers[i];
        buffer.expected.resize(LENGTHS[i]);
        buffer.stream = i % STREAMS;
        CHECK_CUDA(cudaMalloc(&buffer.device, buffer.bytes()));
    }
    state.graph = make_graph(state);
    for (int i = 1; i < count; i++) run_round(state, strtoul(arguments[i], nullptr, 10));
    unsigned seed;
    while (count == 1 && scanf("%u", &seed) == 1) run_round(state, seed);
    return pass();
}

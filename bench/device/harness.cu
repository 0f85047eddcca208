#include "harness.h"

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <unistd.h>

namespace bench {

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("causeway_device_bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    fflush(nullptr);
    // Not exit: destructors of the runtime might wait for kernels that never end.
    _exit(1);
}

double now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

Ranks::Ranks(u32 count, causeway_team_options options, const Settings &settings) {
    for (u32 rank = 0; rank < count; rank++)
        devices.push_back(static_cast<int>(rank) % settings.devices);
    team = causeway_team_create(count, devices.data(), &options);
    REQUIRE(team != nullptr, "%s", causeway_comm_error());
    for (u32 rank = 0; rank < count; rank++) {
        Team handle;
        REQUIRE(causeway_team_handle(team, rank, &handle) == 0, "%s", causeway_comm_error());
        teams.push_back(handle);
        cudaStream_t stream;
        use(rank);
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        streams.push_back(stream);
    }
    use(0);
}

Ranks::~Ranks() {
    for (cudaStream_t stream : streams)
        cudaStreamDestroy(stream);
    causeway_team_destroy(team);
}

void Ranks::use(u32 rank) const { CHECK(cudaSetDevice(devices[rank])); }

std::vector<Window> Ranks::window(u32 memory, u64 bytes) const {
    int id = causeway_window_create(team, memory, bytes);
    REQUIRE(id >= 0, "%s", causeway_comm_error());
    std::vector<Window> handles(teams.size());
    for (u32 rank = 0; rank < teams.size(); rank++)
        REQUIRE(causeway_window_handle(team, id, rank, &handles[rank]) == 0, "%s", causeway_comm_error());
    return handles;
}

double Ranks::time(u32 ranks, const std::function<void(u32)> &launch) const {
    for (u32 rank = 0; rank < ranks; rank++)
        CHECK(cudaStreamSynchronize(streams[rank]));
    double start = now();
    for (u32 rank = 0; rank < ranks; rank++) {
        use(rank);
        launch(rank);
    }
    use(0);
    for (u32 rank = 0; rank < ranks; rank++)
        CHECK(cudaStreamSynchronize(streams[rank]));
    double seconds = now() - start;
    CHECK(cudaGetLastError());
    REQUIRE(causeway_team_check(team) == 0, "%s", causeway_comm_error());
    return seconds;
}

void clear(const std::vector<Window> &window) {
    for (const Window &part : window)
        CHECK(cudaMemset(address(part), 0, part.bytes));
    CHECK(cudaStreamSynchronize(cudaStreamLegacy));
}

// A byte of the content: neighbours differ, and so do blocks of 256 and seeds.
__device__ static unsigned char byte_at(u64 at, u32 seed) {
    return static_cast<unsigned char>(at * 31 + at / 256 * 7 + seed);
}

__global__ void write_bytes(unsigned char *to, u64 bytes, u32 seed) {
    u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 at = blockIdx.x * blockDim.x + threadIdx.x; at < bytes; at += step)
        to[at] = byte_at(at, seed);
}

// The least place at which there is another byte.
__global__ void first_difference(const unsigned char *from, u64 bytes, u32 seed, u64 *place) {
    u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 at = blockIdx.x * blockDim.x + threadIdx.x; at < bytes; at += step)
        if (from[at] != byte_at(at, seed)) atomicMin(place, at);
}

static u32 blocks_for(u64 bytes) {
    u64 blocks = (bytes + 65535) / 65536;
    return blocks < 512 ? static_cast<u32>(blocks) : 512;
}

void fill(const Window &window, u64 bytes, u32 seed) {
    write_bytes<<<blocks_for(bytes), 256>>>(static_cast<unsigned char *>(address(window)), bytes, seed);
    CHECK(cudaDeviceSynchronize());
}

void must_be(const Window &window, u64 offset, u64 bytes, u32 seed, const char *what) {
    static u64 *place = nullptr;
    if (place == nullptr) CHECK(cudaMalloc(&place, sizeof *place));
    u64 none = ~0ull, found = 0;
    CHECK(cudaMemcpy(place, &none, sizeof none, cudaMemcpyHostToDevice));
    auto *from = static_cast<const unsigned char *>(address(window, offset));
    first_difference<<<blocks_for(bytes), 256>>>(from, bytes, seed, place);
    CHECK(cudaMemcpy(&found, place, sizeof found, cudaMemcpyDeviceToHost));
    REQUIRE(found == none, "%s: byte %llu of %llu is wrong", what, found, bytes);
}

void Cases::add(const char *what, const std::string &way, u64 bytes, u64 count, const char *unit,
                std::function<double()> run) {
    std::string sizes = std::to_string(bytes) + "\t" + std::to_string(count);
    cases.push_back({std::string("row\t") + what + "\t" + way + "\t" + sizes, unit, std::move(run)});
}

void Cases::measure() {
    for (int run = 0; run <= settings.runs; run++) {
        for (const Case &one : cases) {
            double value = one.run();
            if (run > 0) printf("%s\t%.6g\t%s\n", one.head.c_str(), value, one.unit.c_str());
        }
    }
}

void skip(const char *what, const char *why) { printf("skipped\t%s\t%s\n", what, why); }

} // namespace bench

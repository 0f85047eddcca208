// What all cases of this benchmark share: ranks of one process on one GPU or several, cases that are measured in turns,
// and the bytes that are compared.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <causeway/layout.h>
#include <causeway/team.h>
#include <cuda_runtime.h>

namespace bench {

using causeway::Initiator;
using causeway::Team;
using causeway::u32;
using causeway::u64;
using causeway::Window;

// Ends the program, with a line on standard error.
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define REQUIRE(condition, ...)                                                                              \
    do {                                                                                                     \
        if (!(condition)) bench::fail(__VA_ARGS__);                                                          \
    } while (0)

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        cudaError_t error_ = (call);                                                                         \
        if (error_ != cudaSuccess) bench::fail("%s: %s", #call, cudaGetErrorString(error_));                 \
    } while (0)

// Seconds of a clock that only goes forward.
double now();

struct Settings {
    bool is_quick = false; // small, for the software GPU: one block, few rounds
    int runs = 10;
    u32 processors = 1; // multiprocessors of the GPU
    int devices = 1;    // to which ranks are dealt out in turn
};

// Ranks of a team in this process, each with a stream.
struct Ranks {
    causeway_team *team;
    std::vector<Team> teams;
    std::vector<cudaStream_t> streams;
    std::vector<int> devices;

    Ranks(u32 count, causeway_team_options options, const Settings &settings);
    ~Ranks();
    Ranks(const Ranks &) = delete;

    // A window's handles, one a rank.
    std::vector<Window> window(u32 memory, u64 bytes) const;

    // Makes a rank's device the calling thread's, for its kernels.
    void use(u32 rank) const;

    // Seconds until the kernels of so many ranks, which `launch` starts, have ended.
    double time(u32 ranks, const std::function<void(u32)> &launch) const;
};

// One queue of each rank, and one thread for it.
constexpr causeway_team_options ONE_QUEUE = {1, 1024, 1, 0};

inline void *address(const Window &window, u64 offset = 0) {
    return reinterpret_cast<void *>(window.base + offset);
}

// Writes zeros to all ranks' parts.
void clear(const std::vector<Window> &window);

// Writes bytes that differ with the seed to the first bytes of a rank's part.
void fill(const Window &window, u64 bytes, u32 seed);

// Ends the program unless bytes are those that `fill` has written for the seed.
void must_be(const Window &window, u64 offset, u64 bytes, u32 seed, const char *what);

// Cases of one kind. A case gives one figure each time that it runs.
class Cases {
  public:
    explicit Cases(const Settings &settings) : settings(settings) {}

    // `way` is who moves the bytes; `bytes` those of a message; `count` how many there are of what the kind
    // is about: messages in flight, threads, blocks, ranks.
    void add(const char *what, const std::string &way, u64 bytes, u64 count, const char *unit,
             std::function<double()> run);

    // Runs all in turns, the first time without counting, as nothing is warm then. Prints a line for each
    // figure as it comes.
    void measure();

    const Settings settings;

  private:
    struct Case {
        std::string head, unit;
        std::function<double()> run;
    };
    std::vector<Case> cases;
};

// Says why something is not measured.
void skip(const char *what, const char *why);

// The kinds, each of which measures what it is about.
void measure_latency(const Settings &settings);
void measure_flight(const Settings &settings);
void measure_bandwidth(const Settings &settings);
void measure_rates(const Settings &settings);
void measure_calls(const Settings &settings);
void measure_verbs(const Settings &settings);
void measure_barriers(const Settings &settings);
void measure_stencils(const Settings &settings);
void measure_energy(const Settings &settings);

} // namespace bench

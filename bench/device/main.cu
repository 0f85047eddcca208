// What kernels that communicate cost: two to eight ranks of one process on one GPU, or on several in turn,
// each in a stream of its own. `causeway bench device` starts this program:
//
//   causeway_device_bench KINDS RUNS [DEVICES] [quick]
//   causeway_device_bench latency,stencil 10
//
// Prints a line for each figure, as it comes: `row`, what is measured, the way, the bytes of a message, a
// count (crates/measure/src/device/case.rs says of what), the figure, its unit; tabs stand between them. What
// cannot be measured here has a line `skipped` with the reason. All cases of a kind are measured in turns,
// and bytes that are moved are compared. `quick` is for the software GPU: small sizes, one block.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "harness.h"

using namespace bench;

struct Kind {
    const char *name;
    void (*measure)(const Settings &);
};

static const Kind KINDS[] = {
    {"latency", measure_latency},  {"flight", measure_flight}, {"bandwidth", measure_bandwidth},
    {"rate", measure_rates},       {"calls", measure_calls},   {"barrier", measure_barriers},
    {"stencil", measure_stencils}, {"energy", measure_energy}, {"verbs", measure_verbs},
};

static const Kind &kind_of(const std::string &name) {
    for (const Kind &kind : KINDS)
        if (name == kind.name) return kind;
    fail("nothing is called %s", name.c_str());
}

int main(int count, char **arguments) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    // A kernel that is loaded later than another one waits for it may never run.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    // Streams that share a queue of the device may wait for each other's kernels.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    REQUIRE(count >= 3, "usage: %s KINDS RUNS [DEVICES] [quick]", arguments[0]);
    Settings settings;
    settings.runs = atoi(arguments[2]);
    REQUIRE(settings.runs > 0, "%s is no number of runs", arguments[2]);
    for (int at = 3; at < count; at++) {
        if (strcmp(arguments[at], "quick") == 0)
            settings.is_quick = true;
        else
            settings.devices = atoi(arguments[at]);
        REQUIRE(settings.devices > 0, "%s is neither `quick` nor a number of devices", arguments[at]);
    }
    int devices;
    CHECK(cudaGetDeviceCount(&devices));
    REQUIRE(settings.devices <= devices, "%d devices were asked for, and there are %d", settings.devices, devices);
    CHECK(cudaFree(nullptr));
    int processors;
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    // The software GPU runs the blocks of a grid one after the other.
    settings.processors = settings.is_quick ? 1 : static_cast<u32>(processors);
    std::stringstream kinds(arguments[1]);
    for (std::string kind; std::getline(kinds, kind, ',');)
        kind_of(kind).measure(settings);
    return 0;
}

// Ping-pong between two kernels, which several kinds measure.
#pragma once

#include <memory>

#include "ways.h"

namespace bench {

// Two ranks with windows of up to so many bytes a message, in a GPU's memory and in the host's.
struct PingPong {
    Ranks ranks;
    u64 most;
    std::vector<Window> on_device, in_host, device_cells, host_cells;
    u32 seed = 0;

    PingPong(u64 most, const Settings &settings);

    // Seconds of so many rounds by kernels, there and back.
    double rounds(const Way &way, u64 bytes, u32 count);
    // The polling kernel ends, the host sends: what was asked of the host before kernels could send.
    double rounds_by_host(u64 bytes, u32 count);
    // The host's transfers alone, without a kernel.
    double transfers(u64 bytes, u32 count);

  private:
    cudaStream_t sending;
    u64 *signals; // pinned: the values that the host sends as signals
};

} // namespace bench

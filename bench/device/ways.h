// The ways that a message can take, by name.
#pragma once

#include "harness.h"

namespace bench {

struct Way {
    const char *name;
    Initiator by;
    bool is_in_host; // whether the windows are memory of the host
};

constexpr Way DIRECT = {"direct", Initiator::direct, false};
// From kernel to kernel by a thread of the host: a copy engine moves the bytes, or the thread itself where
// both windows are the host's.
constexpr Way PROXY = {"proxy", Initiator::proxy, false};
constexpr Way PROXY_IN_HOST = {"proxy, host memory", Initiator::proxy, true};
constexpr Way CHOSEN = {"chosen", Initiator::automatic, false};

// Of kernels whose blocks have up to 1024 threads. Without the bound one of them took more registers than an
// H100 has for such a block: 65,536, so 64 a thread (2026-11-25).
#define FULL_BLOCKS __global__ __launch_bounds__(1024)

// Threads that call together, for messages of so many bytes.
inline u32 threads_for(u64 bytes) { return bytes <= 256 ? 1 : bytes <= 65536 ? 256 : 1024; }

} // namespace bench

// Who moves a message: read from the table that the host has made of what each initiator costs
// (crates/comm/src/device/choice).
#pragma once

#include "proxy.cuh"
#include "scope.cuh"

namespace causeway::detail {

// Sizes from one power of two, not counted, to the next.
__device__ inline u32 class_of(u64 bytes) {
    u32 bits = bytes <= 1 ? 0 : 64 - __clzll(static_cast<long long>(bytes - 1));
    return bits < 39 ? bits : 39;
}

// How many requests the proxy has and has not done, as the power of two: 0, 1, 2 to 3, ... 64 and more.
__device__ inline u32 flight_of(const Team &team) {
    Queue *queue = queue_of(team);
    u64 head = order::load_relaxed(&queue->head), completed = order::load_relaxed(&queue->completed);
    u32 bits = head > completed ? 64 - __clzll(static_cast<long long>(head - completed)) : 0;
    return bits < 7 ? bits : 7;
}

// The row of the table for a message of so many bytes. Short messages have theirs in the handle: a choice
// that loaded it took 0.3 us of the 3 us that 8 bytes and a signal take (H100, 2026-11-26).
template <class Scope> __device__ inline u64 row_of(const Team &team, u64 bytes) {
    u32 size = class_of(bytes);
    if (size < (team.direct_below >> 8 * Scope::INDEX & 0xff))
        return static_cast<u64>(Initiator::direct) * 0x0101010101010101ull;
    return team.state->choice[Scope::INDEX][size];
}

// The initiator for a message, the same for all threads of the scope. `wish` is the program's; `is_mapped`
// says whether this rank's threads reach the memory at all. The row comes from the caller, who loads it with
// what else it needs: a load after each acquire costs a way to the L2, and together they cost one.
template <class Scope>
__device__ inline Initiator choose(const Team &team, u64 row, bool is_mapped, Initiator wish) {
    if (wish != Initiator::automatic) return wish;
    if (!is_mapped) return Initiator::proxy;
    // Where all eight agree the queue need not be asked.
    if (row == (row & 0xff) * 0x0101010101010101ull) return static_cast<Initiator>(row & 0xff);
    u64 flight = Scope::from_first(flight_of(team));
    return static_cast<Initiator>(row >> 8 * flight & 0xff);
}

__device__ inline void count(const Team &team, Initiator initiator, u64 bytes) {
    u64 *counts = team.state->counts[static_cast<u32>(initiator)];
    atomicAdd(&counts[0], 1ull);
    atomicAdd(&counts[1], bytes);
}

} // namespace causeway::detail

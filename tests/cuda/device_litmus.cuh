// Litmus tests in a crowd: many threads of each rank make the same test at the same time, each on a pair of
// words of its own, while other blocks keep the memory system busy.
//
// A weak outcome needs a store that comes late while a later load of the same thread does not. One pair of
// threads on an idle GPU hardly ever has that: 10^7 store buffers in turn showed none on an H100. What
// published testing of GPUs has found to help is here: thousands of instances at a time; partners in other
// warps and multiprocessors, others each round; both words of an instance in lines, and so slices of the L2,
// of their own; all threads released together, then a drawn delay; and blocks that store to and load from a
// few lines, others each round, so that some ways through the machine are crowded and others are not.
#pragma once

#include <causeway/device.cuh>

namespace litmus {

using namespace causeway;

enum { MESSAGE_PASSING, STORE_BUFFERING, INDEPENDENT_READS };

// Where the words lie in a rank's part of the window, in words of 8 bytes: the round's counter, the lines under
// stress, x and y of each instance.
constexpr u64 LINE = 16, COUNTER_AT = 0, HOT_AT = LINE, HOT_LINES = 1024, X_AT = HOT_AT + LINE * HOT_LINES;

__device__ inline u32 hash(u32 value) {
    value = (value ^ value >> 16) * 0x7feb352du;
    value = (value ^ value >> 15) * 0x846ca68bu;
    return value ^ value >> 16;
}

// Another order of 0 to count - 1 for each key; the count is a power of two.
__device__ inline u32 permuted(u32 at, u32 key, u32 count) {
    u32 drawn = hash(key);
    return (at * (drawn | 1) + (drawn >> 7)) & (count - 1);
}

// All testing blocks of all ranks come to the round.
__device__ inline bool meet(const Team &team, u64 *counter, u64 arrived) {
    Status status = Status::ok;
    // All of the block have made the test of the round before: who is late would find the next round's values.
    __syncthreads();
    if (threadIdx.x == 0) {
        order::fetch_add(counter, 1);
        detail::Timeout timeout(team);
        while (status == Status::ok && order::load_acquire(counter) < arrived)
            status = timeout.poll();
    }
    return __syncthreads_or(status != Status::ok) == 0;
}

// Stores to and loads from a few lines until the last round has begun.
__device__ inline void crowd(const Team &team, u64 *words, u64 last) {
    u64 *counter = words + COUNTER_AT;
    detail::Timeout timeout(team);
    u32 warp = threadIdx.x / 32 + blockIdx.x * blockDim.x / 32;
    for (u32 turn = 0;; turn++) {
        u64 arrived = order::load_relaxed(counter);
        if (arrived >= last || timeout.poll() != Status::ok) return;
        // Four lines for all warps for some hundred turns, then four others; a warp takes two of them.
        u32 first = hash(static_cast<u32>(arrived >> 6)) + (warp & 1), second = first + 2;
        u64 *store = words + HOT_AT + LINE * (first % HOT_LINES),
            *load = words + HOT_AT + LINE * (second % HOT_LINES);
        for (u32 time = 0; time < 16; time++) {
            order::store_relaxed(store + threadIdx.x % LINE, time);
            order::load_relaxed(load + threadIdx.x % LINE);
        }
    }
}

} // namespace litmus

// `testers` blocks of each rank test, the others crowd. Outcomes are a byte for each round and instance: bit
// 0 says whether the first load has found the round's value, bit 1 the second one. `fenced` uses the orders
// that the operations use; without it all accesses are relaxed. Without `permutes` the ranks take instances
// in the same order: on the software GPU, where a block's threads run one after the other, partners would
// never meet otherwise. `home_of_x` and `home_of_y` say in whose parts of the window the words lie: with
// ranks on two GPUs some of the accesses cross between them, or all, or none of one rank's.
extern "C" __global__ void litmus_in_a_crowd(causeway::Team team, causeway::Window window, causeway::u32 kind,
                                             causeway::u32 fenced, causeway::u32 permutes,
                                             causeway::u32 rounds, causeway::u32 testers, causeway::u32 seed,
                                             causeway::u32 home_of_x, causeway::u32 home_of_y,
                                             causeway::u8 *outcomes) {
    using namespace causeway;
    using namespace litmus;
    u64 *words = reinterpret_cast<u64 *>(detail::mapped(window, home_of_x)), *counter = words + COUNTER_AT;
    u64 *others = reinterpret_cast<u64 *>(detail::mapped(window, home_of_y));
    u64 of_round = static_cast<u64>(testers) * team.ranks;
    if (blockIdx.x >= testers) return crowd(team, words, of_round * rounds);
    u32 instances = testers * blockDim.x, id = blockIdx.x * blockDim.x + threadIdx.x, rank = team.rank;
    u64 *x = words + X_AT, *y = others + X_AT + LINE * instances;
    for (u32 round = 1; round <= rounds; round++) {
        u32 drawn = hash(seed ^ round * 0x9e3779b9u);
        // Ranks permute in ways of their own, so that partners differ; where y lies does not depend on the
        // rank.
        u32 at = permutes ? permuted(id, drawn + rank, instances) : id;
        u64 *first = x + LINE * at, *second = y + LINE * permuted(at, drawn ^ 0x55555555u, instances);
        if (!meet(team, counter, of_round * round)) return;
        // Every fourth round in lock step.
        u32 delay = round % 4 == 0 ? 0 : hash(drawn + id) % (8u << round % 8);
        for (u32 turn = 0; turn < delay; turn++)
            asm volatile("" ::: "memory");
        u64 one = 0, two = 0;
        if (kind == MESSAGE_PASSING) {
            if (rank == 0) {
                order::store_relaxed(first, round);
                if (fenced) detail::write_signal(second, round, SignalKind::set, detail::is_local(team, false));
                else order::store_relaxed(second, round);
            } else {
                one = fenced ? order::load_acquire(second) : order::load_relaxed(second);
                two = order::load_relaxed(first);
            }
        } else if (kind == STORE_BUFFERING) {
            order::store_relaxed(rank == 0 ? first : second, round);
            if (fenced) order::fence_sequential();
            one = order::load_relaxed(rank == 0 ? second : first);
        } else if (rank < 2) {
            order::store_relaxed(rank == 0 ? first : second, round);
        } else {
            one = order::load_relaxed(rank == 2 ? first : second);
            if (fenced) order::fence_sequential();
            two = order::load_relaxed(rank == 2 ? second : first);
        }
        u64 outcome = static_cast<u64>(round - 1) * instances + at;
        outcomes[outcome] = static_cast<u8>((one == round) | (two == round) << 1);
    }
}

// State of a PE, as its kernels know it: the team, the symmetric heap, and what lies in its first bytes.
//
// Each source that nvcc compiles has a copy of its own in constant memory, which the host writes
// (host.h): so programs need neither relocatable device code nor a device library.
#pragma once

#include "types.h"

#include <causeway/layout.h>

namespace causeway::shmem {

// Offsets in the heap. The program's memory begins at HEAP_AT.
//
// CELLS: two rows of a word for each PE, by which the host compares what PEs ask for. RESULT: what came of
// it. TICKET and SLOTS: pieces of staging memory (staging.cuh). CHUNKS: two of a PE's own for reductions, and
// one for what it gets of others.
constexpr u64 CELLS_AT = 0;
constexpr u64 RESULT_AT = 2 * 8 * MAX_RANKS;
constexpr u64 TICKET_AT = RESULT_AT + 64;
constexpr u64 SLOTS_AT = 4096;
constexpr u32 SLOTS = 4096;
constexpr u64 SLOT_BYTES = 128;
constexpr u64 CHUNK_BYTES = 16384;
constexpr u64 CHUNKS_AT = SLOTS_AT + SLOTS * SLOT_BYTES;
constexpr u64 HEAP_AT = CHUNKS_AT + 3 * CHUNK_BYTES;
static_assert(HEAP_AT % 4096 == 0);

struct State {
    Team team;
    Window heap;
    // This PE among those of its host, and how many these are; -1 where it is not known.
    int node_pe;
    int node_pes;
};

#ifdef __CUDACC__
__host__ __device__
#endif
    inline u64 *as_word(uint64_t *word) {
    return reinterpret_cast<u64 *>(word);
}

} // namespace causeway::shmem

#ifdef __CUDACC__

#include <causeway/device.cuh>

// Of functions that are long, and called in many places: compiled once, or kernels take minutes to compile.
#define CAUSEWAY_SHMEM_CALLED __device__ __noinline__

namespace causeway::shmem {

__constant__ static State state_of_source;

// The team, or the heap. By value: operations of causeway take references, and constant memory has none in
// common with other memory.
__device__ inline Team team() { return state_of_source.team; }
__device__ inline Window heap() { return state_of_source.heap; }

// Ends the kernel where an operation has failed: these functions return no error, and a kernel that went on
// would compute with bytes that have not come. The host's next call says why (host.h).
__device__ inline void must(Status status) {
    if (status != Status::ok) asm volatile("trap;");
}

__device__ inline bool is_in_heap(const void *address, u64 bytes) {
    Window window = heap();
    u64 offset = reinterpret_cast<u64>(address) - window.base;
    return offset <= window.bytes && bytes <= window.bytes - offset;
}

// Where an object of the heap lies in it. What lies elsewhere ends the team.
__device__ inline u64 offset_of(Verb verb, const void *address, u64 bytes, int pe) {
    u64 offset = reinterpret_cast<u64>(address) - heap().base;
    if (!is_in_heap(address, bytes) || static_cast<u32>(pe) >= team().ranks) {
        Status status = is_in_heap(address, bytes) ? Status::no_such_rank : Status::out_of_bounds;
        must(detail::fail(team(), status, verb, static_cast<u32>(pe), heap().id, offset, bytes));
    }
    return offset;
}

// An object of the heap as this PE's threads reach a peer's; null where they do not.
__device__ inline void *mapped_at(u64 offset, int pe) {
    u64 base = detail::mapped(heap(), static_cast<u32>(pe));
    return base == 0 ? nullptr : reinterpret_cast<void *>(base + offset);
}

// Waits until all that this PE has posted to its proxy and its network card is done, so that what was copied may change, and what
// was fetched is there.
template <class Scope> __device__ inline void complete_posted() {
    Scope::sync();
    Team own = team();
    Status status = Status::ok;
    if (Scope::rank() == 0) {
        status = detail::drain_all(own);
        if (status != Status::ok) detail::fail(own, status, Verb::wait, own.rank, 0, 0, 0);
    }
    must(from_first<Scope>(status));
}

} // namespace causeway::shmem

#endif

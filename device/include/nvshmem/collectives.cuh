// Collectives of the SHMEM facade, called by the kernels of all PEs: barriers, broadcast, fcollect, alltoall,
// reductions.
#pragma once

#include "transfers.cuh"

namespace causeway::shmem {

// The barrier of kernels. Those of the host are others.
constexpr u32 KERNELS_BARRIER = 0;

// A team that these functions know: all PEs.
__device__ inline void must_be_world(nvshmem_team_t which) {
    if (which != NVSHMEM_TEAM_WORLD)
        must(detail::fail(team(), Status::other_team, Verb::barrier, team().rank, heap().id, 0, 0));
}

template <class Scope> CAUSEWAY_SHMEM_CALLED void barrier(u32 number = KERNELS_BARRIER) {
    must(causeway::barrier<Scope>(team(), number));
}

template <class Scope>
CAUSEWAY_SHMEM_CALLED void broadcast(nvshmem_team_t which, void *to, const void *from, u64 bytes, int root) {
    must_be_world(which);
    if (team().rank == static_cast<u32>(root))
        for (u32 pe = 0; pe < team().ranks; pe++)
            if (pe != team().rank || to != from) put<Scope, false>(to, from, bytes, static_cast<int>(pe));
    barrier<Scope>();
}

// Each PE's bytes to all, in the order of the PEs.
template <class Scope>
CAUSEWAY_SHMEM_CALLED void collect(nvshmem_team_t which, void *to, const void *from, u64 bytes) {
    must_be_world(which);
    char *own = static_cast<char *>(to) + team().rank * bytes;
    for (u32 pe = 0; pe < team().ranks; pe++)
        if (pe != team().rank || own != from) put<Scope, false>(own, from, bytes, static_cast<int>(pe));
    barrier<Scope>();
}

// To each PE the bytes of its number.
template <class Scope>
CAUSEWAY_SHMEM_CALLED void exchange(nvshmem_team_t which, void *to, const void *from, u64 bytes) {
    must_be_world(which);
    for (u32 pe = 0; pe < team().ranks; pe++)
        put<Scope, false>(static_cast<char *>(to) + team().rank * bytes,
                          static_cast<const char *>(from) + pe * bytes, bytes, static_cast<int>(pe));
    barrier<Scope>();
}

enum class Reduction : u32 { sum, product, min, max, bit_and, bit_or, bit_xor };

template <Reduction reduction, class T> __device__ inline T combine(T a, T b) {
    if constexpr (reduction == Reduction::sum) return static_cast<T>(a + b);
    else if constexpr (reduction == Reduction::product) return static_cast<T>(a * b);
    else if constexpr (reduction == Reduction::min) return b < a ? b : a;
    else if constexpr (reduction == Reduction::max) return a < b ? b : a;
    else if constexpr (reduction == Reduction::bit_and) return static_cast<T>(a & b);
    else if constexpr (reduction == Reduction::bit_or) return static_cast<T>(a | b);
    else return static_cast<T>(a ^ b);
}

// By chunks, each of which all lay where the others fetch it: so source and result may be the same. The next
// chunk but one is written over it, behind a barrier after which nobody fetches it any more. All PEs combine
// in the same order, so that results are the same.
template <class Scope, Reduction reduction, class T>
__device__ inline int reduce(nvshmem_team_t which, T *to, const T *from, size_t count) {
    must_be_world(which);
    constexpr size_t LENGTH = CHUNK_BYTES / sizeof(T);
    T *received = reinterpret_cast<T *>(heap().base + CHUNKS_AT + 2 * CHUNK_BYTES);
    for (size_t start = 0, round = 0; start < count; start += LENGTH, round++) {
        size_t length = count - start < LENGTH ? count - start : LENGTH;
        T *chunk = reinterpret_cast<T *>(heap().base + CHUNKS_AT + round % 2 * CHUNK_BYTES);
        Scope::sync();
        for (size_t at = Scope::rank(); at < length; at += Scope::size()) chunk[at] = from[start + at];
        barrier<Scope>();
        for (u32 pe = 0; pe < team().ranks; pe++) {
            get<Scope, true>(received, chunk, length * sizeof(T), static_cast<int>(pe));
            Scope::sync();
            for (size_t at = Scope::rank(); at < length; at += Scope::size())
                to[start + at] = pe == 0 ? received[at] : combine<reduction, T>(to[start + at], received[at]);
            Scope::sync();
        }
    }
    // Nobody begins again, at the first chunk, before all have fetched.
    barrier<Scope>();
    return 0;
}

} // namespace causeway::shmem

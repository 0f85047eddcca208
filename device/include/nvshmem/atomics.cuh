// Atomic operations of the SHMEM facade, on objects of 4 and 8 bytes in the symmetric heap.
//
// Where a peer's memory is mapped and the GPU has atomic operations there they are the GPU's own. In a team
// of several hosts the owner's proxy makes all of them (causeway/atomics.cuh), which adds, compares and reads
// words of 8 bytes: all else is made of these.
#pragma once

#include "transfers.cuh"

namespace causeway::shmem {

enum class Change : u32 { set, add, bit_and, bit_or, bit_xor, compare_and_swap, none };

// An object as a number without sign of the same size.
template <u32 BYTES> struct Bits;
template <> struct Bits<4> {
    using Type = u32;
};
template <> struct Bits<8> {
    using Type = u64;
};

template <class To, class From> __device__ inline To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof(To));
    return to;
}

template <class U> __device__ inline U changed(Change change, U before, U value, U expected) {
    switch (change) {
    case Change::set: return value;
    case Change::add: return before + value;
    case Change::bit_and: return before & value;
    case Change::bit_or: return before | value;
    case Change::bit_xor: return before ^ value;
    case Change::compare_and_swap: return before == expected ? value : before;
    default: return before;
    }
}

// By the GPU.
template <class U> __device__ inline U change_mapped(Change change, U *at, U value, U expected) {
    switch (change) {
    case Change::set: return atomicExch_system(at, value);
    case Change::add: return atomicAdd_system(at, value);
    case Change::bit_and: return atomicAnd_system(at, value);
    case Change::bit_or: return atomicOr_system(at, value);
    case Change::bit_xor: return atomicXor_system(at, value);
    case Change::compare_and_swap: return atomicCAS_system(at, expected, value);
    default: return *static_cast<volatile U *>(at);
    }
}

// By proxies: the word of 8 bytes in which the object lies is read, and exchanged if nobody has changed it
// meanwhile.
template <class U>
CAUSEWAY_SHMEM_CALLED U change_by_proxy(Change change, u64 offset, U value, U expected, int pe) {
    Team own = team();
    Window window = heap();
    u32 peer = static_cast<u32>(pe), shift = 8 * static_cast<u32>(offset % 8);
    u64 at = offset - offset % 8, before = 0;
    if (sizeof(U) == 8 && change == Change::add) {
        must(atomic_add(own, peer, window, at, value, &before));
        return static_cast<U>(before);
    }
    if (sizeof(U) == 8 && change == Change::compare_and_swap) {
        must(atomic_cas(own, peer, window, at, expected, value, &before));
        return static_cast<U>(before);
    }
    u64 mask = (sizeof(U) == 8 ? ~0ull : 0xffffffffull) << shift;
    must(fetch(own, peer, window, at, &before));
    while (true) {
        U found = static_cast<U>(before >> shift);
        U after = changed(change, found, value, expected);
        if (change == Change::none || (change == Change::compare_and_swap && found != expected)) return found;
        u64 desired = (before & ~mask) | (static_cast<u64>(after) << shift & mask), seen = 0;
        must(atomic_cas(own, peer, window, at, before, desired, &seen));
        if (seen == before) return found;
        before = seen;
    }
}

template <class T> __device__ inline T atomic(Change change, T *object, T value, T expected, int pe) {
    using U = typename Bits<sizeof(T)>::Type;
    Verb verb = change == Change::none ? Verb::fetch : Verb::atomic_add;
    u64 offset = offset_of(verb, object, sizeof(T), pe);
    if (offset % sizeof(T) != 0)
        must(detail::fail(team(), Status::misaligned, verb, static_cast<u32>(pe), heap().id, offset,
                          sizeof(T)));
    U operand = bits_as<U>(value), compared = bits_as<U>(expected);
    U *mapped = static_cast<U *>(mapped_at(offset, pe));
    bool is_own =
        detail::has_atomics(heap(), static_cast<u32>(pe)) || (change == Change::none && mapped != nullptr);
    U before = is_own ? change_mapped(change, mapped, operand, compared)
                      : change_by_proxy(change, offset, operand, compared, pe);
    return bits_as<T>(before);
}

} // namespace causeway::shmem

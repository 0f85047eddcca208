// `direct`: the threads of a kernel load and store a peer's memory, which is mapped here.
#pragma once

#include "scope.cuh"

namespace causeway::detail {

// Copies in units of one type, four of which each thread has under way at a time.
template <class Scope, class Unit> __device__ inline void copy_units(u64 to, u64 from, u64 count) {
    Unit *target = reinterpret_cast<Unit *>(to);
    const Unit *source = reinterpret_cast<const Unit *>(from);
    u64 step = Scope::size(), at = Scope::rank();
    for (; at + 3 * step < count; at += 4 * step) {
        Unit a = source[at], b = source[at + step], c = source[at + 2 * step], d = source[at + 3 * step];
        target[at] = a;
        target[at + step] = b;
        target[at + 2 * step] = c;
        target[at + 3 * step] = d;
    }
    for (; at < count; at += step) target[at] = source[at];
}

// Copies ranges that lie the same way in units: what is before the first whole unit and behind the last goes
// byte by byte.
template <class Scope, class Unit> __device__ inline void copy_aligned(u64 to, u64 from, u64 bytes) {
    u64 head = (sizeof(Unit) - to % sizeof(Unit)) % sizeof(Unit);
    if (head > bytes) head = bytes;
    u64 body = (bytes - head) / sizeof(Unit), tail = head + body * sizeof(Unit);
    copy_units<Scope, u8>(to, from, head);
    copy_units<Scope, Unit>(to + head, from + head, body);
    copy_units<Scope, u8>(to + tail, from + tail, bytes - tail);
}

// Copies with the widest accesses that both ends allow.
template <class Scope> __device__ inline void copy(u64 to, u64 from, u64 bytes) {
    u64 difference = to ^ from;
    if (difference % 16 == 0) copy_aligned<Scope, uint4>(to, from, bytes);
    else if (difference % 4 == 0) copy_aligned<Scope, u32>(to, from, bytes);
    else copy_units<Scope, u8>(to, from, bytes);
}

} // namespace causeway::detail

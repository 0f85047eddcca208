// `direct`: the threads of a kernel load and store a peer's memory, which is mapped here.
#pragma once

#include "order.cuh"
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

// Copies ranges that lie the same way in units: what is before the first whole unit goes byte by byte, and
// what is behind the last in words and then bytes.
template <class Scope, class Unit> __device__ inline void copy_aligned(u64 to, u64 from, u64 bytes) {
    u64 head = (sizeof(Unit) - to % sizeof(Unit)) % sizeof(Unit);
    if (head > bytes) head = bytes;
    u64 body = (bytes - head) / sizeof(Unit), tail = head + body * sizeof(Unit);
    copy_units<Scope, u8>(to, from, head);
    copy_units<Scope, Unit>(to + head, from + head, body);
    if constexpr (sizeof(Unit) > sizeof(u64))
        copy_aligned<Scope, u64>(to + tail, from + tail, bytes - tail);
    else copy_units<Scope, u8>(to + tail, from + tail, bytes - tail);
}

// Copies with the widest accesses that both ends allow.
template <class Scope> __device__ inline void copy(u64 to, u64 from, u64 bytes) {
    u64 difference = to ^ from;
    if (difference % 16 == 0 && bytes >= 16) copy_aligned<Scope, uint4>(to, from, bytes);
    else if (difference % 8 == 0) copy_aligned<Scope, u64>(to, from, bytes);
    else if (difference % 4 == 0) copy_aligned<Scope, u32>(to, from, bytes);
    else copy_units<Scope, u8>(to, from, bytes);
}

// The same, timed where it is long: the clock costs what 100 bytes do.
template <class Scope> __device__ inline void copy_timed(const Team &team, u64 to, u64 from, u64 bytes) {
    bool is_timed = bytes >= TIMED_BYTES && Scope::rank() == 0;
    u64 start = is_timed ? order::now() : 0;
    copy<Scope>(to, from, bytes);
    if (!is_timed) return;
    atomicAdd(&team.state->timed[Scope::INDEX][0], bytes);
    atomicAdd(&team.state->timed[Scope::INDEX][1], order::now() - start);
}

// A message of one word, put by one thread: it loads the word beside the place where it goes, as each costs a
// way to the L2. More threads may not: what they copy another of them may have written, which is there after
// their barrier. Nor is that for words of which the proxy may take care.
template <class Scope> class WordCopy {
  public:
    __device__ WordCopy(u64 to_offset, u64 from, u64 bytes, bool is_direct)
        : is_word_(Scope::INDEX == Thread::INDEX && is_direct && bytes == 8 && (to_offset | from) % 8 == 0) {
        if (is_word_) word_ = *reinterpret_cast<const u64 *>(from);
    }

    // Copies the word, or all bytes where there is more to copy. Windows lie at multiples of 16.
    __device__ void copy_to(const Team &team, u64 to, u64 from, u64 bytes) const {
        if (is_word_) *reinterpret_cast<u64 *>(to) = word_;
        else copy_timed<Scope>(team, to, from, bytes);
    }

  private:
    bool is_word_;
    u64 word_ = 0;
};

} // namespace causeway::detail

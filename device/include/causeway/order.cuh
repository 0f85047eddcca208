// Loads, stores and fences that other ranks see, in the words of the PTX memory model.
//
// All are of system scope but those whose names say `near`: the other end is another GPU, or a thread of the
// host. Each says what breaks without its order.
//
// `near` is the scope of one GPU, for teams that are on one altogether (`ON_ONE_GPU`): a release waits until
// what it orders has come to the L2, and not until all of the machine would see it. Seen by another GPU or by
// the host such a signal would say nothing of the bytes before it.
#pragma once

#include "layout.h"

namespace causeway::order {

// For what is looked at again and again, and decides nothing by itself. Without `relaxed` the compiler could
// read once and spin on the register.
__device__ inline u64 load_relaxed(const u64 *from) {
    u64 value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

__device__ inline u32 load_relaxed(const u32 *from) {
    u32 value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

// For a signal: what its sender wrote before is read after. Without it the bytes of the message may be read
// before the signal was, from a cache line that was fetched long ago: the signal is seen and the old bytes
// are.
__device__ inline u64 load_acquire(const u64 *from) {
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

__device__ inline void store_relaxed(u64 *to, u64 value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

__device__ inline void store_relaxed(u32 *to, u32 value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// For a signal: what this thread wrote before, and what it has seen of others by a barrier of its block, is
// there when the signal is. Without it the signal may pass the message on another way through the machine
// (another slice of the L2, another link): the receiver finds the signal and not yet the bytes.
__device__ inline void store_release(u64 *to, u64 value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

__device__ inline void store_release(u32 *to, u32 value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ inline void store_release_local(u64 *to, u64 value) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

// As `store_release`, for a signal that several senders count up. `red` asks for no answer, so the sender
// does not wait.
__device__ inline void add_release(u64 *to, u64 value) {
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

__device__ inline void add_release_local(u64 *to, u64 value) {
    asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

// Atomic operations order both ways: a thread that takes a lock by one reads after it, and the thread that releases it
// wrote before.
__device__ inline u64 fetch_add(u64 *at, u64 value) {
    u64 before;
    asm volatile("atom.acq_rel.sys.global.add.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(at), "l"(value)
                 : "memory");
    return before;
}

__device__ inline u64 compare_and_swap(u64 *at, u64 expected, u64 desired) {
    u64 before;
    asm volatile("atom.acq_rel.sys.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(before)
                 : "l"(at), "l"(expected), "l"(desired)
                 : "memory");
    return before;
}

// Both halves of a request. Two halves, and not one: of 16 bytes nothing is promised but that each 8 are
// whole.
__device__ inline void store_pair(u64 *to, u64 first, u64 second) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(first), "l"(second)
                 : "memory");
}

// Orders what comes before with what comes after, for all who see it. The request that follows tells the
// proxy to read memory: without the fence a copy engine, or a thread of the host, may fetch bytes that are
// still on their way there.
__device__ inline void fence() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

__device__ inline void fence_local() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// Also orders a store with a load of another place that comes later (Dekker's pattern: I say that I want,
// then look whether you do). No weaker fence does: with acquire and release both may find that the other has
// said nothing.
__device__ inline void fence_sequential() { asm volatile("fence.sc.sys;" ::: "memory"); }

// The scope of one GPU again, for what its own threads agree on alone: words in its memory that neither the host nor
// a device reads. What such a chain of releases and acquires has ordered, a fence of the system's scope at its end
// orders for all the machine.
__device__ inline u64 load_relaxed_local(const u64 *from) {
    u64 value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

__device__ inline u32 load_relaxed_local(const u32 *from) {
    u32 value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

__device__ inline u64 load_acquire_local(const u64 *from) {
    u64 value;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

__device__ inline void store_relaxed_local(u64 *to, u64 value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

__device__ inline u64 compare_and_swap_local(u64 *at, u64 expected, u64 desired) {
    u64 before;
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(before)
                 : "l"(at), "l"(expected), "l"(desired)
                 : "memory");
    return before;
}

// Nanoseconds of a clock that all multiprocessors of a GPU have in common.
__device__ inline u64 now() {
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

} // namespace causeway::order

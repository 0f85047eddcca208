// Who calls together: one thread, those of a warp, or all of a block.
//
// An operation is called by all threads of its scope with the same arguments, and returns to all of them. The
// bytes of a copy are divided among them; the first sends the signal, after a barrier of the scope, so that
// the signal comes after everybody's bytes and not the first thread's alone. `any` is a barrier, too.
#pragma once

#include "layout.h"

namespace causeway {

struct Thread {
    static constexpr u32 INDEX = 0;
    __device__ static u32 rank() { return 0; }
    __device__ static u32 size() { return 1; }
    __device__ static void sync() {}
    __device__ static u64 from_first(u64 value) { return value; }
    __device__ static bool any(bool is_so) { return is_so; }
};

struct Warp {
    static constexpr u32 INDEX = 1;
    __device__ static u32 rank() { return in_block() % 32; }
    // The last warp of a block may have fewer threads.
    __device__ static u32 size() {
        u32 left = blockDim.x * blockDim.y * blockDim.z - (in_block() & ~31u);
        return left < 32 ? left : 32;
    }
    __device__ static u32 in_block() {
        return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    }
    __device__ static void sync() { __syncwarp(); }
    // The shuffle orders no memory. Behind the barrier all see what the first thread has seen: the bytes in
    // front of a signal.
    __device__ static u64 from_first(u64 value) {
        u64 seen = __shfl_sync(0xffffffffu, value, 0);
        __syncwarp();
        return seen;
    }
    __device__ static bool any(bool is_so) {
        bool seen = __any_sync(0xffffffffu, is_so) != 0;
        __syncwarp();
        return seen;
    }
};

struct Block {
    static constexpr u32 INDEX = 2;
    __device__ static u32 rank() {
        return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    }
    __device__ static u32 size() { return blockDim.x * blockDim.y * blockDim.z; }
    __device__ static void sync() { __syncthreads(); }
    // The second barrier keeps the word until all have read it: the next call writes it again.
    __device__ static u64 from_first(u64 value) {
        __shared__ u64 word;
        if (rank() == 0) word = value;
        __syncthreads();
        u64 seen = word;
        __syncthreads();
        return seen;
    }
    __device__ static bool any(bool is_so) { return __syncthreads_or(is_so) != 0; }
};

template <class Scope> __device__ inline Status from_first(Status status) {
    return static_cast<Status>(Scope::from_first(static_cast<u64>(status)));
}

} // namespace causeway

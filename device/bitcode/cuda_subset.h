// The little of CUDA's language that the headers of device/include use, for clang without NVIDIA's headers: what
// nvcc declares itself. Comes before all else: clang++ -x cuda -nocudainc -include cuda_subset.h.
#pragma once

#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))

// threadIdx and the like.
#include <__clang_cuda_builtin_vars.h>

struct alignas(16) uint4 {
    unsigned int x, y, z, w;
};

__device__ inline unsigned int atomicCAS(unsigned int *at, unsigned int expected, unsigned int desired) {
    __atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

__device__ inline unsigned long long atomicAdd(unsigned long long *at, unsigned long long value) {
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

__device__ inline unsigned long long atomicMax(unsigned long long *at, unsigned long long value) {
    return __atomic_fetch_max(at, value, __ATOMIC_RELAXED);
}

__device__ inline int __clzll(long long value) {
    return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value));
}

__device__ inline void __syncwarp() { __nvvm_bar_warp_sync(0xffffffffu); }

__device__ inline int __syncthreads_or(int is_so) { return __nvvm_bar0_or(is_so); }

__device__ inline int __any_sync(unsigned int threads, int is_so) { return __nvvm_vote_any_sync(threads, is_so); }

// Both halves by themselves: threads of a warp hand each other 32 bits.
__device__ inline unsigned long long __shfl_sync(unsigned int threads, unsigned long long value, int from) {
    int low = __nvvm_shfl_sync_idx_i32(threads, static_cast<int>(value), from, 0x1f);
    int high = __nvvm_shfl_sync_idx_i32(threads, static_cast<int>(value >> 32), from, 0x1f);
    return static_cast<unsigned long long>(static_cast<unsigned int>(high)) << 32 | static_cast<unsigned int>(low);
}

__device__ inline unsigned int __shfl_sync(unsigned int threads, unsigned int value, int from) {
    return static_cast<unsigned int>(__nvvm_shfl_sync_idx_i32(threads, static_cast<int>(value), from, 0x1f));
}

__device__ inline void __syncwarp(unsigned int threads) { __nvvm_bar_warp_sync(threads); }

__device__ inline unsigned int __activemask() {
    unsigned int threads;
    asm volatile("activemask.b32 %0;" : "=r"(threads));
    return threads;
}

// Not LLVM's function for it, whose result has had another type since: bitcode is linked by newer ones.
__device__ inline unsigned int __match_any_sync(unsigned int threads, unsigned long long value) {
    unsigned int same;
    asm volatile("match.any.sync.b64 %0, %1, %2;" : "=r"(same) : "l"(value), "r"(threads));
    return same;
}

__device__ inline int __ffs(int value) { return __builtin_ffs(value); }

__device__ inline int __clz(int value) {
    return value == 0 ? 32 : __builtin_clz(static_cast<unsigned int>(value));
}

__device__ inline int __popc(unsigned int value) { return __builtin_popcount(value); }

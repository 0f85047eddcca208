// Asynchronous copies to shared memory, and cooperative groups within a block.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

extern "C" __global__ void sum_of_tiles(const int *in, int *out, int tiles) {
    __shared__ __align__(16) int tile[256];
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    int sum = 0;
    for (int t = 0; t < tiles; t++) {
        unsigned target = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x * 4]);
        if (threadIdx.x < 64) {
#if __CUDA_ARCH__ >= 800
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(target), "l"(in + t * 256 + threadIdx.x * 4));
            asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;\n");
#else
            *(int4 *)&tile[threadIdx.x * 4] = *(const int4 *)(in + t * 256 + threadIdx.x * 4);
#endif
        }
        block.sync();
        sum += tile[threadIdx.x];
        block.sync();
    }
    int total = cg::reduce(warp, sum, cg::plus<int>());
    if (warp.thread_rank() == 0) atomicAdd(out, total);
    if (threadIdx.x % 3 == 0) {
        auto active = cg::coalesced_threads();
        if (active.thread_rank() == 0) atomicAdd(out + 1, (int)active.size());
    }
}

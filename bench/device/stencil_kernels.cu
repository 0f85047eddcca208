#include "stencil.h"

#include <causeway/device.cuh>

using namespace causeway;

namespace bench {

// The host's own calculation is the same, so that it comes to the same bits: there is nothing that a compiler
// could make one instruction of.
__host__ __device__ static float relaxed(const float *in, Box box, u64 at, u32 y, u32 x) {
    float sum = in[at] + in[at - box.plane()] + in[at + box.plane()];
    sum += x > 0 ? in[at - 1] : 0;
    sum += x + 1 < box.nx ? in[at + 1] : 0;
    sum += y > 0 ? in[at - box.nx] : 0;
    sum += y + 1 < box.ny ? in[at + box.nx] : 0;
    return sum / 7;
}

__device__ static void relax_rows(const float *in, float *out, Box box, u32 z, u32 first, u32 step) {
    for (u32 y = first; y < box.ny; y += step) {
        for (u32 x = threadIdx.x; x < box.nx; x += blockDim.x) {
            u64 at = box.place(z, y, x);
            out[at] = relaxed(in, box, at, y, x);
        }
    }
}

void relax_on_host(const float *in, float *out, Box box) {
    for (u32 z = 1; z <= box.nz; z++) {
        for (u32 y = 0; y < box.ny; y++) {
            for (u32 x = 0; x < box.nx; x++) {
                u64 at = box.place(z, y, x);
                out[at] = relaxed(in, box, at, y, x);
            }
        }
    }
}

FULL_BLOCKS void relax_planes(const float *in, float *out, Box box, u32 first, u32 last) {
    for (u32 z = first; z <= last; z++)
        relax_rows(in, out, box, z, blockIdx.x, gridDim.x);
}

// All blocks of a rank meet: they fit on the GPU together. The first thread alone says whether they have, for
// the others look while it still waits.
__device__ static bool meet(u32 *counter, u32 round) {
    bool has_missed = false;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(counter, 1);
        u64 start = order::now();
        while (*reinterpret_cast<volatile u32 *>(counter) < round * gridDim.x && !has_missed)
            has_missed = order::now() - start > 5000000000ull;
        __threadfence();
    }
    return __syncthreads_or(has_missed) == 0;
}

// The plane at the cut comes first; the last block that has worked on it sends it, while all others go on
// within. The neighbour's plane is waited for where it is first used.
__global__ __launch_bounds__(256, 2) void all_steps(Team team, Window data, Window cells, Box box, u32 steps,
                                                    u32 *counters, bool sends) {
    __shared__ bool is_last;
    u32 cut = box.cut(team.rank), peer = 1 - team.rank;
    u64 buffer = box.numbers() * sizeof(float), plane = box.plane() * sizeof(float);
    for (u32 step = 0; step < steps; step++) {
        u64 in_at = step % 2 * buffer, out_at = (step + 1) % 2 * buffer;
        const float *in = reinterpret_cast<const float *>(data.base + in_at);
        float *out = reinterpret_cast<float *>(data.base + out_at);
        if (sends && signal_wait<Block>(team, cells, 0, Compare::at_least, step) != Status::ok) return;
        relax_rows(in, out, box, cut, blockIdx.x, gridDim.x);
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            is_last = atomicAdd(&counters[0], 1) == (step + 1) * gridDim.x - 1;
            __threadfence();
        }
        __syncthreads();
        if (sends && is_last)
            put_signal<Block>(team, peer, data, out_at + box.copied_to(team.rank) * plane, data,
                              out_at + cut * plane, plane, cells, 0, step + 1);
        for (u32 z = 1; z <= box.nz; z++)
            if (z != cut) relax_rows(in, out, box, z, blockIdx.x, gridDim.x);
        if (!meet(&counters[1], step + 1)) {
            if (threadIdx.x == 0) counters[2] = step + 1;
            return;
        }
    }
}

void relax(cudaStream_t stream, u32 blocks, u32 threads, const float *in, float *out, Box box, u32 first,
           u32 last) {
    relax_planes<<<blocks, threads, 0, stream>>>(in, out, box, first, last);
}

void relax_and_send(cudaStream_t stream, u32 blocks, u32 threads, Team team, Window data, Window cells,
                    Box box, u32 steps, u32 *counters, bool sends) {
    all_steps<<<blocks, threads, 0, stream>>>(team, data, cells, box, steps, counters, sends);
}

cudaFunction_t relaxing_kernel() {
    cudaFunction_t function;
    CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void *>(all_steps)));
    return function;
}

} // namespace bench

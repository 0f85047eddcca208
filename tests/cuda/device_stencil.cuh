// Stencil of several ranks, for tests: a box of `planes` planes for each rank, one behind the other, with two buffers by
// turns, and in each a copy of a plane of either neighbour. A point becomes the mean of itself and its six neighbours.
//
// One rank alone computes a box of any height without a call of the team, and to the same bits: there is nothing that
// a compiler could make one instruction of.
#pragma once

#include <causeway/device.cuh>

namespace stencil {

using causeway::u32;
using causeway::u64;

struct Box {
    u32 width, height, planes;
    __host__ __device__ u64 plane() const { return static_cast<u64>(width) * height; }
    __host__ __device__ u64 numbers() const { return plane() * (planes + 2); }
};

// Where the plane of a neighbour has come: one word for each side.
constexpr u64 FROM_BELOW = 0, FROM_ABOVE = 8, WORDS_BYTES = 16;

// What stands at a point of the whole box in the beginning: all bits of a fraction differ.
__host__ __device__ inline float first_number(u64 at) {
    return static_cast<float>((at * 2654435761u >> 7) & 0xffff) / 113;
}

__device__ inline float relaxed(const float *in, Box box, u64 at, u32 y, u32 x) {
    float sum = in[at] + in[at - box.plane()] + in[at + box.plane()];
    sum += x > 0 ? in[at - 1] : 0;
    sum += x + 1 < box.width ? in[at + 1] : 0;
    sum += y > 0 ? in[at - box.width] : 0;
    sum += y + 1 < box.height ? in[at + box.width] : 0;
    return sum / 7;
}

// All steps of a rank, by one block, in the two buffers at `data.base`. The result is in the buffer of the number of steps.
__device__ inline causeway::Status all_steps(causeway::Team team, causeway::Window data, causeway::Window words,
                                             Box box, u32 steps) {
    using namespace causeway;
    const bool has_below = team.rank > 0, has_above = team.rank + 1 < team.ranks;
    const u64 bytes = box.numbers() * sizeof(float), plane = box.plane() * sizeof(float);
    float *buffers[2] = {reinterpret_cast<float *>(data.base), reinterpret_cast<float *>(data.base + bytes)};
    for (u64 at = threadIdx.x; at < box.numbers(); at += blockDim.x) {
        // Neighbours write their planes of the second buffer, also before this rank has begun.
        bool is_below = at < box.plane(), is_above = at >= box.numbers() - box.plane();
        bool is_outside = (is_below && !has_below) || (is_above && !has_above);
        u64 of_all = static_cast<u64>(team.rank) * box.planes * box.plane() + at - box.plane();
        buffers[0][at] = is_outside ? 0 : first_number(of_all);
        if (is_outside) buffers[1][at] = 0;
    }
    __syncthreads();
    for (u32 step = 0; step < steps; step++) {
        const float *in = buffers[step % 2];
        float *out = buffers[(step + 1) % 2];
        Status status = Status::ok;
        if (has_below) status = signal_wait<Block>(team, words, FROM_BELOW, Compare::at_least, step);
        if (status == Status::ok && has_above)
            status = signal_wait<Block>(team, words, FROM_ABOVE, Compare::at_least, step);
        if (status != Status::ok) return status;
        for (u64 at = threadIdx.x; at < box.planes * box.plane(); at += blockDim.x) {
            u32 in_plane = static_cast<u32>(at % box.plane());
            out[at + box.plane()] =
                relaxed(in, box, at + box.plane(), in_plane / box.width, in_plane % box.width);
        }
        __syncthreads();
        u64 out_at = (step + 1) % 2 * bytes;
        if (has_below)
            status = put_signal<Block>(team, team.rank - 1, data, out_at + (box.planes + 1) * plane, data,
                                       out_at + plane, plane, words, FROM_ABOVE, step + 1);
        if (status == Status::ok && has_above)
            status = put_signal<Block>(team, team.rank + 1, data, out_at, data, out_at + box.planes * plane, plane,
                                       words, FROM_BELOW, step + 1);
        if (status != Status::ok) return status;
    }
    if (!has_below && !has_above) return Status::ok;
    // Nobody leaves while a neighbour's last plane is on its way.
    Status status = quiet<Block>(team);
    return status == Status::ok ? barrier<Block>(team) : status;
}

} // namespace stencil

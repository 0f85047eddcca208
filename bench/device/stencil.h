// A 3-D stencil of two ranks: a box of nx * ny * nz numbers a rank, cut along z, with a plane of the
// neighbour's at each end. Two buffers by turns. A point becomes the mean of itself and its six neighbours.
#pragma once

#include "ways.h"

namespace bench {

using causeway::u32;
using causeway::u64;

struct Box {
    u32 nx, ny, nz;
    __host__ __device__ u64 plane() const { return static_cast<u64>(nx) * ny; }
    __host__ __device__ u64 numbers() const { return plane() * (nz + 2); }
    __host__ __device__ u64 place(u32 z, u32 y, u32 x) const {
        return z * plane() + static_cast<u64>(y) * nx + x;
    }
    // The plane next to the other rank, and where the other rank keeps a copy of it.
    __host__ __device__ u32 cut(u32 rank) const { return rank == 0 ? nz : 1; }
    __host__ __device__ u32 copied_to(u32 rank) const { return rank == 0 ? 0 : nz + 1; }
};

// Starts `relax` for planes from `first` to `last`.
void relax(cudaStream_t stream, u32 blocks, u32 threads, const float *in, float *out, Box box, u32 first,
           u32 last);

// The same for all planes within, by the calling thread.
void relax_on_host(const float *in, float *out, Box box);

// Starts all steps of a rank in one kernel, which sends where `sends` says so. `counters` are three zeros; the
// third one becomes the step, from 1 on, in which blocks did not meet within five seconds.
void relax_and_send(cudaStream_t stream, u32 blocks, u32 threads, Team team, Window data, Window cells,
                    Box box, u32 steps, u32 *counters, bool sends);

// The kernel of `relax_and_send`, to ask whether its blocks fit on the GPU together.
cudaFunction_t relaxing_kernel();

// Both ranks' memory, its first numbers, and what must come out.
class Grid {
  public:
    Grid(const Ranks &ranks, Box box, u32 blocks, u32 steps);

    // Seconds of all steps: each step a kernel, the wait for its end, and a copy of the host's.
    double by_host();
    // The plane at the cut by a kernel of its own, whose copies go beside the kernel within.
    double by_two_kernels();
    // All steps in one kernel; without sending, each rank for itself.
    double by_kernel(bool sends);

  private:
    void start();
    void compare(const char *what);
    void calculate_on_host();
    void tell_first_difference(const char *what);
    float *numbers(u32 rank, u32 step) const;
    void exchange(u32 step, cudaStream_t of_first, cudaStream_t of_second) const;

    const Ranks &ranks;
    const Box box;
    const u32 blocks, threads, steps;
    const u64 buffer, plane; // bytes
    std::vector<Window> data, cells;
    std::vector<cudaStream_t> beside;
    u32 *counters[2], *differences;
    float *right; // of short boxes by the host, of others what the first way has found
    bool is_right_known = false;
};

} // namespace bench

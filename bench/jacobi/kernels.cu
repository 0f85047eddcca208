// Steps of Jacobi's method: every point becomes the mean of its four neighbours.
#include "jacobi.h"

#include <causeway/device.cuh>

using namespace causeway;

namespace jacobi {

enum { THREADS = 256 };

// Sums in pairs, and no product is added to anything: the host comes to the same bits.
__device__ static void relax_row(const double *in, double *out, Part part, u32 row, u32 first, u32 step) {
    const double *here = in + static_cast<u64>(row) * part.columns;
    for (u32 at = first; at < part.columns; at += step) {
        double left = at > 0 ? here[at - 1] : EDGE, right = at + 1 < part.columns ? here[at + 1] : EDGE;
        double sides = left + right,
               ends = here[static_cast<long long>(at) - part.columns] + here[at + part.columns];
        out[static_cast<u64>(row) * part.columns + at] = (sides + ends) * 0.25;
    }
}

// Rows among threads where they are short, else a row among all threads.
__device__ static void relax_rows(const double *in, double *out, Part part, u32 first, u32 last) {
    u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    if (part.columns < THREADS) {
        for (u32 row = first + thread; row <= last; row += threads) relax_row(in, out, part, row, 0, 1);
    } else {
        for (u32 row = first; row <= last; row++) relax_row(in, out, part, row, thread, threads);
    }
}

__global__ __launch_bounds__(THREADS) void one_step(const double *in, double *out, Part part) {
    relax_rows(in, out, part, 1, part.rows);
}

// All blocks of a rank come to a round, of which the last one to come is told: they run at the same time.
__device__ static bool is_last(u32 *counter, u32 round) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(counter, 1) == round * gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    return last;
}

__device__ static bool meet(const Team &team, u32 *counter, u32 round) {
    Status status = Status::ok;
    if (!is_last(counter, round) && threadIdx.x == 0) {
        causeway::detail::Timeout timeout(team);
        while (status == Status::ok && order::load_relaxed(counter) < round * gridDim.x)
            status = timeout.poll();
        __threadfence();
    }
    return __syncthreads_or(status != Status::ok) == 0;
}

// The row at the cut comes first: the last block that has worked on it sends it, while all go on within. A
// peer's signal says that its row is here, and that it has read the one which is written over next.
__global__ __launch_bounds__(THREADS) void all_steps(Team team, Window data, Window cells, Part part,
                                                     u32 steps, u32 *counters) {
    u32 cut = team.rank == 0 ? part.rows : 1, halo = team.rank == 0 ? 0 : part.rows + 1;
    u64 row = 8ull * part.columns, buffer = row * (part.rows + 2);
    for (u32 step = 0; step < steps; step++) {
        u64 in_at = step % 2 * buffer, out_at = (step + 1) % 2 * buffer;
        const double *in = reinterpret_cast<const double *>(data.base + in_at);
        double *out = reinterpret_cast<double *>(data.base + out_at);
        if (signal_wait<Block>(team, cells, 0, Compare::at_least, step) != Status::ok) return;
        relax_rows(in, out, part, cut, cut);
        if (is_last(&counters[0], step + 1)) {
            Status status = put_signal<Block>(team, 1 - team.rank, data, out_at + halo * row, data,
                                              out_at + cut * row, row, cells, 0, step + 1);
            if (status != Status::ok) return;
        }
        if (cut == 1)
            relax_rows(in, out, part, 2, part.rows);
        else
            relax_rows(in, out, part, 1, part.rows - 1);
        if (!meet(team, &counters[1], step + 1)) return;
    }
    // The peer's last row, so that both have the same when they end.
    signal_wait<Block>(team, cells, 0, Compare::at_least, steps);
}

void relax(cudaStream_t stream, u32 blocks, const double *in, double *out, Part part) {
    one_step<<<blocks, THREADS, 0, stream>>>(in, out, part);
}

void relax_and_send(cudaStream_t stream, u32 blocks, const Team &team, const Window &data,
                    const Window &cells, Part part, u32 steps, u32 *counters) {
    all_steps<<<blocks, THREADS, 0, stream>>>(team, data, cells, part, steps, counters);
}

u32 most_blocks() {
    int device = 0, processors = 0, each = 0, together = 0;
    bool is_known =
        cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) == cudaSuccess &&
        cudaDeviceGetAttribute(&together, cudaDevAttrCooperativeLaunch, device) == cudaSuccess &&
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, all_steps, THREADS, 0) == cudaSuccess;
    // The software GPU runs the blocks of a grid one after the other.
    return is_known && together != 0 && each > 0 ? static_cast<u32>(processors) : 1;
}

} // namespace jacobi

// What both halves of the program know: its kernels (kernels.cu, by nvcc) and its ranks (jacobi.cpp, by the
// MPI's compiler).
#pragma once

#include <cstdint>

#include <causeway/layout.h>
#include <cuda_runtime_api.h>

namespace jacobi {

using causeway::u32;
using causeway::u64;

// A rank's part of the grid: so many rows of so many numbers, with a row of the neighbour's (or of the edge)
// at each end, which is what ranks send each other.
struct Part {
    u32 rows, columns;
    u64 row_bytes() const { return 8ull * columns; }
    u64 bytes() const { return row_bytes() * (rows + 2); }
};

// Of the edge all around, and what a point holds at first, wherever it lies in the whole grid.
constexpr double EDGE = 1.0;
inline double first_number(u64 row, u64 column) {
    return static_cast<double>((row * 131 + column * 31) % 1009) / 64;
}

// Both of two ranks have one neighbour: the first one below, the second one above.
inline u32 own_row(const Part &part, int rank) { return rank == 0 ? part.rows : 1; }
inline u32 row_of_peer(const Part &part, int rank) { return rank == 0 ? part.rows + 1 : 0; }

// Starts one step.
void relax(cudaStream_t stream, u32 blocks, const double *in, double *out, Part part);

// Starts all steps in one kernel, which sends its row to the peer itself: buffers by turns in `data`, a
// signal in `cells`. `counters` are two zeros.
void relax_and_send(cudaStream_t stream, u32 blocks, const causeway::Team &team, const causeway::Window &data,
                    const causeway::Window &cells, Part part, u32 steps, u32 *counters);

// The blocks of which all run at the same time, at most.
u32 most_blocks();

} // namespace jacobi

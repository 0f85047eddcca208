// Jacobi's method of several PEs of the SHMEM facade, in the way in which public examples of that API are
// written: each PE has some rows, and its kernel sends the first and the last to its neighbours, number by
// number (nvshmem_float_p) or row by row (nvshmemx_float_put_nbi_block); between two steps is a barrier on
// the stream. Compared with the host's own computation, number by number. Started as shmem_basics.
#include <algorithm>
#include <utility>
#include <vector>

#include <nvshmem.h>
#include <nvshmemx.h>

#include "check.h"

enum { NX = 72, NY = 61, STEPS = 24 };

__global__ void jacobi_step(float *a_new, const float *a, float *difference, int rows, int top_pe,
                            int top_row, int bottom_pe, bool by_row) {
    __shared__ float row_difference;
    int row = 1 + static_cast<int>(blockIdx.x);
    if (threadIdx.x == 0) row_difference = 0;
    __syncthreads();
    for (int x = 1 + static_cast<int>(threadIdx.x); x < NX - 1; x += static_cast<int>(blockDim.x)) {
        const float *at = a + row * NX + x;
        float value = 0.25f * (at[-1] + at[1] + at[-NX] + at[NX]);
        a_new[row * NX + x] = value;
        atomicAdd(&row_difference, fabsf(value - *at));
        if (!by_row && row == 1) nvshmem_float_p(a_new + top_row * NX + x, value, top_pe);
        if (!by_row && row == rows) nvshmem_float_p(a_new + x, value, bottom_pe);
    }
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(difference, row_difference);
    if (by_row && row == 1)
        nvshmemx_float_put_nbi_block(a_new + top_row * NX + 1, a_new + row * NX + 1, NX - 2, top_pe);
    if (by_row && row == rows)
        nvshmemx_float_put_nbi_block(a_new + 1, a_new + row * NX + 1, NX - 2, bottom_pe);
}

// Rows of a PE, without those of its neighbours.
static int rows_of(int pe, int pes) { return NY / pes + (pe < NY % pes ? 1 : 0); }

static float first_value(int row, int x) {
    bool is_edge = x == 0 || x == NX - 1;
    return is_edge ? static_cast<float>((row % 7) - 3) : static_cast<float>((row * 31 + x * 17) % 13) / 13;
}

// All rows, of which the one above the first is the last: the grid is a ring of rows.
static std::vector<float> of_host() {
    std::vector<float> a(NY * NX), next;
    for (int row = 0; row < NY; row++)
        for (int x = 0; x < NX; x++) a[row * NX + x] = first_value(row, x);
    for (int step = 0; step < STEPS; step++) {
        next = a;
        for (int row = 0; row < NY; row++)
            for (int x = 1; x < NX - 1; x++)
                next[row * NX + x] = 0.25f * (a[row * NX + x - 1] + a[row * NX + x + 1] +
                                              a[(row + NY - 1) % NY * NX + x] + a[(row + 1) % NY * NX + x]);
        std::swap(a, next);
    }
    return a;
}

// With arguments the PE is that of a unique id: PE, how many, and the id.
int main(int count, char **arguments) {
    if (count > 3) {
        nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
        nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
        REQUIRE(strlen(arguments[3]) < sizeof id.internal, "an id is shorter than %s", arguments[3]);
        strcpy(id.internal, arguments[3]);
        REQUIRE(nvshmemx_set_attr_uniqueid_args(atoi(arguments[1]), atoi(arguments[2]), &id, &attributes) ==
                        0 &&
                    nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes) == 0,
                "no job by a unique id");
    } else {
        nvshmem_init();
    }
    int me = nvshmem_my_pe(), pes = nvshmem_n_pes(), devices = 1;
    CHECK_CUDA(cudaGetDeviceCount(&devices));
    CHECK_CUDA(cudaSetDevice(me % devices));
    REQUIRE(pes <= NY, "%d PEs have %d rows", pes, NY);
    int rows = rows_of(me, pes), first = 0, top = (me + pes - 1) % pes, bottom = (me + 1) % pes;
    for (int pe = 0; pe < me; pe++) first += rows_of(pe, pes);
    // As many at all PEs: those of the first, and one on each side.
    size_t bytes = (rows_of(0, pes) + 2) * NX * sizeof(float);
    float *a = static_cast<float *>(nvshmem_malloc(bytes)),
          *a_new = static_cast<float *>(nvshmem_malloc(bytes));
    float *difference = static_cast<float *>(nvshmem_malloc(2 * sizeof(float)));
    REQUIRE(a != nullptr && a_new != nullptr && difference != nullptr, "no memory");
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    std::vector<float> expected = of_host(), found(rows * NX), start((rows + 2) * NX);
    for (bool by_row : {false, true}) {
        for (int row = 0; row < rows + 2; row++)
            for (int x = 0; x < NX; x++) start[row * NX + x] = first_value((first + row - 1 + NY) % NY, x);
        for (float *to : {a, a_new})
            CHECK_CUDA(cudaMemcpyAsync(to, start.data(), start.size() * sizeof(float), cudaMemcpyHostToDevice,
                                       stream));
        nvshmemx_barrier_all_on_stream(stream);
        float last = 0, before = 0;
        for (int step = 0; step < STEPS; step++) {
            CHECK_CUDA(cudaMemsetAsync(difference, 0, sizeof(float), stream));
            jacobi_step<<<rows, 64, 0, stream>>>(a_new, a, difference, rows, top, rows_of(top, pes) + 1,
                                                 bottom, by_row);
            CHECK_CUDA(cudaGetLastError());
            nvshmemx_barrier_all_on_stream(stream);
            std::swap(a, a_new);
            if (step % 8 != 7) continue;
            nvshmemx_float_sum_reduce_on_stream(NVSHMEM_TEAM_WORLD, difference + 1, difference, 1, stream);
            CHECK_CUDA(cudaMemcpyAsync(&last, difference + 1, sizeof last, cudaMemcpyDeviceToHost, stream));
            CHECK_CUDA(cudaStreamSynchronize(stream));
            REQUIRE(last > 0 && (before == 0 || last < before), "the difference grows from %g to %g", before,
                    last);
            before = last;
        }
        CHECK_CUDA(cudaMemcpy(found.data(), a + NX, found.size() * sizeof(float), cudaMemcpyDeviceToHost));
        for (int at = 0; at < rows * NX; at++)
            REQUIRE(found[at] == expected[first * NX + at], "row %d, %d: %g, and the host has %g%s",
                    first + at / NX, at % NX, found[at], expected[first * NX + at], by_row ? ", by row" : "");
        nvshmem_barrier_all();
    }
    nvshmem_free(difference);
    nvshmem_free(a_new);
    nvshmem_free(a);
    nvshmem_finalize();
    return pass();
}

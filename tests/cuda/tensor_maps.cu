// Tensor maps: encoded by the driver, used by a kernel that fetches tiles of a matrix with the tensor memory accelerator.
// What lies outside of the matrix must come as zeros.
#include "check.h"

#include <cuda.h>
#include <cuda/barrier>

#include <vector>

constexpr uint64_t COLUMNS = 100, ROWS = 50, PITCH = 112;  // in elements; rows start at multiples of 16 bytes
constexpr uint32_t TILE_COLUMNS = 16, TILE_ROWS = 8;

using Barrier = cuda::barrier<cuda::thread_scope_block>;

// As NVIDIA's programming guide does it: one thread starts the copy, all wait for its bytes at a barrier.
__global__ void load_tile(const __grid_constant__ CUtensorMap map, int *out, int column, int row) {
    __shared__ alignas(128) int tile[TILE_ROWS * TILE_COLUMNS];
    __shared__ alignas(Barrier) char memory[sizeof(Barrier)];
    Barrier &barrier = *reinterpret_cast<Barrier *>(memory);
    if (threadIdx.x == 0) {
        init(&barrier, blockDim.x);
        cuda::device::experimental::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    Barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::experimental::cp_async_bulk_tensor_2d_global_to_shared(tile, &map, column, row, barrier);
        token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof(tile));
    } else {
        token = barrier.arrive();
    }
    barrier.wait(std::move(token));
    out[threadIdx.x] = tile[threadIdx.x];
}

template <typename Function>
static Function driver_function(const char *name) {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
    REQUIRE(found == cudaDriverEntryPointSuccess && function, "the driver has no %s", name);
    return reinterpret_cast<Function>(function);
}

static auto encode_tiled = driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");

static CUresult encode(CUtensorMap *map, void *address, uint32_t rank, uint32_t element_stride) {
    const cuuint64_t sizes[5] = {COLUMNS, ROWS, 1, 1, 1};
    const cuuint64_t strides[4] = {PITCH * sizeof(int), PITCH * ROWS * sizeof(int), PITCH * ROWS * sizeof(int),
                                   PITCH * ROWS * sizeof(int)};
    const cuuint32_t box[5] = {TILE_COLUMNS, TILE_ROWS, 1, 1, 1};
    const cuuint32_t steps[5] = {element_stride, element_stride, 1, 1, 1};
    return encode_tiled(map, CU_TENSOR_MAP_DATA_TYPE_INT32, rank, address, sizes, strides, box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static void require_result(CUresult got, CUresult want, const char *what) {
    REQUIRE(got == want, "%s: the driver returned %d instead of %d", what, got, want);
}

static void check_tile(const CUtensorMap &map, int *out, int column, int row, int offset) {
    load_tile<<<1, TILE_ROWS * TILE_COLUMNS>>>(map, out, column, row);
    CHECK_LAUNCH();
    int tile[TILE_ROWS * TILE_COLUMNS];
    cudaError_t error = cudaMemcpy(tile, out, sizeof(tile), cudaMemcpyDeviceToHost);
    REQUIRE(error == cudaSuccess, "the tile at column %d, row %d: %s", column, row, cudaGetErrorName(error));
    for (int y = 0; y < int(TILE_ROWS); y++) {
        for (int x = 0; x < int(TILE_COLUMNS); x++) {
            const bool inside = column + x >= 0 && column + x < int(COLUMNS) && row + y >= 0 && row + y < int(ROWS);
            const int want = inside ? (row + y) * 1000 + column + x + offset : 0;
            const int got = tile[y * TILE_COLUMNS + x];
            REQUIRE(got == want, "row %d, column %d is %d instead of %d", row + y, column + x, got, want);
        }
    }
}

int main() {
    std::vector<int> first(PITCH * ROWS, -1), second(PITCH * ROWS, -1);
    for (int row = 0; row < int(ROWS); row++)
        for (int column = 0; column < int(COLUMNS); column++) {
            first[row * PITCH + column] = row * 1000 + column;
            second[row * PITCH + column] = row * 1000 + column + 7;
        }
    int *matrices[2], *out;
    for (int i = 0; i < 2; i++) CHECK_CUDA(cudaMalloc(&matrices[i], PITCH * ROWS * sizeof(int)));
    CHECK_CUDA(cudaMemcpy(matrices[0], first.data(), PITCH * ROWS * sizeof(int), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(matrices[1], second.data(), PITCH * ROWS * sizeof(int), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMalloc(&out, TILE_ROWS * TILE_COLUMNS * sizeof(int)));

    CUtensorMap map, again, other;
    require_result(encode(&map, matrices[0], 2, 1), CUDA_SUCCESS, "a matrix");
    require_result(encode(&again, matrices[0], 2, 1), CUDA_SUCCESS, "the same matrix");
    require_result(encode(&other, matrices[1], 2, 1), CUDA_SUCCESS, "another matrix");
    REQUIRE(memcmp(&map, &again, sizeof(map)) == 0, "the same arguments gave two different maps");
    REQUIRE(memcmp(&map, &other, sizeof(map)) != 0, "two matrices gave the same map");
    check_tile(map, out, 0, 0, 0);
    check_tile(map, out, 32, 17, 0);
    check_tile(map, out, 96, 48, 0);  // beyond the last column and the last row
    check_tile(map, out, -4, -3, 0);  // before the first ones
    check_tile(other, out, 48, 20, 7);

    auto replace_address = driver_function<decltype(&cuTensorMapReplaceAddress)>("cuTensorMapReplaceAddress");
    require_result(replace_address(&again, matrices[1]), CUDA_SUCCESS, "a new address");
    check_tile(again, out, 48, 20, 7);

    require_result(encode(nullptr, matrices[0], 2, 1), CUDA_ERROR_INVALID_VALUE, "no room for the map");
    require_result(encode(&map, reinterpret_cast<char *>(matrices[0]) + 4, 2, 1), CUDA_ERROR_INVALID_VALUE, "a misaligned matrix");
    require_result(encode(&map, matrices[0], 0, 1), CUDA_ERROR_INVALID_VALUE, "no dimensions");
    require_result(encode(&map, matrices[0], 2, 0), CUDA_ERROR_INVALID_VALUE, "steps of no elements");
    require_result(replace_address(&again, reinterpret_cast<char *>(matrices[1]) + 4), CUDA_ERROR_INVALID_VALUE,
                   "a misaligned new address");
    CHECK_CUDA(cudaFree(matrices[0]));
    CHECK_CUDA(cudaFree(matrices[1]));
    CHECK_CUDA(cudaFree(out));
    return pass();
}

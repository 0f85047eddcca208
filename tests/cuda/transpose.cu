// Transposes matrices of float and of double through padded tiles in shared memory.
#include "check.h"

#include <vector>

constexpr int TILE = 32, ROWS = 8;  // a block of TILE x ROWS threads moves a tile of TILE x TILE elements

template <typename T>
__global__ void transpose(const T *in, T *out, int width, int height) {
    __shared__ T tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int row = threadIdx.y; row < TILE; row += ROWS) {
        int y = blockIdx.y * TILE + row;
        if (x < width && y < height) tile[row][threadIdx.x] = in[size_t(y) * width + x];
    }
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    for (int row = threadIdx.y; row < TILE; row += ROWS) {
        int y = blockIdx.x * TILE + row;
        if (x < height && y < width) out[size_t(y) * height + x] = tile[threadIdx.x][row];
    }
}

template <typename T>
static void check_transpose(int width, int height) {
    size_t count = size_t(width) * height;
    std::vector<T> in(count), out(count);
    for (size_t i = 0; i < count; i++) in[i] = T(i);
    T *device_in, *device_out;
    CHECK_CUDA(cudaMalloc(&device_in, count * sizeof(T)));
    CHECK_CUDA(cudaMalloc(&device_out, count * sizeof(T)));
    CHECK_CUDA(cudaMemcpy(device_in, in.data(), count * sizeof(T), cudaMemcpyHostToDevice));
    dim3 block(TILE, ROWS), grid((width + TILE - 1) / TILE, (height + TILE - 1) / TILE);
    transpose<<<grid, block>>>(device_in, device_out, width, height);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(out.data(), device_out, count * sizeof(T), cudaMemcpyDeviceToHost));
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            REQUIRE(out[size_t(x) * height + y] == in[size_t(y) * width + x], "%d x %d: element (%d, %d) came out as %g",
                    width, height, x, y, double(out[size_t(x) * height + y]));
    CHECK_CUDA(cudaFree(device_in));
    CHECK_CUDA(cudaFree(device_out));
}

int main() {
    check_transpose<float>(1000, 777);
    check_transpose<float>(1, 100);
    check_transpose<double>(515, 321);
    return pass();
}

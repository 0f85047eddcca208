// A finite-difference stencil in three dimensions with radius 4 (25 points), several time steps.  A block marches along z
// with the values ahead of and behind it in registers and the plane it is in, with its halo, in shared memory.
#include "check.h"

#include <utility>
#include <vector>

constexpr int RADIUS = 4;
constexpr int TILE_X = 32, TILE_Y = 8;
constexpr int SIZE_X = 96, SIZE_Y = 40, SIZE_Z = 32;  // without the halo of RADIUS points at every face
constexpr int WIDTH = SIZE_X + 2 * RADIUS, HEIGHT = SIZE_Y + 2 * RADIUS, DEPTH = SIZE_Z + 2 * RADIUS;
constexpr int PLANE = WIDTH * HEIGHT;
constexpr int STEPS = 5;

__constant__ float coefficients[RADIUS + 1];

__global__ void step(const float *in, float *out) {
    __shared__ float plane[TILE_Y + 2 * RADIUS][TILE_X + 2 * RADIUS];
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    int tile_x = threadIdx.x + RADIUS, tile_y = threadIdx.y + RADIUS;
    int at = (y + RADIUS) * WIDTH + x + RADIUS;

    float behind[RADIUS], current, ahead[RADIUS];
    for (int i = 0; i < RADIUS; i++) behind[RADIUS - 1 - i] = in[at + i * PLANE];
    current = in[at + RADIUS * PLANE];
    for (int i = 0; i < RADIUS; i++) ahead[i] = in[at + (RADIUS + 1 + i) * PLANE];
    at += RADIUS * PLANE;

    for (int z = 0; z < SIZE_Z; z++) {
        __syncthreads();
        plane[tile_y][tile_x] = current;
        if (threadIdx.y < RADIUS) {
            plane[threadIdx.y][tile_x] = in[at - RADIUS * WIDTH];
            plane[tile_y + TILE_Y][tile_x] = in[at + TILE_Y * WIDTH];
        }
        if (threadIdx.x < RADIUS) {
            plane[tile_y][threadIdx.x] = in[at - RADIUS];
            plane[tile_y][tile_x + TILE_X] = in[at + TILE_X];
        }
        __syncthreads();

        float value = coefficients[0] * current;
#pragma unroll
        for (int i = 1; i <= RADIUS; i++)
            value += coefficients[i] * (ahead[i - 1] + behind[i - 1] + plane[tile_y - i][tile_x] + plane[tile_y + i][tile_x] +
                                        plane[tile_y][tile_x - i] + plane[tile_y][tile_x + i]);
        out[at] = value;

#pragma unroll
        for (int i = RADIUS - 1; i > 0; i--) behind[i] = behind[i - 1];
        behind[0] = current;
        current = ahead[0];
#pragma unroll
        for (int i = 0; i < RADIUS - 1; i++) ahead[i] = ahead[i + 1];
        at += PLANE;
        if (z + 1 < SIZE_Z) ahead[RADIUS - 1] = in[at + RADIUS * PLANE];
    }
}

static void step_on_cpu(const std::vector<float> &in, std::vector<float> &out, const float *weights) {
    for (int z = RADIUS; z < DEPTH - RADIUS; z++)
        for (int y = RADIUS; y < HEIGHT - RADIUS; y++)
            for (int x = RADIUS; x < WIDTH - RADIUS; x++) {
                int at = z * PLANE + y * WIDTH + x;
                double value = double(weights[0]) * in[at];
                for (int i = 1; i <= RADIUS; i++)
                    value += double(weights[i]) * (double(in[at + i]) + in[at - i] + in[at + i * WIDTH] + in[at - i * WIDTH] +
                                                   in[at + i * PLANE] + in[at - i * PLANE]);
                out[at] = float(value);
            }
}

int main() {
    static_assert(SIZE_X % TILE_X == 0 && SIZE_Y % TILE_Y == 0, "the tiles cover the volume exactly");
    const size_t count = size_t(PLANE) * DEPTH, bytes = count * sizeof(float);
    const float weights[RADIUS + 1] = {0.1f, 0.05f, 0.04f, 0.03f, 0.03f};  // their weighted sum is 1: values stay bounded
    std::vector<float> field(count), next(count), result(count);
    uint32_t state = 7;
    for (float &value : field) value = random_between(&state, -1, 1);
    next = field;  // both buffers hold the same halo

    float *device_in, *device_out;
    CHECK_CUDA(cudaMalloc(&device_in, bytes));
    CHECK_CUDA(cudaMalloc(&device_out, bytes));
    CHECK_CUDA(cudaMemcpy(device_in, field.data(), bytes, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(device_out, device_in, bytes, cudaMemcpyDeviceToDevice));
    CHECK_CUDA(cudaMemcpyToSymbol(coefficients, weights, sizeof(weights)));
    for (int i = 0; i < STEPS; i++) {
        step<<<dim3(SIZE_X / TILE_X, SIZE_Y / TILE_Y), dim3(TILE_X, TILE_Y)>>>(device_in, device_out);
        CHECK_LAUNCH();
        std::swap(device_in, device_out);
        step_on_cpu(field, next, weights);
        std::swap(field, next);
    }
    CHECK_CUDA(cudaMemcpy(result.data(), device_in, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++)
        REQUIRE(is_close(result[i], field[i], 1e-5), "point %zu should be %g, came out as %g", i, field[i], result[i]);
    CHECK_CUDA(cudaFree(device_in));
    CHECK_CUDA(cudaFree(device_out));
    return pass();
}

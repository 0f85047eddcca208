// Finite differences in the time domain: a stencil of radius 4 in three dimensions (25 points), few steps over a large volume.  The
// volume travels from ordinary (pageable) memory to the device and back, which takes much longer than the steps.
#include "app.h"

#include <utility>

constexpr int RADIUS = 4;
constexpr int TILE_X = 32, TILE_Y = 8;
constexpr int HALO_X = TILE_X + 2 * RADIUS, HALO_Y = TILE_Y + 2 * RADIUS;

struct Weights {
    float of_distance[RADIUS + 1];
};
static constexpr Weights WEIGHTS = {{0.1f, 0.05f, 0.04f, 0.03f, 0.03f}};  // over the 25 points they add up to 1: values stay bounded

// A cube of points with a halo, RADIUS points thick, that keeps its values.  x runs fastest.
struct Volume {
    int size, width;  // points along an edge, without and with the halo
    size_t plane, points;

    explicit Volume(int size) : size(size), width(size + 2 * RADIUS), plane(size_t(width) * width), points(plane * width) {}
    __host__ __device__ size_t at(int x, int y, int z) const { return x + size_t(y) * width + z * plane; }
};

// One step.  A block covers a tile of x and y and marches along z, with the values behind and ahead of its points in registers and
// the plane that it is in, halo included, in shared memory.
__global__ void step(Volume volume, Weights weights, const float *in, float *out) {
    __shared__ float tile[HALO_Y][HALO_X];
    const int first_x = blockIdx.x * TILE_X, first_y = blockIdx.y * TILE_Y;
    const int x = first_x + threadIdx.x + RADIUS, y = first_y + threadIdx.y + RADIUS;
    const int tile_x = threadIdx.x + RADIUS, tile_y = threadIdx.y + RADIUS;
    // The tiles at the far edges reach over the volume.
    const bool inside = x < volume.size + RADIUS && y < volume.size + RADIUS;
    const int last = volume.width - 1;
    const size_t column = volume.at(min(x, last), min(y, last), 0);

    float line[2 * RADIUS + 1];  // along z, the point itself in the middle
    for (int i = 0; i < 2 * RADIUS; i++) line[i + 1] = in[column + i * volume.plane];

    for (int z = RADIUS; z < volume.size + RADIUS; z++) {
        for (int i = 0; i < 2 * RADIUS; i++) line[i] = line[i + 1];
        line[2 * RADIUS] = in[column + (z + RADIUS) * volume.plane];
        __syncthreads();
        for (int i = threadIdx.y * TILE_X + threadIdx.x; i < HALO_X * HALO_Y; i += TILE_X * TILE_Y) {
            int from_x = min(first_x + i % HALO_X, last), from_y = min(first_y + i / HALO_X, last);
            tile[i / HALO_X][i % HALO_X] = in[volume.at(from_x, from_y, z)];
        }
        __syncthreads();

        float value = weights.of_distance[0] * line[RADIUS];
#pragma unroll
        for (int i = 1; i <= RADIUS; i++)
            value += weights.of_distance[i] * (line[RADIUS - i] + line[RADIUS + i] + tile[tile_y - i][tile_x] + tile[tile_y + i][tile_x] +
                                               tile[tile_y][tile_x - i] + tile[tile_y][tile_x + i]);
        if (inside) out[column + z * volume.plane] = value;
    }
}

// The value of one point after `steps` steps, on the CPU, from the cube of points that it depends on.
static double point_on_cpu(const Volume &volume, const float *start, int steps, int x, int y, int z) {
    const int reach = RADIUS * steps, edge = 2 * reach + 1;
    const auto local = [&](int dx, int dy, int dz) { return (dx + reach) + (dy + reach) * edge + (dz + reach) * edge * edge; };
    const auto within = [&](int i) { return i >= 0 && i < volume.width; };
    const auto moves = [&](int i) { return i >= RADIUS && i < volume.size + RADIUS; };

    std::vector<double> now(size_t(edge) * edge * edge), next;
    for (int dz = -reach; dz <= reach; dz++)
        for (int dy = -reach; dy <= reach; dy++)
            for (int dx = -reach; dx <= reach; dx++)
                if (within(x + dx) && within(y + dy) && within(z + dz))
                    now[local(dx, dy, dz)] = start[volume.at(x + dx, y + dy, z + dz)];
    for (int left = reach - RADIUS; left >= 0; left -= RADIUS) {
        next = now;
        for (int dz = -left; dz <= left; dz++)
            for (int dy = -left; dy <= left; dy++)
                for (int dx = -left; dx <= left; dx++) {
                    if (!moves(x + dx) || !moves(y + dy) || !moves(z + dz)) continue;
                    const double *here = &now[local(dx, dy, dz)];
                    double value = WEIGHTS.of_distance[0] * *here;
                    for (int i = 1; i <= RADIUS; i++)
                        for (ptrdiff_t stride : {1, edge, edge * edge}) value += WEIGHTS.of_distance[i] * (here[-i * stride] + here[i * stride]);
                    next[local(dx, dy, dz)] = value;
                }
        std::swap(now, next);
    }
    return now[local(0, 0, 0)];
}

// Compares points everywhere in the volume, corners and tiles' edges among them, with the CPU's.
static void check(const Volume &volume, const float *start, const float *result, int steps) {
    const int last = volume.size + RADIUS - 1;
    std::vector<int> picks = {RADIUS, last, RADIUS + TILE_X - 1, RADIUS + TILE_X};
    for (int i = 0; i < 36; i++) picks.push_back(RADIUS + int((random_value(i) + 1) / 2 * volume.size));
    in_parallel(picks.size(), [&](size_t i) {
        int x = std::min(picks[i], last), y = std::min(picks[i * 7 % picks.size()], last), z = std::min(picks[i * 11 % picks.size()], last);
        double want = point_on_cpu(volume, start, steps, x, y, z), got = result[volume.at(x, y, z)];
        REQUIRE(fabs(got - want) <= 1e-6, "size %d: point (%d, %d, %d) should be %g, came out as %g", volume.size, x, y, z, want, got);
    });
}

int main(int count, char **words) {
    Arguments arguments(count, words, {{"sizes", "376"}, {"repetitions", "9"}, {"steps", "5"}});
    const int steps = arguments.number("steps");
    double begin = now();
    CHECK(cudaFree(nullptr));
    double context = now() - begin;

    for (int size : arguments.numbers("sizes")) {
        const Volume volume(size);
        const size_t bytes = volume.points * sizeof(float);
        HostArray<float> start(volume.points), result(volume.points);
        in_parallel(volume.points, [&](size_t i) { start[i] = float(random_value(i)); });
        begin = now();
        DeviceArray<float> first(volume.points), second(volume.points);
        double setup = context + now() - begin;

        auto nothing = [] {};
        Timing timing = measure(arguments.number("repetitions"), nothing, [&] {
            float *in = first, *out = second;
            CHECK(cudaMemcpy(in, start, bytes, cudaMemcpyHostToDevice));
            CHECK(cudaMemcpyAsync(out, in, bytes, cudaMemcpyDeviceToDevice));  // for the halo
            for (int i = 0; i < steps; i++) {
                step<<<dim3((size + TILE_X - 1) / TILE_X, (size + TILE_Y - 1) / TILE_Y), dim3(TILE_X, TILE_Y)>>>(volume, WEIGHTS, in, out);
                CHECK(cudaGetLastError());
                std::swap(in, out);
            }
            CHECK(cudaMemcpy(result, in, bytes, cudaMemcpyDeviceToHost));
        });

        check(volume, start, result, steps);
        double squares = 0;
        for (size_t i = 0; i < volume.points; i++) squares += double(result[i]) * result[i];
        print_result(size, timing, setup, squares);
    }
    return 0;
}

// Kernels beside the same loops on the host's cores, for the software GPU: how much of the speed of C with OpenMP kernels have on
// the same processor. README.md explains what it prints.
#include "../apps/app.h"
#include "loops.h"

#include <functional>

__global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

__global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int tile = 0; tile < n; tile += TILE) {
        left[threadIdx.y][threadIdx.x] = a[row * n + tile + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

// Each thread adds so many elements, a warp then its lanes by shuffles.
constexpr int EACH = 8, BLOCK = 256;

__global__ void sum(const float *x, float *sums, int n) {
    __shared__ float warps[BLOCK / 32];
    int first = blockIdx.x * BLOCK * EACH + threadIdx.x;
    float value = 0;
    for (int i = 0; i < EACH; i++)
        if (first + i * BLOCK < n) value += x[first + i * BLOCK];
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffff, value, offset);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    value = threadIdx.x < BLOCK / 32 ? warps[threadIdx.x] : 0;
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffff, value, offset);
    if (threadIdx.x == 0) sums[blockIdx.x] = value;
}

constexpr int TILE_X = 32, TILE_Y = 8;
__constant__ float coefficients[RADIUS + 1];

// As FDTD3d of NVIDIA's samples: a block marches along z with a plane in shared memory.
__global__ void stencil(const float *in, float *out, int w, int h, int d) {
    __shared__ float tile[TILE_Y + 2 * RADIUS][TILE_X + 2 * RADIUS];
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y, plane = w * h;
    int tile_x = threadIdx.x + RADIUS, tile_y = threadIdx.y + RADIUS;
    int at = (y + RADIUS) * w + x + RADIUS;
    float behind[RADIUS], current, ahead[RADIUS];
    for (int i = 0; i < RADIUS; i++) behind[RADIUS - 1 - i] = in[at + i * plane];
    current = in[at + RADIUS * plane];
    for (int i = 0; i < RADIUS; i++) ahead[i] = in[at + (RADIUS + 1 + i) * plane];
    at += RADIUS * plane;
    for (int z = RADIUS; z < d - RADIUS; z++) {
        __syncthreads();
        tile[tile_y][tile_x] = current;
        if (threadIdx.y < RADIUS) {
            tile[threadIdx.y][tile_x] = in[at - RADIUS * w];
            tile[tile_y + TILE_Y][tile_x] = in[at + TILE_Y * w];
        }
        if (threadIdx.x < RADIUS) {
            tile[tile_y][threadIdx.x] = in[at - RADIUS];
            tile[tile_y][tile_x + TILE_X] = in[at + TILE_X];
        }
        __syncthreads();
        float value = coefficients[0] * current;
#pragma unroll
        for (int i = 1; i <= RADIUS; i++)
            value += coefficients[i] * (ahead[i - 1] + behind[i - 1] + tile[tile_y - i][tile_x] + tile[tile_y + i][tile_x] +
                                        tile[tile_y][tile_x - i] + tile[tile_y][tile_x + i]);
        out[at] = value;
#pragma unroll
        for (int i = RADIUS - 1; i > 0; i--) behind[i] = behind[i - 1];
        behind[0] = current;
        current = ahead[0];
#pragma unroll
        for (int i = 0; i < RADIUS - 1; i++) ahead[i] = ahead[i + 1];
        at += plane;
        if (z + 1 < d - RADIUS) ahead[RADIUS - 1] = in[at + RADIUS * plane];
    }
}

__device__ float normal_cdf(float d) {
    float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float tail = 0.39894228f * expf(-0.5f * d * d) *
                 (k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f)))));
    return d > 0 ? 1.0f - tail : tail;
}

__global__ void prices(const float *stock, const float *strike, const float *years, float *call, float *put, float rate, float volatility,
                       int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float root = sqrtf(years[i]);
    float d1 = (logf(stock[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / (volatility * root);
    float d2 = d1 - volatility * root;
    float n1 = normal_cdf(d1), n2 = normal_cdf(d2);
    float discounted = strike[i] * expf(-rate * years[i]);
    call[i] = stock[i] * n1 - discounted * n2;
    put[i] = discounted * (1.0f - n2) - stock[i] * (1.0f - n1);
}

__global__ void histogram(const unsigned char *bytes, unsigned *bins, int n) {
    __shared__ unsigned own[BINS];
    own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * BINS + threadIdx.x; i < n; i += gridDim.x * BINS) atomicAdd(&own[bytes[i]], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}

__global__ void nothing() {}

static double seconds_of(const std::function<void()> &work) {
    auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Both in turns, so that what else the machine does slows both: the median of the ratios of neighbours.
static void compare(const char *name, int rounds, double required, const std::function<void()> &kernel, const std::function<void()> &loop) {
    auto run = [&] {
        kernel();
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
    };
    run();
    loop();
    std::vector<double> ratios, kernels, loops;
    for (int round = 0; round < rounds; round++) {
        kernels.push_back(seconds_of(run));
        loops.push_back(seconds_of(loop));
        ratios.push_back(loops.back() / kernels.back());
    }
    for (std::vector<double> *values : {&ratios, &kernels, &loops}) std::sort(values->begin(), values->end());
    printf("{\"name\": \"%s\", \"ratio\": %.3f, \"lowest\": %.3f, \"highest\": %.3f, \"required\": %.1f, \"kernel_seconds\": %.5f, \"loop_seconds\": %.5f}\n",
           name, ratios[rounds / 2], ratios.front(), ratios.back(), required, kernels[rounds / 2], loops[rounds / 2]);
    fflush(stdout);
}

static std::vector<float> upload(float **device, size_t count, float low, float high) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; i++) values[i] = low + (high - low) * float((i * 7919u + 13) % 65521) / 65521;
    CHECK(cudaMalloc(device, count * sizeof(float)));
    CHECK(cudaMemcpy(*device, values.data(), count * sizeof(float), cudaMemcpyHostToDevice));
    return values;
}

static void require_close(const char *name, const std::vector<float> &expected, const float *device, float tolerance) {
    std::vector<float> found(expected.size());
    CHECK(cudaMemcpy(found.data(), device, found.size() * sizeof(float), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < found.size(); i++)
        REQUIRE(std::fabs(found[i] - expected[i]) <= tolerance * (1 + std::fabs(expected[i])), "%s: element %zu is %g, not %g", name, i,
                found[i], expected[i]);
}

int main(int count, char **arguments) {
    // kernels [ROUNDS [NAME]...]
    const int rounds = count > 1 ? atoi(arguments[1]) : 9;
    REQUIRE(rounds > 0, "%s is no number of rounds", arguments[1]);
    auto is_chosen = [&](const char *name) {
        return count < 3 || std::find(arguments + 2, arguments + count, std::string(name)) != arguments + count;
    };
    if (is_chosen("saxpy")) {
        const int n = 1 << 24;
        float *x, *y;
        auto host_x = upload(&x, n, 0, 1), host_y = upload(&y, n, 1, 2);
        // Both add the same number of times, so that results can be compared.
        compare("saxpy", rounds, 0.8, [&] { saxpy<<<n / 256, 256>>>(0.5f, x, y, n); }, [&] { saxpy_loop(0.5f, host_x.data(), host_y.data(), n); });
        require_close("saxpy", host_y, y, 1e-5f);
    }
    if (is_chosen("matmul")) {
        const int n = 512;
        float *a, *b, *c;
        auto host_a = upload(&a, n * n, -1, 1), host_b = upload(&b, n * n, -1, 1), host_c = upload(&c, n * n, 0, 1);
        compare("matmul", rounds, 0.3, [&] { matmul<<<dim3(n / TILE, n / TILE), dim3(TILE, TILE)>>>(a, b, c, n); },
                [&] { matmul_loop(host_a.data(), host_b.data(), host_c.data(), n); });
        require_close("matmul", host_c, c, 1e-4f);
    }
    if (is_chosen("reduction")) {
        const int n = 1 << 24, blocks = n / (BLOCK * EACH);
        float *x, *sums, total = 0;
        auto host_x = upload(&x, n, -1, 1);
        upload(&sums, blocks, 0, 0);
        compare("reduction", rounds, 0.2, [&] { sum<<<blocks, BLOCK>>>(x, sums, n); }, [&] { total = sum_loop(host_x.data(), n); });
        std::vector<float> parts(blocks);
        CHECK(cudaMemcpy(parts.data(), sums, blocks * sizeof(float), cudaMemcpyDeviceToHost));
        double found = 0;
        for (float part : parts) found += part;
        REQUIRE(std::fabs(found - total) < 1e-3 * n, "reduction: the sum is %g, not %g", found, total);
    }
    if (is_chosen("fdtd3d")) {
        const int w = 256 + 2 * RADIUS, h = 128 + 2 * RADIUS, d = 96 + 2 * RADIUS;
        const float weights[RADIUS + 1] = {0.1f, 0.05f, 0.04f, 0.03f, 0.03f};
        float *in, *out;
        auto host_in = upload(&in, size_t(w) * h * d, -1, 1), host_out = upload(&out, size_t(w) * h * d, -1, 1);
        CHECK(cudaMemcpyToSymbol(coefficients, weights, sizeof weights));
        compare("fdtd3d", rounds, 0.4, [&] { stencil<<<dim3(256 / TILE_X, 128 / TILE_Y), dim3(TILE_X, TILE_Y)>>>(in, out, w, h, d); },
                [&] { stencil_loop(host_in.data(), host_out.data(), weights, w, h, d); });
        require_close("fdtd3d", host_out, out, 1e-5f);
    }
    if (is_chosen("black_scholes")) {
        const int n = 1 << 21;
        float *stock, *strike, *years, *call, *put;
        auto host_stock = upload(&stock, n, 5, 30), host_strike = upload(&strike, n, 1, 100), host_years = upload(&years, n, 0.25f, 10);
        auto host_call = upload(&call, n, 0, 0), host_put = upload(&put, n, 0, 0);
        compare("black_scholes", rounds, 0.4, [&] { prices<<<n / 128, 128>>>(stock, strike, years, call, put, 0.02f, 0.3f, n); },
                [&] { prices_loop(host_stock.data(), host_strike.data(), host_years.data(), host_call.data(), host_put.data(), 0.02f, 0.3f, n); });
        require_close("black_scholes", host_call, call, 1e-4f);
        require_close("black_scholes", host_put, put, 1e-4f);
    }
    if (is_chosen("histogram")) {
        const int n = 1 << 24;
        std::vector<unsigned char> host(n);
        for (int i = 0; i < n; i++) host[i] = (unsigned char)(i * 2654435761u >> 21);
        unsigned char *bytes;
        unsigned *bins, expected[BINS], found[BINS];
        CHECK(cudaMalloc(&bytes, n));
        CHECK(cudaMemcpy(bytes, host.data(), n, cudaMemcpyHostToDevice));
        CHECK(cudaMalloc(&bins, sizeof found));
        compare("histogram", rounds, 0.2, [&] {
            CHECK(cudaMemsetAsync(bins, 0, sizeof found));
            histogram<<<240, BINS>>>(bytes, bins, n);
        }, [&] { histogram_loop(host.data(), expected, n); });
        CHECK(cudaMemcpy(found, bins, sizeof found, cudaMemcpyDeviceToHost));
        for (int i = 0; i < BINS; i++) REQUIRE(found[i] == expected[i], "histogram: bin %d has %u, not %u", i, found[i], expected[i]);
    }
    if (is_chosen("launches")) {
        const int launches = 100'000;
        std::vector<double> rates;
        for (int round = 0; round < rounds; round++)
            rates.push_back(launches / seconds_of([&] {
                                for (int i = 0; i < launches; i++) nothing<<<1, 32>>>();
                                CHECK(cudaDeviceSynchronize());
                            }));
        std::sort(rates.begin(), rates.end());
        printf("{\"name\": \"launches\", \"per_second\": %.0f, \"lowest\": %.0f, \"highest\": %.0f, \"required\": 100000}\n", rates[rounds / 2],
               rates.front(), rates.back());
    }
    return 0;
}

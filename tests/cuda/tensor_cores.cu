// Tensor cores: products of matrices of every type and shape by wmma and by mma, with fragments from shared memory through
// ldmatrix and stmatrix. The numbers are small integers, whose sums every type holds exactly: each result is compared bit by bit
// with the host's.
#include "check.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <vector>

using namespace nvcuda;

static int number(int seed, int place) { return (place * 7 + place / 5 + seed * 3) % 7 - 3; }

template <typename T> __host__ __device__ T of(int value) { return T(float(value)); }
template <> __host__ __device__ signed char of<signed char>(int value) { return (signed char)value; }
template <> __host__ __device__ int of<int>(int value) { return value; }

template <typename T> static std::vector<T> matrix(int seed, int rows, int columns, bool by_rows) {
    std::vector<T> cells(rows * columns);
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++)
            cells[by_rows ? row * columns + column : column * rows + row] = of<T>(number(seed, row * columns + column));
    return cells;
}

template <typename T> static T *upload(const std::vector<T> &cells) {
    T *device;
    CHECK_CUDA(cudaMalloc(&device, cells.size() * sizeof(T)));
    CHECK_CUDA(cudaMemcpy(device, cells.data(), cells.size() * sizeof(T), cudaMemcpyHostToDevice));
    return device;
}

// Compares d (m x n, row by row) with a * b + c of the seeds 1, 2 and 3.
template <typename T> static void compare(const char *what, T *device, int m, int n, int k) {
    std::vector<T> cells(m * n);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaMemcpy(cells.data(), device, cells.size() * sizeof(T), cudaMemcpyDeviceToHost));
    for (int row = 0; row < m; row++)
        for (int column = 0; column < n; column++) {
            int expected = number(3, row * n + column);
            for (int i = 0; i < k; i++) expected += number(1, row * k + i) * number(2, i * n + column);
            const double found = double(cells[row * n + column]);
            REQUIRE(found == expected, "%s %dx%dx%d: (%d, %d) is %g, not %d", what, m, n, k, row, column, found, expected);
        }
    CHECK_CUDA(cudaFree(device));
}

template <int M, int N, int K, typename F, typename Stored, typename A, typename LA, typename LB>
__global__ void by_wmma(const Stored *a, const Stored *b, A *c) {
    constexpr bool by_rows_a = std::is_same<LA, wmma::row_major>::value, by_rows_b = std::is_same<LB, wmma::row_major>::value;
    // Matrices of halves are read from shared memory, others where they are.
    __shared__ Stored shared[M * K + K * N];
    if (sizeof(Stored) == 2) {
        for (int i = threadIdx.x; i < M * K; i += 32) shared[i] = a[i];
        for (int i = threadIdx.x; i < K * N; i += 32) shared[M * K + i] = b[i];
        a = shared;
        b = shared + M * K;
    }
    wmma::fragment<wmma::matrix_a, M, N, K, F, LA> left;
    wmma::fragment<wmma::matrix_b, M, N, K, F, LB> right;
    wmma::fragment<wmma::accumulator, M, N, K, A> sum;
    wmma::load_matrix_sync(left, a, by_rows_a ? K : M);
    wmma::load_matrix_sync(right, b, by_rows_b ? N : K);
    wmma::load_matrix_sync(sum, c, N, wmma::mem_row_major);
    // Twice each element, halved again: fragments may be worked on element by element.
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] = sum.x[i] + sum.x[i];
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] = sum.x[i] / A(2);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(c, sum, N, wmma::mem_row_major);
}

template <int M, int N, int K, typename F, typename Stored, typename A, typename LA, typename LB> static void check_wmma(const char *what) {
    Stored *a = upload(matrix<Stored>(1, M, K, std::is_same<LA, wmma::row_major>::value));
    Stored *b = upload(matrix<Stored>(2, K, N, std::is_same<LB, wmma::row_major>::value));
    A *c = upload(matrix<A>(3, M, N, true));
    by_wmma<M, N, K, F, Stored, A, LA, LB><<<1, 32>>>(a, b, c);
    compare(what, c, M, N, K);
    CHECK_CUDA(cudaFree(a));
    CHECK_CUDA(cudaFree(b));
}

template <typename F, typename Stored, typename A, int M, int N, int K> static void check_layouts(const char *what) {
    check_wmma<M, N, K, F, Stored, A, wmma::row_major, wmma::col_major>(what);
    check_wmma<M, N, K, F, Stored, A, wmma::col_major, wmma::row_major>(what);
}

template <typename F, typename A> static void check_shapes(const char *what) {
    check_layouts<F, F, A, 16, 16, 16>(what);
    check_layouts<F, F, A, 32, 8, 16>(what);
    check_layouts<F, F, A, 8, 32, 16>(what);
}

// A tiled product of halves, two warps a block, as libraries write it: cp.async, ldmatrix, mma, stmatrix. c is single precision;
// a copy of it in half precision goes out through shared memory.
constexpr int TILE_M = 32, TILE_N = 8, TILE_K = 16;

__global__ void by_mma(const half *a, const half *b, float *c, half *copy, int m, int n, int k) {
    __shared__ __align__(16) half left[TILE_M][TILE_K], right[TILE_K][TILE_N], out[TILE_M][TILE_N];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N;
    const int group = lane / 4, member = lane % 4;
    float *corner = c + (row + warp * 16 + group) * n + column + member * 2;
    float sums[4] = {corner[0], corner[1], corner[8 * n], corner[8 * n + 1]};
    for (int at = 0; at < k; at += TILE_K) {
        const int line = threadIdx.x / 2, part = threadIdx.x % 2 * 8;
        const unsigned to = (unsigned)__cvta_generic_to_shared(&left[line][part]);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(&a[(row + line) * k + at + part]) : "memory");
        if (threadIdx.x < TILE_K) *(uint4 *)right[threadIdx.x] = *(const uint4 *)&b[(at + threadIdx.x) * n + column];
        asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        unsigned fa[4], fb[2];
        const unsigned from_a = (unsigned)__cvta_generic_to_shared(&left[warp * 16 + lane % 16][lane / 16 * 8]);
        const unsigned from_b = (unsigned)__cvta_generic_to_shared(right[lane % 16]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3])
                     : "r"(from_a)
                     : "memory");
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(fb[0]), "=r"(fb[1]) : "r"(from_b) : "memory");
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
        __syncthreads();
    }
    corner[0] = sums[0], corner[1] = sums[1], corner[8 * n] = sums[2], corner[8 * n + 1] = sums[3];
    const half2 upper = __floats2half2_rn(sums[0], sums[1]), lower = __floats2half2_rn(sums[2], sums[3]);
    const unsigned to = (unsigned)__cvta_generic_to_shared(out[warp * 16 + lane % 16]);
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(*(const unsigned *)&upper), "r"(*(const unsigned *)&lower)
                 : "memory");
    __syncwarp();
    if (lane < 16) *(uint4 *)&copy[(row + warp * 16 + lane) * n + column] = *(const uint4 *)out[warp * 16 + lane];
}

// One mma of bytes, m16n8k32: a row by row, b column by column, so that registers are words of both. `S` is the type of sums.
#define BYTES(name, types, S, constraint) \
    __global__ void name(const unsigned *a, const unsigned *b, S *c) { \
        const int group = threadIdx.x / 4, member = threadIdx.x % 4; \
        const unsigned *low = a + group * 8 + member, *high = low + 64, *other = b + group * 8 + member; \
        S *corner = c + group * 8 + member * 2; \
        asm volatile("mma.sync.aligned.m16n8k32.row.col." types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                     : "+" constraint(corner[0]), "+" constraint(corner[1]), "+" constraint(corner[64]), "+" constraint(corner[65]) \
                     : "r"(low[0]), "r"(high[0]), "r"(low[4]), "r"(high[4]), "r"(other[0]), "r"(other[4])); \
    }
BYTES(by_s8, "s32.s8.s8.s32", int, "r")
BYTES(by_e4m3, "f32.e4m3.e4m3.f32", float, "f")
BYTES(by_e5m2, "f32.e5m2.e5m2.f32", float, "f")

template <typename T, typename S> static void check_bytes(const char *what, void (*kernel)(const unsigned *, const unsigned *, S *)) {
    T *a = upload(matrix<T>(1, 16, 32, true)), *b = upload(matrix<T>(2, 32, 8, false));
    S *c = upload(matrix<S>(3, 16, 8, true));
    kernel<<<1, 32>>>((const unsigned *)a, (const unsigned *)b, c);
    compare(what, c, 16, 8, 32);
    CHECK_CUDA(cudaFree(a));
    CHECK_CUDA(cudaFree(b));
}

// Products of double precision: rounded after each step, in the order of k.
__global__ void by_doubles(const double *a, const double *b, double *d) {
    const int group = threadIdx.x / 4, member = threadIdx.x % 4;
    double low = 0.1, high = 0.2;
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(low), "+d"(high)
                 : "d"(a[group * 4 + member]), "d"(b[group * 4 + member]));
    d[group * 8 + member * 2] = low;
    d[group * 8 + member * 2 + 1] = high;
}

static void check_doubles() {
    std::vector<double> a(32), b(32), d(64);
    for (int i = 0; i < 32; i++) a[i] = 1.0 / (i + 3), b[i] = 1.0 / (i + 7);
    double *left = upload(a), *right = upload(b), *result = upload(d);
    by_doubles<<<1, 32>>>(left, right, result);
    CHECK_CUDA(cudaMemcpy(d.data(), result, sizeof(double) * 64, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++) {
        double expected = i % 2 ? 0.2 : 0.1;
        for (int k = 0; k < 4; k++) expected = fma(a[i / 8 * 4 + k], b[i % 8 * 4 + k], expected);
        REQUIRE(d[i] == expected, "doubles: element %d is %.17g, not %.17g", i, d[i], expected);
    }
}

int main() {
    check_shapes<half, float>("wmma half, single");
    check_shapes<half, half>("wmma half, half");
    check_shapes<__nv_bfloat16, float>("wmma bfloat16");
    check_shapes<signed char, int>("wmma bytes");
    check_layouts<wmma::precision::tf32, float, float, 16, 16, 8>("wmma tf32");
    check_layouts<double, double, double, 8, 8, 4>("wmma double");

    const int m = 96, n = 40, k = 64;
    half *a = upload(matrix<half>(1, m, k, true)), *b = upload(matrix<half>(2, k, n, true)), *copy = upload(matrix<half>(0, m, n, true));
    float *c = upload(matrix<float>(3, m, n, true));
    by_mma<<<dim3(n / TILE_N, m / TILE_M), 64>>>(a, b, c, copy, m, n, k);
    compare("mma half", c, m, n, k);
    compare("stmatrix", copy, m, n, k);

    check_bytes<signed char, int>("mma bytes", by_s8);
    check_bytes<__nv_fp8_e4m3, float>("mma e4m3", by_e4m3);
    check_bytes<__nv_fp8_e5m2, float>("mma e5m2", by_e5m2);
    check_doubles();
    return pass();
}

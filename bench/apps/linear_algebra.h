// The operations on matrices that the applications need, by cuBLAS or by kernels of our own.
//
// Matrices lie column by column, as in LAPACK: the element (row, column) of a matrix with leading dimension `ld` is at
// row + column * ld.
#pragma once

#include "library.h"

constexpr int TILE = 16;

// C = alpha * A * op(B) + beta * C, where op(B) is the transpose of B if TRANSPOSED.  C is m x n, and k columns of A are used.  With
// LOWER nothing above the diagonal of C is touched.  One thread an element, tiles of A and op(B) in shared memory.
template <class T, bool TRANSPOSED, bool LOWER>
__global__ void multiply(int m, int n, int k, T alpha, const T *a, int lda, const T *b, int ldb, T beta, T *c, int ldc) {
    __shared__ T left[TILE][TILE + 1], right[TILE][TILE + 1];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.x * TILE + x, column = blockIdx.y * TILE + y;
    T sum = 0;
    for (int first = 0; first < k; first += TILE) {
        left[y][x] = row < m && first + y < k ? a[row + size_t(first + y) * lda] : T(0);
        // Neighbours in x read neighbours in memory, whichever way B lies.
        if (TRANSPOSED) {
            int column_of_x = blockIdx.y * TILE + x;
            right[x][y] = column_of_x < n && first + y < k ? b[column_of_x + size_t(first + y) * ldb] : T(0);
        } else {
            right[y][x] = column < n && first + x < k ? b[first + x + size_t(column) * ldb] : T(0);
        }
        __syncthreads();
        for (int i = 0; i < TILE; i++) sum += left[i][x] * right[y][i];
        __syncthreads();
    }
    if (row < m && column < n && !(LOWER && row < column)) {
        T &element = c[row + size_t(column) * ldc];
        element = alpha * sum + (beta == 0 ? T(0) : beta * element);
    }
}

// B = B * L^-T, where L is a lower triangle of n rows and B is m x n.  One thread a row of B.
static __global__ void solve_rows(int m, int n, const double *l, int ldl, double *b, int ldb) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m) return;
    for (int column = 0; column < n; column++) {
        double value = b[row + size_t(column) * ldb];
        for (int i = 0; i < column; i++) value -= b[row + size_t(i) * ldb] * l[column + size_t(i) * ldl];
        b[row + size_t(column) * ldb] = value / l[column + size_t(column) * ldl];
    }
}

// Puts its operations into one stream.
class LinearAlgebra {
  public:
    LinearAlgebra(bool own_kernels, cudaStream_t stream) : own(own_kernels), stream(stream) {
        if (own) return;
        Library library("cuBLAS", {"libcublas.so.13", "libcublas.so.12"});
        library.find(create, "cublasCreate_v2");
        library.find(destroy, "cublasDestroy_v2");
        library.find(set_stream, "cublasSetStream_v2");
        library.find(sgemm, "cublasSgemm_v2");
        library.find(dgemm, "cublasDgemm_v2");
        library.find(dsyrk, "cublasDsyrk_v2");
        library.find(dtrsm, "cublasDtrsm_v2");
        CHECK_LIBRARY(create(&handle));
        CHECK_LIBRARY(set_stream(handle, stream));
    }
    ~LinearAlgebra() {
        if (!own) CHECK_LIBRARY(destroy(handle));
    }
    LinearAlgebra(const LinearAlgebra &) = delete;
    LinearAlgebra &operator=(const LinearAlgebra &) = delete;

    // C = A * B + C; all are n x n.
    void add_product(int n, const float *a, const float *b, float *c) {
        const float one = 1;
        if (own) launch(multiply<float, false, false>, n, n, n, one, a, n, b, n, one, c, n);
        else CHECK_LIBRARY(sgemm(handle, AS_IT_IS, AS_IT_IS, n, n, n, &one, a, n, b, n, &one, c, n));
    }

    // C = C - A * B^T; A is m x k, B is n x k.
    void subtract_product(int m, int n, int k, const double *a, int lda, const double *b, int ldb, double *c, int ldc) {
        const double minus_one = -1, one = 1;
        if (own) launch(multiply<double, true, false>, m, n, k, minus_one, a, lda, b, ldb, one, c, ldc);
        else CHECK_LIBRARY(dgemm(handle, AS_IT_IS, TRANSPOSE, m, n, k, &minus_one, a, lda, b, ldb, &one, c, ldc));
    }

    // The lower triangle of C = C - A * A^T; A is n x k.
    void subtract_square(int n, int k, const double *a, int lda, double *c, int ldc) {
        const double minus_one = -1, one = 1;
        if (own) launch(multiply<double, true, true>, n, n, k, minus_one, a, lda, a, lda, one, c, ldc);
        else CHECK_LIBRARY(dsyrk(handle, LOWER, AS_IT_IS, n, k, &minus_one, a, lda, &one, c, ldc));
    }

    // B = B * L^-T; L is a lower triangle of n rows, B is m x n.
    void solve(int m, int n, const double *l, int ldl, double *b, int ldb) {
        const double one = 1;
        if (own) {
            solve_rows<<<(m + 127) / 128, 128, 0, stream>>>(m, n, l, ldl, b, ldb);
            CHECK(cudaGetLastError());
        } else {
            CHECK_LIBRARY(dtrsm(handle, FROM_THE_RIGHT, LOWER, TRANSPOSE, NOT_UNIT, m, n, &one, l, ldl, b, ldb));
        }
    }

  private:
    template <class T>
    void launch(void (*kernel)(int, int, int, T, const T *, int, const T *, int, T, T *, int), int m, int n, int k, T alpha,
                const T *a, int lda, const T *b, int ldb, T beta, T *c, int ldc) {
        dim3 grid((m + TILE - 1) / TILE, (n + TILE - 1) / TILE);
        kernel<<<grid, dim3(TILE, TILE), 0, stream>>>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
        CHECK(cudaGetLastError());
    }

    // cublasOperation_t, cublasFillMode_t, cublasSideMode_t and cublasDiagType_t, as NVIDIA documents them.
    enum { AS_IT_IS = 0, TRANSPOSE = 1 };
    enum { LOWER = 0 };
    enum { FROM_THE_RIGHT = 1 };
    enum { NOT_UNIT = 0 };

    using Handle = void *;
    template <class T>
    using Gemm = int(Handle, int, int, int, int, int, const T *, const T *, int, const T *, int, const T *, T *, int);
    int (*create)(Handle *) = nullptr;
    int (*destroy)(Handle) = nullptr;
    int (*set_stream)(Handle, cudaStream_t) = nullptr;
    Gemm<float> *sgemm = nullptr;
    Gemm<double> *dgemm = nullptr;
    int (*dsyrk)(Handle, int, int, int, int, const double *, const double *, int, const double *, double *, int) = nullptr;
    int (*dtrsm)(Handle, int, int, int, int, int, int, const double *, const double *, int, double *, int) = nullptr;

    bool own;
    cudaStream_t stream;
    Handle handle = nullptr;
};

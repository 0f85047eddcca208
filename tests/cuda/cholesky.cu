// Blocked Cholesky factorisation A = L * L^T in double precision, with a launch of its own for every block that is touched:
// about a thousand small launches that depend on each other.
#include "check.h"

#include <vector>

constexpr int BLOCK = 16;            // rows and columns of a block
constexpr int BLOCKS = 16;           // blocks along an edge of the matrix
constexpr int N = BLOCK * BLOCKS;    // rows and columns of the matrix

__device__ double *block_at(double *matrix, int row, int column) { return matrix + row * BLOCK * N + column * BLOCK; }

// Factorises the diagonal block k in place.
__global__ void factorise_diagonal(double *matrix, int k) {
    __shared__ double a[BLOCK][BLOCK + 1];
    double *block = block_at(matrix, k, k);
    int row = threadIdx.y, column = threadIdx.x;
    a[row][column] = block[row * N + column];
    __syncthreads();
    for (int i = 0; i < BLOCK; i++) {
        if (row == i && column == i) a[i][i] = sqrt(a[i][i]);
        __syncthreads();
        if (column == i && row > i) a[row][i] /= a[i][i];
        __syncthreads();
        if (column > i && row >= column) a[row][column] -= a[row][i] * a[column][i];
        __syncthreads();
    }
    block[row * N + column] = row >= column ? a[row][column] : 0.0;
}

// Solves X * L(k,k)^T = A(i,k) for block (i, k); one thread a row.
__global__ void solve_panel(double *matrix, int i, int k) {
    const double *diagonal = block_at(matrix, k, k);
    double *row = block_at(matrix, i, k) + threadIdx.x * N;
    for (int column = 0; column < BLOCK; column++) {
        double value = row[column];
        for (int inner = 0; inner < column; inner++) value -= row[inner] * diagonal[column * N + inner];
        row[column] = value / diagonal[column * N + column];
    }
}

// A(i,j) -= L(i,k) * L(j,k)^T.
__global__ void update(double *matrix, int i, int j, int k) {
    __shared__ double left[BLOCK][BLOCK + 1], right[BLOCK][BLOCK + 1];
    int row = threadIdx.y, column = threadIdx.x;
    left[row][column] = block_at(matrix, i, k)[row * N + column];
    right[row][column] = block_at(matrix, j, k)[row * N + column];
    __syncthreads();
    double sum = 0;
    for (int inner = 0; inner < BLOCK; inner++) sum += left[row][inner] * right[column][inner];
    block_at(matrix, i, j)[row * N + column] -= sum;
}

int main() {
    // A = G * G^T + N * I is symmetric and positive definite.
    std::vector<double> g(N * N), a(N * N), l(N * N);
    uint32_t state = 10;
    for (double &value : g) value = random_between(&state, -1, 1);
    for (int row = 0; row < N; row++)
        for (int column = 0; column < N; column++) {
            double sum = row == column ? N : 0;
            for (int i = 0; i < N; i++) sum += g[row * N + i] * g[column * N + i];
            a[row * N + column] = sum;
        }

    double *matrix;
    CHECK_CUDA(cudaMalloc(&matrix, N * N * sizeof(double)));
    CHECK_CUDA(cudaMemcpy(matrix, a.data(), N * N * sizeof(double), cudaMemcpyHostToDevice));
    const dim3 square(BLOCK, BLOCK);
    for (int k = 0; k < BLOCKS; k++) {
        factorise_diagonal<<<1, square>>>(matrix, k);
        CHECK_LAUNCH();
        for (int i = k + 1; i < BLOCKS; i++) {
            solve_panel<<<1, BLOCK>>>(matrix, i, k);
            CHECK_LAUNCH();
        }
        for (int i = k + 1; i < BLOCKS; i++)
            for (int j = k + 1; j <= i; j++) {
                update<<<1, square>>>(matrix, i, j, k);
                CHECK_LAUNCH();
            }
    }
    CHECK_CUDA(cudaMemcpy(l.data(), matrix, N * N * sizeof(double), cudaMemcpyDeviceToHost));

    for (int row = 0; row < N; row++)
        for (int column = 0; column <= row; column++) {
            double sum = 0;
            for (int i = 0; i <= column; i++) sum += l[row * N + i] * l[column * N + i];
            REQUIRE(is_close(sum, a[row * N + column], 1e-12), "L * L^T at (%d, %d) should be %.15g, came out as %.15g", row,
                    column, a[row * N + column], sum);
        }
    CHECK_CUDA(cudaFree(matrix));
    return pass();
}

// The Cholesky factorisation A = L * L^T in double precision by both processors, as hybrid libraries of linear algebra do it: the CPU
// factorises the small blocks on the diagonal, the GPU does everything else.  Copies, GPU and CPU work at the same time.
//
// The factorisation goes through the matrix panel by panel, a panel being some columns from the diagonal down.  Each step brings a
// panel up to date with all finished ones, its diagonal block first; while that block visits the CPU, the GPU brings the rest of
// the panel up to date.  Panels come from the host ahead of the steps and go back behind them, in streams of their own.
#include "linear_algebra.h"

static constexpr const char *SIZES = "1024,2048,4096,6144,8192,10240";

// Factorises the lower triangle of a small block in place: each column is brought up to date by the columns on its left, four at a
// time, so that each element is loaded and stored once for four of them.  False if the block is not positive definite.
static bool factorise_on_cpu(int n, double *block) {
    for (int j = 0; j < n; j++) {
        double *column = block + size_t(j) * n;
        int i = 0;
        for (; i + 4 <= j; i += 4) {
            const double *a = block + size_t(i) * n, *b = a + n, *c = b + n, *d = c + n;
            const double of_a = a[j], of_b = b[j], of_c = c[j], of_d = d[j];
            for (int row = j; row < n; row++) column[row] -= (of_a * a[row] + of_b * b[row]) + (of_c * c[row] + of_d * d[row]);
        }
        for (; i < j; i++) {
            const double *a = block + size_t(i) * n, of_a = a[j];
            for (int row = j; row < n; row++) column[row] -= of_a * a[row];
        }
        if (!(column[j] > 0)) return false;
        const double root = sqrt(column[j]);
        for (int row = j; row < n; row++) column[row] /= root;
    }
    return true;
}

// A stream of its own, for copies that must not wait for anything else.
struct Stream {
    cudaStream_t stream;
    Stream() { CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
    ~Stream() { CHECK(cudaStreamDestroy(stream)); }
    operator cudaStream_t() const { return stream; }
};

struct Event {
    cudaEvent_t event;
    Event() { CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)); }
    ~Event() { CHECK(cudaEventDestroy(event)); }
};

// `later` goes on when `earlier` has done all that it holds now.
static void put_after(cudaStream_t later, cudaStream_t earlier, const Event &event) {
    CHECK(cudaEventRecord(event.event, earlier));
    CHECK(cudaStreamWaitEvent(later, event.event, 0));
}

class Cholesky {
  public:
    Cholesky(int n, int width, bool own_kernels)
        : n(n), width(width), algebra(own_kernels, compute), matrix(size_t(n) * n), block(size_t(width) * width),
          arrived((n + width - 1) / width) {}

    // Replaces the lower triangle of the n x n matrix in pinned memory by L.
    void factorise(double *host) {
        for (int j = 0; j < n; j += width) {
            copy_panel(at(j, j), host + offset(j, j), j, upload);
            CHECK(cudaEventRecord(arrived[j / width].event, upload));
        }
        for (int j = 0; j < n; j += width) {
            const int columns = std::min(width, n - j), below = n - j - columns;
            CHECK(cudaStreamWaitEvent(compute, arrived[j / width].event, 0));

            if (j > 0) algebra.subtract_square(columns, j, at(j, 0), n, at(j, j), n);
            put_after(visit, compute, ready);
            copy(block, columns, at(j, j), n, columns, columns, visit);
            if (j > 0 && below > 0) algebra.subtract_product(below, columns, j, at(j + columns, 0), n, at(j, 0), n, at(j + columns, j), n);

            CHECK(cudaStreamSynchronize(visit));
            REQUIRE(factorise_on_cpu(columns, block), "size %d: the block at row %d is not positive definite", n, j);
            copy(at(j, j), n, block, columns, columns, columns, visit);
            put_after(compute, visit, ready);
            if (below > 0) algebra.solve(below, columns, at(j, j), n, at(j + columns, j), n);

            put_after(download, compute, finished);
            copy_panel(host + offset(j, j), at(j, j), j, download);
        }
        CHECK(cudaStreamSynchronize(download));
    }

  private:
    size_t offset(int row, int column) const { return row + size_t(column) * n; }
    double *at(int row, int column) const { return matrix + offset(row, column); }

    // Copies a rectangle; the leading dimensions are counted in elements.
    static void copy(double *to, int to_ld, const double *from, int from_ld, int rows, int columns, cudaStream_t stream) {
        const size_t element = sizeof(double);
        CHECK(cudaMemcpy2DAsync(to, to_ld * element, from, from_ld * element, rows * element, columns, cudaMemcpyDefault, stream));
    }
    void copy_panel(double *to, const double *from, int j, cudaStream_t stream) const {
        copy(to, n, from, n, n - j, std::min(width, n - j), stream);
    }

    int n, width;
    Stream compute, upload, download, visit;
    LinearAlgebra algebra;
    DeviceArray<double> matrix;
    PinnedArray<double> block;  // the diagonal block that visits the CPU
    std::vector<Event> arrived;  // one a panel
    Event ready, finished;
};

// The matrix to factorise: symmetric, with random numbers beside a diagonal that makes it positive definite.
static double element_of_matrix(int n, int row, int column) {
    if (row == column) return n;
    return random_value(uint64_t(std::max(row, column)) << 32 | uint32_t(std::min(row, column)));
}

// Checks all of L in n^2 steps: L * (L^T * x) must be A * x for a vector x of random signs (Freivalds 1977).
static void check(int n, const double *l, const double *a) {
    std::vector<double> x(n), turned(n), got(n), want(n);
    for (int i = 0; i < n; i++) x[i] = random_sign(i);
    for (int column = 0; column < n; column++)
        for (int row = column; row < n; row++) turned[column] += l[row + size_t(column) * n] * x[row];
    for (int column = 0; column < n; column++)
        for (int row = column; row < n; row++) {
            got[row] += l[row + size_t(column) * n] * turned[column];
            double element = a[row + size_t(column) * n];
            want[row] += element * x[column];
            if (row > column) want[column] += element * x[row];
        }
    for (int row = 0; row < n; row++)
        REQUIRE(fabs(got[row] - want[row]) <= 1e-11 * n, "size %d: the sum of row %d of L * L^T should be %.15g, came out as %.15g", n, row,
                want[row], got[row]);
}

int main(int count, char **words) {
    Arguments arguments(count, words, {{"sizes", SIZES}, {"repetitions", "5"}, {"kernels", "library"}, {"block", "128"}});
    double start = now();
    CHECK(cudaFree(nullptr));
    double context = now() - start;

    for (int n : arguments.numbers("sizes")) {
        size_t elements = size_t(n) * n;
        HostArray<double> a(elements);
        in_parallel(n, [&](size_t column) {
            for (int row = int(column); row < n; row++) a[row + column * n] = element_of_matrix(n, row, int(column));
        });
        start = now();
        PinnedArray<double> l(elements);
        Cholesky cholesky(n, arguments.number("block"), arguments.own_kernels());
        double setup = context + now() - start;

        auto restore = [&] {
            in_parallel(n, [&](size_t column) { std::copy(a + column * (n + 1), a + (column + 1) * n, l + column * (n + 1)); });
        };
        Timing timing = measure(arguments.number("repetitions"), restore, [&] { cholesky.factorise(l); });

        check(n, l, a);
        double logarithm_of_determinant = 0;
        for (int i = 0; i < n; i++) logarithm_of_determinant += 2 * log(l[size_t(i) * n + i]);
        print_result(n, timing, setup, logarithm_of_determinant);
    }
    return 0;
}

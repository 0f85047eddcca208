// A product of square matrices by cuBLAS: A, B and C travel from ordinary (pageable) memory to the device, C = A * B + C travels
// back.  The larger the matrices, the smaller the share of the transfers.
#include "linear_algebra.h"

static constexpr const char *SIZES = "1024,2048,4096,6144,8192,10240";

// y += M * x for the n x n matrix M.
static void add_times_vector(int n, const float *matrix, const std::vector<double> &x, std::vector<double> &y) {
    constexpr int ROWS = 256;  // that one thread does at a time
    in_parallel((n + ROWS - 1) / ROWS, [&, n](size_t part) {
        const int first = int(part) * ROWS, last = std::min(first + ROWS, n);
        for (int column = 0; column < n; column++)
            for (int row = first; row < last; row++) y[row] += matrix[row + size_t(column) * n] * x[column];
    });
}

// Checks every row of the result against the CPU in n^2 steps: if the product is right, C * x is A * (B * x) + C_before * x for
// a vector x of random signs (Freivalds 1977).
static void check(int n, const float *a, const float *b, const float *before, const float *c) {
    std::vector<double> x(n), bx(n), want(n), got(n);
    for (int i = 0; i < n; i++) x[i] = random_sign(i);
    add_times_vector(n, b, x, bx);
    add_times_vector(n, a, bx, want);
    add_times_vector(n, before, x, want);
    add_times_vector(n, c, x, got);
    // An element of the product is about sqrt(n) / 3, so that one wrong element is seen among the rounding errors of a row.
    for (int row = 0; row < n; row++)
        REQUIRE(fabs(got[row] - want[row]) <= 1e-5 * n, "size %d: the sum of row %d of the product should be %g, came out as %g", n,
                row, want[row], got[row]);
}

int main(int count, char **words) {
    Arguments arguments(count, words, {{"sizes", SIZES}, {"repetitions", "5"}, {"kernels", "library"}});
    double start = now();
    LinearAlgebra algebra(arguments.own_kernels(), nullptr);
    CHECK(cudaFree(nullptr));
    double context = now() - start;

    for (int n : arguments.numbers("sizes")) {
        size_t elements = size_t(n) * n, bytes = elements * sizeof(float);
        HostArray<float> a(elements), b(elements), before(elements), c(elements);
        in_parallel(elements, [&](size_t i) {
            a[i] = float(random_value(3 * i));
            b[i] = float(random_value(3 * i + 1));
            before[i] = float(random_value(3 * i + 2));
        });
        start = now();
        DeviceArray<float> device_a(elements), device_b(elements), device_c(elements);
        double setup = context + now() - start;

        auto nothing = [] {};
        Timing timing = measure(arguments.number("repetitions"), nothing, [&] {
            CHECK(cudaMemcpy(device_a, a, bytes, cudaMemcpyHostToDevice));
            CHECK(cudaMemcpy(device_b, b, bytes, cudaMemcpyHostToDevice));
            CHECK(cudaMemcpy(device_c, before, bytes, cudaMemcpyHostToDevice));
            algebra.add_product(n, device_a, device_b, device_c);
            CHECK(cudaMemcpy(c, device_c, bytes, cudaMemcpyDeviceToHost));
        });

        check(n, a, b, before, c);
        double squares = 0;
        for (size_t i = 0; i < elements; i++) squares += double(c[i]) * c[i];
        print_result(n, timing, setup, squares);
    }
    return 0;
}

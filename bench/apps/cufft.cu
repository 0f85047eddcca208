// A Fourier transform in two dimensions by cuFFT: n x n complex numbers travel from ordinary (pageable) memory to the device, their
// transform travels back.  Nearly all of the time is in the transfers.
#include "library.h"

#include <complex>
#include <numeric>

#include <cuComplex.h>

static constexpr const char *SIZES = "1024,2048,4096,6144,8192,10240";

using Complex = std::complex<double>;

// The element k of the transform of each row, stored as a column: one thread an element, straight from the definition.
__global__ void transform_rows(int n, const cuFloatComplex *in, cuFloatComplex *out) {
    int k = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (k >= n) return;
    cuFloatComplex sum = make_cuFloatComplex(0, 0);
    for (int x = 0; x < n; x++) {
        float angle = -2 * float(long(k) * x % n) / n, sine, cosine;
        sincospif(angle, &sine, &cosine);
        sum = cuCaddf(sum, cuCmulf(in[size_t(row) * n + x], make_cuFloatComplex(cosine, sine)));
    }
    out[size_t(k) * n + row] = sum;
}

// The forward transform of n x n numbers, by cuFFT or by the kernel above.
class Transform {
  public:
    Transform(bool own_kernels, int n) : own(own_kernels), n(n), between(own ? size_t(n) * n : 1) {
        if (own) return;
        Library library("cuFFT", {"libcufft.so.12", "libcufft.so.11"});
        library.find(plan_2d, "cufftPlan2d");
        library.find(execute, "cufftExecC2C");
        library.find(destroy, "cufftDestroy");
        CHECK_LIBRARY(plan_2d(&plan, n, n, COMPLEX_TO_COMPLEX));
    }
    ~Transform() {
        if (!own) CHECK_LIBRARY(destroy(plan));
    }
    Transform(const Transform &) = delete;
    Transform &operator=(const Transform &) = delete;

    void run(cuFloatComplex *in, cuFloatComplex *out) {
        if (own) {
            dim3 grid((n + 127) / 128, n);
            transform_rows<<<grid, 128>>>(n, in, between);
            transform_rows<<<grid, 128>>>(n, between, out);
            CHECK(cudaGetLastError());
        } else {
            CHECK_LIBRARY(execute(plan, in, out, FORWARD));
        }
    }

  private:
    // cufftType and the direction, as NVIDIA documents them.
    enum { COMPLEX_TO_COMPLEX = 0x29 };
    enum { FORWARD = -1 };

    int (*plan_2d)(int *, int, int, int) = nullptr;
    int (*execute)(int, cuFloatComplex *, cuFloatComplex *, int) = nullptr;
    int (*destroy)(int) = nullptr;

    bool own;
    int n;
    int plan = 0;
    DeviceArray<cuFloatComplex> between;  // only the own kernels need it
};

// The weights exp(i pi (u^2 + 2 s u) / n) for u from 0 on: a chirp, all of whose elements have the size 1.
static std::vector<Complex> chirp(int64_t n, int64_t s) {
    std::vector<Complex> weights(n);
    for (int64_t u = 0; u < n; u++) weights[u] = std::polar(1.0, M_PI * double((u * u + 2 * s * u) % (2 * n)) / double(n));
    return weights;
}

// The transform of that chirp, for even n: a chirp again, as a Gauss sum shows when the exponent is made a square.
static std::vector<Complex> transformed_chirp(int64_t n, int64_t s) {
    std::vector<Complex> weights(n);
    for (int64_t x = 0; x < n; x++)
        weights[x] = std::polar(sqrt(double(n)), M_PI / 4 - M_PI * double((x - s) * (x - s) % (2 * n)) / double(n));
    return weights;
}

// The sum of the elements of an n x n matrix, each times the weights of its row and its column.
static Complex weighted_sum(const cuFloatComplex *matrix, const std::vector<Complex> &rows, const std::vector<Complex> &columns) {
    size_t n = rows.size();
    std::vector<Complex> sums(n);
    in_parallel(n, [&](size_t row) {
        // Written out: the library's product also looks after infinities, which costs ten times as much.
        double real = 0, imaginary = 0;
        for (size_t column = 0; column < n; column++) {
            cuFloatComplex a = matrix[row * n + column];
            Complex b = columns[column];
            real += a.x * b.real() - a.y * b.imag();
            imaginary += a.x * b.imag() + a.y * b.real();
        }
        sums[row] = rows[row] * Complex(real, imaginary);
    });
    return std::accumulate(sums.begin(), sums.end(), Complex(0));
}

// Checks all of the result against the CPU in n^2 steps: the sum of the transform's elements, weighted with r for the row and c for the
// column, is the sum of the data weighted with the transforms of r and c.  With chirps every element counts alike on either side,
// and those of rows and columns differ, so that a transform that is transposed or backwards is seen as well.
static void check(int n, const cuFloatComplex *in, const cuFloatComplex *out) {
    Complex got = weighted_sum(out, chirp(n, 1), chirp(n, 3));
    Complex want = weighted_sum(in, transformed_chirp(n, 1), transformed_chirp(n, 3));
    // An element of the transform is about 0.8 * n, so that one wrong element is seen among the rounding errors of all.
    REQUIRE(std::abs(got - want) <= 0.05 * n, "size %d: the weighted sum of the transform should be %g%+gi, came out as %g%+gi", n,
            want.real(), want.imag(), got.real(), got.imag());
}

int main(int count, char **words) {
    Arguments arguments(count, words, {{"sizes", SIZES}, {"repetitions", "5"}, {"kernels", "library"}});
    double start = now();
    CHECK(cudaFree(nullptr));
    double context = now() - start;

    for (int n : arguments.numbers("sizes")) {
        REQUIRE(n % 2 == 0, "size %d: the check needs an even number of rows", n);
        size_t elements = size_t(n) * n, bytes = elements * sizeof(cuFloatComplex);
        HostArray<cuFloatComplex> in(elements), out(elements);
        in_parallel(elements, [&](size_t i) {
            in[i] = make_cuFloatComplex(float(random_value(2 * i)), float(random_value(2 * i + 1)));
        });
        start = now();
        Transform transform(arguments.own_kernels(), n);
        DeviceArray<cuFloatComplex> device_in(elements), device_out(elements);
        double setup = context + now() - start;

        auto nothing = [] {};
        Timing timing = measure(arguments.number("repetitions"), nothing, [&] {
            CHECK(cudaMemcpy(device_in, in, bytes, cudaMemcpyHostToDevice));
            transform.run(device_in, device_out);
            CHECK(cudaMemcpy(out, device_out, bytes, cudaMemcpyDeviceToHost));
        });

        check(n, in, out);
        double squares = 0;
        for (size_t i = 0; i < elements; i++) squares += double(out[i].x) * out[i].x + double(out[i].y) * out[i].y;
        print_result(n, timing, setup, squares);
    }
    return 0;
}

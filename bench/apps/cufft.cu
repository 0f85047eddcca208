// A Fourier transform in two dimensions by cuFFT: n x n complex numbers travel from ordinary (pageable) memory to the device, their
// transform travels back.  Nearly all of the time is in the transfers.
#include "library.h"

#include <complex>

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

// The transform of n numbers in n^2 steps.
static std::vector<Complex> transform_on_cpu(const std::vector<Complex> &in) {
    size_t n = in.size();
    std::vector<Complex> roots(n), out(n);
    for (size_t k = 0; k < n; k++) roots[k] = std::polar(1.0, -2 * M_PI * double(k) / double(n));
    for (size_t k = 0; k < n; k++)
        for (size_t x = 0, at = 0; x < n; x++, at = at + k < n ? at + k : at + k - n) {
            // Written out: the library's product also looks after infinities, which costs ten times as much.
            const Complex a = in[x], b = roots[at];
            out[k] += Complex(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
        }
    return out;
}

// The sum of the elements of an n x n matrix, each times the sign of its row and the weight of its column.
static Complex weighted_sum(const cuFloatComplex *matrix, const std::vector<Complex> &rows, const std::vector<Complex> &columns) {
    size_t n = rows.size();
    Complex total = 0;
    for (size_t row = 0; row < n; row++) {
        double real = 0, imaginary = 0;
        for (size_t column = 0; column < n; column++) {
            cuFloatComplex a = matrix[row * n + column];
            Complex b = columns[column];
            real += a.x * b.real() - a.y * b.imag();
            imaginary += a.x * b.imag() + a.y * b.real();
        }
        total += rows[row] * Complex(real, imaginary);
    }
    return total;
}

// Checks all of the result against the CPU in n^2 steps: the sum of the transform's elements, weighted with r for its row and c for its
// column, is the sum of the data weighted with the transforms of r and c.
static void check(int n, const std::vector<cuFloatComplex> &in, const std::vector<cuFloatComplex> &out) {
    std::vector<Complex> rows(n), columns(n);
    for (int i = 0; i < n; i++) rows[i] = random_sign(2 * i), columns[i] = random_sign(2 * i + 1);
    Complex got = weighted_sum(out.data(), rows, columns);
    Complex want = weighted_sum(in.data(), transform_on_cpu(rows), transform_on_cpu(columns));
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
        size_t elements = size_t(n) * n, bytes = elements * sizeof(cuFloatComplex);
        std::vector<cuFloatComplex> in(elements), out(elements);
        for (size_t i = 0; i < elements; i++)
            in[i] = make_cuFloatComplex(float(random_value(2 * i)), float(random_value(2 * i + 1)));
        start = now();
        Transform transform(arguments.own_kernels(), n);
        DeviceArray<cuFloatComplex> device_in(elements), device_out(elements);
        double setup = context + now() - start;

        auto nothing = [] {};
        Timing timing = measure(arguments.number("repetitions"), nothing, [&] {
            CHECK(cudaMemcpy(device_in, in.data(), bytes, cudaMemcpyHostToDevice));
            transform.run(device_in, device_out);
            CHECK(cudaMemcpy(out.data(), device_out, bytes, cudaMemcpyDeviceToHost));
        });

        check(n, in, out);
        double squares = 0;
        for (cuFloatComplex element : out) squares += double(element.x) * element.x + double(element.y) * element.y;
        print_result(n, timing, setup, squares);
    }
    return 0;
}

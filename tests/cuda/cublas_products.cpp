// Products of matrices by cuBLAS and cuBLASLt as the loader finds them: every operation, type and form against sums made
// here, in streams and captured graphs, from several threads, with wrong arguments and addresses.
#include "check.h"

#include <atomic>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <cuda.h>
#include <dlfcn.h>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

typedef void *Handle;
enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
// cudaDataType and cublasComputeType_t
enum { R_32F = 0, R_64F = 1, R_16F = 2, R_8I = 3, C_32F = 4, C_64F = 5, R_32I = 10, R_16BF = 14 };
enum { COMPUTE_16F = 64, COMPUTE_32F = 68, COMPUTE_64F = 70, COMPUTE_32I = 72 };

#define CHECK_THAT(condition) REQUIRE(condition, "line %d: %s does not hold", __LINE__, #condition)
#define CHECK_EQUAL(found, wanted) \
    do { \
        long long found_ = (found), wanted_ = (wanted); \
        REQUIRE(found_ == wanted_, "line %d: %s is %lld instead of %lld", __LINE__, #found, found_, wanted_); \
    } while (0)

static void *cublas, *cublas_lt;

template <typename... Arguments>
static int call(const char *name, Arguments... arguments) {
    void *function = dlsym(std::strncmp(name, "cublasLt", 8) == 0 ? cublas_lt : cublas, name);
    CHECK_THAT(function != nullptr);
    return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

#define MUST(...) CHECK_EQUAL(call(__VA_ARGS__), SUCCESS)

// Elements that each type represents exactly, so that most sums are exact, too.
template <typename T> struct Type;
template <> struct Type<float> { enum { number = R_32F, compute = COMPUTE_32F }; };
template <> struct Type<double> { enum { number = R_64F, compute = COMPUTE_64F }; };
template <> struct Type<std::complex<float>> { enum { number = C_32F, compute = COMPUTE_32F }; };
template <> struct Type<std::complex<double>> { enum { number = C_64F, compute = COMPUTE_64F }; };

typedef std::complex<double> Number;
static std::atomic<unsigned> generators{7};
static thread_local std::mt19937 randomness(generators++);
// CUDA refuses to wait for a context while any of its streams is captured, whichever thread does either.
static std::shared_mutex captures;

static int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(randomness); }

template <typename T> struct Parts {
    static T make() { return T(pick(-8, 8)); }
};
template <typename P> struct Parts<std::complex<P>> {
    static std::complex<P> make() { return {P(pick(-8, 8)), P(pick(-8, 8))}; }
};

// Device memory with the elements of a vector.
template <typename T> struct Memory {
    CUdeviceptr address = 0;
    std::vector<T> host;

    explicit Memory(size_t elements) : host(elements) {
        CHECK_DRIVER(cuMemAlloc(&address, elements * sizeof(T)));
    }
    void upload() { CHECK_DRIVER(cuMemcpyHtoD(address, host.data(), host.size() * sizeof(T))); }
    std::vector<T> download() const {
        std::vector<T> found(host.size());
        std::shared_lock<std::shared_mutex> lock(captures);
        CHECK_DRIVER(cuCtxSynchronize());
        CHECK_DRIVER(cuMemcpyDtoH(found.data(), address, found.size() * sizeof(T)));
        return found;
    }
    T *at() const { return reinterpret_cast<T *>(address); }
    ~Memory() { cuMemFree(address); }
};

template <typename T> static Number stored(const std::vector<T> &matrix, int leading, size_t start, int operation, int row, int column) {
    size_t index = operation == 0 ? row + size_t(column) * leading : column + size_t(row) * leading;
    Number value = Number(matrix[start + index]);
    return operation == 2 ? std::conj(value) : value;
}

static bool is_near(Number found, Number wanted, double tolerance) {
    return std::abs(found - wanted) <= tolerance * (1 + std::abs(wanted));
}

// One product, or a batch at fixed distances or by arrays of addresses, of random sizes.
template <typename T> static void product(Handle handle, const char *plain, const char *strided, const char *batched, int round) {
    const int form = round % 3, m = pick(1, 150), n = pick(1, 150), k = round == 5 ? 700 : pick(0, 90), batch = form == 0 ? 1 : pick(1, 4);
    const int left = pick(0, 2), right = pick(0, 2), pad = pick(0, 3);
    const int lda = (left ? k : m) + pad + 1, ldb = (right ? n : k) + pad + 1, ldc = m + pad;
    const long long stride_a = (long long)lda * ((left ? m : k) + 1), stride_b = (long long)ldb * ((right ? k : n) + 1), stride_c = (long long)ldc * n + pad;
    Memory<T> a(stride_a * batch), b(stride_b * batch), c(stride_c * batch);
    for (auto *memory : {&a, &b, &c}) {
        for (T &element : memory->host) element = Parts<T>::make();
        memory->upload();
    }
    const T alpha = Parts<T>::make(), beta = round % 4 == 0 ? T(0) : Parts<T>::make();
    if (form == 0) {
        MUST(plain, handle, left, right, m, n, k, &alpha, a.at(), lda, b.at(), ldb, &beta, c.at(), ldc);
    } else if (form == 1) {
        MUST(strided, handle, left, right, m, n, k, &alpha, a.at(), lda, stride_a, b.at(), ldb, stride_b, &beta, c.at(), ldc, stride_c, batch);
    } else {
        Memory<CUdeviceptr> as(batch), bs(batch), cs(batch);
        for (int i = 0; i < batch; i++) {
            as.host[i] = (CUdeviceptr)(a.at() + i * stride_a);
            bs.host[i] = (CUdeviceptr)(b.at() + i * stride_b);
            cs.host[i] = (CUdeviceptr)(c.at() + i * stride_c);
        }
        as.upload(), bs.upload(), cs.upload();
        MUST(batched, handle, left, right, m, n, k, &alpha, as.at(), lda, bs.at(), ldb, &beta, cs.at(), ldc, batch);
        CHECK_DRIVER(cuCtxSynchronize());
    }
    std::vector<T> found = c.download();
    for (int i = 0; i < batch; i++) {
        for (int row = 0; row < m; row++) {
            for (int column = 0; column < n; column++) {
                Number sum = 0;
                for (int p = 0; p < k; p++) {
                    sum += stored(a.host, lda, i * stride_a, left, row, p) * stored(b.host, ldb, i * stride_b, right, p, column);
                }
                size_t index = i * stride_c + row + size_t(column) * ldc;
                Number wanted = Number(alpha) * sum + Number(beta) * Number(c.host[index]);
                CHECK_THAT(is_near(Number(found[index]), wanted, 1e-5));
                found[index] = c.host[index];
            }
        }
    }
    // Nothing beside the result has changed.
    CHECK_THAT(found == c.host);
}

static uint16_t bfloat(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits >> 16;
}
static float from_bfloat(uint16_t bits) {
    uint32_t whole = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &whole, 4);
    return value;
}
// Half precision of small integers.
static uint16_t half(int value) {
    if (value == 0) return 0;
    int magnitude = std::abs(value), exponent = std::ilogb(magnitude);
    return (value < 0 ? 0x8000 : 0) | (exponent + 15) << 10 | ((magnitude << (10 - exponent)) & 0x3ff);
}

// Types of less precision, and integers: what is summed is exact.
static void short_types(Handle handle) {
    const int m = 33, n = 17, k = 40;
    for (int kind = 0; kind < 3; kind++) {
        Memory<uint16_t> a(m * k), b(k * n);
        Memory<int8_t> ia(m * k), ib(k * n);
        Memory<float> c(m * n);
        Memory<int32_t> ic(m * n);
        std::vector<int> left(m * k), right(k * n);
        for (int i = 0; i < m * k; i++) left[i] = pick(-8, 8), ia.host[i] = left[i], a.host[i] = kind ? bfloat(left[i]) : half(left[i]);
        for (int i = 0; i < k * n; i++) right[i] = pick(-8, 8), ib.host[i] = right[i], b.host[i] = kind ? bfloat(right[i]) : half(right[i]);
        a.upload(), b.upload(), ia.upload(), ib.upload();
        const float one = 1, zero = 0;
        const int32_t whole = 1, none = 0;
        if (kind == 2) {
            MUST("cublasGemmEx", handle, 0, 0, m, n, k, (const void *)&whole, ia.at(), int(R_8I), m, ib.at(), int(R_8I), k, (const void *)&none, ic.at(), int(R_32I), m, int(COMPUTE_32I), -1);
        } else {
            int type = kind ? R_16BF : R_16F;
            MUST("cublasGemmEx", handle, 0, 0, m, n, k, (const void *)&one, a.at(), type, m, b.at(), type, k, (const void *)&zero, c.at(), int(R_32F), m, int(COMPUTE_32F), -1);
        }
        auto found = c.download();
        auto integers = ic.download();
        for (int row = 0; row < m; row++) {
            for (int column = 0; column < n; column++) {
                int sum = 0;
                for (int p = 0; p < k; p++) sum += left[row + p * m] * right[p + column * k];
                if (kind == 2) CHECK_EQUAL(integers[row + column * m], sum);
                else CHECK_THAT(found[row + column * m] == float(sum));
            }
        }
        if (kind == 1) {
            // A result that is rounded.
            Memory<uint16_t> rounded(m * n);
            MUST("cublasGemmEx", handle, 0, 0, m, n, k, (const void *)&one, a.at(), int(R_16BF), m, b.at(), int(R_16BF), k, (const void *)&zero, rounded.at(), int(R_16BF), m, int(COMPUTE_32F), -1);
            auto bits = rounded.download();
            for (int i = 0; i < m * n; i++) CHECK_THAT(std::abs(from_bfloat(bits[i]) - found[i]) <= std::abs(found[i]) / 256);
        }
    }
}

static void vectors(Handle handle) {
    const int m = 200, n = 7, step = 3;
    Memory<float> a(m * n), x(n * step), y(m), answer(1);
    for (auto *memory : {&a, &x, &y}) {
        for (float &element : memory->host) element = Parts<float>::make();
        memory->upload();
    }
    const float two = 2, half = 0.5f;
    // A negative increment begins at the end.
    MUST("cublasSgemv_v2", handle, 0, m, n, &two, a.at(), m, x.at(), -step, &half, y.at(), 1);
    auto found = y.download();
    for (int row = 0; row < m; row++) {
        float sum = 0;
        for (int p = 0; p < n; p++) sum += a.host[row + p * m] * x.host[(n - 1 - p) * step];
        CHECK_THAT(found[row] == 2 * sum + y.host[row] / 2);
    }
    y.upload();
    MUST("cublasSaxpy_v2", handle, m, &two, a.at(), 1, y.at(), 1);
    MUST("cublasSscal_v2", handle, m, &half, y.at(), 1);
    found = y.download();
    float dot = 0, square = 0;
    for (int row = 0; row < m; row++) {
        CHECK_THAT(found[row] == (2 * a.host[row] + y.host[row]) / 2);
        dot += found[row] * a.host[row], square += found[row] * found[row];
    }
    float result = -1;
    MUST("cublasSdot_v2", handle, m, y.at(), 1, a.at(), 1, &result);
    CHECK_THAT(result == dot);
    MUST("cublasSnrm2_v2", handle, m, y.at(), 1, &result);
    CHECK_THAT(std::abs(result - std::sqrt(square)) < 1e-3);
    MUST("cublasSetPointerMode_v2", handle, 1);
    MUST("cublasSdot_v2", handle, m, y.at(), 1, a.at(), 1, answer.at());
    CHECK_THAT(answer.download()[0] == dot);
    // Alpha from device memory.
    MUST("cublasSscal_v2", handle, m, answer.at(), y.at(), 1);
    MUST("cublasSetPointerMode_v2", handle, 0);
    auto scaled = y.download();
    for (int row = 0; row < m; row++) CHECK_THAT(scaled[row] == found[row] * dot);
}

// Real numbers of the precision of T.
template <typename T> struct Real { typedef T type; };
template <typename P> struct Real<std::complex<P>> { typedef P type; };

// Products with triangles, element-wise operations and reductions, of one element type: its letter in names, that of
// Hermitian matrices or 0, and the letters of sums and of `rot`.
template <typename T> static void triangles(Handle handle, char letter, bool is_hermitian, const char *sum, const char *rotation) {
    typedef typename Real<T>::type R;
    const int n = 150, k = 9, lda = n + 2;
    Memory<T> a(lda * n), b(lda * n), c(lda * n), x(2 * n), y(2 * n);
    for (auto *memory : {&a, &b, &c, &x, &y}) {
        for (T &element : memory->host) element = Parts<T>::make();
        memory->upload();
    }
    auto name = [letter](const char *rest) { return std::string("cublas") + letter + rest; };
    auto at = [lda](const Memory<T> &memory, int row, int column) { return Number(memory.host[row + size_t(column) * lda]); };
    // An element of the matrix whose triangle is in `memory`.
    auto mirrored = [&](const Memory<T> &memory, int upper, int row, int column) {
        bool is_stored = upper ? row <= column : row >= column;
        Number value = is_stored ? at(memory, row, column) : at(memory, column, row);
        if (!is_hermitian) return value;
        return row == column ? Number(value.real()) : is_stored ? value : std::conj(value);
    };
    auto turned = [&](Number value) { return is_hermitian ? std::conj(value) : value; };
    // Compares with what `wanted` says of each element; what it does not know is unchanged.
    auto compare = [&](auto wanted) {
        auto found = c.download();
        for (int column = 0; column < n; column++) {
            for (int row = 0; row < lda; row++) {
                size_t index = row + size_t(column) * lda;
                Number value = c.host[index];
                if (row < n) wanted(row, column, value);
                CHECK_THAT(is_near(Number(found[index]), value, 1e-4));
            }
        }
        c.upload();
    };
    const T alpha = Parts<T>::make(), beta = Parts<T>::make();
    const R real_alpha = 3, real_beta = -2;
    for (int upper : {0, 1}) {
        auto in_triangle = [upper](int row, int column) { return upper ? row <= column : row >= column; };
        auto sum_of = [&](int row, int column, const Memory<T> &left, const Memory<T> &right) {
            Number sum = 0;
            for (int p = 0; p < k; p++) sum += at(left, row, p) * turned(at(right, column, p));
            return sum;
        };
        if (is_hermitian) MUST(name("herk_v2").c_str(), handle, upper, 0, n, k, &real_alpha, a.at(), lda, &real_beta, c.at(), lda);
        else MUST(name("syrk_v2").c_str(), handle, upper, 0, n, k, &alpha, a.at(), lda, &beta, c.at(), lda);
        compare([&](int row, int column, Number &value) {
            if (!in_triangle(row, column)) return;
            Number factor = is_hermitian ? Number(real_alpha) : Number(alpha), old = is_hermitian ? Number(real_beta) : Number(beta);
            value = factor * sum_of(row, column, a, a) + old * (is_hermitian ? mirrored(c, upper, row, column) : value);
        });
        if (is_hermitian) {
            MUST(name("her2k_v2").c_str(), handle, upper, 0, n, k, &alpha, a.at(), lda, b.at(), lda, &real_beta, c.at(), lda);
            compare([&](int row, int column, Number &value) {
                if (!in_triangle(row, column)) return;
                Number products = Number(alpha) * sum_of(row, column, a, b) + std::conj(Number(alpha)) * sum_of(row, column, b, a);
                value = products + Number(real_beta) * mirrored(c, upper, row, column);
            });
        } else {
            MUST(name("syr2k_v2_64").c_str(), handle, upper, 0, int64_t(n), int64_t(k), &alpha, a.at(), int64_t(lda), b.at(), int64_t(lda), &beta, c.at(), int64_t(lda));
            compare([&](int row, int column, Number &value) {
                if (!in_triangle(row, column)) return;
                value = Number(alpha) * (sum_of(row, column, a, b) + sum_of(row, column, b, a)) + Number(beta) * value;
            });
        }
        for (int side : {0, 1}) {
            const int m = side ? k : n, columns = side ? n : k;
            MUST(name(is_hermitian ? "hemm_v2" : "symm_v2").c_str(), handle, side, upper, m, columns, &alpha, a.at(), lda, b.at(), lda, &beta, c.at(), lda);
            compare([&](int row, int column, Number &value) {
                if (row >= m || column >= columns) return;
                Number sum = 0;
                for (int p = 0; p < n; p++) {
                    sum += side ? at(b, row, p) * mirrored(a, upper, p, column) : mirrored(a, upper, row, p) * at(b, p, column);
                }
                value = Number(alpha) * sum + Number(beta) * value;
            });
            // A triangle, here the conjugate transpose, to other memory and in place.
            for (const T *from : {b.at(), c.at()}) {
                MUST(name("trmm_v2").c_str(), handle, side, upper, 2, 1, m, columns, &alpha, a.at(), lda, from, lda, c.at(), lda);
                compare([&](int row, int column, Number &value) {
                    if (row >= m || column >= columns) return;
                    Number sum = 0;
                    for (int p = 0; p < n; p++) {
                        int r = side ? p : row, s = side ? column : p;
                        Number factor = r == s ? Number(1) : in_triangle(s, r) ? std::conj(at(a, s, r)) : Number(0);
                        sum += factor * at(from == b.at() ? b : c, side ? row : p, side ? p : column);
                    }
                    value = Number(alpha) * sum;
                });
            }
            MUST(name("dgmm").c_str(), handle, side, m, columns, a.at(), lda, x.at(), 2, c.at(), lda);
            compare([&](int row, int column, Number &value) {
                if (row < m && column < columns) value = at(a, row, column) * Number(x.host[2 * (side ? column : row)]);
            });
        }
    }
    MUST(name("geam").c_str(), handle, 0, 2, n, n, &alpha, a.at(), lda, &beta, b.at(), lda, c.at(), lda);
    compare([&](int row, int column, Number &value) {
        value = Number(alpha) * at(a, row, column) + Number(beta) * std::conj(at(b, column, row));
    });
    R total = -1, wanted_total = 0;
    int largest = -1;
    int64_t smallest = -1;
    auto magnitude = [&](int index) { Number value = x.host[2 * index]; return std::abs(value.real()) + std::abs(value.imag()); };
    int first = 0, last = 0;
    for (int i = 0; i < n; i++) {
        wanted_total += magnitude(i);
        if (magnitude(i) > magnitude(first)) first = i;
        if (magnitude(i) < magnitude(last)) last = i;
    }
    MUST(sum, handle, n, x.at(), 2, &total);
    std::string index = std::string("cublasI") + char(letter + 32);
    MUST((index + "amax_v2").c_str(), handle, n, x.at(), 2, &largest);
    MUST((index + "amin_v2_64").c_str(), handle, int64_t(n), x.at(), int64_t(2), &smallest);
    CHECK_THAT(total == wanted_total && largest == first + 1 && smallest == last + 1);
    const R cosine = R(0.6);
    const T sine = T(R(0.8));
    MUST(rotation, handle, n, x.at(), 2, y.at(), -1, &cosine, &sine);
    auto turned_x = x.download(), turned_y = y.download();
    for (int i = 0; i < n; i++) {
        Number left = x.host[2 * i], right = y.host[n - 1 - i];
        CHECK_THAT(is_near(Number(turned_x[2 * i]), 0.6 * left + 0.8 * right, 1e-5));
        CHECK_THAT(is_near(Number(turned_y[n - 1 - i]), 0.6 * right - 0.8 * left, 1e-5));
        CHECK_THAT(turned_x[2 * i + 1] == x.host[2 * i + 1]);
    }
}

// A product of cuBLASLt by rows and by columns, with bias and activation.
static void described(Handle handle) {
    const int m = 20, n = 30, k = 10;
    Memory<float> a(m * k), b(k * n), d(m * n), bias(m);
    for (auto *memory : {&a, &b, &bias}) {
        for (float &element : memory->host) element = Parts<float>::make() / 8;
        memory->upload();
    }
    const float one = 1, zero = 0;
    for (int epilogue : {1, 2, 4, 6, 36}) {
        void *description, *a_layout, *b_layout, *d_layout, *preference;
        MUST("cublasLtMatmulDescCreate", &description, int(COMPUTE_32F), int(R_32F));
        MUST("cublasLtMatmulDescSetAttribute", description, 7, (const void *)&epilogue, size_t(4));
        MUST("cublasLtMatmulDescSetAttribute", description, 8, (const void *)&bias.address, size_t(8));
        MUST("cublasLtMatrixLayoutCreate", &a_layout, int(R_32F), uint64_t(m), uint64_t(k), int64_t(m));
        MUST("cublasLtMatrixLayoutCreate", &b_layout, int(R_32F), uint64_t(k), uint64_t(n), int64_t(n));
        MUST("cublasLtMatrixLayoutCreate", &d_layout, int(R_32F), uint64_t(m), uint64_t(n), int64_t(m));
        int by_rows = 1, returned = 0;
        MUST("cublasLtMatrixLayoutSetAttribute", b_layout, 1, (const void *)&by_rows, size_t(4));
        MUST("cublasLtMatmulPreferenceCreate", &preference);
        uint64_t results[12];
        MUST("cublasLtMatmulAlgoGetHeuristic", handle, description, a_layout, b_layout, d_layout, d_layout, preference, 1, results, &returned);
        CHECK_EQUAL(returned, 1);
        MUST("cublasLtMatmul", handle, description, &one, a.at(), a_layout, b.at(), b_layout, &zero, d.at(), d_layout, d.at(), d_layout, results, (void *)nullptr, size_t(0), (CUstream) nullptr);
        auto found = d.download();
        for (int row = 0; row < m; row++) {
            for (int column = 0; column < n; column++) {
                double value = epilogue & 4 ? bias.host[row] : 0;
                for (int p = 0; p < k; p++) value += double(a.host[row + p * m]) * b.host[p * n + column];
                if (epilogue & 2) value = std::max(value, 0.0);
                if (epilogue & 32) value = value / 2 * (1 + std::tanh(std::sqrt(2 / 3.14159265358979) * (value + 0.044715 * value * value * value)));
                CHECK_THAT(is_near(found[row + column * m], value, 1e-5));
            }
        }
        // Sizes that do not fit together, and an epilogue that there is not.
        CHECK_EQUAL(call("cublasLtMatmulAlgoGetHeuristic", handle, description, a_layout, d_layout, d_layout, d_layout, preference, 1, results, &returned), INVALID_VALUE);
        int gradient = 512;
        MUST("cublasLtMatmulDescSetAttribute", description, 7, (const void *)&gradient, size_t(4));
        CHECK_EQUAL(call("cublasLtMatmulAlgoGetHeuristic", handle, description, a_layout, b_layout, d_layout, d_layout, preference, 1, results, &returned), NOT_SUPPORTED);
        MUST("cublasLtMatmulPreferenceDestroy", preference);
        for (void *layout : {a_layout, b_layout, d_layout}) MUST("cublasLtMatrixLayoutDestroy", layout);
        MUST("cublasLtMatmulDescDestroy", description);
    }
}

// A captured product runs each time that its graph is launched, with the factors of the time of the call.
static void captured(Handle handle) {
    CUstream stream;
    CUgraph graph;
    CUgraphExec executable;
    const int n = 40;
    Memory<double> a(n * n), b(n * n), c(n * n);
    for (auto *memory : {&a, &b, &c}) {
        for (double &element : memory->host) element = Parts<double>::make();
        memory->upload();
    }
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST("cublasSetStream_v2", handle, stream);
    double one = 1;
    // Under the global mode calls of other threads that wait would be refused, and the threads below make some.
    std::unique_lock<std::shared_mutex> lock(captures);
    CHECK_DRIVER(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    MUST("cublasDgemm_v2", handle, 0, 0, n, n, n, &one, a.at(), n, b.at(), n, &one, c.at(), n);
    one = 7;
    CHECK_DRIVER(cuStreamEndCapture(stream, &graph));
    lock.unlock();
    CHECK_DRIVER(cuGraphInstantiate(&executable, graph, 0));
    CHECK_THAT(c.download() == c.host);
    for (int i = 0; i < 3; i++) CHECK_DRIVER(cuGraphLaunch(executable, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    auto found = c.download();
    for (int row = 0; row < n; row++) {
        double sum = 0;
        for (int p = 0; p < n; p++) sum += a.host[row + p * n] * b.host[p];
        CHECK_THAT(found[row] == 3 * sum + c.host[row]);
    }
    MUST("cublasSetStream_v2", handle, (CUstream) nullptr);
    CHECK_DRIVER(cuGraphExecDestroy(executable));
    CHECK_DRIVER(cuGraphDestroy(graph));
    CHECK_DRIVER(cuStreamDestroy(stream));
}

static void mistakes(Handle handle) {
    Memory<float> a(16);
    const float one = 1;
    CHECK_EQUAL(call("cublasSgemm_v2", (Handle) nullptr, 0, 0, 4, 4, 4, &one, a.at(), 4, a.at(), 4, &one, a.at(), 4), NOT_INITIALIZED);
    CHECK_EQUAL(call("cublasSgemm_v2", handle, 0, 0, -1, 4, 4, &one, a.at(), 4, a.at(), 4, &one, a.at(), 4), INVALID_VALUE);
    CHECK_EQUAL(call("cublasSgemm_v2", handle, 0, 0, 4, 4, 4, &one, a.at(), 3, a.at(), 4, &one, a.at(), 4), INVALID_VALUE);
    CHECK_EQUAL(call("cublasSgemm_v2", handle, 5, 0, 4, 4, 4, &one, a.at(), 4, a.at(), 4, &one, a.at(), 4), INVALID_VALUE);
    CHECK_EQUAL(call("cublasSgemm_v2", handle, 0, 0, 0, 4, 4, &one, a.at(), 4, a.at(), 4, &one, a.at(), 4), SUCCESS);
    CHECK_EQUAL(call("cublasStpmv_v2", handle, 0, 0, 0, 4, a.at(), a.at(), 1), NOT_SUPPORTED);
    CHECK_EQUAL(call("cublasSsyrk_v2", handle, 2, 0, 4, 4, &one, a.at(), 4, &one, a.at(), 4), INVALID_VALUE);
    CHECK_EQUAL(call("cublasSgeam", handle, 0, 0, 4, 4, &one, a.at(), 3, &one, a.at(), 4, a.at(), 4), INVALID_VALUE);
    CHECK_EQUAL(call("cublasIsamax_v2", handle, 4, a.at(), 1, (int *)nullptr), INVALID_VALUE);
}

// The last: the context does not survive it.
static void wrong_address(Handle handle, bool is_far) {
    Memory<float> a(16);
    const float one = 1, zero = 0;
    float *wrong = is_far ? reinterpret_cast<float *>(0x1234567000) : a.at() + (64 << 20);
    MUST("cublasSgemm_v2", handle, 0, 0, 4, 4, 4, &one, wrong, 4, a.at(), 4, &zero, a.at(), 4);
    CHECK_EQUAL(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

int main(int argc, char **argv) {
    cublas = dlopen("libcublas.so.13", RTLD_NOW), cublas_lt = dlopen("libcublasLt.so.13", RTLD_NOW);
    CHECK_THAT(cublas != nullptr && cublas_lt != nullptr);
    CUdevice device;
    CUcontext context;
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_DRIVER(cuCtxSetCurrent(context));
    Handle handle;
    MUST("cublasCreate_v2", &handle);
    if (argc > 1) {
        wrong_address(handle, std::strcmp(argv[1], "far") == 0);
        return pass();
    }
    for (int round = 0; round < 6; round++) {
        product<float>(handle, "cublasSgemm_v2", "cublasSgemmStridedBatched", "cublasSgemmBatched", round);
        product<double>(handle, "cublasDgemm_v2", "cublasDgemmStridedBatched", "cublasDgemmBatched", round);
        product<std::complex<float>>(handle, "cublasCgemm_v2", "cublasCgemmStridedBatched", "cublasCgemmBatched", round);
        product<std::complex<double>>(handle, "cublasZgemm_v2", "cublasZgemmStridedBatched", "cublasZgemmBatched", round);
    }
    short_types(handle);
    vectors(handle);
    triangles<float>(handle, 'S', false, "cublasSasum_v2", "cublasSrot_v2");
    triangles<std::complex<double>>(handle, 'Z', false, "cublasDzasum_v2", "cublasZrot_v2");
    triangles<std::complex<float>>(handle, 'C', true, "cublasScasum_v2", "cublasCrot_v2");
    described(handle);
    captured(handle);
    mistakes(handle);
    // Threads with handles and streams of their own.
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
        threads.emplace_back([context] {
            Handle own;
            CHECK_DRIVER(cuCtxSetCurrent(context));
            MUST("cublasCreate_v2", &own);
            captured(own);
            MUST("cublasDestroy_v2", own);
        });
    }
    for (auto &thread : threads) thread.join();
    MUST("cublasDestroy_v2", handle);
    return pass();
}

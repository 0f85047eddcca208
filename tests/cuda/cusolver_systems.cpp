// Systems of equations and decompositions by cuBLAS and cuSOLVER as the loader finds them: every form in all types, against
// products made here; with wrong arguments and addresses.
#include "check.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <cuda.h>
#include <dlfcn.h>
#include <functional>
#include <random>
#include <string>
#include <vector>

typedef void *Handle;
typedef std::complex<double> Number;
enum { SUCCESS = 0, INVALID_VALUE = 3, NOT_SUPPORTED = 9 };

#define CHECK_THAT(condition) REQUIRE(condition, "line %d: %s does not hold", __LINE__, #condition)
#define MUST(...) CHECK_THAT(call(__VA_ARGS__) == SUCCESS)

static void *cublas, *cusolver, *cusparse;

template <typename... Arguments> static int call(const std::string &name, Arguments... arguments) {
    const std::string library = name.substr(0, 6);
    void *function = dlsym(library == "cublas" ? cublas : library == "cuspar" ? cusparse : cusolver, name.c_str());
    REQUIRE(function != nullptr, "%s is not there", name.c_str());
    return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

static std::mt19937 randomness(5);
static double some() { return std::uniform_real_distribution<double>(-1, 1)(randomness); }

template <typename T> struct Kind;
template <> struct Kind<float> { static constexpr const char *letter = "S", *q = "or", *e = "sy"; typedef float Real; };
template <> struct Kind<double> { static constexpr const char *letter = "D", *q = "or", *e = "sy"; typedef double Real; };
template <> struct Kind<std::complex<float>> { static constexpr const char *letter = "C", *q = "un", *e = "he"; typedef float Real; };
template <> struct Kind<std::complex<double>> { static constexpr const char *letter = "Z", *q = "un", *e = "he"; typedef double Real; };

static void make(float &to, double a, double) { to = float(a); }
static void make(double &to, double a, double) { to = a; }
static void make(int &to, double, double) { to = -1; }
static void make(CUdeviceptr &to, double, double) { to = 0; }
template <typename P> static void make(std::complex<P> &to, double a, double b) { to = {P(a), P(b)}; }

// A matrix in device memory, stored by columns, with a copy here.
template <typename T> struct Matrix {
    int rows, columns, leading;
    CUdeviceptr address = 0;
    std::vector<T> host;

    Matrix(int m, int n, int pad = 0) : rows(m), columns(n), leading(m + pad), host(size_t(m + pad) * n + 1) {
        CHECK_DRIVER(cuMemAlloc(&address, host.size() * sizeof(T)));
        for (T &element : host) make(element, some(), some());
    }
    T &at(int row, int column) { return host[row + size_t(column) * leading]; }
    void upload() { CHECK_DRIVER(cuMemcpyHtoD(address, host.data(), host.size() * sizeof(T))); }
    void download() { CHECK_DRIVER(cuMemcpyDtoH(host.data(), address, host.size() * sizeof(T))); }
    T *get() const { return reinterpret_cast<T *>(address); }
    ~Matrix() { cuMemFree(address); }
};

typedef std::function<Number(int, int)> View;
template <typename T> static View view(std::vector<T> host, int leading, int operation = 0) {
    return [=](int row, int column) {
        Number value = Number(operation == 0 ? host[row + size_t(column) * leading] : host[column + size_t(row) * leading]);
        return operation == 2 ? std::conj(value) : value;
    };
}

template <typename T> static double tolerance() { return sizeof(typename Kind<T>::Real) == 4 ? 2e-4 : 1e-10; }

// Does a * b equal `wanted`?
template <typename T> static void check_product(const char *what, View a, View b, View wanted, int rows, int depth, int columns) {
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++) {
            Number sum = 0;
            for (int k = 0; k < depth; k++) sum += a(row, k) * b(k, column);
            double error = std::abs(sum - wanted(row, column));
            REQUIRE(error <= tolerance<T>() * (1 + std::abs(wanted(row, column))), "%s of %s: element %d, %d is wrong by %g", what,
                    Kind<T>::letter, row, column, error);
        }
}

static View identity() {
    return [](int row, int column) { return Number(row == column); };
}

template <typename T> static std::string blas(const char *name) { return std::string("cublas") + Kind<T>::letter + name; }
template <typename T> static std::string dense(const std::string &name) { return std::string("cusolverDn") + Kind<T>::letter + name; }

static void check_info(Matrix<int> &info, int wanted) {
    info.download();
    REQUIRE(info.host[0] == wanted, "info is %d instead of %d", info.host[0], wanted);
}

template <typename T> static void triangles(Handle handle) {
    for (int form = 0; form < 24; form++) {
        const int side = form & 1, fill = form >> 1 & 1, diagonal = form >> 2 & 1, operation = form >> 3, m = 7, n = 5;
        const int order = side ? n : m;
        Matrix<T> a(order, order, 2), b(m, n, 1);
        for (int i = 0; i < order; i++) a.at(i, i) += T(4);
        a.upload(), b.upload();
        T alpha;
        make(alpha, 0.5, 0.25);
        MUST(blas<T>("trsm_v2"), handle, side, fill, operation, diagonal, m, n, &alpha, a.get(), a.leading, b.get(), b.leading);
        View right = view(b.host, b.leading), whole = view(a.host, a.leading);
        View triangle = [=](int row, int column) {
            const int r = operation ? column : row, c = operation ? row : column;
            if (r == c && diagonal) return Number(1);
            Number value = (fill ? r <= c : r >= c) ? whole(r, c) : Number(0);
            return operation == 2 ? std::conj(value) : value;
        };
        b.download();
        View x = view(b.host, b.leading), wanted = [=](int row, int column) { return Number(alpha) * right(row, column); };
        if (side) check_product<T>("trsm", x, triangle, wanted, m, n, n);
        else check_product<T>("trsm", triangle, x, wanted, m, m, n);
    }
}

template <typename T> static void systems(Handle handle, Handle solver) {
    const int n = 9, columns = 4;
    Matrix<int> info(1, 1), pivots(n, 2);
    for (int operation = 0; operation < 3; operation++) {
        Matrix<T> a(n, n, 1), b(n, columns, 2);
        a.upload(), b.upload();
        int len = 0;
        MUST(dense<T>("getrf_bufferSize"), solver, n, n, a.get(), a.leading, &len);
        CHECK_THAT(len > 0);
        MUST(dense<T>("getrf"), solver, n, n, a.get(), a.leading, (T *)nullptr, pivots.get(), info.get());
        check_info(info, 0);
        MUST(dense<T>("getrs"), solver, operation, n, columns, a.get(), a.leading, pivots.get(), b.get(), b.leading, info.get());
        View right = view(b.host, b.leading);
        b.download();
        check_product<T>("getrs", view(a.host, a.leading, operation), view(b.host, b.leading), right, n, n, columns);
    }
    // The matrix and the right sides stay as they are.
    for (const char *lower : {"S", "D", "C", "Z", "H", "B", "X", "K", "E", "Y"}) {
        const std::string name = std::string("cusolverDn") + Kind<T>::letter + lower + "gesv";
        if (dlsym(cusolver, name.c_str()) == nullptr) continue;
        Matrix<T> a(n, n, 1), b(n, columns, 2), x(n, columns, 3);
        a.upload(), b.upload();
        size_t bytes = 0;
        MUST(name + "_bufferSize", solver, n, columns, a.get(), a.leading, pivots.get(), b.get(), b.leading, x.get(), x.leading,
             (void *)nullptr, &bytes);
        Matrix<CUdeviceptr> work(int(bytes / 8 + 1), 1);
        int steps = -1;
        MUST(name, solver, n, columns, a.get(), a.leading, pivots.get(), b.get(), b.leading, x.get(), x.leading, work.get(), bytes, &steps,
             info.get());
        check_info(info, 0);
        CHECK_THAT(steps == 0);
        const View given = view(a.host, a.leading), right = view(b.host, b.leading);
        a.download(), b.download(), x.download();
        check_product<T>("gesv", given, view(x.host, x.leading), right, n, n, columns);
        check_product<T>("gesv's arguments", identity(), view(a.host, a.leading), given, n, n, n);
        CHECK_THAT(call(name, solver, n, columns, a.get(), a.leading, pivots.get(), b.get(), b.leading, x.get(), x.leading, work.get(),
                        bytes - 1, &steps, info.get()) == INVALID_VALUE);
    }
    // Least squares: what is left is orthogonal to the columns of the matrix.
    for (const char *lower : {"S", "D", "C", "Z", "H", "B", "X", "K", "E", "Y"}) {
        const std::string name = std::string("cusolverDn") + Kind<T>::letter + lower + "gels";
        if (dlsym(cusolver, name.c_str()) == nullptr) continue;
        for (int rows : {n, n + 4}) {
            Matrix<T> a(rows, n, 1), b(rows, columns, 2), x(n, columns, 3);
            a.upload(), b.upload();
            size_t bytes = 0;
            MUST(name + "_bufferSize", solver, rows, n, columns, a.get(), a.leading, b.get(), b.leading, x.get(), x.leading, (void *)nullptr,
                 &bytes);
            Matrix<CUdeviceptr> work(int(bytes / 8 + 1), 1);
            int steps = -1;
            auto solve = [&](int m, int unknowns, size_t size) {
                return call(name, solver, m, unknowns, columns, a.get(), a.leading, b.get(), b.leading, x.get(), x.leading, work.get(), size,
                            &steps, info.get());
            };
            CHECK_THAT(solve(rows, n, bytes) == SUCCESS);
            check_info(info, 0);
            CHECK_THAT(steps == 0);
            const View given = view(a.host, a.leading), right = view(b.host, b.leading);
            a.download(), b.download(), x.download();
            const View found = view(x.host, x.leading), adjoint = view(a.host, a.leading, 2), rest = [=](int row, int column) {
                Number sum = -right(row, column);
                for (int k = 0; k < n; k++) sum += given(row, k) * found(k, column);
                return sum;
            };
            check_product<T>("gels", adjoint, rest, [](int, int) { return Number(0); }, n, rows, columns);
            check_product<T>("gels's arguments", identity(), view(a.host, a.leading), given, rows, rows, n);
            check_product<T>("gels's arguments", identity(), view(b.host, b.leading), right, rows, rows, columns);
            CHECK_THAT(solve(rows, n, bytes - 1) == INVALID_VALUE);
            CHECK_THAT(solve(n - 1, n, bytes) == INVALID_VALUE);
        }
    }
    // Two matrices by arrays of addresses, and their inverses.
    Matrix<T> a(n, 2 * n), c(n, 2 * n);
    Matrix<CUdeviceptr> as(2, 1), cs(2, 1);
    for (int i = 0; i < 2; i++) as.host[i] = (CUdeviceptr)(a.get() + i * n * n), cs.host[i] = (CUdeviceptr)(c.get() + i * n * n);
    a.upload(), as.upload(), cs.upload();
    Matrix<int> infos(2, 1);
    MUST(blas<T>("getrfBatched"), handle, n, as.get(), n, pivots.get(), infos.get(), 2);
    MUST(blas<T>("getriBatched"), handle, n, as.get(), n, pivots.get(), cs.get(), n, infos.get(), 2);
    c.download();
    for (int i = 0; i < 2; i++) {
        std::vector<T> matrix(a.host.begin() + i * n * n, a.host.end()), inverse(c.host.begin() + i * n * n, c.host.end());
        check_product<T>("getri", view(matrix, n), view(inverse, n), identity(), n, n, n);
    }
    // Positive definite ones.
    for (int fill = 0; fill < 2; fill++) {
        Matrix<T> half(n, n), whole(n, n, 1), b(n, columns);
        View left = view(half.host, n), adjoint = view(half.host, n, 2);
        for (int row = 0; row < n; row++)
            for (int column = 0; column < n; column++) {
                Number sum = row == column;
                for (int k = 0; k < n; k++) sum += left(row, k) * adjoint(k, column);
                make(whole.at(row, column), sum.real(), sum.imag());
            }
        whole.upload(), b.upload();
        MUST(dense<T>("potrf"), solver, fill, n, whole.get(), whole.leading, (T *)nullptr, 0, info.get());
        check_info(info, 0);
        MUST(dense<T>("potrs"), solver, fill, n, columns, whole.get(), whole.leading, b.get(), b.leading, info.get());
        View right = view(b.host, n);
        b.download();
        check_product<T>("potrs", view(whole.host, whole.leading), view(b.host, n), right, n, n, columns);
        whole.at(3, 3) = T(-1);
        whole.upload();
        MUST(dense<T>("potrf"), solver, fill, n, whole.get(), whole.leading, (T *)nullptr, 0, info.get());
        check_info(info, 4);
    }
}

template <typename T> static void reflections(Handle solver) {
    const int m = 8, n = 5;
    Matrix<T> a(m, n, 1), factors(n, 1), left(m, 3), right(3, m);
    Matrix<int> info(1, 1);
    a.upload(), left.upload(), right.upload();
    View matrix = view(a.host, a.leading), c = view(left.host, m), d = view(right.host, 3);
    MUST(dense<T>("geqrf"), solver, m, n, a.get(), a.leading, factors.get(), (T *)nullptr, 0, info.get());
    check_info(info, 0);
    const std::string q = Kind<T>::q;
    const int adjoint = q == "un" ? 2 : 1;
    MUST(dense<T>(q + "mqr"), solver, 0, adjoint, m, 3, n, a.get(), a.leading, factors.get(), left.get(), m, (T *)nullptr, 0, info.get());
    MUST(dense<T>(q + "mqr"), solver, 1, 0, 3, m, n, a.get(), a.leading, factors.get(), right.get(), 3, (T *)nullptr, 0, info.get());
    a.download();
    View factored = view(a.host, a.leading), r = [=](int row, int column) { return row <= column ? factored(row, column) : Number(0); };
    MUST(dense<T>(q + "gqr"), solver, m, n, n, a.get(), a.leading, factors.get(), (T *)nullptr, 0, info.get());
    a.download(), left.download(), right.download();
    View columns = view(a.host, a.leading), rows = view(a.host, a.leading, 2);
    check_product<T>("gqr", rows, columns, identity(), n, m, n);
    check_product<T>("geqrf", columns, r, matrix, m, n, n);
    check_product<T>("mqr from the left", rows, c, view(left.host, m), n, m, 3);
    check_product<T>("mqr from the right", d, columns, view(right.host, 3), 3, m, n);
}

template <typename T> static void decompositions(Handle solver) {
    const int n = 7;
    Matrix<int> info(1, 1);
    for (int fill = 0; fill < 2; fill++) {
        Matrix<T> a(n, n, 1);
        Matrix<typename Kind<T>::Real> values(n, 1);
        for (int i = 0; i < n; i++) make(a.at(i, i), some(), 0);
        a.upload();
        View given = view(a.host, a.leading), whole = [=](int row, int column) {
            return (fill ? row <= column : row >= column) ? given(row, column) : std::conj(given(column, row));
        };
        MUST(dense<T>(std::string(Kind<T>::e) + "evd"), solver, 1, fill, n, a.get(), a.leading, values.get(), (T *)nullptr, 0, info.get());
        check_info(info, 0);
        a.download(), values.download();
        CHECK_THAT(std::is_sorted(values.host.begin(), values.host.begin() + n));
        View vectors = view(a.host, a.leading), scaled = [=](int row, int column) { return vectors(row, column) * double(values.host[column]); };
        check_product<T>("evd", whole, vectors, scaled, n, n, n);
    }
    // All vectors, and as many as values, also in place of the matrix.
    for (int form = 0; form < 6; form++) {
        const int m = form & 1 ? 8 : 5, columns = form & 1 ? 5 : 8, few = 5;
        const bool full = form < 2, replaces = form >= 4;
        Matrix<T> a(m, columns), u(m, full ? m : few), v(full ? columns : few, columns);
        Matrix<typename Kind<T>::Real> values(few, 1);
        a.upload();
        View given = view(a.host, m);
        const signed char job = full ? 'A' : replaces ? 'O' : 'S', other = full ? 'A' : 'S';
        MUST(dense<T>("gesvd"), solver, job, other, m, columns, a.get(), m, values.get(), u.get(), m, v.get(), v.leading, (T *)nullptr, 0,
             (void *)nullptr, info.get());
        check_info(info, 0);
        if (replaces) {
            a.download();
            u.host.assign(a.host.begin(), a.host.begin() + m * few);
        } else {
            u.download();
        }
        v.download(), values.download();
        View left = view(u.host, m), scaled = [=](int row, int column) { return left(row, column) * double(values.host[column]); };
        check_product<T>("gesvd", scaled, view(v.host, v.leading), given, m, few, columns);
        check_product<T>("gesvd's U", view(u.host, m, 2), left, identity(), u.columns, m, u.columns);
        check_product<T>("gesvd's V", view(v.host, v.leading), view(v.host, v.leading, 2), identity(), v.rows, columns, v.rows);
    }
    // A batch of tall matrices, with room between them.
    const int m = 9, few = 4, batch = 3;
    const long long strides[] = {(m + 1) * few + 5, few + 2, (m + 2) * few + 1, (few + 1) * few + 3};
    Matrix<T> a(strides[0], batch), u(strides[2], batch), v(strides[3], batch);
    Matrix<typename Kind<T>::Real> values(strides[1], batch);
    Matrix<int> each(batch, 1);
    a.upload();
    int size = 0;
    MUST(dense<T>("gesvdaStridedBatched_bufferSize"), solver, 1, few, m, few, a.get(), m + 1, strides[0], values.get(), strides[1], u.get(), m + 2,
         strides[2], v.get(), few + 1, strides[3], &size, batch);
    CHECK_THAT(size > 0);
    double norms[batch] = {9, 9, 9};
    MUST(dense<T>("gesvdaStridedBatched"), solver, 1, few, m, few, a.get(), m + 1, strides[0], values.get(), strides[1], u.get(), m + 2, strides[2],
         v.get(), few + 1, strides[3], (T *)nullptr, size, each.get(), norms, batch);
    CHECK_THAT(call(dense<T>("gesvdaStridedBatched"), solver, 1, few - 1, m, few, a.get(), m + 1, strides[0], values.get(), strides[1], u.get(), m + 2,
                    strides[2], v.get(), few + 1, strides[3], (T *)nullptr, size, each.get(), norms, batch) == NOT_SUPPORTED);
    values.download(), u.download(), v.download(), each.download();
    for (int index = 0; index < batch; index++) {
        const auto part = [&](const std::vector<T> &host, long long stride) { return std::vector<T>(host.begin() + index * stride, host.end()); };
        View left = view(part(u.host, strides[2]), m + 2), adjoint = view(part(v.host, strides[3]), few + 1, 2);
        const auto *size_of = values.host.data() + index * strides[1];
        CHECK_THAT(each.host[index] == 0 && norms[index] == 0 && std::is_sorted(size_of, size_of + few, std::greater<>()));
        View scaled = [=](int row, int column) { return left(row, column) * double(size_of[column]); };
        check_product<T>("gesvda", scaled, adjoint, view(part(a.host, strides[0]), m + 1), m, few, few);
        check_product<T>("gesvda's U", view(part(u.host, strides[2]), m + 2, 2), left, identity(), few, m, few);
    }
}

// Eigenvalues and vectors of a matrix that is not Hermitian; of a real one, also with real and imaginary parts apart.
template <typename T> static void general(Handle solver) {
    typedef typename Kind<T>::Real Real;
    const int n = 7;
    const bool is_real = sizeof(T) == sizeof(Real), is_single = sizeof(Real) == 4;
    const int kind = is_single ? 0 : 1, complex_kind = kind + 4, own = is_real ? kind : complex_kind;
    for (int split = 0; split <= int(is_real); split++) {
        Matrix<T> a(n, n, 1), v(n, n, 2);
        Matrix<std::complex<Real>> w(n, 1);
        Matrix<int> info(1, 1);
        a.upload();
        const int values = split ? kind : complex_kind;
        size_t device = 0, host = 0;
        MUST("cusolverDnXgeev_bufferSize", solver, (void *)nullptr, 0, 1, (int64_t)n, own, a.get(), (int64_t)a.leading, values, w.get(), own,
             (void *)nullptr, (int64_t)n, own, v.get(), (int64_t)v.leading, own, &device, &host);
        CHECK_THAT(device > 0 && host > 0);
        MUST("cusolverDnXgeev", solver, (void *)nullptr, 0, 1, (int64_t)n, own, a.get(), (int64_t)a.leading, values, w.get(), own,
             (void *)nullptr, (int64_t)n, own, v.get(), (int64_t)v.leading, own, (void *)nullptr, device, (void *)nullptr, host, info.get());
        check_info(info, 0);
        w.download(), v.download();
        std::vector<Number> found(n);
        for (int i = 0; i < n; i++) {
            const Real *parts = reinterpret_cast<const Real *>(w.host.data());
            found[i] = split ? Number(parts[i], parts[n + i]) : Number(w.host[i]);
        }
        View stored = view(v.host, v.leading), vectors = [=](int row, int column) {
            if (!is_real || found[column].imag() == 0) return stored(row, column);
            const int first = column - (found[column].imag() < 0);
            const Number pair(stored(row, first).real(), stored(row, first + 1).real());
            return first == column ? pair : std::conj(pair);
        };
        check_product<T>("geev", view(a.host, a.leading), vectors, [=](int row, int column) { return vectors(row, column) * found[column]; }, n, n, n);
    }
}

// Systems with a sparse matrix, a regular one and a singular one.
template <typename T> static void sparse_systems(Handle solver) {
    typedef typename Kind<T>::Real Real;
    const int n = 6;
    Handle descriptor;
    MUST("cusparseCreateMatDescr", &descriptor);
    Matrix<T> values(3 * n, 1), b(n, 1), x(n, 1);
    Matrix<int> offsets(n + 1, 1), columns(3 * n, 1);
    std::vector<T> whole(n * n);
    int entries = 0;
    for (int row = 0; row < n; row++) {
        offsets.host[row] = entries;
        // No entry on the diagonal of the first rows.
        for (int column = 0; column < n; column++)
            if (column == (row + 1) % n || column == (row + 4) % n || (row > 3 && column == row)) {
                columns.host[entries] = column;
                whole[row + column * n] = values.host[entries++];
            }
    }
    offsets.host[n] = entries;
    values.upload(), offsets.upload(), columns.upload(), b.upload();
    for (const char *name : {"csrlsvqr", "csrlsvchol"}) {
        int singularity = 5;
        const std::string function = std::string("cusolverSp") + Kind<T>::letter + name;
        MUST(function, solver, n, entries, descriptor, values.get(), offsets.get(), columns.get(), b.get(), Real(0), 0, x.get(), &singularity);
        CHECK_THAT(singularity == -1);
        x.download();
        check_product<T>(name, view(whole, n), view(x.host, n), view(b.host, n), n, n, 1);
    }
    // Only the first two rows have entries, none of them in the first column.
    for (int row = 3; row <= n; row++) offsets.host[row] = offsets.host[2];
    offsets.upload();
    int singularity = 5;
    MUST(std::string("cusolverSp") + Kind<T>::letter + "csrlsvqr", solver, n, offsets.host[n], descriptor, values.get(), offsets.get(),
         columns.get(), b.get(), Real(0), 0, x.get(), &singularity);
    CHECK_THAT(singularity == 0);
    MUST("cusparseDestroyMatDescr", descriptor);
}

template <typename T> static void all(Handle handle, Handle solver) {
    triangles<T>(handle);
    systems<T>(handle, solver);
    reflections<T>(solver);
    decompositions<T>(solver);
    general<T>(solver);
    sparse_systems<T>(solver);
}

int main(int argc, char **) {
    cublas = dlopen("libcublas.so.13", RTLD_NOW), cusolver = dlopen("libcusolver.so.12", RTLD_NOW);
    cusparse = dlopen("libcusparse.so.12", RTLD_NOW);
    CHECK_THAT(cublas != nullptr && cusolver != nullptr && cusparse != nullptr);
    CUdevice device;
    CUcontext context;
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_DRIVER(cuCtxSetCurrent(context));
    Handle handle, solver;
    MUST("cublasCreate_v2", &handle);
    MUST("cusolverDnCreate", &solver);
    Matrix<float> a(4, 4);
    a.upload();
    if (argc > 1) {
        // Beyond the end of its memory.
        MUST("cusolverDnSpotrf", solver, 0, 4, a.get() + (64 << 20), 4, (void *)nullptr, 0, (void *)nullptr);
        CHECK_THAT(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
        return pass();
    }
    CHECK_THAT(call("cusolverDnSpotrf", solver, 0, 4, a.get(), 3, (void *)nullptr, 0, (void *)nullptr) == INVALID_VALUE);
    CHECK_THAT(call("cusolverDnSpotrf", solver, 7, 4, a.get(), 4, (void *)nullptr, 0, (void *)nullptr) == INVALID_VALUE);
    CHECK_THAT(call("cusolverDnSpotrf", solver, 0, 1 << 20, a.get(), 1 << 20, (void *)nullptr, 0, (void *)nullptr) == NOT_SUPPORTED);
    CHECK_THAT(call("cusolverDnSsytrf", solver, 0, 4, a.get()) == NOT_SUPPORTED);
    all<float>(handle, solver);
    all<double>(handle, solver);
    all<std::complex<float>>(handle, solver);
    all<std::complex<double>>(handle, solver);
    MUST("cusolverDnDestroy", solver);
    MUST("cublasDestroy_v2", handle);
    return pass();
}

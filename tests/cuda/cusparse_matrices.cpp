// Sparse matrices by cuSPARSE as the loader finds it: products with dense and sparse ones, conversions, sorting, sums and
// triangular systems, against what is computed here from dense copies; indices and addresses that are wrong.
#include "check.h"

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <cuda.h>
#include <dlfcn.h>
#include <random>
#include <string>
#include <vector>

typedef void *Handle;
typedef std::complex<float> Number;
enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 3, ZERO_PIVOT = 9, NOT_SUPPORTED = 10 };
// cudaDataType, cusparseIndexType_t, cusparseOrder_t
enum { C_32F = 4, INDEX_32 = 2, INDEX_64 = 3, BY_COLUMNS = 1, BY_ROWS = 2 };

#define CHECK_THAT(condition) REQUIRE(condition, "line %d: %s does not hold", __LINE__, #condition)
#define CHECK_EQUAL(found, wanted) \
    do { \
        long long found_ = (found), wanted_ = (wanted); \
        REQUIRE(found_ == wanted_, "line %d: %s is %lld instead of %lld", __LINE__, #found, found_, wanted_); \
    } while (0)

static void *cusparse;

template <typename... Arguments>
static int call(const char *name, Arguments... arguments) {
    void *function = dlsym(cusparse, name);
    CHECK_THAT(function != nullptr);
    return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

#define MUST(...) CHECK_EQUAL(call(__VA_ARGS__), SUCCESS)

static std::mt19937 randomness(11);
static int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(randomness); }
static Number number() { return {float(pick(-4, 4)), float(pick(1, 4))}; }

// Device memory with the elements of a vector.
template <typename T> struct Memory {
    CUdeviceptr address = 0;
    std::vector<T> host;

    explicit Memory(std::vector<T> elements) : host(elements) {
        CHECK_DRIVER(cuMemAlloc(&address, host.size() * sizeof(T) + 8));
        CHECK_DRIVER(cuMemcpyHtoD(address, host.data(), host.size() * sizeof(T)));
    }
    std::vector<T> download() const {
        std::vector<T> found(host.size());
        CHECK_DRIVER(cuCtxSynchronize());
        CHECK_DRIVER(cuMemcpyDtoH(found.data(), address, found.size() * sizeof(T)));
        return found;
    }
    void *at() const { return reinterpret_cast<void *>(address); }
    ~Memory() { cuMemFree(address); }
};

// A matrix by rows, with its dense copy.
template <typename Index> struct Sparse {
    int rows, columns;
    std::vector<Number> dense;
    std::vector<Index> offsets{0}, indices;
    std::vector<Number> values;

    Sparse(int rows, int columns, bool has_diagonal = false) : rows(rows), columns(columns), dense(rows * columns) {
        for (int row = 0; row < rows; row++) {
            for (int column = 0; column < columns; column++) {
                if (pick(0, 3) != 0 && !(has_diagonal && row == column)) continue;
                indices.push_back(column), values.push_back(number());
                dense[row + column * rows] = values.back();
            }
            offsets.push_back(indices.size());
        }
    }
    int entries() const { return indices.size(); }
    Number at(int row, int column) const { return dense[row + column * rows]; }
};

static void are_near(const std::vector<Number> &found, const std::vector<Number> &wanted) {
    CHECK_EQUAL(found.size(), wanted.size());
    for (size_t i = 0; i < found.size(); i++) CHECK_THAT(std::abs(found[i] - wanted[i]) <= 1e-4 * (1 + std::abs(wanted[i])));
}

// Products with a dense matrix by rows or columns, with every operation; and the matrix as a dense one.
template <typename Index> static void dense_products(Handle handle, int index_type) {
    const int m = 13, k = 17, n = 5;
    Sparse<Index> a(m, k);
    Memory<Index> offsets(a.offsets), indices(a.indices);
    Memory<Number> values(a.values);
    void *matrix;
    MUST("cusparseCreateCsr", &matrix, int64_t(m), int64_t(k), int64_t(a.entries()), offsets.at(), indices.at(), values.at(), index_type, index_type, 0, int(C_32F));
    const Number alpha = number(), beta = number();
    for (int operation = 0; operation < 3; operation++) {
        const int rows = operation ? k : m, depth = operation ? m : k;
        std::vector<Number> x(depth * n), y(rows * n);
        for (auto *each : {&x, &y}) for (Number &value : *each) value = number();
        Memory<Number> dense(x), result(y);
        void *b, *c;
        // B by rows, C by columns.
        MUST("cusparseCreateDnMat", &b, int64_t(depth), int64_t(n), int64_t(n), dense.at(), int(C_32F), int(BY_ROWS));
        MUST("cusparseCreateDnMat", &c, int64_t(rows), int64_t(n), int64_t(rows), result.at(), int(C_32F), int(BY_COLUMNS));
        size_t size = 0;
        MUST("cusparseSpMM_bufferSize", handle, operation, 0, &alpha, matrix, b, &beta, c, int(C_32F), 0, &size);
        CHECK_THAT(size > 0);
        MUST("cusparseSpMM", handle, operation, 0, &alpha, matrix, b, &beta, c, int(C_32F), 0, (void *)nullptr);
        for (int row = 0; row < rows; row++) {
            for (int column = 0; column < n; column++) {
                Number sum = 0;
                for (int p = 0; p < depth; p++) {
                    Number factor = operation ? a.at(p, row) : a.at(row, p);
                    sum += (operation == 2 ? std::conj(factor) : factor) * x[p * n + column];
                }
                y[row + column * rows] = alpha * sum + beta * y[row + column * rows];
            }
        }
        are_near(result.download(), y);
        CHECK_EQUAL(call("cusparseSpMM", handle, operation, 1, &alpha, matrix, b, &beta, c, int(C_32F), 0, (void *)nullptr), INVALID_VALUE);
        MUST("cusparseDestroyDnMat", b);
        MUST("cusparseDestroyDnMat", c);
    }
    Memory<Number> found(std::vector<Number>(m * k, Number(7, 7)));
    void *dense, *sparse;
    MUST("cusparseCreateDnMat", &dense, int64_t(m), int64_t(k), int64_t(m), found.at(), int(C_32F), int(BY_COLUMNS));
    MUST("cusparseSparseToDense", handle, matrix, dense, 0, (void *)nullptr);
    are_near(found.download(), a.dense);
    // And back.
    Memory<Index> new_offsets(std::vector<Index>(m + 1)), new_indices(std::vector<Index>(a.entries()));
    Memory<Number> new_values(std::vector<Number>(a.entries()));
    MUST("cusparseCreateCsr", &sparse, int64_t(m), int64_t(k), int64_t(0), new_offsets.at(), (void *)nullptr, (void *)nullptr, index_type, index_type, 0, int(C_32F));
    MUST("cusparseDenseToSparse_analysis", handle, dense, sparse, 0, (void *)nullptr);
    int64_t rows, columns, entries;
    MUST("cusparseSpMatGetSize", sparse, &rows, &columns, &entries);
    CHECK_EQUAL(entries, a.entries());
    MUST("cusparseCsrSetPointers", sparse, new_offsets.at(), new_indices.at(), new_values.at());
    MUST("cusparseDenseToSparse_convert", handle, dense, sparse, 0, (void *)nullptr);
    CHECK_THAT(new_offsets.download() == a.offsets && new_indices.download() == a.indices && new_values.download() == a.values);
    for (void *each : {matrix, sparse}) MUST("cusparseDestroySpMat", each);
    MUST("cusparseDestroyDnMat", dense);
}

static void sparse_products(Handle handle) {
    const int m = 9, k = 12, n = 10;
    Sparse<int> a(m, k), b(k, n);
    Memory<int> ao(a.offsets), ai(a.indices), bo(b.offsets), bi(b.indices), co(std::vector<int>(m + 1));
    Memory<Number> av(a.values), bv(b.values);
    void *left, *right, *product, *plan;
    MUST("cusparseCreateCsr", &left, int64_t(m), int64_t(k), int64_t(a.entries()), ao.at(), ai.at(), av.at(), int(INDEX_32), int(INDEX_32), 0, int(C_32F));
    MUST("cusparseCreateCsr", &right, int64_t(k), int64_t(n), int64_t(b.entries()), bo.at(), bi.at(), bv.at(), int(INDEX_32), int(INDEX_32), 0, int(C_32F));
    MUST("cusparseCreateCsr", &product, int64_t(m), int64_t(n), int64_t(0), co.at(), (void *)nullptr, (void *)nullptr, int(INDEX_32), int(INDEX_32), 0, int(C_32F));
    const Number alpha = number(), zero = 0;
    size_t size = 0;
    MUST("cusparseSpGEMM_createDescr", &plan);
    MUST("cusparseSpGEMM_workEstimation", handle, 0, 0, &alpha, left, right, &zero, product, int(C_32F), 0, plan, &size, (void *)nullptr);
    Memory<char> buffer(std::vector<char>(size, 0));
    MUST("cusparseSpGEMM_compute", handle, 0, 0, &alpha, left, right, &zero, product, int(C_32F), 0, plan, &size, buffer.at());
    int64_t rows, columns, entries;
    MUST("cusparseSpMatGetSize", product, &rows, &columns, &entries);
    Memory<int> ci(std::vector<int>(entries, -1));
    Memory<Number> cv{std::vector<Number>(entries)};
    MUST("cusparseCsrSetPointers", product, co.at(), ci.at(), cv.at());
    MUST("cusparseSpGEMM_copy", handle, 0, 0, &alpha, left, right, &zero, product, int(C_32F), 0, plan);
    auto offsets = co.download(), indices = ci.download();
    auto values = cv.download();
    CHECK_EQUAL(offsets[m], entries);
    std::vector<Number> found(m * n), wanted(m * n);
    for (int row = 0; row < m; row++) {
        for (int at = offsets[row]; at < offsets[row + 1]; at++) {
            CHECK_THAT(at == offsets[row] || indices[at - 1] < indices[at]);
            found[row + indices[at] * m] = values[at];
        }
        for (int column = 0; column < n; column++) {
            for (int p = 0; p < k; p++) wanted[row + column * m] += alpha * a.at(row, p) * b.at(p, column);
        }
    }
    are_near(found, wanted);
    MUST("cusparseSpGEMM_destroyDescr", plan);
    for (void *each : {left, right, product}) MUST("cusparseDestroySpMat", each);
    // The sum of two, counted first.
    Sparse<int> other(m, k);
    Memory<int> oo(other.offsets), oi(other.indices), so(std::vector<int>(m + 1));
    Memory<Number> ov(other.values);
    void *plain;
    int total = -1;
    MUST("cusparseCreateMatDescr", &plain);
    MUST("cusparseXcsrgeam2Nnz", handle, m, k, plain, a.entries(), ao.at(), ai.at(), plain, other.entries(), oo.at(), oi.at(), plain, so.at(), &total, (void *)nullptr);
    CHECK_EQUAL(so.download()[m], total);
    Memory<int> si{std::vector<int>(total)};
    Memory<Number> sv{std::vector<Number>(total)};
    const Number beta = number();
    MUST("cusparseCcsrgeam2", handle, m, k, &alpha, plain, a.entries(), av.at(), ao.at(), ai.at(), &beta, plain, other.entries(), ov.at(), oo.at(), oi.at(), plain, sv.at(), so.at(), si.at(), (void *)nullptr);
    offsets = so.download(), indices = si.download(), values = sv.download();
    std::vector<Number> sum(m * k), expected(m * k);
    for (int row = 0; row < m; row++) {
        for (int at = offsets[row]; at < offsets[row + 1]; at++) sum[row + indices[at] * m] = values[at];
        for (int column = 0; column < k; column++) expected[row + column * m] = alpha * a.at(row, column) + beta * other.at(row, column);
    }
    are_near(sum, expected);
    MUST("cusparseDestroyMatDescr", plain);
}

// By columns, as pairs that are shuffled and sorted again, and rows counted from pairs.
static void conversions(Handle handle) {
    const int m = 11, n = 7;
    Sparse<int> a(m, n);
    const int entries = a.entries();
    Memory<int> offsets(a.offsets), indices(a.indices), csc_offsets(std::vector<int>(n + 1)), csc_indices{std::vector<int>(entries)};
    Memory<Number> values(a.values), csc_values{std::vector<Number>(entries)};
    MUST("cusparseCsr2cscEx2", handle, m, n, entries, values.at(), offsets.at(), indices.at(), csc_values.at(), csc_offsets.at(), csc_indices.at(), int(C_32F), 1, 0, 1, (void *)nullptr);
    auto begins = csc_offsets.download(), rows = csc_indices.download();
    auto numbers = csc_values.download();
    CHECK_EQUAL(begins[n], entries);
    for (int column = 0; column < n; column++) {
        for (int at = begins[column]; at < begins[column + 1]; at++) CHECK_THAT(numbers[at] == a.at(rows[at], column));
    }
    Memory<int> pair_rows{std::vector<int>(entries)}, permutation{std::vector<int>(entries)}, again(std::vector<int>(m + 1));
    MUST("cusparseXcsr2coo", handle, offsets.at(), entries, m, pair_rows.at(), 0);
    MUST("cusparseXcoo2csr", handle, pair_rows.at(), entries, m, again.at(), 0);
    CHECK_THAT(again.download() == a.offsets);
    MUST("cusparseCreateIdentityPermutation", handle, entries, permutation.at());
    Memory<int> pair_columns(a.indices);
    MUST("cusparseXcoosortByColumn", handle, m, n, entries, pair_rows.at(), pair_columns.at(), permutation.at(), (void *)nullptr);
    auto order = permutation.download(), sorted = pair_rows.download();
    CHECK_THAT(sorted == rows);
    for (int at = 0; at < entries; at++) CHECK_THAT(a.values[order[at]] == numbers[at]);
    // The values of the permutation.
    void *dense, *sparse;
    Memory<Number> gathered{std::vector<Number>(entries)};
    MUST("cusparseCreateDnVec", &dense, int64_t(entries), values.at(), int(C_32F));
    MUST("cusparseCreateSpVec", &sparse, int64_t(entries), int64_t(entries), permutation.at(), gathered.at(), int(INDEX_32), 0, int(C_32F));
    MUST("cusparseGather", handle, dense, sparse);
    CHECK_THAT(gathered.download() == numbers);
    MUST("cusparseDestroyDnVec", dense);
    MUST("cusparseDestroySpVec", sparse);
    // Without what is small.
    void *plain;
    int remaining = -1, wanted = 0;
    for (Number value : a.values) wanted += std::abs(value) > 3;
    MUST("cusparseCreateMatDescr", &plain);
    Memory<int> counts{std::vector<int>(m)};
    MUST("cusparseCnnz_compress", handle, m, plain, values.at(), offsets.at(), counts.at(), &remaining, Number(3));
    CHECK_EQUAL(remaining, wanted);
    MUST("cusparseDestroyMatDescr", plain);
}

static void systems(Handle handle) {
    const int n = 14, columns = 3;
    Sparse<int> a(n, n, true);
    Memory<int> offsets(a.offsets), indices(a.indices);
    Memory<Number> values(a.values);
    void *matrix, *plan;
    MUST("cusparseCreateCsr", &matrix, int64_t(n), int64_t(n), int64_t(a.entries()), offsets.at(), indices.at(), values.at(), int(INDEX_32), int(INDEX_32), 0, int(C_32F));
    MUST("cusparseSpSM_createDescr", &plan);
    const Number alpha = 2;
    for (int upper : {0, 1}) {
        for (int operation = 0; operation < 3; operation++) {
            MUST("cusparseSpMatSetAttribute", matrix, 0, &upper, size_t(4));
            std::vector<Number> x(n * columns);
            for (Number &value : x) value = number();
            Memory<Number> right(x), solution(std::vector<Number>(n * columns));
            void *b, *c;
            MUST("cusparseCreateDnMat", &b, int64_t(n), int64_t(columns), int64_t(n), right.at(), int(C_32F), int(BY_COLUMNS));
            MUST("cusparseCreateDnMat", &c, int64_t(n), int64_t(columns), int64_t(n), solution.at(), int(C_32F), int(BY_COLUMNS));
            MUST("cusparseSpSM_solve", handle, operation, 0, &alpha, matrix, b, c, int(C_32F), 0, plan);
            auto found = solution.download();
            std::vector<Number> product(n * columns);
            for (int row = 0; row < n; row++) {
                for (int p = 0; p < n; p++) {
                    int r = operation ? p : row, s = operation ? row : p;
                    if (upper ? r > s : r < s) continue;
                    Number factor = operation == 2 ? std::conj(a.at(r, s)) : a.at(r, s);
                    for (int column = 0; column < columns; column++) product[row + column * n] += factor * found[p + column * n];
                }
            }
            double worst = 0, largest = 1;
            for (Number value : found) largest = std::max(largest, double(std::abs(value)));
            for (int i = 0; i < n * columns; i++) worst = std::max(worst, double(std::abs(product[i] - alpha * x[i])));
            CHECK_THAT(worst < 1e-4 * largest);
            MUST("cusparseDestroyDnMat", b);
            MUST("cusparseDestroyDnMat", c);
        }
    }
    MUST("cusparseSpSM_destroyDescr", plan);
    MUST("cusparseDestroySpMat", matrix);
}

// Incomplete factors: their product is the matrix where that has entries; pivots that are missing, zero or replaced.
static void incomplete(Handle handle) {
    const int n = 24;
    Sparse<int> a(n, n, true);
    // Hermitian, with a diagonal that is larger than the rest of its row.
    std::vector<int> offsets{0}, indices;
    std::vector<Number> values;
    for (int row = 0; row < n; row++) {
        for (int column = 0; column < n; column++) {
            Number value = row == column ? Number(60) : row > column ? a.at(row, column) : std::conj(a.at(column, row));
            if (value == Number(0)) continue;
            indices.push_back(column), values.push_back(value);
        }
        offsets.push_back(indices.size());
    }
    const int entries = indices.size();
    Memory<int> lines(offsets), columns(indices);
    void *descriptor;
    MUST("cusparseCreateMatDescr", &descriptor);
    const int *line = static_cast<int *>(lines.at()), *column = static_cast<int *>(columns.at());
    for (bool cholesky : {false, true}) {
        const std::string name = cholesky ? "csric02" : "csrilu02", suffix = cholesky ? "Csric02Info" : "Csrilu02Info";
        Memory<Number> stored(values);
        void *info;
        MUST(("cusparseCreate" + suffix).c_str(), &info);
        int bytes = 0, position = 7;
        MUST(("cusparseC" + name + "_bufferSize").c_str(), handle, n, entries, descriptor, stored.at(), line, column, info, &bytes);
        CHECK_THAT(bytes > 0);
        MUST(("cusparseC" + name + "_analysis").c_str(), handle, n, entries, descriptor, stored.at(), line, column, info, 0, (void *)nullptr);
        MUST(("cusparseX" + name + "_zeroPivot").c_str(), handle, info, &position);
        CHECK_EQUAL(position, -1);
        MUST(("cusparseC" + name).c_str(), handle, n, entries, descriptor, stored.at(), line, column, info, 0, (void *)nullptr);
        MUST(("cusparseX" + name + "_zeroPivot").c_str(), handle, info, &position);
        std::vector<Number> found = stored.download(), left(n * n), right(n * n);
        CHECK_THAT(found != values);
        for (int row = 0; row < n; row++) {
            if (!cholesky) left[row + row * n] = 1;
            for (int at = offsets[row]; at < offsets[row + 1]; at++) {
                const int j = indices[at];
                if (cholesky) {
                    if (j > row) CHECK_THAT(found[at] == values[at]);
                    else left[row + j * n] = found[at], right[j + row * n] = std::conj(found[at]);
                } else {
                    (j < row ? left : right)[row + j * n] = found[at];
                }
            }
        }
        for (int row = 0; row < n; row++) {
            for (int at = offsets[row]; at < offsets[row + 1]; at++) {
                if (cholesky && indices[at] > row) continue;
                Number product = 0;
                for (int k = 0; k < n; k++) product += left[row + k * n] * right[k + indices[at] * n];
                CHECK_THAT(std::abs(product - values[at]) < 1e-3);
            }
        }
        // A row without a diagonal, before and after.
        Memory<int> short_lines({0, 1, 2}), short_columns({0, 0});
        Memory<Number> two({2, 1});
        for (const char *step : {"_analysis", ""}) {
            MUST(("cusparseC" + name + step).c_str(), handle, 2, 2, descriptor, two.at(), short_lines.at(), short_columns.at(), info, 0, (void *)nullptr);
            CHECK_EQUAL(call(("cusparseX" + name + "_zeroPivot").c_str(), handle, info, &position), ZERO_PIVOT);
            CHECK_EQUAL(position, 1);
        }
        MUST(("cusparseDestroy" + suffix).c_str(), info);
    }
    // The second pivot becomes zero, and is replaced.
    Memory<int> full_lines({0, 2, 4}), full_columns({0, 1, 0, 1});
    Memory<Number> singular({1, 3, 2, 6});
    void *info;
    MUST("cusparseCreateCsrilu02Info", &info);
    double tolerance = 1e-5;
    Number value = 0.25f;
    MUST("cusparseCcsrilu02_numericBoost", handle, info, 1, &tolerance, &value);
    MUST("cusparseCcsrilu02", handle, 2, 4, descriptor, singular.at(), full_lines.at(), full_columns.at(), info, 0, (void *)nullptr);
    are_near(singular.download(), {1, 3, 2, value});
    MUST("cusparseDestroyCsrilu02Info", info);
    MUST("cusparseDestroyMatDescr", descriptor);
}

// The last: the context does not survive it. An index that is out of range, or an address that is.
static void wrong(Handle handle, bool is_index) {
    Memory<int> offsets({0, 1, 2}), indices({0, is_index ? 5 : 1});
    Memory<Number> values({1, 1}), x({1, 1}), y({1, 1});
    void *matrix, *b, *c;
    const Number one = 1;
    char *at = static_cast<char *>(values.at()) + (is_index ? 0 : 64 << 20);
    MUST("cusparseCreateCsr", &matrix, int64_t(2), int64_t(2), int64_t(2), offsets.at(), indices.at(), (void *)at, int(INDEX_32), int(INDEX_32), 0, int(C_32F));
    MUST("cusparseCreateDnVec", &b, int64_t(2), x.at(), int(C_32F));
    MUST("cusparseCreateDnVec", &c, int64_t(2), y.at(), int(C_32F));
    MUST("cusparseSpMV", handle, 0, &one, matrix, b, &one, c, int(C_32F), 0, (void *)nullptr);
    CHECK_THAT(cuCtxSynchronize() != CUDA_SUCCESS);
}

int main(int argc, char **argv) {
    cusparse = dlopen("libcusparse.so.12", RTLD_NOW);
    CHECK_THAT(cusparse != nullptr);
    CUdevice device;
    CUcontext context;
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_DRIVER(cuCtxSetCurrent(context));
    Handle handle;
    MUST("cusparseCreate", &handle);
    if (argc > 1) {
        wrong(handle, std::strcmp(argv[1], "index") == 0);
        return pass();
    }
    dense_products<int>(handle, INDEX_32);
    dense_products<int64_t>(handle, INDEX_64);
    sparse_products(handle);
    conversions(handle);
    systems(handle);
    incomplete(handle);
    CHECK_EQUAL(call("cusparseSpMV", (Handle) nullptr, 0, (void *)nullptr, (void *)nullptr, (void *)nullptr, (void *)nullptr, (void *)nullptr, int(C_32F), 0, (void *)nullptr), NOT_INITIALIZED);
    CHECK_EQUAL(call("cusparseSDDMM", handle), NOT_SUPPORTED);
    MUST("cusparseDestroy", handle);
    return pass();
}

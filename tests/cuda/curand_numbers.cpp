// Random numbers by cuRAND as the loader finds it. The numbers wanted were taken from NVIDIA's cuRAND 10.3.10 with generators of
// the host (`curandCreateGeneratorHost`), which makes the same ones: seeds, offsets, distributions one behind another, streams,
// captured graphs, and wrong arguments.
#include "check.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <cuda.h>
#include <dlfcn.h>
#include <string>
#include <vector>

typedef void *Generator;
enum { SUCCESS = 0, NOT_INITIALIZED = 101, TYPE_ERROR = 103, OUT_OF_RANGE = 104, LENGTH_NOT_MULTIPLE = 105 };
enum { XORWOW = 101, MRG32K3A = 121, PHILOX = 161 };

#define CHECK_THAT(condition) REQUIRE(condition, "line %d: %s does not hold", __LINE__, #condition)
#define CHECK_EQUAL(found, wanted) \
    do { \
        unsigned long long found_ = (found), wanted_ = (wanted); \
        REQUIRE(found_ == wanted_, "line %d: %s is %llx instead of %llx", __LINE__, #found, found_, wanted_); \
    } while (0)

static void *curand;

template <typename... Arguments>
static int call(const char *name, Arguments... arguments) {
    void *function = dlsym(curand, name);
    CHECK_THAT(function != nullptr);
    return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

#define MUST(...) CHECK_EQUAL(call(__VA_ARGS__), SUCCESS)

static const size_t most = 300002;
static CUdeviceptr memory;

template <typename T> static std::vector<T> download(size_t count) {
    std::vector<T> found(count);
    CHECK_DRIVER(cuCtxSynchronize());
    CHECK_DRIVER(cuMemcpyDtoH(found.data(), memory, count * sizeof(T)));
    return found;
}

template <typename T> static uint64_t hash(const std::vector<T> &numbers) {
    uint64_t result = 1469598103934665603u;
    for (size_t at = 0; at < numbers.size() * sizeof(T); at += 4) {
        uint32_t word;
        std::memcpy(&word, reinterpret_cast<const char *>(numbers.data()) + at, 4);
        result = (result ^ word) * 1099511628211u;
    }
    return result;
}

template <typename T> static void is_near(const std::vector<T> &found, double first, double last, double sum) {
    double total = 0;
    for (T value : found) total += value;
    const double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-12;
    CHECK_THAT(std::abs(found.front() - first) < tolerance && std::abs(found.back() - last) < tolerance);
    CHECK_THAT(std::abs(total - sum) < tolerance * found.size());
}

struct Wanted {
    int type;
    uint64_t bits, uniform, uniform_double, last_bits;
    double normal[3], normal_double[3], log_normal[3];
};

static const Wanted wanted[] = {
    {XORWOW, 0xb28059d8e9ec6850, 0xb8a819218edf22c, 0x43f05f73cc9daa09, 0x57bb7581c11a3874,
     {-1.3057249, -0.70589817, 3954.0909626483917}, {3.0213952272302746, 0.25767768714745565, 300343.20351534797},
     {4.3109417, 2.2539482, 6.564889907836914}},
    {PHILOX, 0xbb07c2642085c030, 0x21f33c8935a4094f, 0x4a460b3f9ae2f6f, 0xfc96e87f6701bc69,
     {2.0931137, 2.2929463, 4026.984898507595}, {1.7331574266229128, 1.9014878208078358, 298745.4053969205},
     {2.0492783, 1.6336739, 3.6829521656036377}},
};

static void distributions(const Wanted &wanted) {
    Generator generator;
    CUstream stream;
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST("curandCreateGenerator", &generator, wanted.type);
    MUST("curandSetStream", generator, stream);
    MUST("curandSetPseudoRandomGeneratorSeed", generator, 0x123456789abcdefull);
    MUST("curandSetGeneratorOffset", generator, 500003ull);
    void *to = reinterpret_cast<void *>(memory);
    // Twice: a seed begins anew.
    for (int round = 0; round < 2; round++) {
        MUST("curandGenerate", generator, to, size_t(10001));
        CHECK_EQUAL(hash(download<uint32_t>(10001)), wanted.bits);
        MUST("curandGenerateUniform", generator, to, size_t(777));
        CHECK_EQUAL(hash(download<float>(777)), wanted.uniform);
        MUST("curandGenerateUniformDouble", generator, to, size_t(5001));
        CHECK_EQUAL(hash(download<double>(5001)), wanted.uniform_double);
        MUST("curandGenerateNormal", generator, to, size_t(4098), 1.0f, 2.0f);
        is_near(download<float>(4098), wanted.normal[0], wanted.normal[1], wanted.normal[2]);
        MUST("curandGenerateNormalDouble", generator, to, size_t(300002), 1.0, 2.0);
        is_near(download<double>(300002), wanted.normal_double[0], wanted.normal_double[1], wanted.normal_double[2]);
        MUST("curandGenerate", generator, to, size_t(9000));
        CHECK_EQUAL(hash(download<uint32_t>(9000)), wanted.last_bits);
        MUST("curandGenerateLogNormal", generator, to, size_t(2), 1.0f, 0.5f);
        is_near(download<float>(2), wanted.log_normal[0], wanted.log_normal[1], wanted.log_normal[2]);
        MUST("curandSetPseudoRandomGeneratorSeed", generator, 0x123456789abcdefull);
    }
    for (double mean : {0.5, 12.0, 3000.0}) {
        const size_t count = 40000;
        MUST("curandGeneratePoisson", generator, to, count, mean);
        double sum = 0, squares = 0;
        for (uint32_t value : download<uint32_t>(count)) sum += value, squares += (value - mean) * (value - mean);
        CHECK_THAT(std::abs(sum / count - mean) < 5 * std::sqrt(mean / count));
        CHECK_THAT(std::abs(squares / count / mean - 1) < 0.05);
    }
    // A captured call gives the numbers that follow each time.
    CUgraph graph;
    CUgraphExec executable;
    MUST("curandSetPseudoRandomGeneratorSeed", generator, 0x123456789abcdefull);
    MUST("curandGenerateSeeds", generator);
    CHECK_DRIVER(cuStreamSynchronize(stream));
    CHECK_DRIVER(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    MUST("curandGenerate", generator, to, size_t(10001));
    CHECK_DRIVER(cuStreamEndCapture(stream, &graph));
    CHECK_DRIVER(cuGraphInstantiate(&executable, graph, 0));
    CHECK_DRIVER(cuGraphLaunch(executable, stream));
    CHECK_EQUAL(hash(download<uint32_t>(10001)), wanted.bits);
    CHECK_DRIVER(cuGraphLaunch(executable, stream));
    CHECK_THAT(hash(download<uint32_t>(10001)) != wanted.bits);
    CHECK_DRIVER(cuGraphExecDestroy(executable));
    CHECK_DRIVER(cuGraphDestroy(graph));
    CHECK_EQUAL(call("curandGenerateNormal", generator, to, size_t(3), 0.0f, 1.0f), wanted.type == PHILOX ? SUCCESS : LENGTH_NOT_MULTIPLE);
    CHECK_EQUAL(call("curandGeneratePoisson", generator, to, size_t(3), -1.0), OUT_OF_RANGE);
    CHECK_EQUAL(call("curandGenerate", generator, (void *)nullptr, size_t(3)), OUT_OF_RANGE);
    CHECK_EQUAL(call("curandGenerateLongLong", generator, to, size_t(3)), TYPE_ERROR);
    CHECK_EQUAL(call("curandSetGeneratorOrdering", generator, 7), OUT_OF_RANGE);
    MUST("curandSetGeneratorOrdering", generator, 103);
    MUST("curandDestroyGenerator", generator);
    CHECK_DRIVER(cuStreamDestroy(stream));
}

int main(int argc, char **argv) {
    curand = dlopen("libcurand.so.10", RTLD_NOW);
    CHECK_THAT(curand != nullptr);
    CUdevice device;
    CUcontext context;
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_DRIVER(cuCtxSetCurrent(context));
    CHECK_DRIVER(cuMemAlloc(&memory, most * sizeof(double)));
    Generator generator = nullptr;
    CHECK_EQUAL(call("curandGenerate", generator, (void *)memory, size_t(1)), NOT_INITIALIZED);
    CHECK_EQUAL(call("curandCreateGenerator", &generator, int(MRG32K3A)), TYPE_ERROR);
    if (argc > 1 && std::strcmp(argv[1], "beyond") == 0) {
        // The last: the context does not survive it.
        MUST("curandCreateGenerator", &generator, int(PHILOX));
        MUST("curandGenerate", generator, (void *)(memory + (64 << 20)), size_t(100));
        CHECK_EQUAL(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
        return pass();
    }
    for (const Wanted &each : wanted) distributions(each);
    return pass();
}

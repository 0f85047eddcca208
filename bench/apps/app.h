// What every application of this folder shares: arguments, memory, time, checks, and the lines that it prints.
//
// An application prints one JSON line for each size on standard output; README.md explains the fields.  When a call fails or
// a result is wrong it says so on standard error and ends with status 1, so that no figure of a wrong result is ever printed.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <errno.h>
#include <unistd.h>

// Ends with _exit, not exit: after a failed call the destructors of the runtime might wait for work that never ends.
[[noreturn]] __attribute__((format(printf, 1, 2))) inline void fail(const char *format, ...) {
    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    fflush(nullptr);
    _exit(1);
}

// A condition, with the sentence to print when it does not hold.
#define REQUIRE(condition, ...) \
    do { \
        if (!(condition)) fail(__VA_ARGS__); \
    } while (0)

// A call of the CUDA runtime that must succeed.
#define CHECK(call) \
    do { \
        cudaError_t error_ = (call); \
        if (error_ != cudaSuccess) fail("%s returned %s: %s", #call, cudaGetErrorName(error_), cudaGetErrorString(error_)); \
    } while (0)

// `--name value` for each name that the application knows; its defaults say which those are.
class Arguments {
  public:
    Arguments(int count, char **words, std::map<std::string, std::string> defaults) : values(std::move(defaults)) {
        for (int i = 1; i < count; i += 2) {
            std::string word = words[i];
            auto option = word.rfind("--", 0) == 0 ? values.find(word.substr(2)) : values.end();
            if (option == values.end() || i + 1 == count) {
                std::string known;
                for (const auto &[name, value] : values) known += " --" + name + " " + value;
                fail("%s is not an option with a value; the options and their defaults are:%s", word.c_str(), known.c_str());
            }
            option->second = words[i + 1];
        }
    }

    // Whole numbers from 1 on, separated by commas.
    std::vector<int> numbers(const char *name) const {
        std::vector<int> numbers;
        const char *text = values.at(name).c_str();
        for (char *end;; text = end + 1) {
            long number = strtol(text, &end, 10);
            REQUIRE(end > text && (*end == ',' || *end == 0) && number > 0 && number < 1 << 24,
                    "--%s needs whole numbers from 1 on, not %s", name, values.at(name).c_str());
            numbers.push_back(int(number));
            if (*end == 0) return numbers;
        }
    }

    int number(const char *name) const {
        std::vector<int> all = numbers(name);
        REQUIRE(all.size() == 1, "--%s needs one number, not %s", name, values.at(name).c_str());
        return all[0];
    }

    // `--kernels own` instead of `--kernels library`: simple kernels of ours, for machines without NVIDIA's library.
    bool own_kernels() const {
        const std::string &kernels = values.at("kernels");
        REQUIRE(kernels == "own" || kernels == "library", "--kernels is either library or own, not %s", kernels.c_str());
        return kernels == "own";
    }

  private:
    std::map<std::string, std::string> values;
};

// Calls `body(i)` for each i below `count`, from all processors: to make the data and to check results, never on the clock.
template <class Body>
void in_parallel(size_t count, Body body) {
    const size_t workers = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::thread> threads;
    for (size_t worker = 0; worker < workers; worker++)
        threads.emplace_back([=] {
            for (size_t i = count * worker / workers; i < count * (worker + 1) / workers; i++) body(i);
        });
    for (std::thread &thread : threads) thread.join();
}

// Ordinary (pageable) memory of the host for `count` elements, which have no value yet.
template <class T>
class HostArray {
  public:
    explicit HostArray(size_t count) : elements(new T[count]) {}
    operator T *() const { return elements.get(); }

  private:
    std::unique_ptr<T[]> elements;
};

// Memory of the device for `count` elements.
template <class T>
class DeviceArray {
  public:
    explicit DeviceArray(size_t count) { CHECK(cudaMalloc(&elements, count * sizeof(T))); }
    ~DeviceArray() { CHECK(cudaFree(elements)); }
    DeviceArray(const DeviceArray &) = delete;
    DeviceArray &operator=(const DeviceArray &) = delete;
    operator T *() const { return elements; }

  private:
    T *elements = nullptr;
};

// Pinned memory of the host for `count` elements.
template <class T>
class PinnedArray {
  public:
    explicit PinnedArray(size_t count) { CHECK(cudaMallocHost(&elements, count * sizeof(T))); }
    ~PinnedArray() { CHECK(cudaFreeHost(elements)); }
    PinnedArray(const PinnedArray &) = delete;
    PinnedArray &operator=(const PinnedArray &) = delete;
    operator T *() const { return elements; }

  private:
    T *elements = nullptr;
};

// Seconds on a clock that only goes forward.
inline double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The seconds that a piece of work took, over its repetitions.
struct Timing {
    double median, fastest, slowest;
    int repetitions;
};

// Runs the work once to warm up and then `repetitions` times on the clock.  Before each time `prepare` restores, off the clock,
// what the work changes.  `work` returns when its results are in the host's memory.
template <class Prepare, class Work>
Timing measure(int repetitions, Prepare prepare, Work work) {
    std::vector<double> seconds;
    for (int i = 0; i <= repetitions; i++) {
        prepare();
        double start = now();
        work();
        if (i > 0) seconds.push_back(now() - start);
    }
    std::sort(seconds.begin(), seconds.end());
    double median = (seconds[(repetitions - 1) / 2] + seconds[repetitions / 2]) / 2;
    return {median, seconds.front(), seconds.back(), repetitions};
}

// Prints what was measured at one size.  `setup` is what came before the first repetition and is not in `timing`: context,
// library handles, memory.  `checksum` is a figure of the result that does not depend on the order of additions.
inline void print_result(int size, const Timing &timing, double setup, double checksum) {
    printf("{\"app\": \"%s\", \"size\": %d, \"seconds\": %.9g, \"fastest\": %.9g, \"slowest\": %.9g, \"repetitions\": %d, "
           "\"setup_seconds\": %.6g, \"checksum\": %.12g}\n",
           program_invocation_short_name, size, timing.median, timing.fastest, timing.slowest, timing.repetitions, setup, checksum);
    fflush(stdout);
}

// A number in [-1, 1) that depends on `index` alone, by the finaliser of SplitMix64 (Steele, Lea, Flood 2014).  So any element of
// the data can be had again without keeping it.
inline double random_value(uint64_t index) {
    uint64_t z = (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return double(int64_t(z ^ (z >> 31)) >> 11) / double(int64_t(1) << 52);
}

// 1 or -1, as random_value.
inline double random_sign(uint64_t index) { return random_value(index) < 0 ? -1 : 1; }

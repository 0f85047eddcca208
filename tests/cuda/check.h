// What every program of this folder shares: checks that name what was asked and what came, and the final line.
//
// A program prints as its last line `PASS <name>` and ends with 0, or `FAIL <name>: <reason>` and ends with 1.  Its name is
// its file's name up to the first dot, so vector_add.shared is vector_add as well.  Usable from C and C++.
#pragma once

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static inline void print_program_name(void) {
    const char *name = program_invocation_short_name;
    printf("%.*s", (int)strcspn(name, "."), name);
}

// Ends with _exit, not exit: after a failed check the destructors of the runtime might wait for work that never ends.
__attribute__((noreturn, unused, format(printf, 1, 2))) static void fail(const char *format, ...) {
    static int failing = 0;
    // Only the first thread that fails speaks; the process ends under the others.
    while (__sync_lock_test_and_set(&failing, 1)) pause();
    va_list arguments;
    va_start(arguments, format);
    printf("FAIL ");
    print_program_name();
    printf(": ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    fflush(NULL);
    _exit(1);
}

// The last statement of main: `return pass();`
__attribute__((unused)) static int pass(void) {
    printf("PASS ");
    print_program_name();
    printf("\n");
    fflush(stdout);
    return 0;
}

// A condition with the sentence to print when it does not hold.
#define REQUIRE(condition, ...) \
    do { \
        if (!(condition)) fail(__VA_ARGS__); \
    } while (0)

// A call of the CUDA runtime that must succeed.
#define CHECK_CUDA(call) \
    do { \
        cudaError_t error_ = (call); \
        if (error_ != cudaSuccess) \
            fail("%s (line %d) returned %s: %s", #call, __LINE__, cudaGetErrorName(error_), cudaGetErrorString(error_)); \
    } while (0)

// A call of the CUDA runtime that must fail with exactly this error.
#define EXPECT_CUDA(call, expected) \
    do { \
        cudaError_t error_ = (call); \
        if (error_ != (expected)) \
            fail("%s (line %d) returned %s instead of %s", #call, __LINE__, cudaGetErrorName(error_), #expected); \
        /* The runtime keeps the error for the next check of a launch. */ \
        (void)cudaGetLastError(); \
    } while (0)

// A call of the CUDA driver that must succeed.
#define CHECK_DRIVER(call) \
    do { \
        CUresult result_ = (call); \
        if (result_ != CUDA_SUCCESS) { \
            const char *result_name_ = "an unknown error"; \
            cuGetErrorName(result_, &result_name_); \
            fail("%s (line %d) returned %s", #call, __LINE__, result_name_); \
        } \
    } while (0)

// A kernel launch by <<<>>> that must have been accepted.
#define CHECK_LAUNCH() CHECK_CUDA(cudaGetLastError())

// Pseudo-random numbers that are the same everywhere (a linear congruential generator, constants of Numerical Recipes).
static inline uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

// Uniform in [low, high).
static inline float random_between(uint32_t *state, float low, float high) {
    return low + (high - low) * ((float)next_random(state) / 16777216.0f);
}

// True when `got` lies within a relative error of `want`; values under 1 are compared absolutely.
static inline bool is_close(double got, double want, double relative_error) {
    double scale = fabs(want) > 1.0 ? fabs(want) : 1.0;
    return fabs(got - want) <= relative_error * scale;
}

// What the programs share that print a driver's answers, a line each, `what = answer`, which are compared natively and
// through Causeway.  No answer may differ from run to run on one machine: addresses and handles are printed as what they are
// related to.
#pragma once

#include "check.h"

#include <cuda.h>

template <typename Function>
static Function driver_function(const char *name) {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion(name, &function, 13000, cudaEnableDefault, &found));
    REQUIRE(found == cudaDriverEntryPointSuccess && function, "the driver has no %s", name);
    return reinterpret_cast<Function>(function);
}

#define DRIVER(name) driver_function<decltype(&name)>(#name)

// Prints at once, so that a crash does not lose what was told before.
__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
}

// An answer that is one number: the number, or the error.  The number is taken by reference, since the call that fills it in is an
// argument, too.
template <typename Number>
static void tell_number(const char *what, int which, CUresult result, const Number &number) {
    if (result == CUDA_SUCCESS)
        tell("%s %d = %lld", what, which, (long long)number);
    else
        tell("%s %d = error %d", what, which, result);
}

// A call of the driver that must succeed; its functions are not linked, so the error has no name.
#define REQUIRE_DRIVER(call) \
    do { \
        CUresult result_ = (call); \
        REQUIRE(result_ == CUDA_SUCCESS, "%s (line %d) returned %d", #call, __LINE__, result_); \
    } while (0)

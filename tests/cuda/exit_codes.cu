// Uses the device, then ends as its arguments say, for tests of what comes through to the caller:
//   exit_codes 7          ends with exit status 7
//   exit_codes signal 9   kills itself with signal 9
#include "check.h"

#include <csignal>
#include <cstdlib>

__global__ void set(int *value) { *value = 42; }

int main(int count, char **arguments) {
    REQUIRE(count >= 2, "an exit status, or `signal` and a number, must be given");
    int *device, value = 0;
    CHECK_CUDA(cudaMalloc(&device, sizeof(int)));
    set<<<1, 1>>>(device);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(&value, device, sizeof(int), cudaMemcpyDeviceToHost));
    REQUIRE(value == 42, "the kernel set %d instead of 42", value);
    printf("ending as asked\n");
    fflush(stdout);
    if (count == 3 && strcmp(arguments[1], "signal") == 0) raise(atoi(arguments[2]));
    return atoi(arguments[1]);
}

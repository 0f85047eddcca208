// A program whose server is restarted in the middle.  It prints "running", works until the file of its second argument is
// there, and does then what leads a new connection to its session: "work" nothing more, "peer" the first copy between two
// devices, "ipc" has a second process open memory of the first.
#include "check.h"

#include <cstdlib>
#include <spawn.h>
#include <sys/wait.h>
#include <vector>

constexpr int COUNT = 1 << 20;
constexpr size_t BYTES = COUNT * sizeof(unsigned);

__global__ void step(unsigned *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) data[i] = data[i] * 3 + 1;
}

static void must_hold(const unsigned *device, const std::vector<unsigned> &expected) {
    std::vector<unsigned> found(COUNT);
    CHECK_CUDA(cudaMemcpy(found.data(), device, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) REQUIRE(found[i] == expected[i], "number %d is %u instead of %u", i, found[i], expected[i]);
}

// The second process: the memory's handle in hexadecimal digits.
static int open_memory(const char *digits) {
    cudaIpcMemHandle_t handle;
    for (size_t at = 0; at < sizeof handle; at++)
        REQUIRE(sscanf(digits + 2 * at, "%2hhx", (unsigned char *)&handle + at) == 1, "the handle is no number");
    unsigned *device;
    CHECK_CUDA(cudaIpcOpenMemHandle((void **)&device, handle, cudaIpcMemLazyEnablePeerAccess));
    step<<<(COUNT + 255) / 256, 256>>>(device);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaIpcCloseMemHandle(device));
    return pass();
}

static void share(char *program, unsigned *device) {
    cudaIpcMemHandle_t handle;
    CHECK_CUDA(cudaIpcGetMemHandle(&handle, device));
    char digits[2 * sizeof handle + 1];
    for (size_t at = 0; at < sizeof handle; at++) sprintf(digits + 2 * at, "%02hhx", ((unsigned char *)&handle)[at]);
    char action[] = "open";
    char *arguments[] = {program, action, digits, NULL};
    pid_t child;
    REQUIRE(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) == 0, "no second process");
    int status;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0, "the second process ends with %d", status);
}

static void copy_to_other_device(unsigned *device, const std::vector<unsigned> &expected) {
    unsigned *other;
    CHECK_CUDA(cudaSetDevice(1));
    CHECK_CUDA(cudaMalloc(&other, BYTES));
    CHECK_CUDA(cudaMemcpyPeer(other, 1, device, 0, BYTES));
    must_hold(other, expected);
    CHECK_CUDA(cudaSetDevice(0));
}

int main(int count, char **arguments) {
    REQUIRE(count == 3, "give work, peer or ipc, and a file");
    const char *action = arguments[1];
    if (strcmp(action, "open") == 0) return open_memory(arguments[2]);
    std::vector<unsigned> expected(COUNT);
    for (int i = 0; i < COUNT; i++) expected[i] = i;
    unsigned *device;
    CHECK_CUDA(cudaMalloc(&device, BYTES));
    CHECK_CUDA(cudaMemcpy(device, expected.data(), BYTES, cudaMemcpyHostToDevice));
    for (long round = 0; access(arguments[2], F_OK) != 0; round++) {
        step<<<(COUNT + 255) / 256, 256>>>(device);
        for (unsigned &value : expected) value = value * 3 + 1;
        must_hold(device, expected);
        if (round == 0) {
            puts("running");
            fflush(stdout);
        }
    }
    if (strcmp(action, "peer") == 0) copy_to_other_device(device, expected);
    if (strcmp(action, "ipc") == 0) {
        share(arguments[0], device);
        for (unsigned &value : expected) value = value * 3 + 1;
    }
    must_hold(device, expected);
    return pass();
}

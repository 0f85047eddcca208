// fork, before and after the first CUDA call.  A child of a process that has not used CUDA yet may use it; a child of one that
// has gets an error from CUDA, and the parent goes on undisturbed.
#include "check.h"

#include <sys/wait.h>

#include <vector>

constexpr int COUNT = 10'000;

__global__ void square(int *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) data[i] *= data[i];
}

static void use_cuda(const char *who) {
    std::vector<int> data(COUNT);
    for (int i = 0; i < COUNT; i++) data[i] = i;
    int *device;
    CHECK_CUDA(cudaMalloc(&device, COUNT * sizeof(int)));
    CHECK_CUDA(cudaMemcpy(device, data.data(), COUNT * sizeof(int), cudaMemcpyHostToDevice));
    square<<<(COUNT + 127) / 128, 128>>>(device);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(data.data(), device, COUNT * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) REQUIRE(data[i] == i * i, "%s: %d squared came out as %d", who, i, data[i]);
    CHECK_CUDA(cudaFree(device));
}

// Runs `child` in a child process, whose exit status must be 0.
template <typename Child>
static void run_child(const char *who, Child child) {
    pid_t pid = fork();
    REQUIRE(pid >= 0, "fork failed: %s", strerror(errno));
    if (pid == 0) {
        child();
        // Not exit: the parent's destructors are not the child's to run.
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid, "waitpid failed: %s", strerror(errno));
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s ended with wait status 0x%x", who, status);
}

int main() {
    run_child("the child before CUDA was used", [] { use_cuda("the child before CUDA was used"); });
    use_cuda("the parent");
    int *device;
    CHECK_CUDA(cudaMalloc(&device, sizeof(int)));
    run_child("the child after CUDA was used", [device] {
        int *own, value = 0;
        cudaError_t error = cudaMalloc(&own, sizeof(int));
        REQUIRE(error != cudaSuccess, "cudaMalloc succeeded in a child of a process that uses CUDA");
        error = cudaMemcpy(&value, device, sizeof(value), cudaMemcpyDeviceToHost);
        REQUIRE(error != cudaSuccess, "a copy succeeded in a child of a process that uses CUDA");
    });
    use_cuda("the parent after its child has ended");
    CHECK_CUDA(cudaFree(device));
    return pass();
}

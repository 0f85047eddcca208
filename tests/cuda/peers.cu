// Several devices: each has memory and streams of its own, copies go between them, and where one may reach another's memory, a
// kernel reads and writes there.  With one device there is only the part that needs no second one.
#include "check.h"

#include <vector>

constexpr int COUNT = 100'000;

__global__ void fill(int *out, int first) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) out[i] = first + i;
}

__global__ void add_from(int *out, const int *in) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) out[i] += in[i];
}

static void require_values(const int *device, int factor, int first, const char *what) {
    std::vector<int> back(COUNT);
    CHECK_CUDA(cudaMemcpy(back.data(), device, COUNT * sizeof(int), cudaMemcpyDefault));
    for (int i = 0; i < COUNT; i++) REQUIRE(back[i] == first + factor * i, "%s: element %d is %d", what, i, back[i]);
}

int main() {
    int devices = 0;
    CHECK_CUDA(cudaGetDeviceCount(&devices));
    EXPECT_CUDA(cudaSetDevice(devices), cudaErrorInvalidDevice);
    int can = -1;
    CHECK_CUDA(cudaDeviceCanAccessPeer(&can, 0, 0));
    REQUIRE(can == 0, "a device is its own peer");
    EXPECT_CUDA(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessUnsupported);
    if (devices < 2) return pass();

    cudaDeviceProp properties[2];
    int *memory[2];
    cudaStream_t streams[2];
    const dim3 grid((COUNT + 255) / 256), block(256);
    for (int device = 0; device < 2; device++) {
        CHECK_CUDA(cudaSetDevice(device));
        CHECK_CUDA(cudaGetDeviceProperties(&properties[device], device));
        CHECK_CUDA(cudaMalloc(&memory[device], COUNT * sizeof(int)));
        CHECK_CUDA(cudaStreamCreate(&streams[device]));
        fill<<<grid, block, 0, streams[device]>>>(memory[device], 1000 * device);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaStreamSynchronize(streams[device]));
        require_values(memory[device], 1, 1000 * device, "a device's own memory");
        cudaPointerAttributes attributes;
        CHECK_CUDA(cudaPointerGetAttributes(&attributes, memory[device]));
        REQUIRE(attributes.device == device, "memory of device %d says that it is on device %d", device, attributes.device);
    }
    REQUIRE(memcmp(&properties[0].uuid, &properties[1].uuid, 16) != 0, "both devices have the same UUID");

    // Copies between devices need no peer access.
    CHECK_CUDA(cudaMemcpyPeer(memory[0], 0, memory[1], 1, COUNT * sizeof(int)));
    require_values(memory[0], 1, 1000, "a peer copy");
    CHECK_CUDA(cudaSetDevice(0));
    fill<<<grid, block, 0, streams[0]>>>(memory[0], 5);
    CHECK_CUDA(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, COUNT * sizeof(int), streams[0]));
    cudaEvent_t copied;
    CHECK_CUDA(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventRecord(copied, streams[0]));
    CHECK_CUDA(cudaSetDevice(1));
    CHECK_CUDA(cudaStreamWaitEvent(streams[1], copied));
    add_from<<<grid, block, 0, streams[1]>>>(memory[1], memory[1]);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaStreamSynchronize(streams[1]));
    require_values(memory[1], 2, 10, "a copy that another device's stream waited for");
    CHECK_CUDA(cudaMemcpy2D(memory[1], 400, memory[0], 400, 400, COUNT / 100, cudaMemcpyDefault));
    require_values(memory[1], 1, 5, "rows between devices");

    CHECK_CUDA(cudaDeviceCanAccessPeer(&can, 1, 0));
    int supported = -1;
    CHECK_CUDA(cudaDeviceGetP2PAttribute(&supported, cudaDevP2PAttrAccessSupported, 1, 0));
    REQUIRE(supported == can, "peer access is possible: %d; the attribute says %d", can, supported);
    if (can) {
        EXPECT_CUDA(cudaDeviceDisablePeerAccess(0), cudaErrorPeerAccessNotEnabled);
        EXPECT_CUDA(cudaDeviceEnablePeerAccess(0, 1), cudaErrorInvalidValue);
        CHECK_CUDA(cudaDeviceEnablePeerAccess(0, 0));
        EXPECT_CUDA(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
        add_from<<<grid, block>>>(memory[0], memory[0]);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaDeviceSynchronize());
        require_values(memory[0], 2, 10, "a kernel that reached the other device's memory");
        int *later;  // memory that comes after access was enabled is reached as well
        CHECK_CUDA(cudaSetDevice(0));
        CHECK_CUDA(cudaMalloc(&later, COUNT * sizeof(int)));
        CHECK_CUDA(cudaMemset(later, 0, COUNT * sizeof(int)));
        CHECK_CUDA(cudaDeviceSynchronize());
        CHECK_CUDA(cudaSetDevice(1));
        fill<<<grid, block>>>(later, -7);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaDeviceSynchronize());
        require_values(later, 1, -7, "memory that came later");
        CHECK_CUDA(cudaFree(later));
        CHECK_CUDA(cudaDeviceDisablePeerAccess(0));
    }
    CHECK_CUDA(cudaEventDestroy(copied));
    for (int device = 0; device < 2; device++) {
        CHECK_CUDA(cudaSetDevice(device));
        CHECK_CUDA(cudaStreamDestroy(streams[device]));
        CHECK_CUDA(cudaFree(memory[device]));
    }
    return pass();
}

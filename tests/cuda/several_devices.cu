// Every device by itself, with work for all of them under way at the same time: kernels of one library, a variable that each
// device has its own value of, pinned memory, streams and events.  Any number of devices will do.
//
// With the arguments `loses N` it then goes on until device N fails, whose server the test takes away: the other devices
// must not notice.
#include "check.h"

#include <cstdlib>
#include <vector>

constexpr int COUNT = 300'000;

__device__ int offset;

__global__ void fill(int *out, int factor) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) out[i] = offset + factor * i;
}

__global__ void add(int *out, int value) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT) out[i] += value;
}

struct Device {
    int *memory;
    int *pinned;
    cudaStream_t streams[2];
    cudaEvent_t filled;
    cudaEvent_t done;
};

constexpr int BLOCKS = (COUNT + 255) / 256;

static void require_values(const int *values, int first, int factor, int device, int round) {
    for (int i = 0; i < COUNT; i++) {
        const int want = first + factor * i;
        REQUIRE(values[i] == want, "device %d, round %d: element %d should be %d, is %d", device, round, i, want, values[i]);
    }
}

int main(int argc, char **argv) {
    int count = 0;
    CHECK_CUDA(cudaGetDeviceCount(&count));
    std::vector<Device> devices(count);
    for (int number = 0; number < count; number++) {
        Device &device = devices[number];
        CHECK_CUDA(cudaSetDevice(number));
        CHECK_CUDA(cudaMalloc(&device.memory, COUNT * sizeof(int)));
        CHECK_CUDA(cudaMallocHost(&device.pinned, COUNT * sizeof(int)));
        for (cudaStream_t &stream : device.streams) CHECK_CUDA(cudaStreamCreate(&stream));
        CHECK_CUDA(cudaEventCreate(&device.filled));
        CHECK_CUDA(cudaEventCreate(&device.done));
        const int value = 1000 * number;
        CHECK_CUDA(cudaMemcpyToSymbol(offset, &value, sizeof value));
        cudaPointerAttributes attributes;
        CHECK_CUDA(cudaPointerGetAttributes(&attributes, device.memory));
        REQUIRE(attributes.device == number, "memory of device %d is said to be on device %d", number, attributes.device);
        size_t free_bytes = 0, all_bytes = 0;
        CHECK_CUDA(cudaMemGetInfo(&free_bytes, &all_bytes));
        REQUIRE(free_bytes <= all_bytes && all_bytes > 0, "device %d has %zu of %zu bytes free", number, free_bytes, all_bytes);
        for (int other = 0; other < number; other++) {
            REQUIRE(devices[other].memory != device.memory, "devices %d and %d gave the same address", other, number);
        }
    }
    // Two streams of each device, one waiting for the other; the devices in turns. The values come to the host before and after the
    // second kernel, to the same place.
    for (int round = 0; round < 20; round++) {
        for (int number = 0; number < count; number++) {
            Device &device = devices[number];
            CHECK_CUDA(cudaSetDevice(number));
            fill<<<BLOCKS, 256, 0, device.streams[0]>>>(device.memory, number + 1);
            CHECK_LAUNCH();
            CHECK_CUDA(cudaEventRecord(device.filled, device.streams[0]));
            CHECK_CUDA(cudaStreamWaitEvent(device.streams[1], device.filled));
            CHECK_CUDA(cudaMemcpyAsync(device.pinned, device.memory, COUNT * sizeof(int), cudaMemcpyDefault, device.streams[1]));
            add<<<BLOCKS, 256, 0, device.streams[1]>>>(device.memory, round + 1);
            CHECK_LAUNCH();
            CHECK_CUDA(cudaMemcpyAsync(device.pinned, device.memory, COUNT * sizeof(int), cudaMemcpyDefault, device.streams[1]));
            CHECK_CUDA(cudaEventRecord(device.done, device.streams[1]));
            CHECK_CUDA(cudaStreamWaitEvent(device.streams[0], device.done));
        }
        // The current device is the last one; events and streams of the others can be waited for all the same.
        for (int number = 0; number < count; number++) {
            CHECK_CUDA(cudaEventSynchronize(devices[number].done));
            REQUIRE(cudaEventQuery(devices[number].done) == cudaSuccess, "an event that was waited for is not done");
            require_values(devices[number].pinned, 1000 * number + round + 1, number + 1, number, round);
            memset(devices[number].pinned, 0, COUNT * sizeof(int));
        }
    }
    for (int number = 0; number < count; number++) {
        CHECK_CUDA(cudaSetDevice(number));
        int value = -1;
        CHECK_CUDA(cudaMemcpyFromSymbol(&value, offset, sizeof value));
        REQUIRE(value == 1000 * number, "the variable of device %d is %d", number, value);
    }
    if (argc == 3 && strcmp(argv[1], "loses") == 0) {
        const int lost = atoi(argv[2]);
        printf("ready\n");
        fflush(stdout);
        cudaError_t error = cudaSuccess;
        for (int tries = 0; error == cudaSuccess && tries < 3000; tries++) {
            usleep(10'000);
            CHECK_CUDA(cudaSetDevice(lost));
            fill<<<BLOCKS, 256>>>(devices[lost].memory, 1);
            error = cudaDeviceSynchronize();
        }
        REQUIRE(error == cudaErrorDevicesUnavailable, "device %d fails with %s", lost, cudaGetErrorName(error));
        for (int number = 0; number < count; number++) {
            if (number == lost) continue;
            CHECK_CUDA(cudaSetDevice(number));
            (void)cudaGetLastError();
            fill<<<BLOCKS, 256>>>(devices[number].memory, 7);
            CHECK_LAUNCH();
            CHECK_CUDA(cudaMemcpy(devices[number].pinned, devices[number].memory, COUNT * sizeof(int), cudaMemcpyDefault));
            require_values(devices[number].pinned, 1000 * number, 7, number, -1);
        }
        return pass();
    }
    for (int number = 0; number < count; number++) {
        Device &device = devices[number];
        CHECK_CUDA(cudaSetDevice(number));
        for (cudaStream_t stream : device.streams) CHECK_CUDA(cudaStreamDestroy(stream));
        CHECK_CUDA(cudaEventDestroy(device.filled));
        CHECK_CUDA(cudaEventDestroy(device.done));
        CHECK_CUDA(cudaFreeHost(device.pinned));
        CHECK_CUDA(cudaFree(device.memory));
    }
    return pass();
}

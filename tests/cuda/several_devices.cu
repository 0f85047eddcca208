// Every device by itself, with work for all of them under way at the same time: kernels of one library, a variable that each
// device has its own value of, pinned memory, streams and events.  Any number of devices will do.
//
// With the argument `own_streams` it only tries what is done with streams and events of another device. CUDA's manuals differ on
// whether a launch into such a stream is an error or runs there (cuda.h), so this is for Causeway alone.
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

// Its last word of shared memory goes to memory, if there is any.
__global__ void use_shared(int *to, int words) {
    extern __shared__ int shared[];
    shared[words - 1] = words;
    __syncthreads();
    if (to) *to = shared[words - 1];
}

// How much shared memory the kernel may have on a device: another amount than on the device before.
static int shared_limit(int device) { return (50 + 4 * (device < 3 ? device : 3)) << 10; }

// A kernel has its own limit of shared memory on each device: what is set on one must not be in force on another.
static void require_own_attributes(int count) {
    for (int number = 0; number < count; number++) {
        CHECK_CUDA(cudaSetDevice(number));
        CHECK_CUDA(cudaFuncSetAttribute(use_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_limit(number)));
    }
    for (int number = 0; number < count; number++) {
        CHECK_CUDA(cudaSetDevice(number));
        const int limit = shared_limit(number);
        cudaFuncAttributes attributes;
        CHECK_CUDA(cudaFuncGetAttributes(&attributes, use_shared));
        REQUIRE(attributes.maxDynamicSharedSizeBytes == limit, "device %d allows %d bytes of shared memory instead of %d", number,
                attributes.maxDynamicSharedSizeBytes, limit);
        int *memory, found = 0;
        CHECK_CUDA(cudaMalloc(&memory, sizeof(int)));
        use_shared<<<1, 1, limit>>>(memory, limit / 4);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaMemcpy(&found, memory, sizeof found, cudaMemcpyDeviceToHost));
        REQUIRE(found == limit / 4, "device %d found %d instead of %d in shared memory", number, found, limit / 4);
        use_shared<<<1, 1, limit + 1024>>>(memory, limit / 4);
        EXPECT_CUDA(cudaGetLastError(), cudaErrorInvalidValue);
        CHECK_CUDA(cudaFree(memory));
    }
}

// A stream belongs to its device: a kernel that is launched into it while another one is current runs there, and two events
// of different devices have no time between them.
static void require_own_streams() {
    cudaStream_t streams[2];
    cudaEvent_t events[2];
    int *memory[2];
    for (int number = 0; number < 2; number++) {
        CHECK_CUDA(cudaSetDevice(number));
        CHECK_CUDA(cudaMalloc(&memory[number], sizeof(int)));
        CHECK_CUDA(cudaMemset(memory[number], 0, sizeof(int)));
        CHECK_CUDA(cudaStreamCreate(&streams[number]));
        CHECK_CUDA(cudaEventCreate(&events[number]));
        CHECK_CUDA(cudaEventRecord(events[number], streams[number]));
        CHECK_CUDA(cudaDeviceSynchronize());
    }
    const auto value_on = [&](int number) {
        int value = -1;
        CHECK_CUDA(cudaMemcpy(&value, memory[number], sizeof value, cudaMemcpyDeviceToHost));
        return value;
    };
    for (int current = 0; current < 2; current++) {
        const int other = 1 - current;
        CHECK_CUDA(cudaSetDevice(current));
        use_shared<<<1, 1, 64, streams[other]>>>(memory[other], 8);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaStreamSynchronize(streams[other]));
        REQUIRE(value_on(other) == 8 && value_on(current) == (current ? 8 : 0), "a kernel has not run in its stream");
    }
    for (int number = 0; number < 2; number++) {
        CHECK_CUDA(cudaSetDevice(number));
        use_shared<<<1, 1, 64, streams[number]>>>(memory[number], 16);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaStreamSynchronize(streams[number]));
        REQUIRE(value_on(number) == 16, "device %d's kernel has not run in its own stream", number);
    }
    float milliseconds = 0;
    EXPECT_CUDA(cudaEventElapsedTime(&milliseconds, events[0], events[1]), cudaErrorInvalidResourceHandle);
    for (int number = 0; number < 2; number++) {
        CHECK_CUDA(cudaStreamDestroy(streams[number]));
        CHECK_CUDA(cudaEventDestroy(events[number]));
        CHECK_CUDA(cudaFree(memory[number]));
    }
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
    if (argc == 2 && strcmp(argv[1], "own_streams") == 0) {
        if (count > 1) require_own_streams();
        return pass();
    }
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
    require_own_attributes(count);
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

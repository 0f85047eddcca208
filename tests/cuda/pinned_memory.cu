// Pinned host memory of every kind: asynchronous copies both ways on several streams, registered memory, pointer attributes.
#include "check.h"

#include <vector>
#include <sys/mman.h>

constexpr int STREAMS = 4;
constexpr int CHUNK = 1 << 17;  // floats a stream moves at a time
constexpr int COUNT = STREAMS * CHUNK;

__global__ void scale(float *data, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] *= factor;
}

// Each stream moves its part to the device, scales it and moves it back; the result comes to `out`, where the part itself came before.
static void round_trip(float *in, float *out, float *device, cudaStream_t *streams, const char *what) {
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < COUNT; i++) {
            in[i] = float(i % 1000 + round);
            out[i] = -1;
        }
        for (int s = 0; s < STREAMS; s++) {
            int offset = s * CHUNK;
            CHECK_CUDA(cudaMemcpyAsync(device + offset, in + offset, CHUNK * sizeof(float), cudaMemcpyHostToDevice, streams[s]));
            CHECK_CUDA(cudaMemcpyAsync(out + offset, device + offset, CHUNK * sizeof(float), cudaMemcpyDeviceToHost, streams[s]));
            scale<<<(CHUNK + 255) / 256, 256, 0, streams[s]>>>(device + offset, float(s + 2), CHUNK);
            CHECK_LAUNCH();
            CHECK_CUDA(cudaMemcpyAsync(out + offset, device + offset, CHUNK * sizeof(float), cudaMemcpyDeviceToHost, streams[s]));
        }
        for (int s = 0; s < STREAMS; s++) CHECK_CUDA(cudaStreamSynchronize(streams[s]));
        for (int i = 0; i < COUNT; i++) {
            float want = float(i % 1000 + round) * float(i / CHUNK + 2);
            REQUIRE(out[i] == want, "%s, round %d: element %d should be %g, is %g", what, round, i, want, out[i]);
        }
    }
}

static void require_type(const void *pointer, cudaMemoryType type, const char *what) {
    cudaPointerAttributes attributes = {};
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, pointer));
    REQUIRE(attributes.type == type, "%s is memory of type %d instead of %d", what, attributes.type, type);
    if (type == cudaMemoryTypeHost)
        REQUIRE(attributes.hostPointer == pointer, "%s at %p has the host pointer %p", what, pointer, attributes.hostPointer);
    if (type == cudaMemoryTypeDevice)
        REQUIRE(attributes.devicePointer == pointer && attributes.device == 0, "%s at %p has the device pointer %p on device %d",
                what, pointer, attributes.devicePointer, attributes.device);
}

int main() {
    const size_t bytes = COUNT * sizeof(float);
    cudaStream_t streams[STREAMS];
    for (cudaStream_t &stream : streams) CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    float *device, *in, *out;
    CHECK_CUDA(cudaMalloc(&device, bytes));
    require_type(device, cudaMemoryTypeDevice, "cudaMalloc's memory");
    require_type(device + 1000, cudaMemoryTypeDevice, "the inside of cudaMalloc's memory");

    CHECK_CUDA(cudaMallocHost(&in, bytes));
    CHECK_CUDA(cudaHostAlloc(&out, bytes, cudaHostAllocPortable));
    require_type(in, cudaMemoryTypeHost, "cudaMallocHost's memory");
    require_type(out + COUNT - 1, cudaMemoryTypeHost, "the last float of cudaHostAlloc's memory");
    unsigned flags = 0;
    CHECK_CUDA(cudaHostGetFlags(&flags, out));
    REQUIRE(flags & cudaHostAllocPortable, "memory made portable has the flags %u", flags);
    round_trip(in, out, device, streams, "allocated");
    CHECK_CUDA(cudaFreeHost(in));

    CHECK_CUDA(cudaHostAlloc(&in, bytes, cudaHostAllocWriteCombined));
    round_trip(in, out, device, streams, "write-combined");
    CHECK_CUDA(cudaFreeHost(in));

    in = static_cast<float *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(in != MAP_FAILED, "mmap of %zu bytes failed", bytes);
    require_type(in, cudaMemoryTypeUnregistered, "plain memory");
    CHECK_CUDA(cudaHostRegister(in, bytes, cudaHostRegisterDefault));
    require_type(in, cudaMemoryTypeHost, "registered memory");
    EXPECT_CUDA(cudaHostRegister(in, bytes, cudaHostRegisterDefault), cudaErrorHostMemoryAlreadyRegistered);
    round_trip(in, out, device, streams, "registered");
    CHECK_CUDA(cudaHostUnregister(in));
    EXPECT_CUDA(cudaHostUnregister(in), cudaErrorHostMemoryNotRegistered);
    require_type(in, cudaMemoryTypeUnregistered, "memory no longer registered");
    munmap(in, bytes);

    // Many small pinned pieces, as a pool of buffers makes them.
    std::vector<int *> pieces(64);
    for (size_t i = 0; i < pieces.size(); i++) {
        CHECK_CUDA(cudaMallocHost(&pieces[i], 100 + i));
        pieces[i][0] = int(i);
    }
    for (size_t i = 0; i < pieces.size(); i++) {
        REQUIRE(pieces[i][0] == int(i), "pinned piece %zu overlaps another", i);
        CHECK_CUDA(cudaFreeHost(pieces[i]));
    }
    CHECK_CUDA(cudaFreeHost(out));
    CHECK_CUDA(cudaFree(device));
    for (cudaStream_t stream : streams) CHECK_CUDA(cudaStreamDestroy(stream));
    (void)cudaGetLastError();
    return pass();
}

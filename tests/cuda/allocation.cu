// Device memory: many small pieces at a time, pieces that are freed while work still uses them, pitched memory, stream-ordered
// memory that wanders between streams, and wrong uses.
#include "check.h"

#include <cstring>
#include <vector>

constexpr int COUNT = 1 << 16;
constexpr size_t BYTES = COUNT * sizeof(int);

// Writes `value` everywhere, over and over, so that it takes a while.
__global__ void write_slowly(int *data, int value, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < rounds; round++)
        if (i < COUNT) atomicExch(&data[i], value);
}

static void require_all(const int *device, int value, const char *what) {
    std::vector<int> host(COUNT);
    CHECK_CUDA(cudaMemcpy(host.data(), device, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) REQUIRE(host[i] == value, "%s: element %d is %d, not %d", what, i, host[i], value);
}

// Pieces of many sizes are apart from each other, and keep what is in them while others come and go.
static void check_pieces() {
    struct Piece {
        unsigned char *address;
        size_t size;
        unsigned char value;
    };
    std::vector<Piece> pieces;
    uint32_t state = 7;
    std::vector<unsigned char> host(1 << 20);
    for (int round = 0; round < 600; round++) {
        if (pieces.size() > 100 || (!pieces.empty() && next_random(&state) % 3 == 0)) {
            size_t index = next_random(&state) % pieces.size();
            Piece piece = pieces[index];
            CHECK_CUDA(cudaMemcpy(host.data(), piece.address, piece.size, cudaMemcpyDeviceToHost));
            for (size_t i = 0; i < piece.size; i++)
                REQUIRE(host[i] == piece.value, "byte %zu of %zu is %d, not %d", i, piece.size, host[i], piece.value);
            CHECK_CUDA(cudaFree(piece.address));
            pieces[index] = pieces.back();
            pieces.pop_back();
            continue;
        }
        Piece piece = {nullptr, 1 + next_random(&state) % (1u << (4 + next_random(&state) % 15)), (unsigned char)round};
        CHECK_CUDA(cudaMalloc(&piece.address, piece.size));
        REQUIRE((uintptr_t)piece.address % 256 == 0, "a piece of %zu bytes is at %p", piece.size, (void *)piece.address);
        CHECK_CUDA(cudaMemset(piece.address, piece.value, piece.size));
        pieces.push_back(piece);
    }
    for (Piece &piece : pieces) CHECK_CUDA(cudaFree(piece.address));
}

// Freeing waits for the work that uses the memory: whoever gets it next is not disturbed.
static void check_free_waits() {
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int round = 0; round < 5; round++) {
        int *first, *second;
        CHECK_CUDA(cudaMalloc(&first, BYTES));
        write_slowly<<<COUNT / 256, 256, 0, stream>>>(first, 1, 200);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaFree(first));
        CHECK_CUDA(cudaMalloc(&second, BYTES));
        CHECK_CUDA(cudaMemset(second, 0, BYTES));
        CHECK_CUDA(cudaDeviceSynchronize());
        require_all(second, 0, "memory that another kernel had");
        CHECK_CUDA(cudaFree(second));
    }
    CHECK_CUDA(cudaStreamDestroy(stream));
}

// Memory that one stream frees is not another stream's before the first one has got there.
static void check_streams() {
    cudaStream_t one, other;
    CHECK_CUDA(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (int round = 0; round < 20; round++) {
        int *first, *again, *second;
        CHECK_CUDA(cudaMallocAsync(&first, BYTES, one));
        write_slowly<<<COUNT / 256, 256, 0, one>>>(first, 1, 100);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaFreeAsync(first, one));
        CHECK_CUDA(cudaMallocAsync(&second, BYTES, other));
        CHECK_CUDA(cudaMemsetAsync(second, 0, BYTES, other));
        CHECK_CUDA(cudaMallocAsync(&again, BYTES, one));
        CHECK_CUDA(cudaMemsetAsync(again, 0, BYTES, one));
        CHECK_CUDA(cudaStreamSynchronize(one));
        CHECK_CUDA(cudaStreamSynchronize(other));
        require_all(second, 0, "memory of another stream");
        require_all(again, 0, "memory of the same stream");
        CHECK_CUDA(cudaFreeAsync(second, other));
        CHECK_CUDA(cudaFreeAsync(again, other));
    }
    // A gigabyte passes from one stream to the other, a piece at a time, with nobody waiting: it has to be used again.
    for (int round = 0; round < 64; round++) {
        int *piece;
        cudaEvent_t filled;
        CHECK_CUDA(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming));
        CHECK_CUDA(cudaMallocAsync(&piece, 16 << 20, one));
        CHECK_CUDA(cudaMemsetAsync(piece, 0, 4096, one));
        CHECK_CUDA(cudaEventRecord(filled, one));
        CHECK_CUDA(cudaStreamWaitEvent(other, filled, 0));
        CHECK_CUDA(cudaFreeAsync(piece, other));
        CHECK_CUDA(cudaEventDestroy(filled));
    }
    CHECK_CUDA(cudaStreamSynchronize(other));
    CHECK_CUDA(cudaStreamDestroy(one));
    CHECK_CUDA(cudaStreamDestroy(other));
}

static void check_wrong_uses() {
    size_t available, total;
    CHECK_CUDA(cudaMemGetInfo(&available, &total));
    REQUIRE(available <= total && total > 0, "%zu of %zu bytes are free", available, total);
    char *memory;
    // What cannot be met is said by the call that asks, and harms nothing.
    EXPECT_CUDA(cudaMalloc(&memory, total * 2), cudaErrorMemoryAllocation);
    EXPECT_CUDA(cudaMallocAsync(&memory, total * 2, 0), cudaErrorMemoryAllocation);
    CHECK_CUDA(cudaMalloc(&memory, 1000));
    EXPECT_CUDA(cudaFree(memory + 256), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaFree(&total), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFree(memory));
    EXPECT_CUDA(cudaFree(memory), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFree(nullptr));
    CHECK_CUDA(cudaMallocAsync(&memory, 1000, 0));
    CHECK_CUDA(cudaFreeAsync(memory, 0));
    EXPECT_CUDA(cudaFreeAsync(memory, 0), cudaErrorInvalidValue);
    size_t pitch;
    CHECK_CUDA(cudaMallocPitch(&memory, &pitch, 1001, 7));
    REQUIRE(pitch >= 1001 && pitch % 32 == 0, "rows of 1001 bytes are %zu bytes apart", pitch);
    CHECK_CUDA(cudaMemset2D(memory, pitch, 1, 1001, 7));
    CHECK_CUDA(cudaFree(memory));
}

int main() {
    check_pieces();
    check_free_waits();
    check_streams();
    check_wrong_uses();
    CHECK_CUDA(cudaDeviceSynchronize());
    return pass();
}

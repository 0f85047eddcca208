// Copies between two devices in every form and in both directions, from 1 byte to 64 MiB, checked byte by byte, and in the order
// that streams and events give them.  It works for devices of one machine and for those of two servers alike.  With one
// device it has nothing to do.
#include "check.h"

#include <functional>
#include <vector>

constexpr size_t MAX_BYTES = 64 << 20;

// What lies at word i. All four bytes of a word depend on its place and on the seed.
__device__ unsigned word(unsigned i, unsigned seed) { return (i + seed * 40503u) * 2654435761u; }

__device__ unsigned char byte_at(unsigned i, unsigned seed) { return (unsigned char)(word(i / 4, seed) >> i % 4 * 8); }

__global__ void fill(unsigned char *out, size_t bytes, unsigned seed) {
    const unsigned first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x, words = (unsigned)(bytes / 4);
    for (unsigned i = first; i < words; i += step) ((unsigned *)out)[i] = word(i, seed);
    if (first < bytes % 4) out[words * 4 + first] = byte_at(words * 4 + first, seed);
}

// Adds to `wrong` the number of words and last bytes that differ from what `fill` writes.
__global__ void compare(const unsigned char *in, size_t bytes, unsigned seed, unsigned long long *wrong) {
    const unsigned first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x, words = (unsigned)(bytes / 4);
    unsigned found = 0;
    for (unsigned i = first; i < words; i += step) found += ((const unsigned *)in)[i] != word(i, seed);
    if (first < bytes % 4) found += in[words * 4 + first] != byte_at(words * 4 + first, seed);
    if (found) atomicAdd(wrong, found);
}

struct Device {
    unsigned char *memory;
    unsigned long long *wrong;
    cudaStream_t stream;
    cudaStream_t other_stream;
    cudaEvent_t event;
};

static Device devices[2];

static void select(int device) { CHECK_CUDA(cudaSetDevice(device)); }

static void fill_on(int device, size_t bytes, unsigned seed, cudaStream_t stream) {
    select(device);
    fill<<<8, 64, 0, stream>>>(devices[device].memory, bytes, seed);
    CHECK_LAUNCH();
}

static void compare_in(int device, const unsigned char *memory, size_t bytes, unsigned seed, cudaStream_t stream) {
    select(device);
    compare<<<8, 64, 0, stream>>>(memory, bytes, seed, devices[device].wrong);
    CHECK_LAUNCH();
}

// Fails unless all comparisons of a device so far found what they expected.
static void require_same(int device, const char *form, size_t bytes) {
    select(device);
    unsigned long long wrong = 1;
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaMemcpy(&wrong, devices[device].wrong, sizeof wrong, cudaMemcpyDeviceToHost));
    REQUIRE(wrong == 0, "%s of %zu bytes to device %d: %llu are wrong", form, bytes, device, wrong);
}

struct Form {
    const char *name;
    bool is_asynchronous;
    // The largest copy that is tried.
    size_t most;
    // Copies so many bytes from one device to another; an asynchronous form in the stream.
    std::function<void(int to, int from, size_t bytes, cudaStream_t stream)> copy;
};

static const std::vector<Form> FORMS = {
    {"cudaMemcpyPeer", false, MAX_BYTES,
     [](int to, int from, size_t bytes, cudaStream_t) {
         CHECK_CUDA(cudaMemcpyPeer(devices[to].memory, to, devices[from].memory, from, bytes));
     }},
    {"cudaMemcpy", false, size_t(6) << 20,
     [](int to, int from, size_t bytes, cudaStream_t) {
         CHECK_CUDA(cudaMemcpy(devices[to].memory, devices[from].memory, bytes, cudaMemcpyDefault));
     }},
    {"cudaMemcpyPeerAsync", true, MAX_BYTES,
     [](int to, int from, size_t bytes, cudaStream_t stream) {
         CHECK_CUDA(cudaMemcpyPeerAsync(devices[to].memory, to, devices[from].memory, from, bytes, stream));
     }},
    {"cudaMemcpyAsync", true, size_t(6) << 20,
     [](int to, int from, size_t bytes, cudaStream_t stream) {
         CHECK_CUDA(cudaMemcpyAsync(devices[to].memory, devices[from].memory, bytes, cudaMemcpyDeviceToDevice, stream));
     }},
    {"cudaMemcpy3DPeerAsync", true, size_t(6) << 20,
     [](int to, int from, size_t bytes, cudaStream_t stream) {
         cudaMemcpy3DPeerParms copy = {};
         copy.srcDevice = from;
         copy.dstDevice = to;
         copy.srcPtr = make_cudaPitchedPtr(devices[from].memory, bytes, bytes, 1);
         copy.dstPtr = make_cudaPitchedPtr(devices[to].memory, bytes, bytes, 1);
         copy.extent = make_cudaExtent(bytes, 1, 1);
         CHECK_CUDA(cudaMemcpy3DPeerAsync(&copy, stream));
     }},
};

// Every form and size; asynchronous ones in a stream of either device, behind the kernel that fills the source and before
// the one that looks at the destination.
static void copy_all_forms() {
    unsigned seed = 0;
    for (const Form &form : FORMS) {
        for (size_t bytes : {size_t(1), size_t(3), size_t(4096), size_t(65'537), size_t(1 << 20), (size_t(5) << 20) + 7, MAX_BYTES}) {
            if (bytes > form.most) continue;
            for (int to = 0; to < 2; to++) {
                const int from = 1 - to;
                // The largest copies in a stream of the destination alone, for the sake of slow devices.
                const int first_owner = bytes == MAX_BYTES ? to : 0, last_owner = form.is_asynchronous && bytes < MAX_BYTES ? 1 : first_owner;
                for (int owner = first_owner; owner <= last_owner; owner++) {
                    seed++;
                    Device &source = devices[from], &destination = devices[to];
                    select(to);
                    CHECK_CUDA(cudaMemsetAsync(destination.memory, 0xa5, bytes, destination.stream));
                    CHECK_CUDA(cudaEventRecord(destination.event, destination.stream));
                    fill_on(from, bytes, seed, source.stream);
                    CHECK_CUDA(cudaEventRecord(source.event, source.stream));
                    if (!form.is_asynchronous) {
                        CHECK_CUDA(cudaEventSynchronize(source.event));
                        CHECK_CUDA(cudaEventSynchronize(destination.event));
                        form.copy(to, from, bytes, nullptr);
                        compare_in(to, destination.memory, bytes, seed, nullptr);
                    } else {
                        select(owner);
                        const cudaStream_t stream = devices[owner].other_stream;
                        CHECK_CUDA(cudaStreamWaitEvent(stream, source.event));
                        CHECK_CUDA(cudaStreamWaitEvent(stream, destination.event));
                        form.copy(to, from, bytes, stream);
                        CHECK_CUDA(cudaEventRecord(devices[owner].event, stream));
                        select(to);
                        CHECK_CUDA(cudaStreamWaitEvent(destination.stream, devices[owner].event));
                        compare_in(to, destination.memory, bytes, seed, destination.stream);
                        // The source is filled again only when the copy is done.
                        CHECK_CUDA(cudaStreamWaitEvent(source.stream, devices[owner].event));
                        fill_on(from, bytes, seed + 100'000, source.stream);
                    }
                    require_same(to, form.name, bytes);
                    select(from);
                    CHECK_CUDA(cudaDeviceSynchronize());
                }
            }
        }
    }
}

// Rows with gaps, from and to different pitches, and a box of several slices.
static void copy_boxes() {
    const size_t from_pitch = 1024, to_pitch = 1536, width = 1000, rows = 700, slices = 3;
    std::vector<unsigned char> sent(from_pitch * rows * slices), got(to_pitch * rows * slices, 0x11), back(got.size());
    for (int to = 0; to < 2; to++) {
        const int from = 1 - to;
        for (size_t i = 0; i < sent.size(); i++) sent[i] = (unsigned char)(i * 7 + i / 251 + 13 * to);
        CHECK_CUDA(cudaMemcpy(devices[from].memory, sent.data(), sent.size(), cudaMemcpyDefault));
        CHECK_CUDA(cudaMemcpy(devices[to].memory, got.data(), got.size(), cudaMemcpyDefault));
        cudaMemcpy3DPeerParms copy = {};
        copy.srcDevice = from;
        copy.dstDevice = to;
        copy.srcPtr = make_cudaPitchedPtr(devices[from].memory, from_pitch, width, rows);
        copy.dstPtr = make_cudaPitchedPtr(devices[to].memory, to_pitch, width, rows);
        copy.extent = make_cudaExtent(width, rows, slices);
        CHECK_CUDA(cudaMemcpy3DPeer(&copy));
        CHECK_CUDA(cudaMemcpy(back.data(), devices[to].memory, back.size(), cudaMemcpyDefault));
        for (size_t i = 0; i < back.size(); i++) {
            const size_t x = i % to_pitch, row = i / to_pitch;
            const unsigned char expected = x < width ? sent[row * from_pitch + x] : 0x11;
            REQUIRE(back[i] == expected, "a box to device %d: byte %zu of row %zu is %d", to, x, row, back[i]);
        }
        CHECK_CUDA(cudaMemcpy2D(devices[to].memory, to_pitch, devices[from].memory, from_pitch, 10, 2, cudaMemcpyDefault));
    }
}

// Arrays have no addresses: the contexts say where they are.
static void copy_arrays() {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
    cudaArray_t arrays[2];
    std::vector<int> sent(64 * 32), back(64 * 32);
    for (size_t i = 0; i < sent.size(); i++) sent[i] = (int)i * 3;
    for (int device = 0; device < 2; device++) {
        select(device);
        CHECK_CUDA(cudaMallocArray(&arrays[device], &format, 64, 32));
    }
    select(0);
    CHECK_CUDA(cudaMemcpy2DToArray(arrays[0], 0, 0, sent.data(), 256, 256, 32, cudaMemcpyHostToDevice));
    cudaMemcpy3DPeerParms copy = {};
    copy.srcArray = arrays[0];
    copy.srcDevice = 0;
    copy.dstArray = arrays[1];
    copy.dstDevice = 1;
    copy.extent = make_cudaExtent(64, 32, 1);
    CHECK_CUDA(cudaMemcpy3DPeer(&copy));
    select(1);
    CHECK_CUDA(cudaMemcpy2DFromArray(back.data(), 256, arrays[1], 0, 0, 256, 32, cudaMemcpyDeviceToHost));
    REQUIRE(sent == back, "an array is not what was copied");
    for (int device = 0; device < 2; device++) CHECK_CUDA(cudaFreeArray(arrays[device]));
}

// Small synchronous copies travel with their commands: what another device reads right after them must be there.
static void copy_what_has_just_come() {
    for (int round = 0; round < 200; round++) {
        unsigned char value = (unsigned char)round, back = 0xff;
        const int to = round % 2, from = 1 - to;
        select(from);
        CHECK_CUDA(cudaMemcpy(devices[from].memory, &value, 1, cudaMemcpyDefault));
        CHECK_CUDA(cudaMemcpyPeerAsync(devices[to].memory, to, devices[from].memory, from, 1, devices[to].stream));
        CHECK_CUDA(cudaMemcpyAsync(&back, devices[to].memory, 1, cudaMemcpyDefault, devices[to].stream));
        CHECK_CUDA(cudaStreamSynchronize(devices[to].stream));
        REQUIRE(back == value, "round %d: %d was copied, and %d came", round, value, back);
    }
}

// A value goes to and fro, and each device adds to it; nobody waits on the host in between.
static void play_ping_pong() {
    constexpr int TURNS = 40;
    int *values[2];
    cudaEvent_t events[2];
    for (int device = 0; device < 2; device++) {
        select(device);
        CHECK_CUDA(cudaMalloc(&values[device], sizeof(int)));
        CHECK_CUDA(cudaMemset(values[device], 0, sizeof(int)));
        CHECK_CUDA(cudaEventCreateWithFlags(&events[device], cudaEventDisableTiming));
        CHECK_CUDA(cudaDeviceSynchronize());
    }
    for (int turn = 0; turn < TURNS; turn++) {
        const int from = turn % 2, to = 1 - from;
        select(from);
        CHECK_CUDA(cudaMemsetAsync((char *)values[from] + turn % 4, turn + 1, 1, devices[from].stream));
        CHECK_CUDA(cudaMemcpyPeerAsync(values[to], to, values[from], from, sizeof(int), devices[from].stream));
        CHECK_CUDA(cudaEventRecord(events[from], devices[from].stream));
        select(to);
        CHECK_CUDA(cudaStreamWaitEvent(devices[to].stream, events[from]));
    }
    select(TURNS % 2);
    int value = 0;
    CHECK_CUDA(cudaMemcpyAsync(&value, values[TURNS % 2], sizeof value, cudaMemcpyDefault, devices[TURNS % 2].stream));
    CHECK_CUDA(cudaStreamSynchronize(devices[TURNS % 2].stream));
    REQUIRE(value == (TURNS << 24 | (TURNS - 1) << 16 | (TURNS - 2) << 8 | (TURNS - 3)), "the value came back as %#x", value);
    for (int device = 0; device < 2; device++) {
        select(device);
        CHECK_CUDA(cudaEventDestroy(events[device]));
        CHECK_CUDA(cudaFree(values[device]));
    }
}

// Memory that was copied from is given back, and what lies at its address afterwards is copied.
static void copy_from_new_memory() {
    constexpr size_t LARGE = 72 << 20;
    for (unsigned turn = 0; turn < 4; turn++) {
        const int to = turn % 2, from = 1 - to;
        unsigned char *memory = nullptr;
        select(from);
        CHECK_CUDA(cudaMalloc(&memory, LARGE));
        fill<<<8, 64>>>(memory, LARGE, 900 + turn);
        CHECK_CUDA(cudaDeviceSynchronize());
        const size_t bytes = 1 << 20, at = LARGE - bytes;
        unsigned char *copied = devices[to].memory;
        select(to);
        CHECK_CUDA(cudaMemcpyPeerAsync(copied, to, memory + at, from, bytes, devices[to].stream));
        std::vector<unsigned> words(bytes / 4);
        CHECK_CUDA(cudaMemcpyAsync(words.data(), copied, bytes, cudaMemcpyDeviceToHost, devices[to].stream));
        CHECK_CUDA(cudaStreamSynchronize(devices[to].stream));
        for (size_t i = 0; i < words.size(); i++) {
            const unsigned expected = ((unsigned)(at / 4 + i) + (900 + turn) * 40503u) * 2654435761u;
            REQUIRE(words[i] == expected, "word %zu of turn %u is %#x", i, turn, words[i]);
        }
        select(from);
        CHECK_CUDA(cudaFree(memory));
    }
}

int main() {
    int count = 0;
    CHECK_CUDA(cudaGetDeviceCount(&count));
    if (count < 2) return pass();
    for (int number = 0; number < 2; number++) {
        Device &device = devices[number];
        select(number);
        CHECK_CUDA(cudaMalloc(&device.memory, MAX_BYTES));
        CHECK_CUDA(cudaMalloc(&device.wrong, sizeof *device.wrong));
        CHECK_CUDA(cudaMemset(device.wrong, 0, sizeof *device.wrong));
        CHECK_CUDA(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking));
        CHECK_CUDA(cudaStreamCreate(&device.other_stream));
        CHECK_CUDA(cudaEventCreate(&device.event));
        CHECK_CUDA(cudaDeviceSynchronize());
    }
    copy_all_forms();
    copy_boxes();
    copy_arrays();
    copy_what_has_just_come();
    play_ping_pong();
    copy_from_new_memory();
    for (int number = 0; number < 2; number++) {
        select(number);
        CHECK_CUDA(cudaStreamDestroy(devices[number].stream));
        CHECK_CUDA(cudaStreamDestroy(devices[number].other_stream));
        CHECK_CUDA(cudaEventDestroy(devices[number].event));
        CHECK_CUDA(cudaFree(devices[number].memory));
        CHECK_CUDA(cudaFree(devices[number].wrong));
    }
    return pass();
}

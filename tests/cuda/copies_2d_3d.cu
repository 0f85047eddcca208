// Copies of rectangles and boxes between host and device and within the device, with pitches and offsets, waiting and
// asynchronous, and every form of memset.  What lies outside of a rectangle must stay as it was.
#include "check.h"

#include <algorithm>
#include <vector>

using Bytes = std::vector<unsigned char>;

static Bytes random_bytes(size_t count, uint32_t seed) {
    Bytes bytes(count);
    for (unsigned char &byte : bytes) byte = next_random(&seed);
    return bytes;
}

// Compares what came with what was wanted, byte by byte.
static void require_equal(const Bytes &got, const Bytes &want, const char *what) {
    for (size_t i = 0; i < want.size(); i++)
        REQUIRE(got[i] == want[i], "%s: byte %zu should be %d, is %d", what, i, want[i], got[i]);
}

// Copies a rectangle on the host, as the reference.
static void copy_rectangle(unsigned char *to, size_t to_pitch, const unsigned char *from, size_t from_pitch, size_t width,
                           size_t height) {
    for (size_t row = 0; row < height; row++) memcpy(to + row * to_pitch, from + row * from_pitch, width);
}

static void check_1d() {
    const size_t size = 1 << 20;
    Bytes source = random_bytes(size, 1), back(size, 0);
    unsigned char *a, *b;
    CHECK_CUDA(cudaMalloc(&a, size));
    CHECK_CUDA(cudaMalloc(&b, size));
    CHECK_CUDA(cudaMemcpy(a, source.data(), size, cudaMemcpyDefault));
    CHECK_CUDA(cudaMemcpy(b, a, size, cudaMemcpyDeviceToDevice));
    CHECK_CUDA(cudaMemcpy(b + 1001, a + 7, 5003, cudaMemcpyDefault));
    CHECK_CUDA(cudaMemcpy(back.data(), b, size, cudaMemcpyDeviceToHost));
    Bytes want = source;
    memcpy(&want[1001], &source[7], 5003);
    require_equal(back, want, "device to device");
    CHECK_CUDA(cudaMemcpy(back.data(), source.data(), size, cudaMemcpyHostToHost));
    require_equal(back, source, "host to host");
    CHECK_CUDA(cudaMemcpy(a, back.data(), 0, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemset(a, 1, 0));
    // Pageable memory with an asynchronous copy: the source may be changed as soon as the call has returned.
    CHECK_CUDA(cudaMemcpyAsync(a, back.data(), size, cudaMemcpyHostToDevice));
    std::fill(back.begin(), back.end(), 0);
    CHECK_CUDA(cudaMemcpyAsync(back.data(), a, size, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaStreamSynchronize(0));
    require_equal(back, source, "asynchronous and pageable");
    CHECK_CUDA(cudaFree(a));
    CHECK_CUDA(cudaFree(b));
}

static void check_2d(bool asynchronous) {
    const size_t width = 403, height = 57, host_pitch = 431;
    Bytes source = random_bytes(host_pitch * height, 2);
    unsigned char *device;
    size_t pitch = 0;
    CHECK_CUDA(cudaMallocPitch(&device, &pitch, width, height));
    REQUIRE(pitch >= width, "rows of %zu bytes got a pitch of %zu", width, pitch);
    unsigned char *narrow;  // a second place, with a pitch of its own
    const size_t narrow_pitch = 256;
    CHECK_CUDA(cudaMalloc(&narrow, narrow_pitch * height));
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaMemset(device, 0xaa, pitch * height));
    CHECK_CUDA(cudaMemset(narrow, 0xbb, narrow_pitch * height));
    Bytes want_device(pitch * height, 0xaa), want_narrow(narrow_pitch * height, 0xbb), want_back(host_pitch * height, 0xcc);
    Bytes back = want_back;

    auto copy = [&](void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t w, size_t h, cudaMemcpyKind kind) {
        if (asynchronous)
            CHECK_CUDA(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, w, h, kind, stream));
        else
            CHECK_CUDA(cudaMemcpy2D(to, to_pitch, from, from_pitch, w, h, kind));
    };
    if (asynchronous) CHECK_CUDA(cudaDeviceSynchronize());
    copy(device, pitch, source.data(), host_pitch, width, height, cudaMemcpyHostToDevice);
    copy_rectangle(want_device.data(), pitch, source.data(), host_pitch, width, height);
    copy(narrow + 3, narrow_pitch, device + 2 * pitch + 100, pitch, 200, 50, cudaMemcpyDeviceToDevice);
    copy_rectangle(&want_narrow[3], narrow_pitch, &want_device[2 * pitch + 100], pitch, 200, 50);
    copy(&back[5], host_pitch, narrow + narrow_pitch, narrow_pitch, 210, 49, cudaMemcpyDeviceToHost);
    copy_rectangle(&want_back[5], host_pitch, &want_narrow[narrow_pitch], narrow_pitch, 210, 49);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    require_equal(back, want_back, asynchronous ? "2-D, asynchronous" : "2-D");
    Bytes all(pitch * height);
    CHECK_CUDA(cudaMemcpy(all.data(), device, all.size(), cudaMemcpyDeviceToHost));
    require_equal(all, want_device, "2-D, pitched device memory");

    if (asynchronous)
        CHECK_CUDA(cudaMemset2DAsync(device + pitch + 17, pitch, 0x5a, 300, 40, stream));
    else
        CHECK_CUDA(cudaMemset2D(device + pitch + 17, pitch, 0x5a, 300, 40));
    for (size_t row = 1; row < 41; row++) memset(&want_device[row * pitch + 17], 0x5a, 300);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaMemcpy(all.data(), device, all.size(), cudaMemcpyDeviceToHost));
    require_equal(all, want_device, "2-D memset");
    EXPECT_CUDA(cudaMemcpy2D(device, width - 1, source.data(), host_pitch, width, height, cudaMemcpyHostToDevice),
                cudaErrorInvalidPitchValue);
    (void)cudaGetLastError();
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFree(narrow));
}

static void check_3d(bool asynchronous) {
    const size_t width = 70, height = 19, depth = 11;
    const size_t host_pitch = 83, host_rows = 23;
    Bytes source = random_bytes(host_pitch * host_rows * depth, 3), back(source.size(), 0xcc), want_back = back;
    cudaPitchedPtr device;
    CHECK_CUDA(cudaMalloc3D(&device, make_cudaExtent(width, height, depth)));
    const size_t slice = device.pitch * height;
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    auto memset_3d = [&](int value, cudaPitchedPtr where, cudaExtent extent) {
        if (asynchronous)
            CHECK_CUDA(cudaMemset3DAsync(where, value, extent, stream));
        else
            CHECK_CUDA(cudaMemset3D(where, value, extent));
    };
    auto copy = [&](const cudaMemcpy3DParms &parameters) {
        if (asynchronous)
            CHECK_CUDA(cudaMemcpy3DAsync(&parameters, stream));
        else
            CHECK_CUDA(cudaMemcpy3D(&parameters));
    };
    CHECK_CUDA(cudaMemset(device.ptr, 0x11, slice * depth));
    CHECK_CUDA(cudaDeviceSynchronize());
    Bytes want(slice * depth, 0x11);

    memset_3d(0x22, device, make_cudaExtent(width, height, depth));
    for (size_t z = 0; z < depth; z++)
        for (size_t y = 0; y < height; y++) memset(&want[z * slice + y * device.pitch], 0x22, width);

    // A box of 50 x 13 x 6 bytes, from (5, 4, 3) on the host to (9, 2, 1) on the device.
    const cudaExtent box = make_cudaExtent(50, 13, 6);
    cudaMemcpy3DParms in = {};
    in.srcPtr = make_cudaPitchedPtr(source.data(), host_pitch, host_pitch, host_rows);
    in.srcPos = make_cudaPos(5, 4, 3);
    in.dstPtr = device;
    in.dstPos = make_cudaPos(9, 2, 1);
    in.extent = box;
    in.kind = cudaMemcpyHostToDevice;
    copy(in);
    for (size_t z = 0; z < box.depth; z++)
        copy_rectangle(&want[(z + 1) * slice + 2 * device.pitch + 9], device.pitch,
                       &source[(z + 3) * host_pitch * host_rows + 4 * host_pitch + 5], host_pitch, box.width, box.height);

    // Within the device, to a place that does not overlap.
    cudaMemcpy3DParms within = {};
    within.srcPtr = within.dstPtr = device;
    within.srcPos = make_cudaPos(0, 0, 0);
    within.dstPos = make_cudaPos(3, 1, 7);
    within.extent = make_cudaExtent(60, 15, 4);
    within.kind = cudaMemcpyDeviceToDevice;
    copy(within);
    Bytes before = want;
    for (size_t z = 0; z < 4; z++)
        copy_rectangle(&want[(z + 7) * slice + device.pitch + 3], device.pitch, &before[z * slice], device.pitch, 60, 15);

    cudaMemcpy3DParms out = {};
    out.srcPtr = device;
    out.srcPos = make_cudaPos(1, 1, 1);
    out.dstPtr = make_cudaPitchedPtr(back.data(), host_pitch, host_pitch, host_rows);
    out.dstPos = make_cudaPos(2, 3, 0);
    out.extent = make_cudaExtent(66, 17, 10);
    out.kind = cudaMemcpyDeviceToHost;
    copy(out);
    for (size_t z = 0; z < 10; z++)
        copy_rectangle(&want_back[z * host_pitch * host_rows + 3 * host_pitch + 2], host_pitch,
                       &want[(z + 1) * slice + device.pitch + 1], device.pitch, 66, 17);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    require_equal(back, want_back, asynchronous ? "3-D, asynchronous" : "3-D");
    Bytes all(slice * depth);
    CHECK_CUDA(cudaMemcpy(all.data(), device.ptr, all.size(), cudaMemcpyDeviceToHost));
    require_equal(all, want, "3-D, pitched device memory");
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(device.ptr));
}

int main() {
    check_1d();
    check_2d(false);
    check_2d(true);
    check_3d(false);
    check_3d(true);
    return pass();
}

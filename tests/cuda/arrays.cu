// Arrays of one, two and three dimensions, with layers and with mipmap levels: their descriptors, and every kind of copy into
// them, out of them and between them.  What lies outside of a copied box must stay as it was.
#include "check.h"

#include <cuda.h>

#include <vector>

static std::vector<float> random_values(size_t count, uint32_t seed) {
    std::vector<float> values(count);
    for (float &value : values) value = random_between(&seed, -1000.0f, 1000.0f);
    return values;
}

template <typename T>
static void require_equal(const std::vector<T> &got, const std::vector<T> &want, const char *what) {
    for (size_t i = 0; i < want.size(); i++)
        REQUIRE(memcmp(&got[i], &want[i], sizeof(T)) == 0, "%s: element %zu is %g, %g was written", what, i, double(got[i]),
                double(want[i]));
}

template <typename Function>
static Function driver_function(const char *name, unsigned version = 12000) {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found));
    REQUIRE(found == cudaDriverEntryPointSuccess && function, "the driver has no %s", name);
    return reinterpret_cast<Function>(function);
}

static void require_result(CUresult got, CUresult want, const char *what) {
    REQUIRE(got == want, "%s: the driver returned %d instead of %d", what, got, want);
}

static void check_one_dimension() {
    auto create = driver_function<decltype(&cuArrayCreate)>("cuArrayCreate");
    auto destroy = driver_function<decltype(&cuArrayDestroy)>("cuArrayDestroy");
    auto describe = driver_function<decltype(&cuArrayGetDescriptor)>("cuArrayGetDescriptor");
    auto host_to_array = driver_function<decltype(&cuMemcpyHtoA)>("cuMemcpyHtoA");
    auto array_to_host = driver_function<decltype(&cuMemcpyAtoH)>("cuMemcpyAtoH");
    auto array_to_array = driver_function<decltype(&cuMemcpyAtoA)>("cuMemcpyAtoA");
    auto array_to_device = driver_function<decltype(&cuMemcpyAtoD)>("cuMemcpyAtoD");
    auto device_to_array = driver_function<decltype(&cuMemcpyDtoA)>("cuMemcpyDtoA");
    auto host_to_array_async = driver_function<decltype(&cuMemcpyHtoAAsync)>("cuMemcpyHtoAAsync");
    auto array_to_host_async = driver_function<decltype(&cuMemcpyAtoHAsync)>("cuMemcpyAtoHAsync");

    const size_t count = 1000, bytes = count * sizeof(float);
    CUDA_ARRAY_DESCRIPTOR wanted = {}, told = {};
    wanted.Width = count;
    wanted.Format = CU_AD_FORMAT_FLOAT;
    wanted.NumChannels = 1;
    CUarray a, b;
    require_result(create(&a, &wanted), CUDA_SUCCESS, "an array");
    require_result(create(&b, &wanted), CUDA_SUCCESS, "another array");
    require_result(describe(&told, a), CUDA_SUCCESS, "its descriptor");
    REQUIRE(told.Width == count && told.Height == 0 && told.Format == CU_AD_FORMAT_FLOAT && told.NumChannels == 1,
            "the descriptor says %zu x %zu", told.Width, told.Height);
    const std::vector<float> source = random_values(count, 1);
    std::vector<float> back(count), want = source;
    require_result(host_to_array(a, 0, source.data(), bytes), CUDA_SUCCESS, "host to array");
    require_result(array_to_array(b, 0, a, 0, bytes), CUDA_SUCCESS, "array to array");
    require_result(array_to_array(b, 40, a, 400, 80), CUDA_SUCCESS, "part of an array to another");
    memcpy(&want[10], &source[100], 80);
    require_result(array_to_host(back.data(), b, 0, bytes), CUDA_SUCCESS, "array to host");
    require_equal(back, want, "arrays of one dimension");

    float *device;
    CHECK_CUDA(cudaMalloc(&device, bytes));
    require_result(array_to_device(CUdeviceptr(device), a, 0, bytes), CUDA_SUCCESS, "array to device");
    require_result(device_to_array(b, 400, CUdeviceptr(device), 800), CUDA_SUCCESS, "device to array");
    memcpy(&want[100], source.data(), 800);
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    const float few[4] = {1, 2, 3, 4};
    require_result(host_to_array_async(b, 0, few, sizeof(few), stream), CUDA_SUCCESS, "host to array, asynchronous");
    memcpy(want.data(), few, sizeof(few));
    require_result(array_to_host_async(back.data(), b, 0, bytes, stream), CUDA_SUCCESS, "array to host, asynchronous");
    CHECK_CUDA(cudaStreamSynchronize(stream));
    require_equal(back, want, "device and array");

    require_result(host_to_array(a, 8, source.data(), bytes), CUDA_ERROR_INVALID_VALUE, "beyond the end of an array");
    require_result(create(&b, nullptr), CUDA_ERROR_INVALID_VALUE, "no descriptor");
    CUDA_ARRAY_DESCRIPTOR wrong = wanted;
    CUarray none;
    wrong.NumChannels = 3;
    require_result(create(&none, &wrong), CUDA_ERROR_INVALID_VALUE, "three channels");
    wrong = wanted;
    wrong.Width = 0;
    require_result(create(&none, &wrong), CUDA_ERROR_INVALID_VALUE, "an empty array");
    require_result(destroy(a), CUDA_SUCCESS, "the end of an array");
    require_result(destroy(b), CUDA_SUCCESS, "the end of another");
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(device));
}

static void check_two_dimensions() {
    const size_t width = 130, height = 70, pitch = 140;  // in elements
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float2>();
    cudaArray_t array, second;
    CHECK_CUDA(cudaMallocArray(&array, &format, width, height));
    CHECK_CUDA(cudaMallocArray(&second, &format, width, height));
    cudaChannelFormatDesc told;
    cudaExtent extent;
    unsigned flags = 99;
    CHECK_CUDA(cudaArrayGetInfo(&told, &extent, &flags, array));
    REQUIRE(told.x == 32 && told.y == 32 && told.z == 0 && told.f == cudaChannelFormatKindFloat && extent.width == width &&
                extent.height == height && extent.depth == 0 && flags == 0,
            "the array says that it has %zu x %zu x %zu elements, flags %u", extent.width, extent.height, extent.depth, flags);

    std::vector<float> source = random_values(2 * pitch * height, 2), back(2 * width * height);
    std::vector<float> want(2 * width * height);
    const size_t row = width * sizeof(float2);
    CHECK_CUDA(cudaMemcpy2DToArray(array, 0, 0, source.data(), pitch * sizeof(float2), row, height, cudaMemcpyHostToDevice));
    for (size_t y = 0; y < height; y++) memcpy(&want[2 * y * width], &source[2 * y * pitch], row);
    CHECK_CUDA(cudaMemcpy2DFromArray(back.data(), row, array, 0, 0, row, height, cudaMemcpyDeviceToHost));
    require_equal(back, want, "host to array and back");

    // A box within an array: to another array, to the device and to the host.
    CHECK_CUDA(cudaMemcpy2DArrayToArray(second, 0, 0, array, 0, 0, row, height, cudaMemcpyDeviceToDevice));
    CHECK_CUDA(cudaMemcpy2DArrayToArray(second, 80, 5, array, 160, 11, 400, 30, cudaMemcpyDeviceToDevice));
    std::vector<float> want_second = want;
    for (size_t y = 0; y < 30; y++) memcpy(&want_second[2 * ((y + 5) * width + 10)], &want[2 * ((y + 11) * width + 20)], 400);
    char *device;
    size_t device_pitch;
    CHECK_CUDA(cudaMallocPitch(&device, &device_pitch, row, height));
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaMemcpy2DFromArrayAsync(device, device_pitch, second, 0, 0, row, height, cudaMemcpyDeviceToDevice, stream));
    CHECK_CUDA(cudaMemcpy2DToArrayAsync(array, 0, 0, device, device_pitch, row, height, cudaMemcpyDeviceToDevice, stream));
    CHECK_CUDA(cudaMemcpy2DFromArrayAsync(back.data(), row, array, 0, 0, row, height, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    require_equal(back, want_second, "boxes of arrays");

    EXPECT_CUDA(cudaMemcpy2DToArray(array, 8, 0, source.data(), pitch * sizeof(float2), row, height, cudaMemcpyHostToDevice),
                cudaErrorInvalidValue);
    EXPECT_CUDA(cudaMemcpy2DToArray(array, 0, 1, source.data(), pitch * sizeof(float2), row, height, cudaMemcpyHostToDevice),
                cudaErrorInvalidValue);
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFreeArray(array));
    CHECK_CUDA(cudaFreeArray(second));
    CHECK_CUDA(cudaFree(device));
}

// `layered`: the depth counts layers, which for copies are slices.
static void check_three_dimensions(bool layered) {
    const cudaExtent size = make_cudaExtent(33, 17, 9);
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<short>();
    cudaArray_t array;
    CHECK_CUDA(cudaMalloc3DArray(&array, &format, size, layered ? cudaArrayLayered : cudaArrayDefault));
    const size_t count = size.width * size.height * size.depth;
    std::vector<short> source(count), back(count, 0), want(count);
    for (size_t i = 0; i < count; i++) source[i] = short(i * 7);
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(source.data(), size.width * sizeof(short), size.width, size.height);
    copy.dstArray = array;
    copy.extent = size;
    copy.kind = cudaMemcpyHostToDevice;
    CHECK_CUDA(cudaMemcpy3D(&copy));
    want = source;
    // A box with offsets at both ends, from the host.
    copy.srcPos = make_cudaPos(2, 3, 1);
    copy.dstPos = make_cudaPos(5, 4, 2);
    copy.extent = make_cudaExtent(20, 10, 5);
    CHECK_CUDA(cudaMemcpy3D(&copy));
    for (size_t z = 0; z < 5; z++)
        for (size_t y = 0; y < 10; y++)
            memcpy(&want[((z + 2) * size.height + y + 4) * size.width + 5], &source[((z + 1) * size.height + y + 3) * size.width + 2],
                   20 * sizeof(short));
    cudaMemcpy3DParms out = {};
    out.srcArray = array;
    out.dstPtr = make_cudaPitchedPtr(back.data(), size.width * sizeof(short), size.width, size.height);
    out.extent = size;
    out.kind = cudaMemcpyDeviceToHost;
    CHECK_CUDA(cudaMemcpy3D(&out));
    require_equal(back, want, layered ? "layers" : "three dimensions");

    cudaPitchedPtr device;
    CHECK_CUDA(cudaMalloc3D(&device, make_cudaExtent(size.width * sizeof(short), size.height, size.depth)));
    cudaMemcpy3DParms across = {};
    across.srcArray = array;
    across.dstPtr = device;
    across.extent = size;
    across.kind = cudaMemcpyDeviceToDevice;
    CHECK_CUDA(cudaMemcpy3D(&across));
    std::fill(back.begin(), back.end(), 0);
    cudaMemcpy3DParms home = {};
    home.srcPtr = device;
    home.dstPtr = out.dstPtr;
    home.extent = make_cudaExtent(size.width * sizeof(short), size.height, size.depth);
    home.kind = cudaMemcpyDeviceToHost;
    CHECK_CUDA(cudaMemcpy3D(&home));
    require_equal(back, want, "array to pitched memory");
    copy.dstPos.z = 5;
    EXPECT_CUDA(cudaMemcpy3D(&copy), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFreeArray(array));
    CHECK_CUDA(cudaFree(device.ptr));
}

static void check_mipmaps() {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned char>();
    cudaMipmappedArray_t mipmapped;
    CHECK_CUDA(cudaMallocMipmappedArray(&mipmapped, &format, make_cudaExtent(64, 32, 0), 4));
    for (unsigned level = 0; level < 4; level++) {
        cudaArray_t array;
        CHECK_CUDA(cudaGetMipmappedArrayLevel(&array, mipmapped, level));
        cudaExtent extent;
        CHECK_CUDA(cudaArrayGetInfo(nullptr, &extent, nullptr, array));
        const size_t width = 64u >> level, height = 32u >> level;
        REQUIRE(extent.width == width && extent.height == height, "level %u has %zu x %zu elements", level, extent.width, extent.height);
        std::vector<unsigned char> values(width * height, (unsigned char)(level + 1)), back(width * height);
        CHECK_CUDA(cudaMemcpy2DToArray(array, 0, 0, values.data(), width, width, height, cudaMemcpyHostToDevice));
        CHECK_CUDA(cudaMemcpy2DFromArray(back.data(), width, array, 0, 0, width, height, cudaMemcpyDeviceToHost));
        require_equal(back, values, "a level");
    }
    cudaArray_t beyond;
    EXPECT_CUDA(cudaGetMipmappedArrayLevel(&beyond, mipmapped, 4), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFreeMipmappedArray(mipmapped));
}

// An array that takes more than one piece on its way: 40 MB.
static void check_large() {
    const size_t width = 2048, height = 2500;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float2>();
    cudaArray_t array;
    CHECK_CUDA(cudaMallocArray(&array, &format, width, height));
    const std::vector<float> source = random_values(2 * width * height, 5);
    std::vector<float> back(source.size());
    const size_t row = width * sizeof(float2);
    CHECK_CUDA(cudaMemcpy2DToArray(array, 0, 0, source.data(), row, row, height, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy2DFromArray(back.data(), row, array, 0, 0, row, height, cudaMemcpyDeviceToHost));
    require_equal(back, source, "a large array");
    CHECK_CUDA(cudaFreeArray(array));
}

int main() {
    CHECK_CUDA(cudaFree(nullptr));
    check_one_dimension();
    check_two_dimensions();
    check_three_dimensions(false);
    check_three_dimensions(true);
    check_mipmaps();
    check_large();
    // A number that names no object is none to destroy, and no error.
    CHECK_CUDA(cudaDestroySurfaceObject(77));
    CHECK_CUDA(cudaDestroyTextureObject(0));
    return pass();
}

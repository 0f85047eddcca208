// Batches of copies, flat and of three dimensions, with every order in which a source may be read; and copies between contexts.
#include "check.h"

#include <cuda.h>

#include <vector>

template <typename Function>
static Function driver_function(const char *name, unsigned version = 13000) {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found));
    REQUIRE(found == cudaDriverEntryPointSuccess && function, "the driver has no %s", name);
    return reinterpret_cast<Function>(function);
}

static void require_result(CUresult got, CUresult want, const char *what) {
    REQUIRE(got == want, "%s: the driver returned %d instead of %d", what, got, want);
}

__global__ void add(int *numbers, size_t count, int number) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) numbers[i] += number;
}

static void check_flat(cudaStream_t stream) {
    auto copy = driver_function<decltype(&cuMemcpyBatchAsync)>("cuMemcpyBatchAsync");
    const size_t count = 6, words = 5000, bytes = words * sizeof(int);
    std::vector<int> host(count * words), back(count * words, -1);
    for (size_t i = 0; i < host.size(); i++) host[i] = int(i * 3);
    int *device;
    CHECK_CUDA(cudaMalloc(&device, 2 * count * bytes));
    CUdeviceptr to[count], from[count];
    size_t sizes[count];
    for (size_t i = 0; i < count; i++) {
        to[i] = CUdeviceptr(device + i * words);
        from[i] = CUdeviceptr(&host[i * words]);
        sizes[i] = bytes;
    }
    CUmemcpyAttributes attributes[3] = {};
    attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    attributes[2].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
    size_t firsts[3] = {0, 2, 5};
    require_result(copy(to, from, sizes, count, attributes, firsts, 3, stream), CUDA_SUCCESS, "host to device");
    CUdeviceptr further[count];
    for (size_t i = 0; i < count; i++) further[i] = CUdeviceptr(device + (2 * count - 1 - i) * words);
    require_result(copy(further, to, sizes, count, &attributes[1], firsts, 1, stream), CUDA_SUCCESS, "device to device");
    for (size_t i = 0; i < count; i++) to[i] = CUdeviceptr(&back[i * words]);
    require_result(copy(to, further, sizes, count, &attributes[1], firsts, 1, stream), CUDA_SUCCESS, "device to host");
    CHECK_CUDA(cudaStreamSynchronize(stream));
    REQUIRE(back == host, "what came back is not what was sent");

    // Batches to the same pinned memory one behind the other, of other numbers each time.
    const int repetitions = 10;
    int *pinned;
    CHECK_CUDA(cudaMallocHost(&pinned, count * bytes));
    for (size_t i = 0; i < count; i++) to[i] = CUdeviceptr(pinned + i * words);
    for (int repetition = 1; repetition <= repetitions; repetition++) {
        add<<<8, 64, 0, stream>>>(device, 2 * count * words, 1);
        CHECK_LAUNCH();
        require_result(copy(to, further, sizes, count, &attributes[1], firsts, 1, stream), CUDA_SUCCESS, "device to pinned memory");
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < host.size(); i++)
        REQUIRE(pinned[i] == host[i] + repetitions, "word %zu is of batch %d instead of %d", i, pinned[i] - host[i], repetitions);

    require_result(copy(to, further, sizes, count, attributes, firsts, 0, stream), CUDA_ERROR_INVALID_VALUE, "no attributes");
    firsts[0] = 1;
    require_result(copy(to, further, sizes, count, attributes, firsts, 3, stream), CUDA_ERROR_INVALID_VALUE, "a copy without attributes");
    firsts[0] = 0;
    attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    require_result(copy(to, further, sizes, count, attributes, firsts, 3, stream), CUDA_ERROR_INVALID_VALUE, "no order");
    CHECK_CUDA(cudaFreeHost(pinned));
    CHECK_CUDA(cudaFree(device));
}

static void check_boxes(cudaStream_t stream) {
    auto copy = driver_function<decltype(&cuMemcpy3DBatchAsync)>("cuMemcpy3DBatchAsync");
    const size_t width = 20, height = 10, depth = 4, pitch = 25, rows = 12;  // in elements
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
    cudaArray_t array;
    CHECK_CUDA(cudaMalloc3DArray(&array, &format, make_cudaExtent(width, height, depth)));
    std::vector<int> host(pitch * rows * depth), back(width * height * depth, -1);
    for (size_t i = 0; i < host.size(); i++) host[i] = int(i);
    CUDA_MEMCPY3D_BATCH_OP into = {}, out = {};
    into.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    into.src.op.ptr.ptr = CUdeviceptr(host.data());
    into.src.op.ptr.rowLength = pitch;
    into.src.op.ptr.layerHeight = rows;
    into.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    into.dst.op.array.array = reinterpret_cast<CUarray>(array);
    into.extent = {width, height, depth};
    into.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    require_result(copy(1, &into, 0, stream), CUDA_SUCCESS, "host to array");
    // Two halves of the array, each to its place.
    CUDA_MEMCPY3D_BATCH_OP halves[2];
    for (size_t half = 0; half < 2; half++) {
        out.src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
        out.src.op.array.array = reinterpret_cast<CUarray>(array);
        out.src.op.array.offset = {0, 0, half * depth / 2};
        out.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        out.dst.op.ptr.ptr = CUdeviceptr(&back[half * width * height * depth / 2]);
        out.extent = {width, height, depth / 2};
        out.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        halves[half] = out;
    }
    require_result(copy(2, halves, 0, stream), CUDA_SUCCESS, "array to host");
    CHECK_CUDA(cudaStreamSynchronize(stream));
    for (size_t z = 0; z < depth; z++)
        for (size_t y = 0; y < height; y++)
            for (size_t x = 0; x < width; x++) {
                const int got = back[(z * height + y) * width + x], want = int((z * rows + y) * pitch + x);
                REQUIRE(got == want, "element %zu, %zu, %zu is %d instead of %d", x, y, z, got, want);
            }
    into.src.op.ptr.rowLength = width - 1;
    require_result(copy(1, &into, 0, stream), CUDA_ERROR_INVALID_VALUE, "rows that overlap");
    require_result(copy(1, halves, 1, stream), CUDA_ERROR_INVALID_VALUE, "flags");
    CHECK_CUDA(cudaFreeArray(array));
}

static void check_contexts() {
    auto create = driver_function<CUresult (*)(CUcontext *, unsigned, CUdevice)>("cuCtxCreate", 11000);
    auto destroy = driver_function<decltype(&cuCtxDestroy)>("cuCtxDestroy");
    auto current = driver_function<decltype(&cuCtxGetCurrent)>("cuCtxGetCurrent");
    auto pop = driver_function<decltype(&cuCtxPopCurrent)>("cuCtxPopCurrent");
    auto allocate = driver_function<decltype(&cuMemAlloc)>("cuMemAlloc");
    auto fill = driver_function<decltype(&cuMemsetD32)>("cuMemsetD32");
    auto copy = driver_function<decltype(&cuMemcpy3DPeer)>("cuMemcpy3DPeer");
    CUcontext first, second, popped;
    require_result(current(&first), CUDA_SUCCESS, "the current context");
    require_result(create(&second, 0, 0), CUDA_SUCCESS, "a second context");
    CUdeviceptr there;
    require_result(allocate(&there, 4096), CUDA_SUCCESS, "memory in the second context");
    require_result(fill(there, 77, 1024), CUDA_SUCCESS, "its contents");
    require_result(pop(&popped), CUDA_SUCCESS, "back to the first context");
    int *here;
    CHECK_CUDA(cudaMalloc(&here, 4096));
    CHECK_CUDA(cudaMemset(here, 0, 4096));
    CUDA_MEMCPY3D_PEER box = {};
    box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.srcDevice = there;
    box.srcContext = second;
    box.dstDevice = CUdeviceptr(here);
    box.dstContext = first;
    box.srcPitch = box.dstPitch = 64;
    box.srcHeight = box.dstHeight = 8;
    box.WidthInBytes = 32;
    box.Height = 8;
    box.Depth = 2;
    require_result(copy(&box), CUDA_SUCCESS, "a copy between contexts");
    std::vector<int> back(1024);
    CHECK_CUDA(cudaMemcpy(back.data(), here, 4096, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 1024; i++) {
        const int want = i < 256 && i % 16 < 8 ? 77 : 0;
        REQUIRE(back[i] == want, "word %d is %d instead of %d", i, back[i], want);
    }
    CHECK_CUDA(cudaFree(here));
    require_result(destroy(second), CUDA_SUCCESS, "the end of the second context");
}

int main() {
    CHECK_CUDA(cudaFree(nullptr));
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    check_flat(stream);
    check_boxes(stream);
    check_contexts();
    CHECK_CUDA(cudaStreamDestroy(stream));
    return pass();
}

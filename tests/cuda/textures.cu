// Textures over arrays, rows and flat memory, with and without filtering; mipmap levels and layers; surfaces that kernels write
// to; and what the objects say about themselves.
#include "check.h"

#include <vector>

constexpr int WIDTH = 64, HEIGHT = 32, LAYERS = 3;

__global__ void fetch_2d(cudaTextureObject_t texture, float *out) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    out[y * WIDTH + x] = tex2D<float>(texture, x + 0.5f, y + 0.5f);
}

// Half way between two columns.
__global__ void fetch_between(cudaTextureObject_t texture, float *out) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    out[y * WIDTH + x] = tex2D<float>(texture, x + 1.0f, y + 0.5f);
}

__global__ void fetch_flat(cudaTextureObject_t texture, float *out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = tex1Dfetch<float>(texture, i);
}

__global__ void fetch_layer(cudaTextureObject_t texture, float *out, int layer) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    out[y * WIDTH + x] = tex2DLayered<float>(texture, x + 0.5f, y + 0.5f, layer);
}

__global__ void fetch_level(cudaTextureObject_t texture, float *out, int width, int height, int level) {
    const int x = threadIdx.x, y = blockIdx.x;
    out[y * width + x] = tex2DLod<float>(texture, (x + 0.5f) / width, (y + 0.5f) / height, float(level));
}

__global__ void store(cudaSurfaceObject_t surface) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    float value;
    surf2Dread(&value, surface, x * int(sizeof(float)), y);
    surf2Dwrite(2 * value + 1, surface, x * int(sizeof(float)), y);
}

static float value_at(int x, int y) { return float(x + 100 * y); }

static std::vector<float> image() {
    std::vector<float> values(WIDTH * HEIGHT);
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) values[y * WIDTH + x] = value_at(x, y);
    return values;
}

static cudaTextureDesc sampling(cudaTextureFilterMode filter) {
    cudaTextureDesc description = {};
    description.addressMode[0] = description.addressMode[1] = cudaAddressModeClamp;
    description.filterMode = filter;
    description.readMode = cudaReadModeElementType;
    return description;
}

static std::vector<float> fetched(const float *device, size_t count = WIDTH * HEIGHT) {
    std::vector<float> back(count);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(back.data(), device, count * sizeof(float), cudaMemcpyDeviceToHost));
    return back;
}

static void require_image(const std::vector<float> &got, const char *what, float factor = 1, float addend = 0) {
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            REQUIRE(got[y * WIDTH + x] == factor * value_at(x, y) + addend, "%s: (%d, %d) is %g", what, x, y, got[y * WIDTH + x]);
}

int main() {
    const std::vector<float> values = image();
    const size_t row = WIDTH * sizeof(float);
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    const dim3 grid(2, HEIGHT), block(WIDTH / 2);
    float *out;
    CHECK_CUDA(cudaMalloc(&out, WIDTH * HEIGHT * sizeof(float)));

    // An array, and a surface of the same array.
    cudaArray_t array;
    CHECK_CUDA(cudaMallocArray(&array, &format, WIDTH, HEIGHT, cudaArraySurfaceLoadStore));
    CHECK_CUDA(cudaMemcpy2DToArray(array, 0, 0, values.data(), row, row, HEIGHT, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc description = sampling(cudaFilterModePoint);
    cudaTextureObject_t texture, filtered;
    CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    fetch_2d<<<grid, block>>>(texture, out);
    require_image(fetched(out), "an array");
    description = sampling(cudaFilterModeLinear);
    CHECK_CUDA(cudaCreateTextureObject(&filtered, &resource, &description, nullptr));
    fetch_between<<<grid, block>>>(filtered, out);
    std::vector<float> got = fetched(out);
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x + 1 < WIDTH; x++)
            REQUIRE(is_close(got[y * WIDTH + x], value_at(x, y) + 0.5, 1e-3), "between columns %d and %d of row %d lies %g", x, x + 1, y,
                    got[y * WIDTH + x]);
    cudaResourceDesc told_resource;
    cudaTextureDesc told;
    CHECK_CUDA(cudaGetTextureObjectResourceDesc(&told_resource, filtered));
    CHECK_CUDA(cudaGetTextureObjectTextureDesc(&told, filtered));
    REQUIRE(told_resource.resType == cudaResourceTypeArray && told_resource.res.array.array == array &&
                told.filterMode == cudaFilterModeLinear && told.addressMode[0] == cudaAddressModeClamp,
            "the texture says that it looks into something else");
    cudaSurfaceObject_t surface;
    CHECK_CUDA(cudaCreateSurfaceObject(&surface, &resource));
    store<<<grid, block>>>(surface);
    CHECK_LAUNCH();
    got.assign(WIDTH * HEIGHT, 0);
    CHECK_CUDA(cudaMemcpy2DFromArray(got.data(), row, array, 0, 0, row, HEIGHT, cudaMemcpyDeviceToHost));
    require_image(got, "a surface", 2, 1);
    CHECK_CUDA(cudaDestroySurfaceObject(surface));
    CHECK_CUDA(cudaDestroyTextureObject(texture));
    CHECK_CUDA(cudaDestroyTextureObject(filtered));

    // Rows with a pitch, and flat memory.
    float *pitched;
    size_t pitch;
    CHECK_CUDA(cudaMallocPitch(&pitched, &pitch, row, HEIGHT));
    CHECK_CUDA(cudaMemcpy2D(pitched, pitch, values.data(), row, row, HEIGHT, cudaMemcpyHostToDevice));
    resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D.devPtr = pitched;
    resource.res.pitch2D.desc = format;
    resource.res.pitch2D.width = WIDTH;
    resource.res.pitch2D.height = HEIGHT;
    resource.res.pitch2D.pitchInBytes = pitch;
    description = sampling(cudaFilterModePoint);
    CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    fetch_2d<<<grid, block>>>(texture, out);
    require_image(fetched(out), "rows");
    CHECK_CUDA(cudaDestroyTextureObject(texture));
    CHECK_CUDA(cudaFree(pitched));
    float *flat;
    CHECK_CUDA(cudaMalloc(&flat, row * HEIGHT));
    CHECK_CUDA(cudaMemcpy(flat, values.data(), row * HEIGHT, cudaMemcpyHostToDevice));
    resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = flat;
    resource.res.linear.desc = format;
    resource.res.linear.sizeInBytes = row * HEIGHT;
    CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    fetch_flat<<<WIDTH * HEIGHT / 64, 64>>>(texture, out);
    require_image(fetched(out), "flat memory");
    CHECK_CUDA(cudaDestroyTextureObject(texture));
    resource.res.linear.devPtr = nullptr;
    EXPECT_CUDA(cudaCreateTextureObject(&texture, &resource, &description, nullptr), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFree(flat));

    // Layers.
    cudaArray_t layered;
    CHECK_CUDA(cudaMalloc3DArray(&layered, &format, make_cudaExtent(WIDTH, HEIGHT, LAYERS), cudaArrayLayered));
    for (int layer = 0; layer < LAYERS; layer++) {
        std::vector<float> shifted = values;
        for (float &value : shifted) value += 0.25f * float(layer);
        cudaMemcpy3DParms copy = {};
        copy.srcPtr = make_cudaPitchedPtr(shifted.data(), row, WIDTH, HEIGHT);
        copy.dstArray = layered;
        copy.dstPos = make_cudaPos(0, 0, layer);
        copy.extent = make_cudaExtent(WIDTH, HEIGHT, 1);
        copy.kind = cudaMemcpyHostToDevice;
        CHECK_CUDA(cudaMemcpy3D(&copy));
    }
    resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = layered;
    CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    for (int layer = 0; layer < LAYERS; layer++) {
        fetch_layer<<<grid, block>>>(texture, out, layer);
        require_image(fetched(out), "a layer", 1, 0.25f * float(layer));
    }
    CHECK_CUDA(cudaDestroyTextureObject(texture));
    CHECK_CUDA(cudaFreeArray(layered));

    // Levels of a mipmapped array.
    cudaMipmappedArray_t mipmapped;
    CHECK_CUDA(cudaMallocMipmappedArray(&mipmapped, &format, make_cudaExtent(WIDTH, HEIGHT, 0), 3));
    for (int level = 0; level < 3; level++) {
        cudaArray_t part;
        CHECK_CUDA(cudaGetMipmappedArrayLevel(&part, mipmapped, level));
        const int width = WIDTH >> level, height = HEIGHT >> level;
        const std::vector<float> constant(width * height, float(level + 10));
        CHECK_CUDA(cudaMemcpy2DToArray(part, 0, 0, constant.data(), width * sizeof(float), width * sizeof(float), height,
                                       cudaMemcpyHostToDevice));
    }
    resource = {};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = mipmapped;
    description = sampling(cudaFilterModePoint);
    description.normalizedCoords = 1;
    description.mipmapFilterMode = cudaFilterModePoint;
    description.maxMipmapLevelClamp = 2;
    CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    for (int level = 0; level < 3; level++) {
        const int width = WIDTH >> level, height = HEIGHT >> level;
        fetch_level<<<height, width>>>(texture, out, width, height, level);
        const std::vector<float> back = fetched(out, width * height);
        for (float value : back) REQUIRE(value == float(level + 10), "level %d holds %g", level, value);
    }
    CHECK_CUDA(cudaDestroyTextureObject(texture));
    CHECK_CUDA(cudaFreeMipmappedArray(mipmapped));
    CHECK_CUDA(cudaFreeArray(array));
    CHECK_CUDA(cudaFree(out));
    return pass();
}

// Surface objects over every shape of array, and textures that look into what they wrote: a line for each shape, the same on every
// device.  The values differ from run to run.
#include "answers.h"

#include <time.h>

#include <vector>

struct Extent {
    int width, height, depth;
    size_t count() const { return size_t(width) * size_t(height ? height : 1) * size_t(depth ? depth : 1); }
};

enum Shape { ROW, ROWS_LAYERED, PLANE, PLANES_LAYERED, BOX, CUBE, CUBES_LAYERED };

__device__ unsigned mixed(unsigned seed, int x, int y, int z) {
    return (seed ^ unsigned(x) * 2654435761u ^ unsigned(y) * 40503u ^ unsigned(z) * 69069u) >> 3;
}

static unsigned mixed_here(unsigned seed, int x, int y, int z) {
    return (seed ^ unsigned(x) * 2654435761u ^ unsigned(y) * 40503u ^ unsigned(z) * 69069u) >> 3;
}

__global__ void write(cudaSurfaceObject_t surface, int shape, unsigned seed, Extent extent) {
    const int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y, at = x * int(sizeof(unsigned));
    if (x >= extent.width) return;
    const unsigned value = mixed(seed, x, y, z);
    switch (shape) {
    case ROW: surf1Dwrite(value, surface, at); break;
    case ROWS_LAYERED: surf1DLayeredwrite(value, surface, at, z); break;
    case PLANE: surf2Dwrite(value, surface, at, y); break;
    case PLANES_LAYERED: surf2DLayeredwrite(value, surface, at, y, z); break;
    case BOX: surf3Dwrite(value, surface, at, y, z); break;
    case CUBE: surfCubemapwrite(value, surface, at, y, z); break;
    case CUBES_LAYERED: surfCubemapLayeredwrite(value, surface, at, y, z); break;
    }
}

// Adds one to every value, so that a wrong read shows as well.
__global__ void read_and_write(cudaSurfaceObject_t surface, int shape, Extent extent) {
    const int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y, at = x * int(sizeof(unsigned));
    if (x >= extent.width) return;
    unsigned value;
    switch (shape) {
    case ROW: surf1Dread(&value, surface, at); surf1Dwrite(value + 1, surface, at); break;
    case ROWS_LAYERED: surf1DLayeredread(&value, surface, at, z); surf1DLayeredwrite(value + 1, surface, at, z); break;
    case PLANE: surf2Dread(&value, surface, at, y); surf2Dwrite(value + 1, surface, at, y); break;
    case PLANES_LAYERED: surf2DLayeredread(&value, surface, at, y, z); surf2DLayeredwrite(value + 1, surface, at, y, z); break;
    case BOX: surf3Dread(&value, surface, at, y, z); surf3Dwrite(value + 1, surface, at, y, z); break;
    case CUBE: surfCubemapread(&value, surface, at, y, z); surfCubemapwrite(value + 1, surface, at, y, z); break;
    case CUBES_LAYERED:
        surfCubemapLayeredread(&value, surface, at, y, z);
        surfCubemapLayeredwrite(value + 1, surface, at, y, z);
        break;
    }
}

__global__ void fetch_box(cudaTextureObject_t texture, unsigned *out, Extent extent) {
    const int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
    if (x < extent.width)
        out[(size_t(z) * extent.height + y) * extent.width + x] = tex3D<unsigned>(texture, x + 0.5f, y + 0.5f, z + 0.5f);
}

__global__ void fetch_level(cudaTextureObject_t texture, unsigned *out, Extent extent, float level) {
    const int x = threadIdx.x, y = blockIdx.x;
    if (x < extent.width)
        out[size_t(y) * extent.width + x] =
            tex2DLod<unsigned>(texture, (x + 0.5f) / extent.width, (y + 0.5f) / extent.height, level);
}

static const char *name(cudaError_t error) { return cudaGetErrorName(error); }

static void wait() {
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
}

static dim3 grid(const Extent &extent) { return dim3(extent.height ? extent.height : 1, extent.depth ? extent.depth : 1); }

static cudaMemcpy3DParms to_host(cudaArray_t array, const Extent &extent, unsigned *values) {
    cudaMemcpy3DParms copy = {};
    const size_t height = extent.height ? extent.height : 1, depth = extent.depth ? extent.depth : 1;
    copy.srcArray = array;
    copy.dstPtr = make_cudaPitchedPtr(values, extent.width * sizeof(unsigned), extent.width, height);
    copy.extent = make_cudaExtent(extent.width, height, depth);
    copy.kind = cudaMemcpyDeviceToHost;
    return copy;
}

static size_t wrong(const std::vector<unsigned> &values, const Extent &extent, unsigned seed, unsigned added) {
    size_t count = 0, i = 0;
    for (int z = 0; z < (extent.depth ? extent.depth : 1); z++)
        for (int y = 0; y < (extent.height ? extent.height : 1); y++)
            for (int x = 0; x < extent.width; x++) count += values[i++] != mixed_here(seed, x, y, z) + added;
    return count;
}

static cudaResourceDesc of_array(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}

static void try_shape(const char *what, Shape shape, Extent extent, unsigned flags, unsigned seed) {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
    cudaArray_t array;
    CHECK_CUDA(cudaMalloc3DArray(&array, &format, make_cudaExtent(extent.width, extent.height, extent.depth),
                                 flags | cudaArraySurfaceLoadStore));
    const cudaResourceDesc resource = of_array(array);
    cudaSurfaceObject_t surface = 0, second = 0;
    CHECK_CUDA(cudaCreateSurfaceObject(&surface, &resource));
    write<<<grid(extent), 64>>>(surface, shape, seed, extent);
    wait();
    std::vector<unsigned> values(extent.count());
    const cudaMemcpy3DParms copy = to_host(array, extent, values.data());
    CHECK_CUDA(cudaMemcpy3D(&copy));
    const size_t after_writing = wrong(values, extent, seed, 0);
    // A second object of the same array.
    CHECK_CUDA(cudaCreateSurfaceObject(&second, &resource));
    read_and_write<<<grid(extent), 64>>>(second, shape, extent);
    wait();
    CHECK_CUDA(cudaMemcpy3D(&copy));
    const size_t after_reading = wrong(values, extent, seed, 1);
    cudaResourceDesc told = {};
    const cudaError_t asked = cudaGetSurfaceObjectResourceDesc(&told, surface);
    const bool same = told.resType == cudaResourceTypeArray && told.res.array.array == array;
    const cudaError_t first_destroyed = cudaDestroySurfaceObject(surface);
    write<<<grid(extent), 64>>>(second, shape, seed + 77, extent);
    wait();
    CHECK_CUDA(cudaMemcpy3D(&copy));
    const size_t by_the_second = wrong(values, extent, seed + 77, 0);
    const cudaError_t second_destroyed = cudaDestroySurfaceObject(second);
    const cudaError_t freed = cudaFreeArray(array);
    printf("%s: written %zu wrong, read %zu wrong, described %s %d, destroyed %s, the second wrote %zu wrong, destroyed %s, "
           "array freed %s\n",
           what, after_writing, after_reading, name(asked), same, name(first_destroyed), by_the_second, name(second_destroyed),
           name(freed));
    fflush(stdout);
}

// A texture and a surface of one box: the texture sees what the surface wrote.
static void texture_of_a_box(unsigned seed) {
    const Extent extent = {24, 10, 6};
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
    cudaArray_t array;
    CHECK_CUDA(cudaMalloc3DArray(&array, &format, make_cudaExtent(extent.width, extent.height, extent.depth),
                                 cudaArraySurfaceLoadStore));
    const cudaResourceDesc resource = of_array(array);
    cudaTextureDesc sampling = {};
    for (auto &mode : sampling.addressMode) mode = cudaAddressModeClamp;
    cudaSurfaceObject_t surface;
    cudaTextureObject_t texture;
    CHECK_CUDA(cudaCreateSurfaceObject(&surface, &resource));
    CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
    write<<<grid(extent), 64>>>(surface, BOX, seed, extent);
    wait();
    unsigned *out;
    CHECK_CUDA(cudaMalloc(&out, extent.count() * sizeof(unsigned)));
    fetch_box<<<grid(extent), 64>>>(texture, out, extent);
    wait();
    std::vector<unsigned> values(extent.count());
    CHECK_CUDA(cudaMemcpy(values.data(), out, values.size() * sizeof(unsigned), cudaMemcpyDeviceToHost));
    const cudaError_t texture_destroyed = cudaDestroyTextureObject(texture), surface_destroyed = cudaDestroySurfaceObject(surface);
    printf("texture of a box: %zu wrong, texture destroyed %s, surface destroyed %s\n", wrong(values, extent, seed, 0),
           name(texture_destroyed), name(surface_destroyed));
    fflush(stdout);
    CHECK_CUDA(cudaFreeArray(array));
    CHECK_CUDA(cudaFree(out));
}

// Surfaces write the levels of a mipmapped array, and a texture of the whole reads them.
static void levels(unsigned seed) {
    constexpr int LEVELS = 4;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
    cudaMipmappedArray_t mipmapped;
    CHECK_CUDA(cudaMallocMipmappedArray(&mipmapped, &format, make_cudaExtent(48, 32, 0), LEVELS, cudaArraySurfaceLoadStore));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = mipmapped;
    cudaSurfaceObject_t surface = 0;
    printf("surface of a mipmapped array: %s\n", name(cudaCreateSurfaceObject(&surface, &resource)));
    (void)cudaGetLastError();
    cudaTextureDesc sampling = {};
    for (auto &mode : sampling.addressMode) mode = cudaAddressModeClamp;
    sampling.normalizedCoords = 1;
    sampling.maxMipmapLevelClamp = LEVELS - 1;
    cudaTextureObject_t texture;
    CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
    unsigned *out;
    CHECK_CUDA(cudaMalloc(&out, 48 * 32 * sizeof(unsigned)));
    for (int level = 0; level < LEVELS; level++) {
        const Extent extent = {48 >> level, 32 >> level, 0};
        cudaArray_t array;
        CHECK_CUDA(cudaGetMipmappedArrayLevel(&array, mipmapped, level));
        const cudaResourceDesc of_level = of_array(array);
        CHECK_CUDA(cudaCreateSurfaceObject(&surface, &of_level));
        write<<<grid(extent), 64>>>(surface, PLANE, seed + level, extent);
        wait();
        fetch_level<<<grid(extent), 64>>>(texture, out, extent, float(level));
        wait();
        std::vector<unsigned> values(extent.count());
        CHECK_CUDA(cudaMemcpy(values.data(), out, values.size() * sizeof(unsigned), cudaMemcpyDeviceToHost));
        printf("level %d: %zu wrong, surface destroyed %s\n", level, wrong(values, extent, seed + level, 0),
               name(cudaDestroySurfaceObject(surface)));
        fflush(stdout);
    }
    cudaResourceDesc told = {};
    const cudaError_t asked = cudaGetTextureObjectResourceDesc(&told, texture);
    const cudaError_t destroyed = cudaDestroyTextureObject(texture), freed = cudaFreeMipmappedArray(mipmapped);
    printf("texture of a mipmapped array: described %s %d, destroyed %s, array freed %s\n", name(asked),
           told.resType == cudaResourceTypeMipmappedArray && told.res.mipmap.mipmap == mipmapped, name(destroyed), name(freed));
    fflush(stdout);
    CHECK_CUDA(cudaFree(out));
}

// An object may outlive its array, and go then.
static void destroyed_after_its_array() {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
    cudaArray_t array;
    CHECK_CUDA(cudaMalloc3DArray(&array, &format, make_cudaExtent(16, 8, 4), cudaArraySurfaceLoadStore));
    const cudaResourceDesc resource = of_array(array);
    cudaSurfaceObject_t surface;
    CHECK_CUDA(cudaCreateSurfaceObject(&surface, &resource));
    const cudaError_t freed = cudaFreeArray(array);
    printf("surface destroyed after its array: array freed %s, surface destroyed %s\n", name(freed),
           name(cudaDestroySurfaceObject(surface)));
    fflush(stdout);
    (void)cudaGetLastError();
    // An array without the flag has no surfaces.
    CHECK_CUDA(cudaMalloc3DArray(&array, &format, make_cudaExtent(16, 8, 4)));
    const cudaResourceDesc plain = of_array(array);
    printf("surface of an array without the flag: %s\n", name(cudaCreateSurfaceObject(&surface, &plain)));
    fflush(stdout);
    (void)cudaGetLastError();
    CHECK_CUDA(cudaFreeArray(array));
}

// Many at once, destroyed in another order than they were made in.
static void many() {
    constexpr int COUNT = 200;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
    std::vector<cudaArray_t> arrays(COUNT);
    std::vector<cudaSurfaceObject_t> surfaces(COUNT);
    for (int i = 0; i < COUNT; i++) {
        CHECK_CUDA(cudaMalloc3DArray(&arrays[i], &format, make_cudaExtent(4, 4, 4), cudaArraySurfaceLoadStore));
        const cudaResourceDesc resource = of_array(arrays[i]);
        CHECK_CUDA(cudaCreateSurfaceObject(&surfaces[i], &resource));
    }
    int distinct = 0, destroyed = 0;
    for (int i = 0; i < COUNT; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++) seen |= surfaces[j] == surfaces[i];
        distinct += !seen;
    }
    for (int i = 0; i < COUNT; i++) destroyed += cudaDestroySurfaceObject(surfaces[i * 7 % COUNT]) == cudaSuccess;
    for (auto array : arrays) CHECK_CUDA(cudaFreeArray(array));
    printf("%d surfaces: %d distinct, %d destroyed\n", COUNT, distinct, destroyed);
    fflush(stdout);
}

// Contexts count their objects for themselves, so that two have the same numbers.
static void in_two_contexts(unsigned seed) {
    CUcontext first, second;
    REQUIRE_DRIVER(DRIVER(cuCtxGetCurrent)(&first));
    REQUIRE_DRIVER(DRIVER(cuCtxCreate)(&second, nullptr, 0, 0));
    REQUIRE_DRIVER(DRIVER(cuCtxSetCurrent)(first));
    CUDA_ARRAY3D_DESCRIPTOR shape = {};
    shape.Width = 16, shape.Height = 8, shape.Depth = 4;
    shape.Format = CU_AD_FORMAT_UNSIGNED_INT32, shape.NumChannels = 1, shape.Flags = CUDA_ARRAY3D_SURFACE_LDST;
    CUarray arrays[2];
    CUsurfObject surfaces[2];
    for (int i = 0; i < 2; i++) {
        REQUIRE_DRIVER(DRIVER(cuCtxSetCurrent)(i ? second : first));
        REQUIRE_DRIVER(DRIVER(cuArray3DCreate)(&arrays[i], &shape));
        CUDA_RESOURCE_DESC resource = {};
        resource.resType = CU_RESOURCE_TYPE_ARRAY;
        resource.res.array.hArray = arrays[i];
        REQUIRE_DRIVER(DRIVER(cuSurfObjectCreate)(&surfaces[i], &resource));
    }
    // Each describes its own.
    bool own[2];
    CUresult destroyed[2];
    for (int i = 0; i < 2; i++) {
        REQUIRE_DRIVER(DRIVER(cuCtxSetCurrent)(i ? second : first));
        CUDA_RESOURCE_DESC told = {};
        REQUIRE_DRIVER(DRIVER(cuSurfObjectGetResourceDesc)(&told, surfaces[i]));
        own[i] = told.res.array.hArray == arrays[i];
    }
    for (int i = 1; i >= 0; i--) {
        REQUIRE_DRIVER(DRIVER(cuCtxSetCurrent)(i ? second : first));
        if (i == 0) {
            // That of the other context is gone, this one is not.
            write<<<dim3(8, 4), 64>>>(surfaces[0], BOX, seed, Extent{16, 8, 4});
            wait();
        }
        destroyed[i] = DRIVER(cuSurfObjectDestroy)(surfaces[i]);
        REQUIRE_DRIVER(DRIVER(cuArrayDestroy)(arrays[i]));
    }
    REQUIRE_DRIVER(DRIVER(cuCtxDestroy)(second));
    printf("two contexts: the same number %d, described %d %d, destroyed %d %d\n", surfaces[0] == surfaces[1], own[0], own[1],
           destroyed[0], destroyed[1]);
    fflush(stdout);
}

// The driver has nothing against numbers that name nothing.
static void destroyed_again() {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
    cudaArray_t array;
    CHECK_CUDA(cudaMalloc3DArray(&array, &format, make_cudaExtent(16, 8, 4), cudaArraySurfaceLoadStore));
    const cudaResourceDesc resource = of_array(array);
    cudaSurfaceObject_t surface;
    CHECK_CUDA(cudaCreateSurfaceObject(&surface, &resource));
    const cudaError_t once = cudaDestroySurfaceObject(surface), again = cudaDestroySurfaceObject(surface);
    const cudaError_t none = cudaDestroySurfaceObject(0), unknown = cudaDestroyTextureObject(0x12345);
    cudaResourceDesc told = {};
    const cudaError_t asked = cudaGetSurfaceObjectResourceDesc(&told, surface);
    printf("destroyed %s, again %s, none %s, an unknown texture %s, asked of it %s\n", name(once), name(again), name(none), name(unknown),
           name(asked));
    fflush(stdout);
    (void)cudaGetLastError();
    CHECK_CUDA(cudaFreeArray(array));
}

int main() {
    const unsigned seed = unsigned(time(nullptr)) * 2654435761u ^ unsigned(getpid());
    try_shape("row", ROW, {37, 0, 0}, cudaArrayDefault, seed);
    try_shape("layered rows", ROWS_LAYERED, {37, 0, 5}, cudaArrayLayered, seed + 1);
    try_shape("plane", PLANE, {33, 9, 0}, cudaArrayDefault, seed + 2);
    try_shape("layered planes", PLANES_LAYERED, {33, 9, 5}, cudaArrayLayered, seed + 3);
    try_shape("box", BOX, {21, 11, 7}, cudaArrayDefault, seed + 4);
    try_shape("cube", CUBE, {16, 16, 6}, cudaArrayCubemap, seed + 5);
    try_shape("layered cubes", CUBES_LAYERED, {16, 16, 18}, cudaArrayCubemap | cudaArrayLayered, seed + 6);
    texture_of_a_box(seed + 7);
    levels(seed + 8);
    destroyed_after_its_array();
    many();
    destroyed_again();
    in_two_contexts(seed + 9);
    return pass();
}

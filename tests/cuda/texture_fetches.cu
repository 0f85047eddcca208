// Fetches from textures of every shape, format and mode at random places, compared with a model of the CUDA Programming Guide's
// formulas ("Texture Fetching") on the host; gathered texels, levels, queries; and surfaces at and beyond their edges.
//
// Where texels are filtered the guide stores weights with 8 bits of fraction: along each axis a value may be off by 1/256 of what
// lies between the texels. Texels that are not filtered are equal; places nearer than 1/64 to the next texel are left out.
//
// With an argument: what must end a kernel, or must not.
#include "check.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <vector>

enum Shape { ROW, PLANE, VOLUME, ROWS_LAYERED, PLANES_LAYERED, CUBE, CUBES_LAYERED, PITCHED, SHAPES };
constexpr int PLACES = 128;

struct Place {
    float x, y, z;
    int layer;
};

// `as_integers`: 0 floating point, 1 signed, 2 unsigned.
template <typename T> __device__ T fetch_as(cudaTextureObject_t texture, int shape, Place p) {
    switch (shape) {
    case ROW: return tex1D<T>(texture, p.x);
    case VOLUME: return tex3D<T>(texture, p.x, p.y, p.z);
    case ROWS_LAYERED: return tex1DLayered<T>(texture, p.x, p.layer);
    case PLANES_LAYERED: return tex2DLayered<T>(texture, p.x, p.y, p.layer);
    case CUBE: return texCubemap<T>(texture, p.x, p.y, p.z);
    case CUBES_LAYERED: return texCubemapLayered<T>(texture, p.x, p.y, p.z, p.layer);
    default: return tex2D<T>(texture, p.x, p.y);
    }
}

__global__ void fetch(cudaTextureObject_t texture, int shape, int as_integers, const Place *places, float4 *out) {
    const int i = threadIdx.x;
    if (as_integers == 1) {
        const int4 value = fetch_as<int4>(texture, shape, places[i]);
        out[i] = make_float4(value.x, value.y, value.z, value.w);
    } else if (as_integers == 2) {
        const uint4 value = fetch_as<uint4>(texture, shape, places[i]);
        out[i] = make_float4(value.x, value.y, value.z, value.w);
    } else {
        out[i] = fetch_as<float4>(texture, shape, places[i]);
    }
}

__global__ void fetch_levels(cudaTextureObject_t texture, const Place *places, float4 *out) {
    const int i = threadIdx.x;
    out[i] = tex2DLod<float4>(texture, places[i].x, places[i].y, places[i].z);
}

__global__ void fetch_gradients(cudaTextureObject_t texture, const Place *places, float4 *out, float2 x, float2 y) {
    const int i = threadIdx.x;
    out[i] = tex2DGrad<float4>(texture, places[i].x, places[i].y, x, y);
}

__global__ void gather(cudaTextureObject_t texture, const Place *places, float4 *out, int channel) {
    const int i = threadIdx.x;
    const float x = places[i].x, y = places[i].y;
    switch (channel) {
    case 0: out[i] = tex2Dgather<float4>(texture, x, y, 0); break;
    case 1: out[i] = tex2Dgather<float4>(texture, x, y, 1); break;
    case 2: out[i] = tex2Dgather<float4>(texture, x, y, 2); break;
    default: out[i] = tex2Dgather<float4>(texture, x, y, 3);
    }
}

__global__ void fetch_elements(cudaTextureObject_t texture, const int *indices, float4 *out) {
    out[threadIdx.x] = tex1Dfetch<float4>(texture, indices[threadIdx.x]);
}

__global__ void ask(cudaTextureObject_t texture, int *out) {
    asm("txq.width.b32 %0, [%1];" : "=r"(out[0]) : "l"(texture));
    asm("txq.height.b32 %0, [%1];" : "=r"(out[1]) : "l"(texture));
}

static uint32_t state = 20;

static int below(int limit) { return int(next_random(&state) % unsigned(limit)); }

// The texels of one level, as numbers that the texture is to give.
struct Model {
    int width, height, depth, channels;
    std::vector<float> values;
    cudaTextureAddressMode address = cudaAddressModeClamp;
    bool linear = false;
    float border[4] = {};
    bool is_row = false;

    // The texel of an index along an axis, or -1.
    int folded(int index, int size) const {
        switch (address) {
        case cudaAddressModeWrap:
            while (index < 0) index += size;
            while (index >= size) index -= size;
            return index;
        case cudaAddressModeMirror:
            // Reflected at either end until it is inside.
            while (index < 0 || index >= size) index = index < 0 ? -1 - index : 2 * size - 1 - index;
            return index;
        case cudaAddressModeBorder: return index < 0 || index >= size ? -1 : index;
        default: return std::min(std::max(index, 0), size - 1);
        }
    }

    float texel(int x, int y, int z, int axes, int channel) const {
        x = folded(x, width);
        if (axes > 1) y = folded(y, height);
        if (axes > 2) z = folded(z, depth);
        if (x < 0 || y < 0 || z < 0) return border[channel];
        return values[size_t((z * height + y) * width + x) * channels + channel];
    }

    // At coordinates in texels; `z` is a slice where there are two axes.
    double at(double x, double y, double z, int axes, int channel) const {
        const double along[3] = {x, axes > 1 ? y : 0, z};
        if (!linear)
            return texel(int(std::floor(x)), int(std::floor(along[1])), int(std::floor(z)), axes, channel);
        int first[3] = {0, 0, int(z)};
        double weight[3] = {};
        for (int axis = 0; axis < axes; axis++) {
            const double centred = along[axis] - 0.5;
            first[axis] = int(std::floor(centred));
            weight[axis] = std::nearbyint((centred - std::floor(centred)) * 256) / 256;
        }
        double sum = 0;
        for (int corner = 0; corner < 1 << axes; corner++) {
            double share = 1;
            int index[3] = {first[0], first[1], first[2]};
            for (int axis = 0; axis < axes; axis++) {
                const bool far = corner >> axis & 1;
                index[axis] += far;
                share *= far ? weight[axis] : 1 - weight[axis];
            }
            if (share != 0) sum += share * texel(index[0], index[1], index[2], axes, channel);
        }
        // A row is read as a plane at the coordinate 0, so that half of it is the border beside its only row; layered
        // rows are not (H100, 2026-11-28).
        if (is_row && address == cudaAddressModeBorder) sum = (sum + border[channel]) / 2;
        return sum;
    }
};

struct Format {
    const char *name;
    int bits;
    cudaChannelFormatKind kind;
};

static const Format FORMATS[] = {
    {"u8", 8, cudaChannelFormatKindUnsigned},   {"s8", 8, cudaChannelFormatKindSigned},
    {"u16", 16, cudaChannelFormatKindUnsigned}, {"s16", 16, cudaChannelFormatKindSigned},
    {"f16", 16, cudaChannelFormatKindFloat},    {"f32", 32, cudaChannelFormatKindFloat},
    {"u32", 32, cudaChannelFormatKindUnsigned}, {"s32", 32, cudaChannelFormatKindSigned},
};

static cudaChannelFormatDesc description_of(const Format &format, int channels) {
    const auto bits = [&](int channel) { return channel < channels ? format.bits : 0; };
    return cudaCreateChannelDesc(bits(0), bits(1), bits(2), bits(3), format.kind);
}

// A random number as bytes of this format; gives what a texture makes of it.
static float random_number(const Format &format, bool normalized, unsigned char *bytes) {
    if (format.kind == cudaChannelFormatKindFloat) {
        const float value = random_between(&state, -1, 1);
        if (format.bits == 32) {
            memcpy(bytes, &value, 4);
            return value;
        }
        const __half half = __float2half(value);
        memcpy(bytes, &half, 2);
        return __half2float(half);
    }
    // Of integers of 32 bits so many as a float has.
    const uint32_t bits = format.bits == 32 ? next_random(&state) : next_random(&state) & ((1u << format.bits) - 1);
    memcpy(bytes, &bits, format.bits / 8);
    if (format.kind == cudaChannelFormatKindUnsigned) return normalized ? float(bits) / float((1u << format.bits) - 1) : float(bits);
    const int number = format.bits == 8 ? int8_t(bits) : format.bits == 16 ? int16_t(bits) : int(bits);
    return normalized ? std::max(float(number) / float((1u << (format.bits - 1)) - 1), -1.0f) : float(number);
}

static Place *places_on_device;
static float4 *values_on_device;

static std::vector<float4> fetched() {
    std::vector<float4> values(PLACES);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(values.data(), values_on_device, PLACES * sizeof(float4), cudaMemcpyDeviceToHost));
    return values;
}

static void upload(const std::vector<Place> &places) {
    CHECK_CUDA(cudaMemcpy(places_on_device, places.data(), PLACES * sizeof(Place), cudaMemcpyHostToDevice));
}

static float channel_of(const float4 &value, int channel) {
    return channel == 0 ? value.x : channel == 1 ? value.y : channel == 2 ? value.z : value.w;
}

// A coordinate in texels from two images before to two behind, and not near to the next texel.
static float coordinate(int size) { return float(below(5 * size) - 2 * size) + random_between(&state, 1 / 64.0f, 63 / 64.0f); }

// Which face of a cube, and where on it from 0 to 1: the guide's table.
static void face_of(const Place &p, int *face, double *s, double *t) {
    const double x = p.x, y = p.y, z = p.z, ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
    double m, u, v;
    if (ax > ay && ax > az) {
        *face = x > 0 ? 0 : 1, m = ax, u = x > 0 ? -z : z, v = -y;
    } else if (ay > az) {
        *face = y > 0 ? 2 : 3, m = ay, u = x, v = y > 0 ? z : -z;
    } else {
        *face = z > 0 ? 4 : 5, m = az, u = z > 0 ? x : -x, v = -y;
    }
    *s = (u / m + 1) / 2, *t = (v / m + 1) / 2;
}

static bool is_near_edge(double at) { return at - std::floor(at) < 1 / 64.0 || at - std::floor(at) > 63 / 64.0; }

static void try_texture(int shape, bool linear, cudaTextureAddressMode address, bool normalized_coordinates, const Format &format,
                        int channels, bool normalized_values) {
    const bool cube = shape == CUBE || shape == CUBES_LAYERED, layered = shape == ROWS_LAYERED || shape == PLANES_LAYERED;
    const bool row = shape == ROW || shape == ROWS_LAYERED;
    const int axes = row ? 1 : shape == VOLUME ? 3 : 2;
    Model model;
    model.channels = channels, model.address = address, model.linear = linear, model.is_row = shape == ROW;
    model.width = 3 + below(14), model.height = cube ? model.width : row ? 1 : 2 + below(9);
    model.depth = shape == CUBE ? 6 : shape == CUBES_LAYERED ? 12 : layered || shape == VOLUME ? 2 + below(5) : 1;
    const size_t bytes = format.bits / 8, texel = bytes * channels, row_bytes = texel * model.width;
    const size_t count = size_t(model.width) * model.height * model.depth * channels;
    std::vector<unsigned char> memory(count * bytes);
    for (size_t i = 0; i < count; i++) model.values.push_back(random_number(format, normalized_values, &memory[i * bytes]));
    const cudaChannelFormatDesc channel = description_of(format, channels);
    cudaResourceDesc resource = {};
    cudaArray_t array = nullptr;
    void *pitched = nullptr;
    if (shape == PITCHED) {
        size_t pitch;
        CHECK_CUDA(cudaMallocPitch(&pitched, &pitch, row_bytes, model.height));
        CHECK_CUDA(cudaMemcpy2D(pitched, pitch, memory.data(), row_bytes, row_bytes, model.height, cudaMemcpyHostToDevice));
        resource.resType = cudaResourceTypePitch2D;
        resource.res.pitch2D.devPtr = pitched;
        resource.res.pitch2D.desc = channel;
        resource.res.pitch2D.width = model.width;
        resource.res.pitch2D.height = model.height;
        resource.res.pitch2D.pitchInBytes = pitch;
    } else {
        const bool slices = shape != ROW && shape != PLANE;
        const unsigned flags = (cube ? cudaArrayCubemap : 0u) | (layered || shape == CUBES_LAYERED ? cudaArrayLayered : 0u);
        CHECK_CUDA(cudaMalloc3DArray(&array, &channel, make_cudaExtent(model.width, row ? 0 : model.height, slices ? model.depth : 0), flags));
        cudaMemcpy3DParms copy = {};
        copy.srcPtr = make_cudaPitchedPtr(memory.data(), row_bytes, model.width, model.height);
        copy.dstArray = array;
        copy.extent = make_cudaExtent(model.width, model.height, model.depth);
        copy.kind = cudaMemcpyHostToDevice;
        CHECK_CUDA(cudaMemcpy3D(&copy));
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = array;
    }
    cudaTextureDesc sampling = {};
    for (auto &mode : sampling.addressMode) mode = address;
    sampling.filterMode = linear ? cudaFilterModeLinear : cudaFilterModePoint;
    sampling.readMode = normalized_values ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
    sampling.normalizedCoords = normalized_coordinates;
    // What is not filtered is a number of this format.
    for (int i = 0; i < 4; i++) model.border[i] = sampling.borderColor[i] = format.kind == cudaChannelFormatKindFloat ? 0.25f * float(i + 1) : 0;
    cudaTextureObject_t texture;
    CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));

    std::vector<Place> places(PLACES);
    for (Place &p : places) {
        p.layer = layered ? below(model.depth) : shape == CUBES_LAYERED ? below(2) : 0;
        int face;
        double s, t;
        do {
            p.x = coordinate(model.width), p.y = coordinate(model.height), p.z = coordinate(model.depth);
            if (normalized_coordinates) p.x /= float(model.width), p.y /= float(model.height), p.z /= float(model.depth);
            face_of(p, &face, &s, &t);
        } while (cube && (is_near_edge(s * model.width) || is_near_edge(t * model.height)));
    }
    upload(places);
    const bool floats = format.kind == cudaChannelFormatKindFloat || normalized_values;
    fetch<<<1, PLACES>>>(texture, shape, floats ? 0 : format.kind == cudaChannelFormatKindSigned ? 1 : 2, places_on_device, values_on_device);
    const std::vector<float4> got = fetched();
    for (int i = 0; i < PLACES; i++) {
        const Place &p = places[i];
        double x = p.x, y = p.y, z = p.z;
        if (normalized_coordinates) x *= model.width, y *= model.height, z *= model.depth;
        if (shape != VOLUME) z = p.layer;
        if (cube) {
            int face;
            face_of(p, &face, &x, &y);
            x *= model.width, y *= model.height, z = p.layer * 6 + face;
        }
        for (int c = 0; c < channels; c++) {
            const double want = model.at(x, y, z, axes, c), value = channel_of(got[i], c);
            // Texels are from -1 to 1, or equal.
            const double tolerance = linear ? axes * 2 / 256.0 : floats && format.bits != 32 ? 1e-6 : 0;
            REQUIRE(std::fabs(value - want) <= tolerance,
                    "shape %d, format %s x %d, %s, address mode %d, %s coordinates, %s: channel %d at (%g, %g, %g) layer %d is %g, not %g",
                    shape, format.name, channels, linear ? "linear" : "point", int(address), normalized_coordinates ? "normalized" : "plain",
                    normalized_values ? "normalized" : "as they are", c, p.x, p.y, p.z, p.layer, value, want);
        }
    }
    CHECK_CUDA(cudaDestroyTextureObject(texture));
    if (array) CHECK_CUDA(cudaFreeArray(array));
    CHECK_CUDA(cudaFree(pitched));
}

static void shapes_and_modes() {
    constexpr int FILTERED = 6;
    int format = 0;
    for (int shape = 0; shape < SHAPES; shape++)
        for (int linear = 0; linear < 2; linear++)
            for (int address = 0; address < 4; address++)
                for (int normalized = 0; normalized < 2; normalized++) {
                    const bool cube = shape == CUBE || shape == CUBES_LAYERED;
                    const bool repeats = address == cudaAddressModeWrap || address == cudaAddressModeMirror;
                    if (repeats && !normalized) continue;
                    // A direction meets a cube within a face.
                    if (cube && (!normalized || address != cudaAddressModeClamp)) continue;
                    for (int repeat = 0; repeat < (cube ? 4 : 2); repeat++, format++) {
                        const Format &of = FORMATS[format % (linear ? FILTERED : 8)];
                        const bool integers = of.kind != cudaChannelFormatKindFloat;
                        const bool as_numbers = integers && of.bits < 32 && (linear || below(2));
                        try_texture(shape, linear, cudaTextureAddressMode(address), normalized, of, 1 << below(3), as_numbers);
                    }
                }
}

// Elements in a row; those outside are zero.
static void elements() {
    constexpr int COUNT = 1000;
    std::vector<float2> values(COUNT);
    for (float2 &value : values) value = make_float2(random_between(&state, 1, 2), random_between(&state, 1, 2));
    float2 *memory;
    int *indices;
    CHECK_CUDA(cudaMalloc(&memory, COUNT * sizeof(float2)));
    CHECK_CUDA(cudaMalloc(&indices, PLACES * sizeof(int)));
    CHECK_CUDA(cudaMemcpy(memory, values.data(), COUNT * sizeof(float2), cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = memory;
    resource.res.linear.desc = cudaCreateChannelDesc<float2>();
    resource.res.linear.sizeInBytes = COUNT * sizeof(float2);
    const cudaTextureDesc sampling = {};
    cudaTextureObject_t texture;
    CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
    std::vector<int> wanted(PLACES);
    for (int i = 0; i < PLACES; i++) wanted[i] = i % 4 ? below(COUNT) : COUNT + below(1000);
    wanted[0] = -1;
    CHECK_CUDA(cudaMemcpy(indices, wanted.data(), PLACES * sizeof(int), cudaMemcpyHostToDevice));
    fetch_elements<<<1, PLACES>>>(texture, indices, values_on_device);
    const std::vector<float4> got = fetched();
    for (int i = 0; i < PLACES; i++) {
        const bool inside = wanted[i] >= 0 && wanted[i] < COUNT;
        const float2 want = inside ? values[wanted[i]] : make_float2(0, 0);
        REQUIRE(got[i].x == want.x && got[i].y == want.y, "element %d is (%g, %g)", wanted[i], got[i].x, got[i].y);
    }
    CHECK_CUDA(cudaDestroyTextureObject(texture));
    size_t most = 0;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float2>();
    CHECK_CUDA(cudaDeviceGetTexture1DLinearMaxWidth(&most, &format, 0));
    REQUIRE(most >= 1 << 27, "a texture has at most %zu elements", most);
    CHECK_CUDA(cudaFree(indices));
    CHECK_CUDA(cudaFree(memory));
}

// A plane of four channels, of 8 bits: gathered, asked, and as sRGB.
static void gathered_and_asked() {
    constexpr int WIDTH = 20, HEIGHT = 12;
    std::vector<uchar4> values(WIDTH * HEIGHT);
    Model model;
    model.width = WIDTH, model.height = HEIGHT, model.depth = 1, model.channels = 4;
    for (uchar4 &value : values) {
        value = make_uchar4(below(256), below(256), below(256), below(256));
        for (unsigned char number : {value.x, value.y, value.z, value.w}) model.values.push_back(float(number) / 255);
    }
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<uchar4>();
    cudaArray_t array;
    CHECK_CUDA(cudaMallocArray(&array, &format, WIDTH, HEIGHT, cudaArrayTextureGather));
    CHECK_CUDA(cudaMemcpy2DToArray(array, 0, 0, values.data(), WIDTH * 4, WIDTH * 4, HEIGHT, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc sampling = {};
    for (auto &mode : sampling.addressMode) mode = cudaAddressModeClamp;
    sampling.readMode = cudaReadModeNormalizedFloat;
    cudaTextureObject_t texture, srgb;
    CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
    sampling.sRGB = 1;
    CHECK_CUDA(cudaCreateTextureObject(&srgb, &resource, &sampling, nullptr));
    std::vector<Place> places(PLACES);
    for (Place &p : places) p = {coordinate(WIDTH), coordinate(HEIGHT), 0, 0};
    upload(places);
    for (int channel = 0; channel < 4; channel++) {
        gather<<<1, PLACES>>>(texture, places_on_device, values_on_device, channel);
        const std::vector<float4> got = fetched();
        for (int i = 0; i < PLACES; i++) {
            // Near to a texel's centre the next one may be meant.
            if (is_near_edge(places[i].x - 0.5) || is_near_edge(places[i].y - 0.5)) continue;
            const int x = int(std::floor(places[i].x - 0.5f)), y = int(std::floor(places[i].y - 0.5f));
            const int at[4][2] = {{x, y + 1}, {x + 1, y + 1}, {x + 1, y}, {x, y}};
            for (int corner = 0; corner < 4; corner++) {
                const float want = model.texel(at[corner][0], at[corner][1], 0, 2, channel), value = channel_of(got[i], corner);
                REQUIRE(std::fabs(value - want) <= 1e-6, "gathered at (%g, %g): corner %d of channel %d is %g, not %g", places[i].x,
                        places[i].y, corner, channel, value, want);
            }
        }
    }
    fetch<<<1, PLACES>>>(srgb, PLANE, 0, places_on_device, values_on_device);
    const std::vector<float4> got = fetched();
    for (int i = 0; i < PLACES; i++)
        for (int c = 0; c < 4; c++) {
            const double plain = model.at(places[i].x, places[i].y, 0, 2, c);
            const double want = c == 3 ? plain : plain <= 0.04045 ? plain / 12.92 : std::pow((plain + 0.055) / 1.055, 2.4);
            REQUIRE(std::fabs(channel_of(got[i], c) - want) <= 1 / 256.0, "sRGB %g is %g, not %g", plain, channel_of(got[i], c), want);
        }
    int *size, told[2];
    CHECK_CUDA(cudaMalloc(&size, sizeof told));
    ask<<<1, 1>>>(texture, size);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(told, size, sizeof told, cudaMemcpyDeviceToHost));
    REQUIRE(told[0] == WIDTH && told[1] == HEIGHT, "it says that it is %d x %d", told[0], told[1]);
    CHECK_CUDA(cudaFree(size));
    CHECK_CUDA(cudaDestroyTextureObject(srgb));
    CHECK_CUDA(cudaDestroyTextureObject(texture));
    CHECK_CUDA(cudaFreeArray(array));
}

// Levels by number and by gradients, each of one value, and a mean of two.
static void levels() {
    constexpr int LEVELS = 5, SIDE = 64;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaMipmappedArray_t mipmapped;
    CHECK_CUDA(cudaMallocMipmappedArray(&mipmapped, &format, make_cudaExtent(SIDE, SIDE, 0), LEVELS));
    float value_of[LEVELS];
    for (int level = 0; level < LEVELS; level++) {
        cudaArray_t array;
        CHECK_CUDA(cudaGetMipmappedArrayLevel(&array, mipmapped, level));
        value_of[level] = random_between(&state, -1, 1);
        const int side = SIDE >> level;
        const std::vector<float> values(side * side, value_of[level]);
        CHECK_CUDA(cudaMemcpy2DToArray(array, 0, 0, values.data(), side * 4, side * 4, side, cudaMemcpyHostToDevice));
    }
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = mipmapped;
    std::vector<Place> places(PLACES);
    for (Place &p : places) {
        // Not near to where the next level begins.
        do p = {random_between(&state, -1, 2), random_between(&state, -1, 2), random_between(&state, -2, LEVELS + 1), 0};
        while (is_near_edge(p.z + 0.5) || is_near_edge(p.z));
    }
    upload(places);
    for (int linear = 0; linear < 2; linear++) {
        cudaTextureDesc sampling = {};
        sampling.normalizedCoords = 1;
        for (auto &mode : sampling.addressMode) mode = cudaAddressModeWrap;
        sampling.mipmapFilterMode = linear ? cudaFilterModeLinear : cudaFilterModePoint;
        sampling.minMipmapLevelClamp = 0.5f, sampling.maxMipmapLevelClamp = 3.25f;
        cudaTextureObject_t texture;
        CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
        fetch_levels<<<1, PLACES>>>(texture, places_on_device, values_on_device);
        const std::vector<float4> got = fetched();
        for (int i = 0; i < PLACES; i++) {
            const double level = std::min(std::max(double(places[i].z), 0.5), 3.25), below = std::floor(level);
            // What lies in the middle may be rounded either way.
            if (!linear && level == 0.5) continue;
            const double share = level - below;
            const double want = linear ? (1 - share) * value_of[int(below)] + share * value_of[std::min(int(below) + 1, LEVELS - 1)]
                                       : value_of[int(level + 0.5)];
            REQUIRE(std::fabs(got[i].x - want) <= (linear ? 2 / 256.0 : 0), "level %g is %g, not %g", places[i].z, got[i].x, want);
        }
        CHECK_CUDA(cudaDestroyTextureObject(texture));
    }
    cudaTextureDesc sampling = {};
    sampling.normalizedCoords = 1;
    sampling.maxMipmapLevelClamp = LEVELS - 1;
    cudaTextureObject_t texture;
    CHECK_CUDA(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
    for (int level = 0; level < LEVELS; level++) {
        const float step = float(1 << level) / SIDE;
        fetch_gradients<<<1, PLACES>>>(texture, places_on_device, values_on_device, make_float2(step, 0), make_float2(0, step));
        for (const float4 &value : fetched())
            REQUIRE(value.x == value_of[level], "a step of %d texels reads %g, not level %d, %g", 1 << level, value.x, level, value_of[level]);
    }
    CHECK_CUDA(cudaDestroyTextureObject(texture));
    CHECK_CUDA(cudaFreeMipmappedArray(mipmapped));
}

// What is read beyond a surface's edges, and what is written there.
template <typename T> __global__ void read_surface(cudaSurfaceObject_t surface, const Place *places, T *clamped, T *zero) {
    const int i = threadIdx.x, x = int(places[i].x) * int(sizeof(T)), y = int(places[i].y), z = places[i].layer;
    clamped[i] = surf3Dread<T>(surface, x, y, z, cudaBoundaryModeClamp);
    zero[i] = surf3Dread<T>(surface, x, y, z, cudaBoundaryModeZero);
}

template <typename T> __global__ void write_surface(cudaSurfaceObject_t surface, const Place *places, T value) {
    const int i = threadIdx.x, x = int(places[i].x) * int(sizeof(T)), y = int(places[i].y), z = places[i].layer;
    surf3Dwrite(value, surface, x, y, z, cudaBoundaryModeZero);
}

template <typename T> static void surface_of(const char *name) {
    constexpr int WIDTH = 7, HEIGHT = 5, DEPTH = 3;
    constexpr size_t COUNT = WIDTH * HEIGHT * DEPTH;
    T values[COUNT], back[COUNT], written, got[2][PLACES], none;
    memset(&none, 0, sizeof none);
    for (unsigned char *byte = (unsigned char *)values; byte < (unsigned char *)(values + COUNT); byte++) *byte = (unsigned char)below(256);
    memset(&written, 0x5a, sizeof written);
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<T>();
    cudaArray_t array;
    CHECK_CUDA(cudaMalloc3DArray(&array, &format, make_cudaExtent(WIDTH, HEIGHT, DEPTH), cudaArraySurfaceLoadStore));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(values, WIDTH * sizeof(T), WIDTH, HEIGHT);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(WIDTH, HEIGHT, DEPTH);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK_CUDA(cudaMemcpy3D(&copy));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaSurfaceObject_t surface;
    CHECK_CUDA(cudaCreateSurfaceObject(&surface, &resource));
    std::vector<Place> places(PLACES);
    for (Place &p : places) p = {float(below(3 * WIDTH) - WIDTH), float(below(3 * HEIGHT) - HEIGHT), 0, below(3 * DEPTH) - DEPTH};
    places[0] = {1, 2, 0, 1};
    upload(places);
    T *device;
    CHECK_CUDA(cudaMalloc(&device, sizeof got));
    read_surface<<<1, PLACES>>>(surface, places_on_device, device, device + PLACES);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(got, device, sizeof got, cudaMemcpyDeviceToHost));
    write_surface<<<1, PLACES>>>(surface, places_on_device, written);
    CHECK_LAUNCH();
    copy.srcPtr = {}, copy.dstArray = nullptr;
    copy.srcArray = array;
    copy.dstPtr = make_cudaPitchedPtr(back, WIDTH * sizeof(T), WIDTH, HEIGHT);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK_CUDA(cudaMemcpy3D(&copy));
    const auto index = [](int x, int y, int z) { return (z * HEIGHT + y) * WIDTH + x; };
    for (int i = 0; i < PLACES; i++) {
        const int x = int(places[i].x), y = int(places[i].y), z = places[i].layer;
        const int nx = std::min(std::max(x, 0), WIDTH - 1), ny = std::min(std::max(y, 0), HEIGHT - 1), nz = std::min(std::max(z, 0), DEPTH - 1);
        const bool inside = x == nx && y == ny && z == nz;
        REQUIRE(memcmp(&got[0][i], &values[index(nx, ny, nz)], sizeof(T)) == 0, "%s clamped at (%d, %d, %d)", name, x, y, z);
        REQUIRE(memcmp(&got[1][i], inside ? &values[index(x, y, z)] : &none, sizeof(T)) == 0, "%s or zero at (%d, %d, %d)", name, x, y, z);
    }
    for (const Place &p : places)
        if (p.x >= 0 && p.x < WIDTH && p.y >= 0 && p.y < HEIGHT && p.layer >= 0 && p.layer < DEPTH)
            values[index(int(p.x), int(p.y), p.layer)] = written;
    REQUIRE(memcmp(values, back, sizeof values) == 0, "%s: something else was written than what lies inside", name);
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaDestroySurfaceObject(surface));
    CHECK_CUDA(cudaFreeArray(array));
}

// A plane of floats with a texture and a surface of it.
struct Pair {
    cudaArray_t array;
    cudaTextureObject_t texture;
    cudaSurfaceObject_t surface;
};

static Pair pair_of_a_plane(float value) {
    Pair pair;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK_CUDA(cudaMallocArray(&pair.array, &format, 256, 64, cudaArraySurfaceLoadStore));
    const std::vector<float> values(256 * 64, value);
    CHECK_CUDA(cudaMemcpy2DToArray(pair.array, 0, 0, values.data(), 1024, 1024, 64, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = pair.array;
    const cudaTextureDesc sampling = {};
    CHECK_CUDA(cudaCreateTextureObject(&pair.texture, &resource, &sampling, nullptr));
    CHECK_CUDA(cudaCreateSurfaceObject(&pair.surface, &resource));
    return pair;
}

__global__ void fetch_late(cudaTextureObject_t texture, volatile int *go, float *out) {
    while (*go == 0);
    *out = tex2D<float>(texture, 0.5f, 0.5f);
}

__global__ void store_outside(cudaSurfaceObject_t surface, int x) { surf2Dwrite(1.0f, surface, x * 4, 0); }

// Objects that end while a kernel that was given them runs.
static void destroyed_meanwhile() {
    int *go;
    float *out;
    CHECK_CUDA(cudaHostAlloc(&go, sizeof(int), cudaHostAllocMapped));
    CHECK_CUDA(cudaMalloc(&out, sizeof(float)));
    *go = 0;
    const Pair pair = pair_of_a_plane(3.5f);
    fetch_late<<<1, 1>>>(pair.texture, go, out);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDestroyTextureObject(pair.texture));
    *(volatile int *)go = 1;
    float got = 0;
    CHECK_CUDA(cudaMemcpy(&got, out, sizeof got, cudaMemcpyDeviceToHost));
    REQUIRE(got == 3.5f, "it read %g", got);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    CHECK_CUDA(cudaMalloc(&places_on_device, PLACES * sizeof(Place)));
    CHECK_CUDA(cudaMalloc(&values_on_device, PLACES * sizeof(float4)));
    const auto ends_with = [](cudaError_t wanted) {
        CHECK_LAUNCH();
        EXPECT_CUDA(cudaDeviceSynchronize(), wanted);
    };
    if (!strcmp(what, "unknown_handle")) {
        const Pair pair = pair_of_a_plane(1);
        // That of a surface, and one that nothing has.
        fetch<<<1, 1>>>(pair.surface + (count > 2 ? 12345 : 0), PLANE, 0, places_on_device, values_on_device);
        ends_with(cudaErrorIllegalAddress);
    } else if (!strcmp(what, "freed_array")) {
        const Pair pair = pair_of_a_plane(1);
        CHECK_CUDA(cudaFreeArray(pair.array));
        fetch<<<1, 1>>>(pair.texture, PLANE, 0, places_on_device, values_on_device);
        ends_with(cudaErrorIllegalAddress);
    } else if (!strcmp(what, "outside")) {
        const Pair pair = pair_of_a_plane(1);
        store_outside<<<1, 1>>>(pair.surface, 255);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaDeviceSynchronize());
        store_outside<<<1, 1>>>(pair.surface, 256);
        ends_with(cudaErrorIllegalAddress);
    } else if (!strcmp(what, "destroyed_meanwhile")) {
        destroyed_meanwhile();
    } else {
        shapes_and_modes();
        elements();
        gathered_and_asked();
        levels();
        surface_of<unsigned char>("u8");
        surface_of<short2>("s16 x 2");
        surface_of<uchar4>("u8 x 4");
        surface_of<float>("f32");
        surface_of<ushort4>("u16 x 4");
        surface_of<uint2>("u32 x 2");
        surface_of<float4>("f32 x 4");
    }
    return pass();
}

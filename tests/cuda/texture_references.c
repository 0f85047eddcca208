// Texture and surface references: variables of a module that a program binds arrays, rows and flat memory to, as older compilers
// make them. The kernels are PTX, since nvcc has them no more.
#define _GNU_SOURCE
#include "check.h"

#include <cuda.h>

#include <stdlib.h>

// All of its calls are.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

enum { WIDTH = 32, HEIGHT = 8 };

static const char *const KERNELS =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .global .texref image;\n"
    ".visible .global .surfref plane;\n"
    ".visible .global .u32 number;\n"
    // out[y][x] = the image at (x + shift, y + 0.5), where x and y are thread and block.
    ".visible .entry fetch(.param .u64 out, .param .f32 shift) {\n"
    "  .reg .b32 %r<4>; .reg .f32 %f<8>; .reg .b64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [out]; ld.param.f32 %f0, [shift];\n"
    "  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;\n"
    "  cvt.rn.f32.u32 %f1, %r1; add.f32 %f1, %f1, %f0;\n"
    "  cvt.rn.f32.u32 %f2, %r2; add.f32 %f2, %f2, 0f3F000000;\n"
    "  tex.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [image, {%f1, %f2}];\n"
    "  mov.u32 %r3, %ntid.x; mad.lo.u32 %r1, %r2, %r3, %r1; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;\n"
    "  st.global.f32 [%rd1], %f4; ret;\n"
    "}\n"
    // out[x] = element x of the image.
    ".visible .entry fetch_flat(.param .u64 out, .param .f32 shift) {\n"
    "  .reg .b32 %r<4>; .reg .f32 %f<8>; .reg .b64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u64 %rd3, image;\n"
    "  tex.1d.v4.f32.s32 {%f4, %f5, %f6, %f7}, [%rd3, {%r1}];\n"
    "  mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; st.global.f32 [%rd1], %f4; ret;\n"
    "}\n"
    // Stores the thread's number in its place of the first row.
    ".visible .entry store(.param .u64 out, .param .f32 shift) {\n"
    "  .reg .b32 %r<4>; .reg .f32 %f<2>;\n"
    "  mov.u32 %r1, %tid.x; mov.u32 %r2, 0; shl.b32 %r3, %r1, 2; cvt.rn.f32.u32 %f1, %r1; mov.b32 %r1, %f1;\n"
    "  sust.b.2d.b32.trap [plane, {%r3, %r2}], {%r1}; ret;\n"
    "}\n";

static CUmodule module;
static CUdeviceptr out;

static float value_at(int x, int y) { return (float)(x + 100 * y); }

static const float *run(const char *kernel, int blocks, float shift) {
    static float got[WIDTH * HEIGHT];
    void *parameters[] = {&out, &shift};
    CUfunction function;
    CHECK_DRIVER(cuModuleGetFunction(&function, module, kernel));
    CHECK_DRIVER(cuLaunchKernel(function, blocks, 1, 1, WIDTH, 1, 1, 0, NULL, parameters, NULL));
    CHECK_DRIVER(cuMemcpyDtoH(got, out, sizeof got));
    return got;
}

int main(void) {
    CUdevice device;
    CUcontext context;
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_DRIVER(cuCtxSetCurrent(context));
    CHECK_DRIVER(cuModuleLoadData(&module, KERNELS));
    CHECK_DRIVER(cuMemAlloc(&out, WIDTH * HEIGHT * sizeof(float)));
    CUtexref image;
    CUsurfref plane;
    CHECK_DRIVER(cuModuleGetTexRef(&image, module, "image"));
    CHECK_DRIVER(cuModuleGetSurfRef(&plane, module, "plane"));
    CUtexref none;
    REQUIRE(cuModuleGetTexRef(&none, module, "number") == CUDA_ERROR_NOT_FOUND, "a number is a texture reference");
    REQUIRE(cuModuleGetTexRef(&none, module, "nothing") == CUDA_ERROR_NOT_FOUND, "what is not there is a texture reference");

    static float values[HEIGHT][WIDTH];
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) values[y][x] = value_at(x, y);
    const CUDA_ARRAY_DESCRIPTOR format = {.Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    const CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1, .Flags = CUDA_ARRAY3D_SURFACE_LDST};
    CUarray array;
    CHECK_DRIVER(cuArray3DCreate(&array, &shape));
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = values,
                          .srcPitch = sizeof values[0],
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = sizeof values[0],
                          .Height = HEIGHT};
    CHECK_DRIVER(cuMemcpy2D(&copy));

    // An array, and what lies between its texels.
    CHECK_DRIVER(cuTexRefSetAddressMode(image, 0, CU_TR_ADDRESS_MODE_CLAMP));
    CHECK_DRIVER(cuTexRefSetAddressMode(image, 1, CU_TR_ADDRESS_MODE_CLAMP));
    CHECK_DRIVER(cuTexRefSetArray(image, array, CU_TRSA_OVERRIDE_FORMAT));
    const float *got = run("fetch", HEIGHT, 0.5f);
    for (int i = 0; i < WIDTH * HEIGHT; i++)
        REQUIRE(got[i] == value_at(i % WIDTH, i / WIDTH), "texel %d of the array is %g", i, got[i]);
    CHECK_DRIVER(cuTexRefSetFilterMode(image, CU_TR_FILTER_MODE_LINEAR));
    CUfilter_mode filter;
    CHECK_DRIVER(cuTexRefGetFilterMode(&filter, image));
    REQUIRE(filter == CU_TR_FILTER_MODE_LINEAR, "its filter is %d", filter);
    got = run("fetch", HEIGHT, 1.0f);
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        const double want = value_at(i % WIDTH, i / WIDTH) + (i % WIDTH < WIDTH - 1 ? 0.5 : 0);
        REQUIRE(is_close(got[i], want, 1e-3), "behind texel %d of the array lies %g", i, got[i]);
    }
    CHECK_DRIVER(cuTexRefSetFilterMode(image, CU_TR_FILTER_MODE_POINT));

    // Rows with a pitch, and flat memory.
    CUdeviceptr memory;
    size_t pitch, offset;
    CHECK_DRIVER(cuMemAllocPitch(&memory, &pitch, sizeof values[0], HEIGHT, sizeof(float)));
    CHECK_DRIVER(cuMemsetD32(memory, 0, pitch * HEIGHT / 4));
    for (int y = 0; y < HEIGHT; y++) CHECK_DRIVER(cuMemcpyHtoD(memory + y * pitch, values[HEIGHT - 1 - y], sizeof values[0]));
    CHECK_DRIVER(cuTexRefSetAddress2D(image, &format, memory, pitch));
    got = run("fetch", HEIGHT, 0.5f);
    for (int i = 0; i < WIDTH * HEIGHT; i++)
        REQUIRE(got[i] == value_at(i % WIDTH, HEIGHT - 1 - i / WIDTH), "texel %d of the rows is %g", i, got[i]);
    CHECK_DRIVER(cuTexRefSetFormat(image, CU_AD_FORMAT_FLOAT, 1));
    CHECK_DRIVER(cuTexRefSetAddress(&offset, image, memory, sizeof values[0]));
    REQUIRE(offset == 0, "memory of its own begins %zu bytes behind where a texture may", offset);
    got = run("fetch_flat", 1, 0);
    for (int x = 0; x < WIDTH; x++) REQUIRE(got[x] == value_at(x, HEIGHT - 1), "element %d is %g", x, got[x]);

    // A surface of the array.
    CHECK_DRIVER(cuSurfRefSetArray(plane, array, 0));
    run("store", 1, 0);
    CHECK_DRIVER(cuTexRefSetArray(image, array, CU_TRSA_OVERRIDE_FORMAT));
    got = run("fetch", HEIGHT, 0.5f);
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        const float want = i < WIDTH ? (float)i : value_at(i % WIDTH, i / WIDTH);
        REQUIRE(got[i] == want, "texel %d behind a store is %g", i, got[i]);
    }
    CHECK_DRIVER(cuArrayDestroy(array));
    CHECK_DRIVER(cuMemFree(memory));
    CHECK_DRIVER(cuMemFree(out));
    CHECK_DRIVER(cuModuleUnload(module));
    CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));
    return pass();
}

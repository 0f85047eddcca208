// Launches as they were before CUDA 4: block shape, shared memory and parameters are set one by one, then the grid is started.
#define _GNU_SOURCE
#include "check.h"

#include <cuda.h>
#include <stdlib.h>

#define COUNT 1000

// The compiler need not say that these calls are old.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

// out[i] = factor * i + addend for i < count; each thread goes through shared memory, so its size matters.
static const char *ptx =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".extern .shared .align 4 .b8 buffer[];\n"
    ".visible .entry scale(.param .u64 out, .param .f32 factor, .param .u32 count, .param .f32 addend) {\n"
    "  .reg .pred %p;\n  .reg .b32 %r<9>;\n  .reg .f32 %f<5>;\n  .reg .b64 %rd<5>;\n"
    "  ld.param.u64 %rd1, [out];\n  ld.param.f32 %f1, [factor];\n  ld.param.u32 %r1, [count];\n  ld.param.f32 %f2, [addend];\n"
    "  mov.u32 %r2, %ctaid.x;\n  mov.u32 %r3, %ntid.x;\n  mov.u32 %r4, %tid.x;\n  mad.lo.u32 %r5, %r2, %r3, %r4;\n"
    "  setp.ge.u32 %p, %r5, %r1;\n  @%p bra done;\n"
    "  cvt.rn.f32.u32 %f3, %r5;\n  fma.rn.f32 %f4, %f3, %f1, %f2;\n"
    "  mov.u32 %r6, buffer;\n  shl.b32 %r7, %r4, 2;\n  add.u32 %r8, %r6, %r7;\n  st.shared.f32 [%r8], %f4;\n"
    "  ld.shared.f32 %f4, [%r8];\n  mul.wide.u32 %rd2, %r5, 4;\n  cvta.to.global.u64 %rd3, %rd1;\n  add.u64 %rd4, %rd3, %rd2;\n"
    "  st.global.f32 [%rd4], %f4;\ndone:\n  ret;\n}\n";

#define EXPECT_DRIVER(call, expected) \
    do { \
        CUresult result_ = (call); \
        REQUIRE(result_ == (expected), "%s (line %d) returned %d instead of %s", #call, __LINE__, result_, #expected); \
    } while (0)

static void check_values(CUdeviceptr out, float factor, float addend) {
    static float back[COUNT];
    CHECK_DRIVER(cuMemcpyDtoH(back, out, sizeof(back)));
    for (int i = 0; i < COUNT; i++)
        REQUIRE(is_close(back[i], factor * i + addend, 1e-6), "element %d is %g instead of %g", i, back[i], factor * i + addend);
}

int main(void) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction scale;
    CUdeviceptr out;
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_DRIVER(cuCtxSetCurrent(context));
    CHECK_DRIVER(cuModuleLoadData(&module, ptx));
    CHECK_DRIVER(cuModuleGetFunction(&scale, module, "scale"));
    CHECK_DRIVER(cuMemAlloc(&out, COUNT * sizeof(float)));
    CHECK_DRIVER(cuMemsetD8(out, 0, COUNT * sizeof(float)));

    CHECK_DRIVER(cuFuncSetBlockShape(scale, 128, 1, 1));
    CHECK_DRIVER(cuFuncSetSharedSize(scale, 128 * sizeof(float)));
    CHECK_DRIVER(cuParamSetSize(scale, 20));
    CHECK_DRIVER(cuParamSetv(scale, 0, &out, sizeof(out)));
    CHECK_DRIVER(cuParamSetf(scale, 8, 0.5f));
    CHECK_DRIVER(cuParamSeti(scale, 12, COUNT));
    CHECK_DRIVER(cuParamSetf(scale, 16, 3.0f));
    CHECK_DRIVER(cuLaunchGrid(scale, (COUNT + 127) / 128, 1));
    check_values(out, 0.5f, 3.0f);

    // What was set stays; the next launch changes one parameter.
    CUstream stream;
    CHECK_DRIVER(cuStreamCreate(&stream, 0));
    CHECK_DRIVER(cuParamSetf(scale, 8, -2.0f));
    CHECK_DRIVER(cuLaunchGridAsync(scale, (COUNT + 127) / 128, 1, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    check_values(out, -2.0f, 3.0f);

    // One block alone writes the first elements alone.
    CHECK_DRIVER(cuMemsetD8(out, 0, COUNT * sizeof(float)));
    CHECK_DRIVER(cuLaunch(scale));
    float back[129];
    CHECK_DRIVER(cuMemcpyDtoH(back, out, sizeof(back)));
    REQUIRE(back[127] == -2.0f * 127 + 3 && back[128] == 0, "one block wrote %g and %g", back[127], back[128]);

    EXPECT_DRIVER(cuFuncSetBlockShape(scale, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(cuLaunchGrid(scale, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(cuStreamDestroy(stream));
    CHECK_DRIVER(cuMemFree(out));
    CHECK_DRIVER(cuModuleUnload(module));
    CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));
    return pass();
}

// The libraries of NVIDIA's driver whose work is not forwarded: each is found and says so at once, in the words of its interface.
// Exact results, so that a program which does without such a device understands them.
#define _GNU_SOURCE
#include "check.h"

#include <cuda.h>
#include <dlfcn.h>

struct expected {
    const char *library;
    const char *function;
    int result;
};

static const struct expected all[] = {
    {"libnvcuvid.so.1", "cuvidGetDecoderCaps", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidCreateDecoder", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidDestroyDecoder", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidDecodePicture", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidGetDecodeStatus", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidReconfigureDecoder", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidMapVideoFrame", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidMapVideoFrame64", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidUnmapVideoFrame", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidUnmapVideoFrame64", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidCtxLockCreate", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidCtxLockDestroy", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidCtxLock", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidCtxUnlock", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidCreateVideoParser", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidParseVideoData", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidDestroyVideoParser", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidCreateVideoSource", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidCreateVideoSourceW", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidDestroyVideoSource", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidSetVideoSourceState", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidGetVideoSourceState", -1},
    {"libnvcuvid.so.1", "cuvidGetSourceVideoFormat", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidGetSourceAudioFormat", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidConvertYUVToRGB", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidConvertYUVToRGBArray", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "cuvidPrivateOp", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "__std_2U4S4U_X08", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvcuvid.so.1", "__std_2U4S4AD_X08", CUDA_ERROR_NOT_SUPPORTED},
    {"libnvidia-encode.so.1", "NvEncodeAPIGetMaxSupportedVersion", 1},
    {"libnvidia-encode.so.1", "NvEncodeAPICreateInstance", 1},
    {"libnvidia-opticalflow.so.1", "NvOFGetMaxSupportedApiVersion", 1},
    {"libnvidia-opticalflow.so.1", "NvOFAPICreateInstanceCuda", 1},
    {"libnvidia-opticalflow.so.1", "NvOFAPICreateInstanceVk", 1},
    {"libnvoptix.so.1", "optixQueryFunctionTable", 7801},
};

// A table that nobody has: what libraries of NVIDIA's driver ask for. It is refused, and no address is left behind.
static void check_unknown_table(void) {
    CUuuid unknown = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 99}};
    const void *table = &unknown;
    CUresult result = cuGetExportTable(&table, &unknown);
    REQUIRE(result == CUDA_ERROR_INVALID_VALUE, "an unknown table: %d", result);
    REQUIRE(table == NULL, "an unknown table has an address");
}

int main(void) {
    // Something of every argument is written to if a function takes itself for more than it is.
    char memory[4096];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct expected *one = &all[i];
        void *library = dlopen(one->library, RTLD_NOW | RTLD_LOCAL);
        REQUIRE(library, "%s", dlerror());
        int (*function)(void *, void *, void *, void *, void *, void *) =
            (int (*)(void *, void *, void *, void *, void *, void *))dlsym(library, one->function);
        REQUIRE(function, "%s", dlerror());
        memset(memory, 0x5a, sizeof memory);
        int result = function(memory, memory + 512, memory + 1024, memory + 1536, memory + 2048, memory + 2560);
        REQUIRE(result == one->result, "%s of %s: %d, not %d", one->function, one->library, result, one->result);
        for (size_t k = 0; k < sizeof memory; k++)
            REQUIRE(memory[k] == 0x5a, "%s wrote to byte %zu of its arguments", one->function, k);
    }
    check_unknown_table();
    REQUIRE(cuInit(0) == CUDA_SUCCESS, "cuInit");
    check_unknown_table();
    return pass();
}

//! Stubs of those libraries of NVIDIA's driver whose work is not forwarded: video codecs, optical flow and
//! ray tracing.
//!
//! They stand beside the client library under the names `libnvcuvid.so.1`, `libnvidia-encode.so.1`,
//! `libnvidia-opticalflow.so.1` and `libnvoptix.so.1`, so that programs find them before NVIDIA's. NVIDIA's
//! need a GPU in this machine and talk to NVIDIA's `libcuda.so.1` by tables that no other library has: with
//! another one, some wait for them for ever. A stub says at once, in the words of its interface, that there
//! is no such device, and programs do without.
//!
//! Every name leads to this one library, which exports the functions of all of them. What their names,
//! arguments and results are is from NVIDIA's published headers (Video Codec, Optical Flow and OptiX SDKs).

mod log;

/// Exports functions that refuse with one result. The caller clears up its own arguments, so that these need
/// not name theirs.
macro_rules! refused {
    ($type:ty, $result:ident = $value:literal, $what:literal: $($name:ident)*) => {
        $(
            /// Refuses at once: what it would do is not forwarded.
            #[allow(non_snake_case)]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> $type {
                log::refused(stringify!($name), stringify!($result), $what);
                $value
            }
        )*
    };
}

// `CUresult`.
refused! { u32, CUDA_ERROR_NOT_SUPPORTED = 801, "video decoding":
    cuvidGetDecoderCaps
    cuvidCreateDecoder
    cuvidDestroyDecoder
    cuvidDecodePicture
    cuvidGetDecodeStatus
    cuvidReconfigureDecoder
    cuvidMapVideoFrame
    cuvidMapVideoFrame64
    cuvidUnmapVideoFrame
    cuvidUnmapVideoFrame64
    cuvidCtxLockCreate
    cuvidCtxLockDestroy
    cuvidCtxLock
    cuvidCtxUnlock
    cuvidCreateVideoParser
    cuvidParseVideoData
    cuvidDestroyVideoParser
    cuvidCreateVideoSource
    cuvidCreateVideoSourceW
    cuvidDestroyVideoSource
    cuvidSetVideoSourceState
    cuvidGetSourceVideoFormat
    cuvidGetSourceAudioFormat
    cuvidConvertYUVToRGB
    cuvidConvertYUVToRGBArray
    cuvidPrivateOp
}

// Two functions of `libnvcuvid.so.1` that no header has: nvJPEG asks them, before it opens its hardware
// decoder, to fill in and to give back a table, and calls them without looking whether they are there. A
// result other than 0 makes it do without.
refused! { u32, CUDA_ERROR_NOT_SUPPORTED = 801, "JPEG decoding by the video decoder": __std_2U4S4U_X08 __std_2U4S4AD_X08 }

// `cudaVideoState`: this one has no other way to say that something is wrong.
refused! { i32, cudaVideoState_Error = -1, "video decoding": cuvidGetVideoSourceState }

// `NVENCSTATUS`.
refused! { u32, NV_ENC_ERR_NO_ENCODE_DEVICE = 1, "video encoding":
    NvEncodeAPIGetMaxSupportedVersion
    NvEncodeAPICreateInstance
}

// `NV_OF_STATUS`.
refused! { u32, NV_OF_ERR_OF_NOT_AVAILABLE = 1, "optical flow":
    NvOFGetMaxSupportedApiVersion
    NvOFAPICreateInstanceCuda
    NvOFAPICreateInstanceVk
}

// `OptixResult`: no version of the interface is supported. Programs that ask for several versions come to the
// last of them.
refused! { u32, OPTIX_ERROR_UNSUPPORTED_ABI_VERSION = 7801, "ray tracing": optixQueryFunctionTable }

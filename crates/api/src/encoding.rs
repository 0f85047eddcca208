//! Wire encoding of those types of `cuda.h` that travel in generated requests and replies.

use crate::sys;
use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};
use causeway_wire::record;

/// Enumerations are newtypes over an integer, so any number a peer sends is a valid value.
macro_rules! enumerations {
    ($($name:ident),* $(,)?) => {$(
        impl Encode for sys::$name {
            fn encode(&self, out: &mut Vec<u8>) {
                self.0.encode(out);
            }
        }
        impl<'a> Decode<'a> for sys::$name {
            fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
                Ok(Self(input.value()?))
            }
        }
    )*};
}

enumerations!(
    CUjitInputType,
    CUresult,
    CUlimit,
    CUfunc_cache,
    CUsharedconfig,
    CUfunction_attribute,
    CUmemPool_attribute,
    CUstreamCaptureMode,
    CUarray_format,
    CUtensorMapDataType,
    CUtensorMapInterleave,
    CUtensorMapSwizzle,
    CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill,
    CUtensorMapIm2ColWideMode,
);

record!(sys::CUtensorMap { opaque });
record!(sys::CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth, Format, NumChannels, Flags });
record!(sys::CUDA_ARRAY_MEMORY_REQUIREMENTS { size, alignment, reserved });
record!(sys::CUDA_ARRAY_SPARSE_PROPERTIES { tileExtent, miptailFirstLevel, miptailSize, flags, reserved });
record!(sys::CUDA_ARRAY_SPARSE_PROPERTIES_st__bindgen_ty_1 { width, height, depth });

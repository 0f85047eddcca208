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
        /// Zero, for a place that the driver fills in.
        impl Default for sys::$name {
            fn default() -> Self {
                Self(0)
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
    CUaddress_mode,
    CUarray_format,
    CUatomicOperation,
    CUexecAffinityType,
    CUfilter_mode,
    CUflushGPUDirectRDMAWritesScope,
    CUflushGPUDirectRDMAWritesTarget,
    CUmemDecompressAlgorithm,
    CUresourceViewFormat,
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
record!(sys::CUDA_ARRAY_DESCRIPTOR { Width, Height, Format, NumChannels });
record!(sys::CUDA_TEXTURE_DESC {
    addressMode,
    filterMode,
    flags,
    maxAnisotropy,
    mipmapFilterMode,
    mipmapLevelBias,
    minMipmapLevelClamp,
    maxMipmapLevelClamp,
    borderColor,
    reserved,
});
record!(sys::CUDA_RESOURCE_VIEW_DESC {
    format,
    width,
    height,
    depth,
    firstMipmapLevel,
    lastMipmapLevel,
    firstLayer,
    lastLayer,
    reserved,
});

impl Encode for sys::CUexecAffinityParam {
    fn encode(&self, out: &mut Vec<u8>) {
        self.type_.encode(out);
        // SAFETY: the number of multiprocessors is the union's only member.
        unsafe { self.param.smCount }.val.encode(out);
    }
}

impl<'a> Decode<'a> for sys::CUexecAffinityParam {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let mut param = Self { type_: input.value()?, ..Self::default() };
        param.param.smCount.val = input.value()?;
        Ok(param)
    }
}

/// Its pointers are addresses of device memory.
impl Encode for sys::CUmemDecompressParams {
    fn encode(&self, out: &mut Vec<u8>) {
        [self.srcNumBytes, self.dstNumBytes].encode(out);
        [self.dstActBytes as u64, self.src as u64, self.dst as u64].encode(out);
        self.algo.encode(out);
    }
}

impl<'a> Decode<'a> for sys::CUmemDecompressParams {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let [source_bytes, destination_bytes] = input.value()?;
        let [actual, source, destination]: [u64; 3] = input.value()?;
        Ok(Self {
            srcNumBytes: source_bytes,
            dstNumBytes: destination_bytes,
            dstActBytes: actual as *mut _,
            src: source as *const _,
            dst: destination as *mut _,
            algo: input.value()?,
            ..Self::default()
        })
    }
}

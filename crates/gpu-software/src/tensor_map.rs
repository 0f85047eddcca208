//! Tensor maps: `cuTensorMapEncodeTiled` and `cuTensorMapReplaceAddress`.

use causeway_api::sys::{
    CUdeviceptr, CUresult, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapSwizzle,
};
use causeway_gpu::CuResult;
use causeway_ptx::tensor_map::{MAX_TENSOR_RANK, Swizzle, TENSOR_MAP_BYTES, TensorMap};

/// Bytes of an element, and whether subnormal ones become zero; none of types whose conversion is NVIDIA's own.
fn element(data_type: CUtensorMapDataType) -> CuResult<(u32, bool)> {
    use CUtensorMapDataType as Type;
    Ok(match data_type {
        Type::CU_TENSOR_MAP_DATA_TYPE_UINT8 => (1, false),
        Type::CU_TENSOR_MAP_DATA_TYPE_UINT16
        | Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16
        | Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 => (2, false),
        Type::CU_TENSOR_MAP_DATA_TYPE_UINT32
        | Type::CU_TENSOR_MAP_DATA_TYPE_INT32
        | Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32 => (4, false),
        Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ => (4, true),
        Type::CU_TENSOR_MAP_DATA_TYPE_UINT64
        | Type::CU_TENSOR_MAP_DATA_TYPE_INT64
        | Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT64 => (8, false),
        Type::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
        | Type::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ
        | Type::CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B
        | Type::CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B
        | Type::CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    })
}

fn order(swizzle: CUtensorMapSwizzle) -> CuResult<Swizzle> {
    use CUtensorMapSwizzle as Kind;
    Ok(match swizzle {
        Kind::CU_TENSOR_MAP_SWIZZLE_NONE => Swizzle::None,
        Kind::CU_TENSOR_MAP_SWIZZLE_32B => Swizzle::Bytes32,
        Kind::CU_TENSOR_MAP_SWIZZLE_64B => Swizzle::Bytes64,
        Kind::CU_TENSOR_MAP_SWIZZLE_128B => Swizzle::Bytes128,
        Kind::CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B
        | Kind::CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B
        | Kind::CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    })
}

/// What a box and its tensor are, as the call is given it.
pub(crate) struct Tiled<'a> {
    pub(crate) data_type: CUtensorMapDataType,
    pub(crate) address: CUdeviceptr,
    pub(crate) dims: &'a [u64],
    pub(crate) strides: &'a [u64],
    pub(crate) box_dims: &'a [u32],
    pub(crate) element_strides: &'a [u32],
    pub(crate) interleave: CUtensorMapInterleave,
    pub(crate) swizzle: CUtensorMapSwizzle,
    pub(crate) fill: CUtensorMapFloatOOBfill,
}

/// An array with the first of these numbers, and zeros behind them; none where there are more.
fn padded<T: Copy + Default, const N: usize>(numbers: &[T]) -> CuResult<[T; N]> {
    let mut array = [T::default(); N];
    let head = array.get_mut(..numbers.len()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    head.copy_from_slice(numbers);
    Ok(array)
}

/// The map of a box in tiles.
///
/// # Errors
/// `INVALID_VALUE` beyond the limits that the call states, `NOT_SUPPORTED` for interleaved layouts, fills with NaN, and the
/// types and orders that `element` and `order` leave out.
pub(crate) fn encode(tiled: &Tiled<'_>) -> CuResult<CUtensorMap> {
    let rank = tiled.dims.len();
    let (element_bytes, flushes_subnormals) = element(tiled.data_type)?;
    if !(1..=MAX_TENSOR_RANK).contains(&rank) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let map = TensorMap {
        rank,
        element_bytes,
        flushes_subnormals,
        address: tiled.address,
        dims: padded(tiled.dims)?,
        strides: padded(tiled.strides)?,
        box_dims: padded(tiled.box_dims)?,
        element_strides: padded(tiled.element_strides)?,
        swizzle: order(tiled.swizzle)?,
    };
    let unswizzled = TensorMap { swizzle: Swizzle::None, ..map };
    let is_plain = tiled.interleave == CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE
        && tiled.fill == CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    match (unswizzled.is_valid(), is_plain && map.is_valid()) {
        (false, _) => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        // Rows that are longer than the order's are invalid, and shorter ones not supported.
        (true, false) if is_plain && map.row_bytes() > 16 << map.swizzle as u64 => {
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
        (true, false) => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        (true, true) => Ok(opaque(&map)),
    }
}

/// The same map of a tensor that lies elsewhere.
pub(crate) fn with_address(map: &CUtensorMap, address: CUdeviceptr) -> CuResult<CUtensorMap> {
    let mut bytes = [0; TENSOR_MAP_BYTES];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(map.opaque) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let map = TensorMap::decode(&bytes).map(|map| TensorMap { address, ..map });
    map.filter(TensorMap::is_valid).as_ref().map(opaque).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

fn opaque(map: &TensorMap) -> CUtensorMap {
    let bytes = map.encode();
    let mut opaque = [0; TENSOR_MAP_BYTES / 8];
    for (word, bytes) in opaque.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    CUtensorMap { opaque }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIMS: [u64; 2] = [64, 64];

    fn tiled() -> Tiled<'static> {
        Tiled {
            data_type: CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            address: 0x10000,
            dims: &DIMS,
            strides: &[256],
            box_dims: &[16, 8],
            element_strides: &[1, 1],
            interleave: CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle: CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            fill: CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        }
    }

    #[test]
    fn maps_are_made_moved_and_refused() {
        let map = encode(&tiled()).unwrap();
        let moved = encode(&Tiled { address: 0x20000, ..tiled() }).unwrap();
        assert_eq!(with_address(&map, 0x20000).map(|map| map.opaque), Ok(moved.opaque));
        assert_eq!(with_address(&map, 0x20008).err(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert_eq!(
            with_address(&CUtensorMap::default(), 0x20000).err(),
            Some(CUresult::CUDA_ERROR_INVALID_VALUE)
        );
        let swizzle = CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B;
        let wider = CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B;
        let interleave = CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_16B;
        let data_type = CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
        for (wrong, error) in [
            (Tiled { dims: &[], strides: &[], ..tiled() }, CUresult::CUDA_ERROR_INVALID_VALUE),
            (Tiled { dims: &[1; 6], ..tiled() }, CUresult::CUDA_ERROR_INVALID_VALUE),
            (Tiled { address: 8, ..tiled() }, CUresult::CUDA_ERROR_INVALID_VALUE),
            (Tiled { swizzle, ..tiled() }, CUresult::CUDA_ERROR_INVALID_VALUE),
            (Tiled { swizzle: wider, ..tiled() }, CUresult::CUDA_ERROR_NOT_SUPPORTED),
            (Tiled { interleave, ..tiled() }, CUresult::CUDA_ERROR_NOT_SUPPORTED),
            (Tiled { data_type, ..tiled() }, CUresult::CUDA_ERROR_NOT_SUPPORTED),
            (Tiled { data_type: CUtensorMapDataType(99), ..tiled() }, CUresult::CUDA_ERROR_INVALID_VALUE),
        ] {
            assert_eq!(encode(&wrong).err(), Some(error), "{:?} {:?}", wrong.dims, wrong.swizzle);
        }
    }
}

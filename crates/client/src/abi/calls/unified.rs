//! Attributes of pointers, answered from the tables of device and pinned memory as a driver (580) answers
//! them.

use crate::abi::entry::Outcome;
use crate::arguments::list;
use crate::model::handles::RawHandle as _;
use crate::model::memory::Origin;
use crate::model::{host_memory, memory};
use crate::remote::mirrored;
use crate::submit::{pool, virtual_memory};
use causeway_api::handle::{Context, Handle, Kind as _, MemoryPool};
use causeway_api::sys::{
    CUdeviceptr, CUmemLocation, CUmemLocationType, CUmemorytype, CUpointer_attribute, CUresult,
};
use core::ffi::c_void;

/// What an address is.
enum Target {
    Device(memory::Piece),
    Pinned(host_memory::Range),
    Unknown,
}

fn target(address: CUdeviceptr) -> Target {
    match (memory::find(address), host_memory::find(on_host(address))) {
        (Some(piece), _) => Target::Device(piece),
        (None, Some(range)) => Target::Pinned(range),
        (None, None) => Target::Unknown,
    }
}

/// The mapping of memory of the host in which an address lies.
fn mapping_of_host(address: CUdeviceptr) -> Option<host_memory::HostMapping> {
    host_memory::find_mapping(address as usize)
}

/// The address that the program uses for memory of which `address` is this or the device's.
fn on_host(address: CUdeviceptr) -> usize {
    mirrored::host_address(address).unwrap_or(address as usize)
}

/// The address that kernels use for pinned memory; nothing while none can have it.
fn on_device(address: CUdeviceptr) -> Option<CUdeviceptr> {
    let host = on_host(address);
    // In the window it is known before there is a mirror, which a launch makes.
    let known = mirrored::device_address(host)
        .or_else(|| crate::model::host_window::contains(host).then_some(host as CUdeviceptr));
    known.filter(|_| host_memory::find(host).is_none_or(|range| mirrored::is_open(&range)))
}

/// `CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE`.
const READ_AND_WRITE: u32 = 3;

/// What the device may do with memory that it has.
fn access(piece: &memory::Piece, address: CUdeviceptr) -> u32 {
    let location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: piece.device };
    virtual_memory::access(address, &location).unwrap_or(READ_AND_WRITE)
}

/// Whether a piece is a mapping of the program's that no device may read or write.
pub(super) fn is_barred(piece: &memory::Piece, address: CUdeviceptr) -> bool {
    access(piece, address) == 0 && !virtual_memory::is_open(address)
}

/// The first address and the size of the range that an address is said to belong to: for mappings the range
/// that was reserved.
fn range(piece: &memory::Piece) -> (u64, u64) {
    let reserved = (piece.origin == Origin::Mapping).then(|| virtual_memory::reserved_at(piece.base));
    reserved.flatten().unwrap_or((piece.base, piece.size))
}

/// The size of a mapping of pinned or managed memory, which is made in pages of a device.
fn in_device_pages(size: u64) -> u64 {
    size.next_multiple_of(2 << 20)
}

/// The mapping in which a piece lies: its first address, its size, and a number of its memory.
fn mapping(piece: &memory::Piece) -> (u64, u64, u64) {
    let block = piece.heap.as_ref().and_then(|heap| heap.block_of(piece.base));
    match (block, virtual_memory::allocation_at(piece.base)) {
        (Some((base, block)), _) => (base, block.size, u64::from(block.handle.index())),
        (None, Some(allocation)) => (piece.base, piece.size, u64::from(allocation.handle.index())),
        (None, None) if piece.origin == Origin::Managed => {
            (piece.base, in_device_pages(piece.size), piece.id)
        }
        (None, None) => (piece.base, piece.size, piece.id),
    }
}

/// The pool of host or managed memory that a target came from.
fn pool_at(target: &Target) -> Option<Handle<MemoryPool>> {
    match target {
        Target::Pinned(range) => pool::host_ranges::pool_of(range.base as u64),
        Target::Device(piece) if piece.origin.is_managed() => pool::host_ranges::pool_of(piece.base),
        _ => None,
    }
}

/// The value of an attribute, as the bytes of its C type.
fn value(target: &Target, address: CUdeviceptr, attribute: CUpointer_attribute) -> Result<Vec<u8>, CUresult> {
    let word = |value: u32| Ok(value.to_ne_bytes().to_vec());
    let long = |value: u64| Ok(value.to_ne_bytes().to_vec());
    // `cuda.h` speaks of booleans; the driver writes four bytes.
    let flag = |value: bool| Ok(u32::from(value).to_ne_bytes().to_vec());
    let invalid = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    match (attribute, target) {
        (_, Target::Unknown) => invalid,
        // Memory of pools belongs to no context.
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT, _) if pool_at(target).is_some() => long(0),
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT, Target::Device(piece))
            if pool::of_piece(piece).is_some() =>
        {
            long(0)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, Target::Pinned(_)) => {
            long(pool_at(target).map_or(0, |pool| MemoryPool::address(pool.as_raw())))
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT, Target::Device(piece)) => {
            long(Context::address(piece.context.as_raw()))
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT, Target::Pinned(range)) => {
            long(Context::address(range.context.as_raw()))
        }
        // Memory of the host that the program has mapped, as host pools' with NVIDIA's driver (580); not
        // compared with it itself.
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, Target::Device(_))
            if mapping_of_host(address).is_some() =>
        {
            word(CUmemorytype::CU_MEMORYTYPE_HOST.0)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER, Target::Device(_))
            if mapping_of_host(address).is_some_and(|mapping| mapping.host_access != 0) =>
        {
            long(address)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, Target::Device(_))
            if mapping_of_host(address).is_some() =>
        {
            flag(false)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, Target::Device(_)) => {
            word(CUmemorytype::CU_MEMORYTYPE_DEVICE.0)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, Target::Pinned(_)) => {
            word(CUmemorytype::CU_MEMORYTYPE_HOST.0)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER, Target::Device(piece))
            if is_barred(piece, address) =>
        {
            invalid
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER, Target::Device(_)) => long(address),
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER, Target::Pinned(_)) => {
            on_device(address).map_or(invalid, long)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER, Target::Pinned(_)) => {
            long(on_host(address) as u64)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER, Target::Device(piece))
            if piece.origin.is_managed() =>
        {
            long(address)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, Target::Device(piece)) => {
            flag(piece.origin.is_managed())
        }
        // Synchronous copies and fills of it never return early.
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, Target::Device(_)) => flag(true),
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, Target::Pinned(_)) => flag(false),
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID, Target::Device(piece)) => long(piece.id),
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID, Target::Pinned(range)) => long(range.id),
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, _)
        | (CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, Target::Pinned(_))
        | (CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, _)
        | (CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, _) => flag(false),
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPED, Target::Device(_)) => flag(true),
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPED, Target::Pinned(range)) => {
            flag(range.is_pooled || on_device(address).is_some())
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, Target::Device(piece)) => {
            word(piece.device as u32)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, Target::Pinned(range)) => {
            word(crate::model::context::state(range.context)?.device as u32)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, Target::Device(piece)) => {
            long(range(piece).0)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, Target::Pinned(range)) => {
            long(range.base as u64)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, Target::Device(piece)) => long(range(piece).1),
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, Target::Pinned(range)) => {
            long(range.size as u64)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, Target::Device(piece)) => {
            flag(piece.origin == Origin::Allocation && piece.heap.is_some())
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, Target::Device(piece)) => {
            let of_mapping = || Some(virtual_memory::allocation_at(address)?.properties.handle_types);
            let of_pool = || Some(pool::of_piece(piece)?.handle_types);
            long(u64::from(of_mapping().or_else(of_pool).unwrap_or(0)))
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, Target::Pinned(_)) => long(0),
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, Target::Device(piece)) => {
            word(access(piece, address))
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, Target::Pinned(_)) => word(READ_AND_WRITE),
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, Target::Device(piece)) => {
            long(pool::of_piece(piece).map_or(0, |pool| MemoryPool::address(pool.handle.as_raw())))
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, Target::Device(piece)) => {
            long(mapping(piece).0)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE, Target::Device(piece)) => {
            long(mapping(piece).1)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, Target::Device(piece)) => {
            long(mapping(piece).2)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, Target::Pinned(range)) => {
            long(range.base as u64)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE, Target::Pinned(range))
            if range.is_registered =>
        {
            long(range.size as u64)
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE, Target::Pinned(range)) => {
            long(in_device_pages(range.size as u64))
        }
        (CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, Target::Pinned(range)) => long(range.id),
        _ => invalid,
    }
}

/// What the call for several attributes answers for one that an address does not have, as a real driver (580)
/// does.
fn absent(address: CUdeviceptr, attribute: CUpointer_attribute) -> Result<Vec<u8>, CUresult> {
    /// The ordinal of no device: "invalid device" in `cuda.h` is -2.
    const NO_DEVICE: i32 = -2;
    match attribute {
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_P2P_TOKENS => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER if memory::find(address).is_none() => {
            Ok(address.to_ne_bytes().to_vec())
        }
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Ok(NO_DEVICE.to_ne_bytes().to_vec()),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
        | CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE => Ok(Vec::new()),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        | CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        | CUpointer_attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS
        | CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED
        | CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
        | CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPED
        | CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
        | CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => Ok(vec![0; 4]),
        _ => Ok(vec![0; 8]),
    }
}

pub unsafe fn cuPointerGetAttribute(
    data: *mut c_void,
    attribute: CUpointer_attribute,
    ptr: CUdeviceptr,
) -> Outcome {
    if data.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let bytes = value(&target(ptr), ptr, attribute)?;
    // SAFETY: the program has room for the attribute's type.
    unsafe { data.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

pub unsafe fn cuPointerGetAttributes(
    numAttributes: u32,
    attributes: *const CUpointer_attribute,
    data: *mut *mut c_void,
    ptr: CUdeviceptr,
) -> Outcome {
    let target = target(ptr);
    // SAFETY: both lists have `numAttributes` entries.
    let (attributes, outs) =
        unsafe { (list(attributes, numAttributes as usize)?, list(data, numAttributes as usize)?) };
    for (attribute, out) in attributes.iter().zip(outs) {
        if out.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let bytes = value(&target, ptr, *attribute).or_else(|_| absent(ptr, *attribute))?;
        // SAFETY: the program has room for the attribute's type.
        unsafe { out.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len()) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_memory_has_no_pointer_attributes() {
        let mut kind = 77_u32;
        let mut ordinal = 77_i32;
        let attributes = [
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        ];
        let mut outs = [(&raw mut kind).cast::<c_void>(), (&raw mut ordinal).cast()];
        // SAFETY: both lists have two entries, with room for the values.
        unsafe {
            let one = cuPointerGetAttribute(outs[0], attributes[0], 0x10);
            assert_eq!(one, Err(CUresult::CUDA_ERROR_INVALID_VALUE));
            cuPointerGetAttributes(2, attributes.as_ptr(), outs.as_mut_ptr(), 0x10).unwrap();
        }
        assert_eq!((kind, ordinal), (0, -2));
    }
}

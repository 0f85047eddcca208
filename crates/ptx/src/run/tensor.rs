//! Copies of boxes of tensors, between global and shared memory: what compiled code calls for
//! `cp.async.bulk.tensor`.
//!
//! As all functions that compiled code calls they may be abandoned where they read or write device memory, so they hold
//! no lock and own nothing.

use super::context::{Raised, ThreadContext};
use super::functions::raise;
use super::printf::DeviceReader;
use crate::memory::AddressSpace;
use crate::tensor_map::{MAX_TENSOR_RANK, TENSOR_MAP_BYTES, TensorMap};

/// What compiled code passes, in a slot of its stack.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct TensorCopy {
    /// The generic address of the map.
    pub(crate) map: u64,
    /// The generic address of the box in shared memory, and the address that its instruction names: the order in a
    /// swizzled box is by this one's bits.
    pub(crate) shared: u64,
    pub(crate) window_address: u64,
    /// Bytes of shared memory from there to its end.
    pub(crate) capacity: u64,
    /// Where the box begins in the tensor.
    pub(crate) coordinates: [i32; MAX_TENSOR_RANK],
    pub(crate) rank: u32,
}

/// Which way a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToShared,
    ToGlobal,
}

/// Why a copy is not made.
enum CopyFault {
    Address(u64),
    Misaligned(u64),
    Instruction(&'static str),
}

/// What the address of a map is a multiple of, and that of a box in shared memory.
const MAP_ALIGNMENT: u32 = 64;
const BOX_ALIGNMENT: u32 = 128;

/// `cp.async.bulk.tensor` to shared memory. Returns the bytes of the box.
///
/// # Safety
/// Called by compiled code only, with the context of the running thread and a copy in a slot of its stack.
pub(crate) unsafe extern "C" fn load_box(thread: *mut ThreadContext, copy: *const TensorCopy) -> u32 {
    // SAFETY: compiled code passes the context of the running thread and a copy in a slot of its stack.
    unsafe { run(thread, &*copy, Direction::ToShared) }
}

/// The same to global memory.
///
/// # Safety
/// As for [`load_box`].
pub(crate) unsafe extern "C" fn store_box(thread: *mut ThreadContext, copy: *const TensorCopy) -> u32 {
    // SAFETY: compiled code passes the context of the running thread and a copy in a slot of its stack.
    unsafe { run(thread, &*copy, Direction::ToGlobal) }
}

/// # Safety
/// As for [`load_box`].
unsafe fn run(thread: *mut ThreadContext, copy: &TensorCopy, direction: Direction) -> u32 {
    // SAFETY: the launch outlives its threads.
    let space = unsafe { (*(*thread).launch).space };
    let raised = match move_box(space, copy, direction) {
        Ok(bytes) => return bytes,
        Err(CopyFault::Address(address)) => Raised::IllegalAddress(address),
        Err(CopyFault::Misaligned(address)) => Raised::Misaligned { address, size: BOX_ALIGNMENT },
        Err(CopyFault::Instruction(reason)) => Raised::IllegalInstruction(reason),
    };
    // SAFETY: compiled code passes the context of the running thread.
    unsafe { raise(thread, raised) }
}

fn move_box(space: &AddressSpace, copy: &TensorCopy, direction: Direction) -> Result<u32, CopyFault> {
    if !copy.map.is_multiple_of(u64::from(MAP_ALIGNMENT)) {
        return Err(CopyFault::Misaligned(copy.map));
    }
    let mut bytes = [0; TENSOR_MAP_BYTES];
    for (byte, address) in bytes.iter_mut().zip(copy.map..) {
        *byte = read(space, address)?;
    }
    let map = TensorMap::decode(&bytes);
    let map =
        map.ok_or(CopyFault::Instruction("the tensor map is none that `cuTensorMapEncodeTiled` has made"))?;
    if map.rank != copy.rank as usize {
        return Err(CopyFault::Instruction(
            "the tensor map has another number of dimensions than the instruction",
        ));
    }
    if !copy.window_address.is_multiple_of(u64::from(BOX_ALIGNMENT)) {
        return Err(CopyFault::Misaligned(copy.window_address));
    }
    if map.box_bytes() > copy.capacity {
        return Err(CopyFault::Address(copy.window_address + copy.capacity));
    }
    let rows = (1..map.rank).map(|dimension| map.count(dimension)).product();
    for row in 0..rows {
        move_row(space, copy, &map, row, direction)?;
    }
    // At most 256 to the fifth power would be more, but for shared memory's size.
    Ok(map.box_bytes() as u32)
}

/// One row of the box: elements that follow each other in the tensor.
fn move_row(
    space: &AddressSpace,
    copy: &TensorCopy,
    map: &TensorMap,
    row: u32,
    direction: Direction,
) -> Result<(), CopyFault> {
    let (mut rest, mut start, mut is_within) = (row, map.address, true);
    for dimension in 1..map.rank {
        let count = map.count(dimension);
        let at = i64::from(copy.coordinates[dimension]) + i64::from(rest % count * map.step(dimension));
        rest /= count;
        is_within &= (0..map.dims[dimension].cast_signed()).contains(&at);
        start = start.wrapping_add(map.strides[dimension - 1].wrapping_mul(at.cast_unsigned()));
    }
    let size = u64::from(map.element_bytes);
    for element in 0..map.box_dims[0] {
        let at = i64::from(copy.coordinates[0]) + i64::from(element);
        let is_within = is_within && (0..map.dims[0].cast_signed()).contains(&at);
        let global = start.wrapping_add(at.cast_unsigned().wrapping_mul(size));
        let offset = u64::from(row) * map.row_bytes() + u64::from(element) * size;
        // A row is within 128 bytes where it is swizzled, and the box begins at a multiple of that: so this stays in it.
        let swizzled = map.swizzle.apply(copy.window_address + offset) - copy.window_address;
        let shared = copy.shared + swizzled;
        match direction {
            Direction::ToShared => {
                let mut value = [0_u8; 8];
                for (byte, address) in value[..size as usize].iter_mut().zip(global..) {
                    *byte = if is_within { read(space, address)? } else { 0 };
                }
                if map.flushes_subnormals {
                    flush(&mut value);
                }
                for (byte, address) in value[..size as usize].iter().zip(shared..) {
                    write(space, address, *byte)?;
                }
            }
            Direction::ToGlobal if is_within => {
                for index in 0..size {
                    write(space, global.wrapping_add(index), read(space, shared + index)?)?;
                }
            }
            Direction::ToGlobal => {}
        }
    }
    Ok(())
}

/// A subnormal number becomes a zero of its sign.
fn flush(value: &mut [u8; 8]) {
    let bits = u32::from_le_bytes([value[0], value[1], value[2], value[3]]);
    if f32::from_bits(bits).is_subnormal() {
        value[..4].copy_from_slice(&(bits & 1 << 31).to_le_bytes());
    }
}

fn read(space: &AddressSpace, address: u64) -> Result<u8, CopyFault> {
    DeviceReader { space }.byte(address).map_err(CopyFault::Address)
}

fn write(space: &AddressSpace, address: u64, byte: u8) -> Result<(), CopyFault> {
    if !space.contains(address) {
        return Err(CopyFault::Address(address));
    }
    // SAFETY: the address lies in the space's own reservation, and this runs on a kernel's coroutine, where touching a page
    // without access ends the kernel. Other threads may use the byte meanwhile, as on a GPU.
    unsafe { std::ptr::write_volatile(address as *mut u8, byte) };
    Ok(())
}

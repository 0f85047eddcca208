//! Memory for C programs: strided elements, scratch memory, the control channel of the ranks of a node, and
//! memory of another rank that kernels use. `mpi/causeway_comm.h` declares and describes the functions.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::Arc;

use super::{FAILED, fail, guard, world};
use crate::channels::Channel;
use crate::collective::control::ControlChannel;
use crate::collective::kernels::memory_at;
use crate::collective::memory::{HostMemory, Temporary};
use crate::collective::runs::{self, Elements, Run};
use crate::cuda::{self, CudaError, DeviceMemory, Driver, Scope};
use crate::matching::{DESCRIPTOR_BYTES, Descriptor};
use crate::transfer::MappedMemory;
use crate::world::{ControlSlots, World};

/// `struct causeway_comm_runs`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CRuns {
    id: u64,
    count: u64,
    runs: *const Run,
    extent: i64,
}

/// Packs strided elements into contiguous memory, or unpacks them. 0, or -1.
///
/// # Safety
/// The list is as `causeway_comm.h` describes it, and both addresses are valid for what it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_copy_runs(
    list: *const CRuns,
    typed: *mut c_void,
    packed: *mut c_void,
    bytes: u64,
    is_pack: c_int,
) -> c_int {
    guard(FAILED, || {
        // SAFETY: the list is one of the C header, which stays until the call returns.
        let list = unsafe { *list };
        if list.count == 0 {
            return 0;
        }
        // SAFETY: the caller has as many elements at `list.runs`, and leaves them alone until the call returns.
        let runs = unsafe { core::slice::from_raw_parts(list.runs, list.count as usize) };
        let what = Elements {
            id: list.id,
            runs,
            extent: list.extent,
            typed: typed as u64,
            packed: packed as u64,
            bytes,
            is_pack: is_pack != 0,
        };
        // SAFETY: both addresses are valid for all runs of the list, which the caller guarantees.
        unsafe { runs::copy(&what) }.map_or_else(fail, |()| 0)
    })
}

/// A list of runs that will not be used any more.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_forget_runs(id: u64) {
    guard((), || {
        runs::forget(id);
    })
}

/// Allocates scratch memory on the GPU of an address; null for an error. Writes the handle that releases it.
///
/// # Safety
/// `handle` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_allocate(
    gpu_address: *const c_void,
    bytes: u64,
    handle: *mut *mut c_void,
) -> *mut c_void {
    guard(ptr::null_mut(), || {
        let allocation =
            memory_at(gpu_address as u64).ok_or(CudaError::UNKNOWN_MEMORY).and_then(|(driver, memory)| {
                let _scope = Scope::of(driver, &memory)?;
                Temporary::new(driver, memory.device, bytes)
            });
        match allocation {
            Ok(temporary) => {
                let address = temporary.address();
                // SAFETY: the caller has room at `handle`, which nobody else uses during the call.
                unsafe { *handle = Box::into_raw(Box::new(temporary)).cast() };
                address as *mut c_void
            }
            Err(error) => {
                fail(error);
                ptr::null_mut()
            }
        }
    })
}

/// Releases such memory.
///
/// # Safety
/// The handle is one of [`causeway_comm_allocate`], and is not released twice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_release(handle: *mut c_void) {
    guard((), || {
        if !handle.is_null() {
            // SAFETY: `handle` is what `Box::into_raw` gave for this type, and the caller uses it no more.
            drop(unsafe { Box::from_raw(handle.cast::<Temporary>()) });
        }
    })
}

/// Allocates host memory for copies to and from the GPU of an address, pinned if possible; null if so many
/// bytes cannot be allocated so. Writes the handle that releases it. The contents are undefined.
///
/// # Safety
/// `handle` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_allocate_host(
    gpu_address: *const c_void,
    bytes: u64,
    handle: *mut *mut c_void,
) -> *mut c_void {
    guard(ptr::null_mut(), || {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let Some(mut allocation) = HostMemory::new(gpu_address as u64, bytes) else { return ptr::null_mut() };
        let address = allocation.address();
        // SAFETY: the caller has room at `handle`, which nobody else uses during the call.
        unsafe { *handle = Box::into_raw(Box::new(allocation)).cast() };
        address as *mut c_void
    })
}

/// Releases such memory.
///
/// # Safety
/// The handle is one of [`causeway_comm_allocate_host`], and is not released twice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_release_host(handle: *mut c_void) {
    guard((), || {
        if !handle.is_null() {
            // SAFETY: `handle` is what `Box::into_raw` gave for this type, and the caller uses it no more.
            drop(unsafe { Box::from_raw(handle.cast::<HostMemory>()) });
        }
    })
}

/// Opens the control channel of a group, or returns null.
///
/// # Safety
/// There are so many members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_open_control(
    members: *const u32,
    ranks: u32,
    rank: u32,
    slot: u32,
    generation: u32,
) -> *mut ControlChannel {
    guard(ptr::null_mut(), || {
        let (Some(world), Ok(slot)) = (world(), u16::try_from(slot)) else { return ptr::null_mut() };
        if rank >= ranks || slot >= ControlSlots::COUNT {
            return ptr::null_mut();
        }
        // SAFETY: the caller has as many elements at `members`, and leaves them alone until the call returns.
        let members = unsafe { core::slice::from_raw_parts(members, ranks as usize) };
        let control = ControlChannel::open(&world, members, rank as usize, slot, generation);
        control.map_or(ptr::null_mut(), |control| Box::into_raw(Box::new(control)))
    })
}

/// Exchanges control messages. 1 if all have been received, 0 if it is to be called again, -1 if it has
/// failed.
///
/// # Safety
/// The channel is open, and no other thread uses it; both buffers have so many bytes for each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_exchange_control(
    control: *mut ControlChannel,
    out: *const c_void,
    into: *mut c_void,
    bytes: u64,
) -> c_int {
    guard(FAILED, || {
        // SAFETY: `control` is a handle of this library that the caller has not released.
        let control = unsafe { &mut *control };
        let Some(all) = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_mul(control.ranks()))
        else {
            return fail("a control message of so many bytes cannot be exchanged");
        };
        // SAFETY: the caller has `bytes` bytes for each rank in both buffers, and leaves them to this call.
        let (out, received) = unsafe {
            (core::slice::from_raw_parts(out.cast(), all), core::slice::from_raw_parts_mut(into.cast(), all))
        };
        match control.exchange(out, received, bytes as usize) {
            Ok(is_complete) => c_int::from(is_complete),
            Err(error) => fail(error),
        }
    })
}

/// Closes it.
///
/// # Safety
/// It is open, or null, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_close_control(control: *mut ControlChannel) {
    guard((), || {
        if !control.is_null() {
            // SAFETY: `control` is what `Box::into_raw` gave for this type, and the caller uses it no more.
            drop(unsafe { Box::from_raw(control) });
        }
    })
}

/// Mapped memory of a peer.
#[derive(Debug)]
struct Open {
    // Dropped before the world, by whose connection it was mapped.
    _memory: MappedMemory,
    peer: u32,
    channel: Channel,
    world: Arc<World>,
}

/// Exports memory on a GPU to a peer, until it is withdrawn, and writes the bytes of the descriptor. A
/// number, or 0 if the peer does not respond or cannot map such memory.
///
/// # Safety
/// `descriptor` has capacity for [`DESCRIPTOR_BYTES`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_export(
    peer: u32,
    address: *const c_void,
    bytes: u64,
    descriptor: *mut [u8; DESCRIPTOR_BYTES],
) -> u64 {
    guard(0, || {
        let Some((world, driver)) = world().zip(Driver::loaded()) else { return 0 };
        let address = address as u64;
        let Some(memory) = DeviceMemory::at(driver, address).filter(|_| world.is_reachable(peer)) else {
            return 0;
        };
        let Some((number, word)) = world.export(peer, driver, &memory, address, bytes) else { return 0 };
        // SAFETY: the caller has room at `descriptor`, which nobody else uses during the call.
        unsafe { *descriptor = word.encode(world.job()) };
        number
    })
}

/// The memory exported under this number cannot be mapped any more. Mappings that exist stay valid.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_withdraw(number: u64) {
    guard((), || {
        if let Some(world) = world() {
            world.revoke(number);
        }
    })
}

/// Maps the memory of a descriptor, for the GPU of `gpu_address`, or the calling thread's if that is on no
/// GPU. Its address in this process, and the handle that closes it; null if it cannot be mapped.
///
/// # Safety
/// `descriptor` has [`DESCRIPTOR_BYTES`], and `handle` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_open(
    descriptor: *const [u8; DESCRIPTOR_BYTES],
    gpu_address: *const c_void,
    handle: *mut *mut c_void,
) -> *mut c_void {
    guard(ptr::null_mut(), || {
        // SAFETY: the caller has a whole descriptor there, which stays until the call returns.
        match open(unsafe { &*descriptor }, gpu_address as u64) {
            Ok((address, open)) => {
                // SAFETY: the caller has room at `handle`, which nobody else uses during the call.
                unsafe { *handle = Box::into_raw(Box::new(open)).cast() };
                address as *mut c_void
            }
            Err(why) => {
                fail(why);
                ptr::null_mut()
            }
        }
    })
}

fn open(descriptor: &[u8; DESCRIPTOR_BYTES], gpu_address: u64) -> Result<(u64, Open), String> {
    let (world, driver) =
        world().zip(Driver::loaded()).ok_or("this process has not joined a job, or has no CUDA driver")?;
    let descriptor = Descriptor::decode(descriptor, world.job())
        .filter(|descriptor| descriptor.to == world.rank())
        .ok_or("the descriptor of the other rank's memory is not one of this job")?;
    let own = DeviceMemory::at(driver, gpu_address)
        .unwrap_or_else(|| DeviceMemory::none_on(cuda::current_device(driver).unwrap_or(0)));
    let mapped = world.map_peer_memory(&descriptor, driver, own).map_err(|error| error.to_string())?;
    let memory = mapped.ok_or("no channel can map the other rank's memory")?;
    let (address, channel) = (memory.address, memory.channel);
    Ok((address, Open { _memory: memory, peer: descriptor.from, channel, world }))
}

/// Counts bytes that were copied to or from mapped memory of a peer.
///
/// # Safety
/// The handle is one of [`causeway_comm_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_count_open(handle: *const c_void, bytes: u64) {
    guard((), || {
        // SAFETY: `handle` is of `causeway_comm_open`, and the caller has not closed it.
        let open = unsafe { &*handle.cast::<Open>() };
        open.world.count_mapped(open.peer, open.channel, bytes);
    })
}

/// Closes a mapping. The handle may be null.
///
/// # Safety
/// The handle is one of [`causeway_comm_open`], and is not closed twice. Nothing uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_close(handle: *mut c_void) {
    guard((), || {
        if !handle.is_null() {
            // SAFETY: `handle` is what `Box::into_raw` gave for this type, and the caller uses it no more.
            drop(unsafe { Box::from_raw(handle.cast::<Open>()) });
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_constants_match() {
        let header = include_str!("../../../../mpi/causeway_comm.h");
        let (count, bytes) = (ControlSlots::COUNT, ControlSlots::MAX_BYTES);
        let line = format!(
            "enum {{ CAUSEWAY_COMM_CONTROL_SLOTS = {count}, CAUSEWAY_COMM_CONTROL_BYTES = {bytes} }};"
        );
        assert!(header.contains(&line), "{line}");
    }
}

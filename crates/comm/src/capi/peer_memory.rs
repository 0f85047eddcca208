//! Peer memory for C programs: exporting memory on a GPU, and mapping that of another rank.
//! `mpi/causeway_comm.h` declares and describes the functions.

use super::{fail, world};
use crate::channels::Channel;
use crate::cuda::{self, DeviceMemory, Driver};
use crate::matching::{DESCRIPTOR_BYTES, Descriptor};
use crate::transfer::MappedMemory;
use crate::world::World;
use core::ffi::c_void;
use std::sync::Arc;

/// Mapped memory of a peer.
#[derive(Debug)]
struct Open {
    // Dropped before the world, by whose connection it was mapped.
    _memory: MappedMemory,
    peer: u32,
    channel: Channel,
    world: Arc<World>,
}

/// Exports memory on a GPU to a peer, until it is withdrawn, and writes the 79 bytes of the descriptor. A
/// number, or 0 if the peer does not respond or cannot map such memory.
///
/// # Safety
/// `descriptor` has capacity for 79 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_export(
    peer: u32,
    address: *const c_void,
    bytes: u64,
    descriptor: *mut [u8; DESCRIPTOR_BYTES],
) -> u64 {
    let Some((world, driver)) = world().zip(Driver::loaded()) else { return 0 };
    let address = address as u64;
    let Some(memory) = DeviceMemory::at(driver, address).filter(|_| world.is_reachable(peer)) else {
        return 0;
    };
    let Some((number, word)) = world.export(peer, driver, &memory, address, bytes) else { return 0 };
    // SAFETY: as promised.
    unsafe { *descriptor = word.encode(world.job()) };
    number
}

/// The memory exported under this number cannot be mapped any more. Mappings that exist stay valid.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_withdraw(number: u64) {
    if let Some(world) = world() {
        world.revoke(number);
    }
}

/// Maps the memory of a descriptor, for the GPU of `gpu_address`, or the calling thread's if that is on no
/// GPU. Its address in this process, and the handle that closes it; null if it cannot be mapped.
///
/// # Safety
/// `descriptor` has 79 bytes, and `handle` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_open(
    descriptor: *const [u8; DESCRIPTOR_BYTES],
    gpu_address: *const c_void,
    handle: *mut *mut c_void,
) -> *mut c_void {
    // SAFETY: as promised.
    match open(unsafe { &*descriptor }, gpu_address as u64) {
        Ok((address, open)) => {
            // SAFETY: as promised.
            unsafe { *handle = Box::into_raw(Box::new(open)).cast() };
            address as *mut c_void
        }
        Err(why) => {
            fail(why);
            core::ptr::null_mut()
        }
    }
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
    // SAFETY: as promised.
    let open = unsafe { &*handle.cast::<Open>() };
    open.world.count_mapped(open.peer, open.channel, bytes);
}

/// Closes a mapping. The handle may be null.
///
/// # Safety
/// The handle is one of [`causeway_comm_open`], and is not closed twice. Nothing uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_close(handle: *mut c_void) {
    if !handle.is_null() {
        // SAFETY: as promised.
        drop(unsafe { Box::from_raw(handle.cast::<Open>()) });
    }
}

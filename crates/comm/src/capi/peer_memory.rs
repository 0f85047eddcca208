//! Peer memory for C programs: exporting memory on a GPU, and mapping that of another rank. `mpi/causeway_comm.h`
//! declares and describes the functions.

use super::{fail, world};
use crate::channels::Channel;
use crate::cuda::{self, DeviceMemory, Driver};
use crate::matching::{DESCRIPTOR_BYTES, Descriptor};
use crate::transfer::fetch::MappedMemory;
use crate::world::World;
use core::ffi::c_void;
use std::sync::Arc;

/// A peer's memory that is open.
#[derive(Debug)]
struct Open {
    // In front of the world, by whose connection it was opened.
    _memory: MappedMemory,
    peer: u32,
    channel: Channel,
    world: Arc<World>,
}

/// Lets a peer open memory on a GPU, until it is hidden, and writes the 79 bytes that tell it. A number, or 0 where the
/// peer is not reached or cannot open such memory.
///
/// # Safety
/// `descriptor` has room for 79 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_show(
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

/// No peer opens memory any more that was shown under this number. Who has it open keeps it.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_hide(number: u64) {
    if let Some(world) = world() {
        world.revoke(number);
    }
}

/// Opens the memory that a descriptor tells of, for the GPU on which `near` lies, or the calling thread's where that is
/// none. Its address here, and what closes it; null where it cannot be opened.
///
/// # Safety
/// `descriptor` has 79 bytes, and there is room for the pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_open(
    descriptor: *const [u8; DESCRIPTOR_BYTES],
    near: *const c_void,
    holder: *mut *mut c_void,
) -> *mut c_void {
    // SAFETY: as promised.
    match open(unsafe { &*descriptor }, near as u64) {
        Ok((address, open)) => {
            // SAFETY: as promised.
            unsafe { *holder = Box::into_raw(Box::new(open)).cast() };
            address as *mut c_void
        }
        Err(why) => {
            fail(why);
            core::ptr::null_mut()
        }
    }
}

fn open(descriptor: &[u8; DESCRIPTOR_BYTES], near: u64) -> Result<(u64, Open), String> {
    let (world, driver) =
        world().zip(Driver::loaded()).ok_or("this process has no part in a job, or no driver")?;
    let descriptor = Descriptor::decode(descriptor, world.job())
        .filter(|told| told.to == world.rank())
        .ok_or("what another rank tells of its memory is no descriptor of this job")?;
    let own = DeviceMemory::at(driver, near)
        .unwrap_or_else(|| DeviceMemory::none_on(cuda::current_device(driver).unwrap_or(0)));
    let reached = world.map_peer_memory(&descriptor, driver, own).map_err(|error| error.to_string())?;
    let memory = reached.ok_or("no channel opens the other rank's memory here")?;
    let (address, channel) = (memory.address, memory.channel);
    Ok((address, Open { _memory: memory, peer: descriptor.from, channel, world }))
}

/// Counts bytes that were copied to or from a peer's memory that is open.
///
/// # Safety
/// The holder is one of [`causeway_comm_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_count_open(holder: *const c_void, bytes: u64) {
    // SAFETY: as promised.
    let open = unsafe { &*holder.cast::<Open>() };
    open.world.count_mapped(open.peer, open.channel, bytes);
}

/// Closes what was opened; null is nothing.
///
/// # Safety
/// The holder is one of [`causeway_comm_open`], and is not closed twice. Nothing uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_close(holder: *mut c_void) {
    if !holder.is_null() {
        // SAFETY: as promised.
        drop(unsafe { Box::from_raw(holder.cast::<Open>()) });
    }
}

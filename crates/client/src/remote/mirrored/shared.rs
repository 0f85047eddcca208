//! Pinned memory of a program on the server's own host: the worker has the very same bytes at the same
//! address. Kernels and copies use them where they are, there is nothing to mirror, and a kernel and the
//! program may follow each other's writes.

use crate::log::info;
use crate::model::host_memory;
use crate::model::host_window;
use crate::model::numbers;
use crate::model::region::Endpoint;
use crate::remote::session;
use causeway_api::calls;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_memory::SealedMemory;
use core::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

/// Memory that servers of this host have, too.
struct Shared {
    /// Whether there ever was such memory, so that sessions without pay one load.
    any: AtomicBool,
    /// Whether the server has refused such memory: it would again.
    refused: AtomicBool,
}

static SHARED: Shared = Shared { any: AtomicBool::new(false), refused: AtomicBool::new(false) };

/// New zeroed memory for a context, which both processes have; nothing where that cannot be.
pub fn allocate(context: Handle<Context>, size: usize) -> Option<*mut c_void> {
    if SHARED.refused.load(Ordering::Relaxed) || !session::of(context).ok()?.shares_memory() {
        return None;
    }
    let length = host_window::length(size)?;
    let made = SealedMemory::new("causeway-pinned", length as u64)
        .inspect_err(|cause| info!("{cause}; pinned memory is copied to the server"))
        .ok()?;
    let address = host_window::allocate(size, Some(&made))?;
    match hand_over(context, address as u64, length, &made) {
        Ok(()) => {
            SHARED.any.store(true, Ordering::Relaxed);
            Some(address)
        }
        Err(status) => {
            info!("the server does not take memory of this process ({status:?}); pinned memory is copied");
            SHARED.refused.store(true, Ordering::Relaxed);
            host_window::release(address as usize, size);
            None
        }
    }
}

fn hand_over(
    context: Handle<Context>,
    address: u64,
    size: usize,
    memory: &SealedMemory,
) -> Result<(), CUresult> {
    let number = numbers::fresh();
    session::of(context)?.hand_over(number, memory)?;
    session::call_in(context, &calls::client_memory_map { address, size, number })
}

/// Takes memory of [`allocate`] back from the server, once the device is idle.
pub fn forget(context: Handle<Context>, base: usize) -> Result<(), CUresult> {
    session::call_in(context, &calls::client_memory_unmap { address: base as u64 })
}

/// Whether all addresses from `start` to before `end` lie in one piece of such memory.
#[inline]
pub fn holds(start: usize, end: usize) -> bool {
    holder(start, end).is_some()
}

/// The server that has all addresses from `start` to before `end` in one piece of such memory.
#[inline]
fn holder(start: usize, end: usize) -> Option<usize> {
    if !SHARED.any.load(Ordering::Relaxed) || !host_window::contains(start) {
        return None;
    }
    let range = host_memory::find(start)?;
    (range.is_shared && end <= range.base + range.size).then(|| range.context.server())
}

/// The place of a copy by a server, on the device if it lies in memory that this server has.
#[inline]
pub fn place(server: usize, place: Endpoint) -> Endpoint {
    let Endpoint::Host(host) = place else { return place };
    let (start, end) = host.span();
    if holder(start, end) == Some(server) {
        Endpoint::Device(host.on_device(start as u64).into())
    } else {
        place
    }
}

//! New memory in the windows that the worker has, too: pinned and managed memory, at one address for both.

use super::{Backing, Piece, note};
use crate::log::info;
use crate::model::{device, host_window};
use crate::remote::session;
use causeway_api::calls;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_memory::SealedMemory;
use core::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

/// In which window memory is to lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// That for memory of the host.
    Host,
    /// That for managed memory of a device's own. A server whose devices have no memory but the host's takes
    /// memory of the program there.
    Managed,
}

/// Whether a server has refused memory in a window: it would again.
struct Refused {
    host: AtomicBool,
    managed: AtomicBool,
}

static REFUSED: Refused = Refused { host: AtomicBool::new(false), managed: AtomicBool::new(false) };

impl Window {
    fn refused(self) -> &'static AtomicBool {
        match self {
            Self::Host => &REFUSED.host,
            Self::Managed => &REFUSED.managed,
        }
    }

    fn allocate(self, size: usize, memory: &SealedMemory) -> Option<*mut c_void> {
        match self {
            Self::Host => host_window::allocate(size, Some(memory)),
            Self::Managed => host_window::managed().allocate(size, Some(memory)),
        }
    }

    fn release(self, address: usize, size: usize) {
        match self {
            Self::Host => host_window::release(address, size),
            Self::Managed => host_window::managed().release(address, size),
        }
    }
}

/// New zeroed memory for a context, which both processes have; nothing where that cannot be.
pub fn allocate(context: Handle<Context>, size: usize, window: Window) -> Option<*mut c_void> {
    if window.refused().load(Ordering::Relaxed) || !session::of(context).ok()?.shares_memory() {
        return None;
    }
    let length = host_window::length(size)?;
    let made = SealedMemory::new("causeway-pinned", length as u64)
        .inspect_err(|cause| info!("{cause}; it is copied to the server"))
        .ok()?;
    let address = window.allocate(size, &made)?;
    let host = address as usize;
    let (at, number) = (host as u64, device::fresh());
    match hand_over(context, at, length, number, &made) {
        Ok(()) => {
            let (reserved, backing) = (None, Backing::Window);
            note(Piece { context, host, device: at, size: length, pages: at, reserved, number, backing });
            Some(address)
        }
        Err(status) => {
            info!("the server does not accept {length} bytes of this process ({status:?}); they are copied");
            // Too much memory says nothing about the next piece.
            if status != CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                window.refused().store(true, Ordering::Relaxed);
            }
            window.release(host, size);
            None
        }
    }
}

fn hand_over(
    context: Handle<Context>,
    address: u64,
    size: usize,
    number: u64,
    memory: &SealedMemory,
) -> Result<(), CUresult> {
    session::of(context)?.hand_over(number, memory)?;
    session::call_in(context, &calls::client_memory_map { address, size, number })
}

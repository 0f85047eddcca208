//! Addresses that are kept for what the client chooses addresses for: in this process, and with the driver.
//!
//! All of them lie above what programs are linked and sanitizers reserve at, far below where systems put libraries and
//! stacks. GPUs reach all of the 47 bits that processes have.

use crate::functions::Functions;
use crate::locks::{Mutex, rank};
use causeway_api::snapshot::Window;
use causeway_api::sys::CUresult;
use causeway_gpu::{CuResult, device_memory};
use core::ops::Range;

/// Where the windows of a process lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowAddresses {
    /// The start of what is kept for memory of the host.
    host: u64,
    /// What is reserved with the driver for memory of devices. A driver (580) honours wanted addresses anywhere below
    /// 2^47, and 4 TiB of them at once.
    pub(crate) device: Window,
    /// Where managed memory lies: addresses that neither programs nor the driver use by themselves, reserved with
    /// the driver when they are first needed. They cannot be a part of the range that is kept for memory of the
    /// host: of what was mapped when it started the driver gives no addresses.
    pub(crate) managed: (u64, u64),
}

impl WindowAddresses {
    /// Where the client's program has nothing.
    pub(crate) fn choose() -> Self {
        let moved = (0..4).map(|number| number * (4 << 40));
        let taken = device_memory::ranges_taken_by_client();
        device_memory::first_free_address(moved, |by| Self::moved(by).ranges(), &taken)
            .map_or(Self::moved(0), Self::moved)
    }

    fn moved(by: u64) -> Self {
        Self {
            host: 0x3000_0000_0000 + by,
            device: Window { address: 0x2000_0000_0000 + by, size: 4 << 40, granularity: 2 << 20 },
            managed: (0x3100_0000_0000 + by, 1 << 40),
        }
    }

    fn ranges(self) -> [Range<u64>; 3] {
        [(self.host, MAX_WINDOW_BYTES as u64), (self.device.address, self.device.size), self.managed]
            .map(|(start, size)| start..start + size)
    }
}

/// Bytes of address, not of memory: 1 TiB, and less where the process's limits do not allow that.
const MAX_WINDOW_BYTES: usize = 1 << 40;
const MIN_WINDOW_BYTES: usize = 1 << 32;

/// The range, reserved in this process as long as this lives.
pub(crate) struct HostWindow {
    range: Range<usize>,
}

impl HostWindow {
    /// Reserves the range; an empty one where the system refuses.
    pub(crate) fn reserve(window_addresses: &WindowAddresses) -> Self {
        let start = window_addresses.host as usize;
        let sizes = core::iter::successors(Some(MAX_WINDOW_BYTES), |size| {
            Some(size / 4).filter(|size| *size >= MIN_WINDOW_BYTES)
        });
        for size in sizes {
            if reserve(start, size) {
                return Self { range: start..start + size };
            }
        }
        tracing::warn!("cannot reserve addresses for memory that host and device share");
        Self { range: 0..0 }
    }

    /// First address and size.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.range.start as u64, self.range.len() as u64)
    }

    /// Whether `bytes` at `address` lie in it.
    pub(crate) fn holds(&self, address: usize, bytes: usize) -> bool {
        self.range.start <= address && address.checked_add(bytes).is_some_and(|end| end <= self.range.end)
    }
}

impl Drop for HostWindow {
    fn drop(&mut self) {
        if !self.range.is_empty() {
            // SAFETY: reserved by `reserve`, and whoever has memory in it keeps the driver alive.
            unsafe { libc::munmap(self.range.start as *mut libc::c_void, self.range.len()) };
        }
    }
}

/// Keeps a range free of anything else in this process.
fn reserve(address: usize, bytes: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the flags let the system refuse rather than replace a mapping.
    let found = unsafe { libc::mmap(address as *mut libc::c_void, bytes, libc::PROT_NONE, flags, -1, 0) };
    if found != libc::MAP_FAILED && found as usize != address {
        // SAFETY: a system that does not know the last flag has mapped this just now, elsewhere.
        unsafe { libc::munmap(found, bytes) };
    }
    found as usize == address
}

/// Whether a window has been reserved with the driver, which is done when it is first needed.
#[derive(Default)]
pub(crate) struct WindowState(pub(crate) Mutex<rank::Leaf, Option<CuResult<()>>>);

/// Reserves addresses with the driver. It gives none of which a mapping had a part when it started (580,
/// H100, 2026-11-24).
pub(crate) fn reserve_with_driver(functions: &Functions, address: u64, size: u64) -> CuResult<()> {
    let mut given = 0;
    // SAFETY: the pointer is to a local.
    unsafe { functions.cuMemAddressReserve(&mut given, size as usize, 0, address, 0)? };
    if given == address {
        return Ok(());
    }
    // SAFETY: no pointers; the range was reserved just now.
    unsafe { functions.cuMemAddressFree(given, size as usize)? };
    tracing::warn!(
        wanted = format_args!("{address:#x}"),
        given = format_args!("{given:#x}"),
        "the driver did not reserve the requested addresses; memory is allocated call by call"
    );
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_one_process_do_not_overlap() {
        for by in (0..4).map(|number| number * (4 << 40)) {
            let mut ranges = WindowAddresses::moved(by).ranges();
            ranges.sort_by_key(|range| range.start);
            assert!(ranges.is_sorted_by(|one, next| one.end <= next.start), "{ranges:x?}");
        }
    }
}

//! Addresses that are kept for what the client chooses addresses for: in this process, and with the driver.

use crate::functions::Functions;
use causeway_api::sys::CUresult;
use causeway_gpu::CuResult;
use causeway_sync::face::Mutex;
use core::ops::Range;

/// Where the range lies: above what programs are linked and sanitizers reserve at, far below where systems
/// put libraries and stacks. GPUs reach all of the 47 bits that processes have.
const START: usize = 0x3000_0000_0000;
/// Bytes of address, not of memory: 1 TiB, and less where the process's limits do not allow that.
const LARGEST: usize = 1 << 40;
const SMALLEST: usize = 1 << 32;

/// The range, reserved in this process as long as this lives.
pub(crate) struct Window {
    range: Range<usize>,
}

impl Window {
    /// Reserves the range; an empty one where the system refuses.
    pub(crate) fn reserve() -> Self {
        let sizes =
            core::iter::successors(Some(LARGEST), |size| Some(size / 4).filter(|size| *size >= SMALLEST));
        for size in sizes {
            if reserve(START, size) {
                return Self { range: START..START + size };
            }
        }
        tracing::warn!("no addresses could be kept for memory that host and device share");
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

impl Drop for Window {
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
pub(crate) struct WindowState(pub(crate) Mutex<Option<CuResult<()>>>);

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
        "the driver reserves other addresses than it is asked for; memory is allocated call by call"
    );
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

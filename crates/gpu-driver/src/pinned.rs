//! Host memory that the GPU reaches by itself.

use crate::context;
use crate::functions::Functions;
use causeway_api::handle::{Context, Native};
use causeway_api::sys::CUresult;
use causeway_gpu::CuResult;
use std::os::fd::{AsRawFd as _, BorrowedFd};

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Pages of our own, registered with the driver.
///
/// Memory that the driver allocates ends with the context it was allocated in; these pages stay what they
/// are, only slower, when their context ends while somebody still uses them.
pub(crate) struct Pages {
    address: *mut u8,
    bytes: usize,
    registered_in: Option<Native<Context>>,
    /// Whether they lie in addresses that are reserved, and go back to being reserved.
    in_reservation: bool,
}

// SAFETY: `Pages` owns its memory; access to its bytes is the business of its users.
unsafe impl Send for Pages {}
// SAFETY: a shared reference gives out only the address.
unsafe impl Sync for Pages {}

impl Pages {
    /// New zeroed pages that are not registered; huge ones, where the system gives them and `bytes` are a
    /// multiple of them.
    pub(crate) fn new(bytes: usize) -> CuResult<Self> {
        let is_huge = bytes.is_multiple_of(HUGE_PAGE);
        let bytes_to_map = if is_huge { bytes + HUGE_PAGE } else { bytes };
        // SAFETY: a mapping at an address that the system chooses.
        let mut address = unsafe { map(core::ptr::null_mut(), bytes_to_map, READ_WRITE, 0, None)? };
        if is_huge {
            // SAFETY: the mapping was made just now and has room for this.
            address = unsafe { aligned(address, bytes) };
        }
        Ok(Self { address, bytes, registered_in: None, in_reservation: false })
    }

    /// Pages at `address` that are not registered: new zeroed ones, or those of a file from an offset on.
    ///
    /// # Safety
    /// The addresses must be reserved by a mapping of ours that nobody uses; the file must have as many
    /// bytes. Where somebody takes them away, whoever uses them gets SIGBUS.
    pub(crate) unsafe fn at(
        address: usize,
        bytes: usize,
        memory: Option<(BorrowedFd<'_>, libc::off_t)>,
    ) -> CuResult<Self> {
        // SAFETY: the caller says that what is replaced is its own.
        let address = unsafe { map(address as *mut u8, bytes, READ_WRITE, libc::MAP_FIXED, memory)? };
        if bytes >= HUGE_PAGE {
            // SAFETY: memory that was mapped just now. Advice that the system does not take changes nothing.
            unsafe { libc::madvise(address.cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(Self { address, bytes, registered_in: None, in_reservation: true })
    }

    /// Registers them in `context`, for all contexts (`flags` are those of `cuMemHostRegister`).
    pub(crate) fn register(
        &mut self,
        functions: &Functions,
        context: Native<Context>,
        flags: u32,
    ) -> CuResult<()> {
        context::within(functions, context, || {
            // SAFETY: the pages are mapped, and stay so until they are unregistered.
            unsafe { functions.cuMemHostRegister_v2(self.address.cast(), self.bytes, flags) }
        })?;
        self.registered_in = Some(context);
        Ok(())
    }

    /// Ends the registration, if their context has not ended it already.
    pub(crate) fn unregister(&mut self, functions: &Functions) {
        if let Some(context) = self.registered_in.take() {
            let result = context::within(functions, context, || {
                // SAFETY: the pages were registered and nothing is copied to or from them any more.
                unsafe { functions.cuMemHostUnregister(self.address.cast()) }
            });
            if let Err(status) = result {
                tracing::warn!(status = status.0, "cannot unregister pinned memory");
            }
        }
    }

    /// Notes that the context has ended, and the registration with it.
    pub(crate) fn context_ended(&mut self) {
        self.registered_in = None;
    }

    /// In which context they are registered.
    pub(crate) fn registered_in(&self) -> Option<Native<Context>> {
        self.registered_in
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.address
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // The driver still knows these addresses: they must not come to mean other memory.
        if self.registered_in.is_some() {
            return;
        }
        // SAFETY: mapped by `new` or `at` with this size, and owned.
        unsafe {
            if !self.in_reservation {
                libc::munmap(self.address.cast(), self.bytes);
                return;
            }
            let flags = libc::MAP_FIXED | libc::MAP_NORESERVE;
            if map(self.address, self.bytes, libc::PROT_NONE, flags, None).is_err() {
                tracing::warn!("cannot release {} bytes of shared memory", self.bytes);
            }
        }
    }
}

/// Keeps `bytes` at a multiple of the size of a huge page of a mapping that has one huge page more, and asks
/// for huge pages: to make and register 1 MiB of small ones takes 0.6 to 0.9 ms (a virtual machine with an
/// H100, 2026-11-24).
///
/// # Safety
/// The mapping at `address` must have `bytes + HUGE_PAGE`, and nobody may use it yet.
unsafe fn aligned(address: *mut u8, bytes: usize) -> *mut u8 {
    let before = address.align_offset(HUGE_PAGE);
    // SAFETY: what is released and what is advised about lies in the mapping; advice that is not taken
    // changes nothing.
    unsafe {
        let start = address.add(before);
        if before > 0 {
            libc::munmap(address.cast(), before);
        }
        libc::munmap(start.add(bytes).cast(), HUGE_PAGE - before);
        libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE);
        start
    }
}

/// Maps the pages of a file from an offset on, or anonymous ones.
///
/// # Safety
/// With `MAP_FIXED` among `flags`, whatever is mapped at `address` must be the caller's to replace.
unsafe fn map(
    address: *mut u8,
    bytes: usize,
    access: i32,
    flags: i32,
    memory: Option<(BorrowedFd<'_>, libc::off_t)>,
) -> CuResult<*mut u8> {
    let (kind, descriptor, offset) = match memory {
        Some((memory, offset)) => (libc::MAP_SHARED, memory.as_raw_fd(), offset),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
    };
    // SAFETY: without `MAP_FIXED` nothing that exists is replaced, and with it what the caller says is its
    // own to replace.
    let address = unsafe { libc::mmap(address.cast(), bytes, access, kind | flags, descriptor, offset) };
    if address == libc::MAP_FAILED { Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) } else { Ok(address.cast()) }
}

//! Memory of this process that kernels reach, most of it at an address of the client's choice.
//!
//! The driver gives registered memory the device address that it has in this process. So memory for which the
//! client wants a certain address is mapped there, in a range that is kept free for it from before the driver
//! starts.

use crate::calls::module::c_text;
use crate::context;
use crate::driver::Driver;
use crate::pinned::Pages;
use causeway_api::handle::{Library, Native};
use causeway_api::sys::{
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE, CUdevice_attribute, CUresult,
};
use causeway_gpu::{CuResult, Shared, Staging};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

const PAGE: usize = 4096;

/// The bytes of the whole pages that hold `bytes`.
fn whole_pages(bytes: usize) -> CuResult<usize> {
    let whole = bytes.checked_next_multiple_of(PAGE).filter(|whole| *whole > 0);
    whole.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

impl Driver {
    pub(crate) fn find_managed(&self, library: Native<Library>, name: &str) -> CuResult<(u64, Staging)> {
        let (name, mut address, mut size) = (c_text(name)?, 0, 0);
        self.in_some_context(|| {
            self.require_concurrent_access()?;
            // SAFETY: the library is the driver's own; name and results live during the call.
            unsafe {
                self.functions.cuLibraryGetManaged(&mut address, &mut size, library.as_raw(), name.as_ptr())
            }
        })?;
        // SAFETY: the driver has mapped the variable here, where it stays as long as its library is loaded.
        Ok((address, unsafe { Staging::new(address as *mut u8, size, |_, _| ()) }))
    }

    /// Refuses devices whose kernels and this process may not use managed memory at the same time.
    fn require_concurrent_access(&self) -> CuResult<()> {
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
        let (mut device, mut concurrent) = (0, 0);
        // SAFETY: the pointers are to locals.
        unsafe {
            self.functions.cuCtxGetDevice(&mut device)?;
            self.functions.cuDeviceGetAttribute(&mut concurrent, attribute, device)?;
        }
        if concurrent == 0 { Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) } else { Ok(()) }
    }

    pub(crate) fn share(&self, address: u64, bytes: usize, managed: bool) -> CuResult<(u64, Shared)> {
        if managed {
            return Ok((address, Shared::OnDevice(self.on_device(address, bytes)?)));
        }
        let pages = match address as usize {
            0 => Pages::new(whole_pages(bytes)?)?,
            wanted => {
                let whole = self.place_in_window(wanted, bytes)?;
                // SAFETY: the pages lie in the window, and the engine shares no address twice.
                unsafe { Pages::at(wanted, whole, None)? }
            }
        };
        let (found, memory) = self.show_to_kernels(pages, address, bytes)?;
        Ok((found, Shared::Here(memory)))
    }

    /// Memory of the client at `address` of the window: that of a file from `offset` on.
    ///
    /// # Safety
    /// As for [`causeway_gpu::Gpu::client_memory`].
    pub(crate) unsafe fn share_of_client(
        &self,
        address: u64,
        bytes: usize,
        memory: BorrowedFd<'_>,
        offset: u64,
    ) -> CuResult<Staging> {
        let whole = self.place_in_window(address as usize, bytes)?;
        let offset = libc::off_t::try_from(offset).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: `place_in_window` has found the pages in the window, no address of which the engine shares
        // twice; the caller has as many bytes in the file.
        let pages = unsafe { Pages::at(address as usize, whole, Some((memory, offset)))? };
        self.show_to_kernels(pages, address, bytes).map(|(_, memory)| memory)
    }

    /// The bytes of the whole pages that hold `bytes` at `address`, which must be a page of the window.
    fn place_in_window(&self, address: usize, bytes: usize) -> CuResult<usize> {
        let whole = whole_pages(bytes)?;
        let fits = address.is_multiple_of(PAGE) && self.window.holds(address, whole);
        if fits { Ok(whole) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
    }

    /// Lets kernels reach pages at the address `wanted`, or anywhere for 0; gives that address and the
    /// memory.
    fn show_to_kernels(&self, mut pages: Pages, wanted: u64, bytes: usize) -> CuResult<(u64, Staging)> {
        let context = context::current(self.functions)?;
        let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
        pages.register(self.functions, context, flags)?;
        let mut found = 0;
        // SAFETY: the pages have just been registered; the result is a local.
        let requested =
            unsafe { self.functions.cuMemHostGetDevicePointer_v2(&mut found, pages.address().cast(), 0) };
        if requested.is_err() || wanted != 0 && found != wanted {
            pages.unregister(self.functions);
            requested?;
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let (functions, memory, ranges) = (self.functions, pages.address(), Arc::clone(&self.host_ranges));
        ranges.add(found, bytes, memory);
        let release = move |_, _| {
            ranges.remove(found);
            pages.unregister(functions);
            drop(pages);
        };
        // SAFETY: the pages are initialised, at least `bytes` long, and owned by the closure.
        Ok((found, unsafe { Staging::new(memory, bytes, release) }))
    }
}

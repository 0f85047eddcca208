//! Variables declared `__managed__`: the server's driver chooses their addresses, which this process uses, too.

use super::{dirty_pages, regions};
use crate::locks::{Mutex, rank};
use crate::log::refuse_use;
use causeway_api::handle::Handle;
use causeway_api::sys::{CUdeviceptr, CUresult};
use causeway_memory::pages::page_size;
use std::collections::BTreeSet;

/// Pages that hold such variables, or did. They stay: another variable may have its place in one of them.
static PAGES: Mutex<rank::ManagedPages, BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Makes the variable, of which a server has a mirror, readable and writable here, with its initial value.
pub fn adopt(server: usize, address: CUdeviceptr, size: usize) -> Result<(), CUresult> {
    let host = address as usize;
    let range = dirty_pages::pages(host..host.checked_add(size).ok_or(CUresult::CUDA_ERROR_UNKNOWN)?);
    {
        let mut pages = PAGES.lock();
        for page in range.step_by(page_size()).filter(|page| *page != 0) {
            if !pages.contains(&page) {
                map(page)?;
                pages.insert(page);
            }
        }
    }
    // SAFETY: the pages are mapped, and nobody has the variable's address yet. What an earlier variable in
    // its place left must not look like something that the program has written.
    unsafe { core::ptr::write_bytes(host as *mut u8, 0, size) };
    regions::adopt(Handle::null_of(server), host, size)
}

/// Maps a page at its address, where nothing may be.
fn map(page: usize) -> Result<(), CUresult> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: with this flag the system refuses rather than replace a mapping.
    let mapped = unsafe { libc::mmap(page as *mut _, page_size(), access, flags, -1, 0) };
    if mapped as usize == page {
        return Ok(());
    }
    if mapped != libc::MAP_FAILED {
        // SAFETY: mapped just now, by a system that does not know the flag.
        unsafe { libc::munmap(mapped, page_size()) };
    }
    Err(refuse_use!("a __managed__ variable at {page:#x}, where this process has something else"))
}

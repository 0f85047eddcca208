//! Which pages of mirrored memory the program has written to.
//!
//! The kernel notes that for us: `userfaultfd` in its asynchronous write-protecting mode, asked by the
//! `PAGEMAP_SCAN` request (Linux 6.7). Nobody is interrupted, system calls that write into the memory are
//! noted like stores, and no signal handler is needed. Where the kernel cannot or may not do that (older
//! ones, seccomp filters of containers, memory that is a mapped file), every page counts as written and is
//! compared.

use crate::log::info;
use causeway_memory::pages::page_size;
use causeway_sync::descriptors::above_stdio;
use core::ops::Range;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

/// Requests and numbers of `linux/userfaultfd.h` and `linux/fs.h`.
mod kernel {
    pub const API: u64 = 0xaa;
    pub const USER_MODE_ONLY: i32 = 1;
    pub const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1;
    pub const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
    pub const FEATURE_WP_ASYNC: u64 = 1 << 15;
    pub const REGISTER_MODE_WP: u64 = 1 << 1;
    pub const SET_API: libc::c_ulong = 0xc018_aa3f;
    pub const REGISTER: libc::c_ulong = 0xc020_aa00;
    pub const UNREGISTER: libc::c_ulong = 0x8010_aa01;
    pub const SCAN: libc::c_ulong = 0xc060_6610;
    pub const SCAN_PROTECT_FOUND: u64 = 1;
    pub const SCAN_ONLY_WATCHED: u64 = 2;
    pub const PAGE_IS_WRITTEN: u64 = 1 << 1;

    /// `struct pm_scan_arg`.
    #[repr(C)]
    #[derive(Default)]
    pub struct Scan {
        pub size: u64,
        pub flags: u64,
        pub start: u64,
        pub end: u64,
        pub walk_end: u64,
        pub regions: u64,
        pub regions_length: u64,
        pub most_pages: u64,
        pub category_inverted: u64,
        pub category_mask: u64,
        pub category_anyof_mask: u64,
        pub return_mask: u64,
    }

    /// `struct page_region`.
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    pub struct PageRegion {
        pub start: u64,
        pub end: u64,
        pub categories: u64,
    }
}

struct Watcher {
    faults: OwnedFd,
    pagemap: File,
}

/// The kernel's help, if it gives any.
fn watcher() -> Option<&'static Watcher> {
    static WATCHER: OnceLock<Option<Watcher>> = OnceLock::new();
    let watcher = WATCHER.get_or_init(|| {
        Watcher::new()
            .inspect_err(|cause| {
                info!(
                    "the system does not tell written pages ({cause}); memory that kernels reach is compared"
                );
            })
            .ok()
    });
    watcher.as_ref()
}

/// The whole pages around a range.
pub fn pages(range: Range<usize>) -> Range<usize> {
    let page = page_size();
    range.start / page * page..range.end.next_multiple_of(page)
}

/// Begins to note which pages of `range` are written to; `false` where that cannot be done.
pub fn watch(range: Range<usize>) -> bool {
    let pages = pages(range);
    watcher().is_some_and(|watcher| {
        let mut request = [pages.start as u64, (pages.end - pages.start) as u64, kernel::REGISTER_MODE_WP, 0];
        request_to(watcher.faults.as_raw_fd(), kernel::REGISTER, &mut request).is_ok()
    })
}

/// Ends what [`watch`] began.
pub fn unwatch(range: Range<usize>) {
    let pages = pages(range);
    if let Some(watcher) = watcher() {
        let mut request = [pages.start as u64, (pages.end - pages.start) as u64];
        // Memory that the program has unmapped is not watched any more.
        let _ = request_to(watcher.faults.as_raw_fd(), kernel::UNREGISTER, &mut request);
    }
}

/// Calls `each` with the stretches of `range`, which is watched, that were written to since this was last
/// asked; a page of the ends counts as a whole. `false` where the kernel does not say: the whole range may be
/// written.
pub fn visit(range: Range<usize>, mut each: impl FnMut(Range<usize>)) -> bool {
    const MOST_REGIONS: usize = 64;
    let Some(watcher) = watcher() else { return false };
    let pages = pages(range.clone());
    let mut found = [kernel::PageRegion::default(); MOST_REGIONS];
    let mut start = pages.start;
    while start < pages.end {
        let mut scan = kernel::Scan {
            size: size_of::<kernel::Scan>() as u64,
            flags: kernel::SCAN_PROTECT_FOUND | kernel::SCAN_ONLY_WATCHED,
            start: start as u64,
            end: pages.end as u64,
            regions: found.as_mut_ptr() as u64,
            regions_length: found.len() as u64,
            category_mask: kernel::PAGE_IS_WRITTEN,
            return_mask: kernel::PAGE_IS_WRITTEN,
            ..kernel::Scan::default()
        };
        let Ok(count) = request_to(watcher.pagemap.as_raw_fd(), kernel::SCAN, &mut scan) else {
            return false;
        };
        for region in &found[..(count as usize).min(MOST_REGIONS)] {
            each((region.start as usize).max(range.start)..(region.end as usize).min(range.end));
        }
        if scan.walk_end as usize <= start {
            return false;
        }
        start = scan.walk_end as usize;
    }
    true
}

impl Watcher {
    fn new() -> io::Result<Self> {
        // With this flag no privilege is needed. It is about faults that wait for somebody, of which there
        // are none.
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | kernel::USER_MODE_ONLY;
        // SAFETY: the call takes a number and makes a descriptor.
        let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was made just now.
        let faults = above_stdio(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })?;
        let features =
            kernel::FEATURE_PAGEFAULT_FLAG_WP | kernel::FEATURE_WP_UNPOPULATED | kernel::FEATURE_WP_ASYNC;
        request_to(faults.as_raw_fd(), kernel::SET_API, &mut [kernel::API, features, 0])?;
        Ok(Self { faults, pagemap: above_stdio(File::open("/proc/self/pagemap")?)? })
    }
}

fn request_to<T>(descriptor: RawFd, request: libc::c_ulong, argument: &mut T) -> io::Result<i32> {
    // SAFETY: every request here comes with the structure that the kernel reads and writes for it, and
    // whatever that leads to is a local of the caller.
    let result = unsafe { libc::ioctl(descriptor, request, core::ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn stores_and_system_calls_are_noted_once() {
        let bytes = page_size();
        let length = 8 * bytes;
        // SAFETY: a new mapping at an address of the system's choice.
        let memory = unsafe {
            let (access, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(core::ptr::null_mut(), length, access, flags, -1, 0)
        };
        assert_ne!(memory, libc::MAP_FAILED);
        let base = memory as usize;
        let range = base..base + length;
        if !watch(range.clone()) {
            // A kernel that does not help; comparing everything needs no test here.
            return;
        }
        let ask = || {
            let mut all = Vec::new();
            assert!(visit(range.clone(), |stretch| {
                all.push((stretch.start - base) / bytes..(stretch.end - base) / bytes);
            }));
            all
        };
        ask();
        assert_eq!(ask(), []);
        // SAFETY: inside the mapping.
        unsafe { memory.cast::<u8>().add(bytes + 7).write_volatile(1) };
        // SAFETY: as above.
        let page = unsafe { core::slice::from_raw_parts_mut(memory.cast::<u8>().add(5 * bytes), bytes) };
        File::open("/proc/self/exe").unwrap().read_exact(page).unwrap();
        assert_eq!(ask(), [1..2, 5..6]);
        assert_eq!(ask(), []);
        unwatch(range);
        // SAFETY: mapped above, and not used any more.
        unsafe { libc::munmap(memory, length) };
    }
}

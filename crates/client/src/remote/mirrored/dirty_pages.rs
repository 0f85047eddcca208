//! Dirty pages of mirrored memory.
//!
//! The kernel notes that for us: `userfaultfd` in its asynchronous write-protecting mode, asked by the
//! `PAGEMAP_SCAN` request (Linux 6.7). Nobody is interrupted, system calls that write into the memory are
//! noted like stores, and no signal handler is needed. Where the kernel cannot or may not do that (older
//! ones, seccomp filters of containers), every page counts as written and is compared.
//!
//! What is noted is what goes through this process's page table. So only memory is watched that nobody else
//! has ([`is_private`]), and who writes past the page table is seen to in
//! [`other_writers`](super::other_writers).

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
    pub const PAGE_IS_FILE: u64 = 1 << 2;
    pub const PAGE_IS_PRESENT: u64 = 1 << 3;
    pub const PAGE_IS_SWAPPED: u64 = 1 << 4;

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
        pub max_pages: u64,
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
                info!("the system does not track written pages ({cause}); mirrored memory is compared");
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

/// What [`visit`] does about memory in its range that is not watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwatched {
    /// There should be none: the answer would not be the whole truth.
    Refused,
    /// It is passed over.
    Skipped,
}

/// Calls `each` with the stretches of `range` that were written to since this was last asked; a page of the
/// ends counts as a whole. `false` where the kernel does not say: the whole range may be written.
pub fn visit(range: Range<usize>, unwatched: Unwatched, mut each: impl FnMut(Range<usize>)) -> bool {
    const MAX_REGIONS: usize = 64;
    let Some(watcher) = watcher() else { return false };
    let pages = pages(range.clone());
    let mut found = [kernel::PageRegion::default(); MAX_REGIONS];
    let mut start = pages.start;
    let only_watched = if unwatched == Unwatched::Refused { kernel::SCAN_ONLY_WATCHED } else { 0 };
    while start < pages.end {
        let scan = kernel::Scan {
            flags: kernel::SCAN_PROTECT_FOUND | only_watched,
            category_mask: kernel::PAGE_IS_WRITTEN,
            return_mask: kernel::PAGE_IS_WRITTEN,
            ..kernel::Scan::default()
        };
        let Some((count, end)) = watcher.scan(start..pages.end, scan, &mut found) else { return false };
        for region in &found[..count] {
            each((region.start as usize).max(range.start)..(region.end as usize).min(range.end));
        }
        if end <= start {
            return false;
        }
        start = end;
    }
    true
}

/// Whether all pages of a range are there and this process's alone: neither a file's nor shared. `false`
/// where the kernel does not say.
pub fn is_private(range: Range<usize>) -> bool {
    let Some(watcher) = watcher() else { return false };
    let pages = pages(range);
    let has_none = |inverted, mask| {
        let scan = kernel::Scan {
            max_pages: 1,
            category_inverted: inverted,
            category_mask: mask,
            return_mask: mask,
            ..kernel::Scan::default()
        };
        let mut found = [kernel::PageRegion::default()];
        watcher.scan(pages.clone(), scan, &mut found).is_some_and(|(count, _)| count == 0)
    };
    let there = kernel::PAGE_IS_PRESENT | kernel::PAGE_IS_SWAPPED;
    has_none(there, there) && has_none(0, kernel::PAGE_IS_FILE)
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

    /// Has the kernel look for pages of `range` as `scan` says, and returns how many stretches of them it has
    /// found and where it stopped; nothing where it does not say.
    fn scan(
        &self,
        range: Range<usize>,
        scan: kernel::Scan,
        found: &mut [kernel::PageRegion],
    ) -> Option<(usize, usize)> {
        let mut scan = kernel::Scan {
            size: size_of::<kernel::Scan>() as u64,
            start: range.start as u64,
            end: range.end as u64,
            regions: found.as_mut_ptr() as u64,
            regions_length: found.len() as u64,
            ..scan
        };
        let count = request_to(self.pagemap.as_raw_fd(), kernel::SCAN, &mut scan).ok()?;
        Some(((count as usize).min(found.len()), scan.walk_end as usize))
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
            assert!(visit(range.clone(), Unwatched::Refused, |found| {
                all.push((found.start - base) / bytes..(found.end - base) / bytes);
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
        unwatch(base + bytes..base + 2 * bytes);
        // SAFETY: as above.
        unsafe { memory.cast::<u8>().add(bytes).write_volatile(2) };
        assert!(!visit(range.clone(), Unwatched::Refused, |_| {}));
        assert!(visit(range.clone(), Unwatched::Skipped, |found| panic!("{found:x?} is not watched")));
        unwatch(range);
        // SAFETY: mapped above, and not used any more.
        unsafe { libc::munmap(memory, length) };
    }

    /// New memory, `shared` or private, of so many pages.
    fn mapped(pages: usize, shared: i32) -> Range<usize> {
        let length = pages * page_size();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the system's choice.
        let memory =
            unsafe { libc::mmap(core::ptr::null_mut(), length, access, shared | libc::MAP_ANONYMOUS, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        memory as usize..memory as usize + length
    }

    #[test]
    fn memory_of_others_is_not_private() {
        if watcher().is_none() {
            return;
        }
        let (private, shared) = (mapped(3, libc::MAP_PRIVATE), mapped(3, libc::MAP_SHARED));
        assert!(!is_private(private.clone()), "pages that are not there may become anybody's");
        for range in [&private, &shared] {
            // SAFETY: mapped above.
            unsafe { core::ptr::write_bytes(range.start as *mut u8, 1, range.len()) };
        }
        assert!(is_private(private.clone()));
        assert!(!is_private(shared.clone()));
        let executable = mapped as *const () as usize;
        assert!(!is_private(executable..executable + 1));
        for range in [private, shared] {
            // SAFETY: mapped above, and not used any more.
            unsafe { libc::munmap(range.start as *mut _, range.len()) };
        }
    }
}

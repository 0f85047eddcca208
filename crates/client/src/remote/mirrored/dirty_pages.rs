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
use causeway_memory::pagemap::{self, PageRegion, Pagemap, Scan};
use causeway_memory::pages::page_size;
use causeway_memory::userfaultfd::{Mode, Userfaultfd};
use core::ops::Range;
use std::io;
use std::sync::atomic::{AtomicPtr, Ordering};

struct Watcher {
    faults: Userfaultfd,
    pagemap: Pagemap,
}

/// The kernel's help as far as it is known; null before it has been found out whether it gives any.
static WATCHER: AtomicPtr<Option<Watcher>> = AtomicPtr::new(core::ptr::null_mut());

/// The kernel's help, if it gives any.
fn watcher() -> Option<&'static Watcher> {
    let mut known = WATCHER.load(Ordering::Acquire);
    if known.is_null() {
        let found = Watcher::new().inspect_err(|cause| {
            info!("the system does not track written pages ({cause}); mirrored memory is compared");
        });
        let found = Box::into_raw(Box::new(found.ok()));
        known = match WATCHER.compare_exchange(known, found, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => found,
            Err(earlier) => {
                // SAFETY: it came from `into_raw` just before, and no other thread has seen it.
                drop(unsafe { Box::from_raw(found) });
                earlier
            }
        };
    }
    // SAFETY: what is stored there is never freed but in `after_fork`, when there is no other thread.
    unsafe { &*known }.as_ref()
}

/// Forgets, in a forked child, what tracks the pages of its parent. What was watched there is not in the child: fork leaves
/// `userfaultfd`'s registrations behind.
pub fn after_fork() {
    let known = WATCHER.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if !known.is_null() {
        // SAFETY: it came from `into_raw`, and the calling thread is the only one.
        drop(unsafe { Box::from_raw(known) });
    }
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
        watcher.faults.register(pages.start as u64, pages.len() as u64, Mode::WriteProtect).is_ok()
    })
}

/// Ends what [`watch`] began.
pub fn unwatch(range: Range<usize>) {
    let pages = pages(range);
    if let Some(watcher) = watcher() {
        // Memory that the program has unmapped is not watched any more.
        let _ = watcher.faults.unregister(pages.start as u64, pages.len() as u64);
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
    let mut found = [PageRegion::default(); MAX_REGIONS];
    let mut start = pages.start;
    let only_watched = if unwatched == Unwatched::Refused { pagemap::SCAN_ONLY_TRACKED } else { 0 };
    while start < pages.end {
        let scan = Scan {
            flags: pagemap::SCAN_PROTECT_FOUND | only_watched,
            category_mask: pagemap::PAGE_IS_WRITTEN,
            return_mask: pagemap::PAGE_IS_WRITTEN,
            ..Scan::default()
        };
        let Ok((count, end)) = watcher.pagemap.scan(start..pages.end, &scan, &mut found) else {
            return false;
        };
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
        let scan = Scan {
            max_pages: 1,
            category_inverted: inverted,
            category_mask: mask,
            return_mask: mask,
            ..Scan::default()
        };
        let mut found = [PageRegion::default()];
        watcher.pagemap.scan(pages.clone(), &scan, &mut found).is_ok_and(|(count, _)| count == 0)
    };
    let there = pagemap::PAGE_IS_PRESENT | pagemap::PAGE_IS_SWAPPED;
    has_none(there, there) && has_none(0, pagemap::PAGE_IS_FILE)
}

impl Watcher {
    fn new() -> io::Result<Self> {
        Ok(Self { faults: Userfaultfd::for_tracking_writes()?, pagemap: Pagemap::open()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
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
        // SAFETY: inside the mapping, which this test alone uses.
        let page = unsafe { core::slice::from_raw_parts_mut(memory.cast::<u8>().add(5 * bytes), bytes) };
        File::open("/proc/self/exe").unwrap().read_exact(page).unwrap();
        assert_eq!(ask(), [1..2, 5..6]);
        assert_eq!(ask(), []);
        unwatch(base + bytes..base + 2 * bytes);
        // SAFETY: inside the mapping, which this test alone uses.
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

//! The windows: addresses that both this process and the worker keep for memory that host and device share.

use crate::locks::{Mutex, rank};
use crate::log::info;
use causeway_memory::SealedMemory;
use causeway_memory::pages::page_size;
use core::ffi::c_void;
use core::ops::Range;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Allocations of this size and more begin at a multiple of it and take multiples of it: for the sake of huge
/// pages, and because devices map their memory so.
pub const HUGE_PAGE: usize = 2 << 20;

/// A range of addresses that is kept in this process.
pub struct Window {
    start: AtomicUsize,
    size: AtomicUsize,
    /// Behind the highest address that was ever allocated.
    highest: AtomicUsize,
    /// Free ranges: start to length, neighbours always merged.
    free: Mutex<rank::HostWindow, BTreeMap<usize, usize>>,
}

/// The windows of the process.
struct Windows {
    host: Window,
    managed: Window,
    /// Allocations in the window of the host.
    used: AtomicUsize,
}

static WINDOWS: Windows = Windows { host: Window::new(), managed: Window::new(), used: AtomicUsize::new(0) };

/// The window for managed memory that the server has in the memory of a device: there the driver gives
/// addresses, and memory of the host can have none of them.
pub fn managed() -> &'static Window {
    &WINDOWS.managed
}

/// Reserves the range that a server proposes. Without it, managed memory cannot be had and pinned memory has
/// another address on the device. Of several servers the first one's range counts; the others have none
/// unless it is the same.
pub fn open(window: (u64, u64)) {
    if let Err(cause) = WINDOWS.host.open(window) {
        info!("no addresses for memory that host and device share ({cause}): there is no managed memory");
    }
}

/// Whether the window is the one that a server proposes.
pub fn is_open_for(window: (u64, u64)) -> bool {
    WINDOWS.host.is_open_for(window)
}

/// Whether there is a window.
pub fn is_open() -> bool {
    WINDOWS.host.size.load(Ordering::Acquire) != 0
}

/// Whether anything lies in the window.
#[inline]
pub fn is_used() -> bool {
    WINDOWS.used.load(Ordering::Relaxed) != 0
}

/// Whether an address lies in the window.
#[inline]
pub fn contains(address: usize) -> bool {
    WINDOWS.host.contains(address)
}

/// The addresses of both windows, the one that the device has memory in last.
pub fn both() -> [Range<usize>; 2] {
    [WINDOWS.host.range(), WINDOWS.managed.range()]
}

/// In both windows, the addresses among which all lie that were ever allocated.
pub fn ever_allocated() -> [Range<usize>; 2] {
    [&WINDOWS.host, &WINDOWS.managed].map(|window| {
        let start = window.range().start;
        start..window.highest.load(Ordering::Relaxed).max(start)
    })
}

/// Those values that are addresses in the window. Most memory holds none, so many are compared at a time, without a
/// branch for each.
pub fn addresses_in(values: &[u64]) -> impl Iterator<Item = usize> {
    let start = WINDOWS.host.start.load(Ordering::Relaxed);
    let size = WINDOWS.host.size.load(Ordering::Relaxed);
    let is_address = move |value: &u64| (*value as usize).wrapping_sub(start) < size;
    let some =
        values.chunks(64).filter(move |chunk| chunk.iter().fold(false, |any, value| any | is_address(value)));
    some.flatten().filter(move |value| is_address(value)).map(|value| *value as usize)
}

/// The bytes that an allocation takes.
pub fn length(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(unit(size))
}

/// New zeroed memory in the window, or that of `memory`, which has its [`length`]; nothing where it does not
/// fit.
pub fn allocate(size: usize, memory: Option<&SealedMemory>) -> Option<*mut c_void> {
    let address = WINDOWS.host.allocate(size, memory)?;
    WINDOWS.used.fetch_add(1, Ordering::Relaxed);
    Some(address)
}

/// Addresses of the window at which this process has no memory. They are released when this is dropped.
#[derive(Debug)]
pub struct Reserved {
    /// The first one.
    pub address: usize,
    length: usize,
}

/// Takes addresses for `size` bytes that a device will have for memory that lies elsewhere in this process:
/// no other device, on whichever server, and nothing of this process has them.
pub fn reserve(size: usize) -> Option<Reserved> {
    let length = length(size)?;
    let address = WINDOWS.host.take(length, unit(size))?;
    Some(Reserved { address, length })
}

impl Drop for Reserved {
    fn drop(&mut self) {
        insert_free(&mut WINDOWS.host.free.lock(), self.address, self.length);
    }
}

/// Gives memory of [`allocate`] back.
pub fn release(address: usize, size: usize) {
    WINDOWS.used.fetch_sub(1, Ordering::Relaxed);
    WINDOWS.host.release(address, size);
}

/// Puts `memory`, which has as many bytes, in the place of an allocation of either window.
///
/// # Errors
/// Why the system refuses it. The allocation then is as it was.
pub fn replace(address: usize, length: usize, memory: &SealedMemory) -> io::Result<()> {
    let replaced = map(address, length, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED, Some(memory))?;
    advise_huge_pages(replaced, length);
    Ok(())
}

impl Window {
    const fn new() -> Self {
        let (start, size, highest) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        Self { start, size, highest, free: Mutex::new(BTreeMap::new()) }
    }

    /// Reserves the range that a server proposes, unless another one is.
    pub fn open(&self, (start, size): (u64, u64)) -> io::Result<()> {
        let (start, size) = (start as usize, size as usize);
        if size == 0 || self.size.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        map(start, size, libc::PROT_NONE, libc::MAP_FIXED_NOREPLACE, None)?;
        self.free.lock().insert(start, size);
        self.start.store(start, Ordering::Relaxed);
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    /// Whether this window is the one that a server proposes.
    pub fn is_open_for(&self, (start, size): (u64, u64)) -> bool {
        let own = self.size.load(Ordering::Acquire);
        own != 0 && (start as usize, size as usize) == (self.start.load(Ordering::Relaxed), own)
    }

    /// Whether an address lies in it.
    #[inline]
    pub fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.start.load(Ordering::Relaxed)) < self.size.load(Ordering::Relaxed)
    }

    /// New zeroed memory in it, or that of `memory`, which has its [`length`]; nothing where it does not fit.
    pub fn allocate(&self, size: usize, memory: Option<&SealedMemory>) -> Option<*mut c_void> {
        let length = length(size)?;
        let start = self.take(length, unit(size))?;
        match map(start, length, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED, memory) {
            Ok(address) => {
                advise_huge_pages(address, length);
                Some(address)
            }
            Err(_) => {
                insert_free(&mut self.free.lock(), start, length);
                None
            }
        }
    }

    fn take(&self, length: usize, align: usize) -> Option<usize> {
        let address = take(&mut self.free.lock(), length, align)?;
        // Relaxed: whoever has an address, and asks what was allocated, has it from the thread that took it.
        self.highest.fetch_max(address + length, Ordering::Relaxed);
        Some(address)
    }

    /// All of its addresses.
    fn range(&self) -> Range<usize> {
        // Acquire: pairs with the store of the size, which comes after that of the start.
        let size = self.size.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        start..start + size
    }

    /// Gives memory of [`Window::allocate`] back.
    pub fn release(&self, address: usize, size: usize) {
        let Some(length) = length(size) else { return };
        // Where the system refuses, the pages stay as they are and are not used again.
        if map(address, length, libc::PROT_NONE, libc::MAP_FIXED, None).is_ok() {
            insert_free(&mut self.free.lock(), address, length);
        }
    }
}

/// Asks for huge pages for memory that was mapped just now, if it has room for any.
fn advise_huge_pages(address: *mut c_void, length: usize) {
    if length >= HUGE_PAGE {
        // SAFETY: the caller has mapped the memory. Advice that the system does not take changes nothing.
        unsafe { libc::madvise(address, length, libc::MADV_HUGEPAGE) };
    }
}

/// What the place and the length of an allocation are multiples of.
fn unit(size: usize) -> usize {
    if size >= HUGE_PAGE { HUGE_PAGE } else { page_size() }
}

/// Maps `memory`, or anonymous memory, at `start`. `placing` is `MAP_FIXED_NOREPLACE`, or `MAP_FIXED` inside
/// the window.
fn map(
    start: usize,
    length: usize,
    access: i32,
    placing: i32,
    memory: Option<&SealedMemory>,
) -> io::Result<*mut c_void> {
    let (kind, descriptor) = match memory {
        Some(memory) => (libc::MAP_SHARED, memory.descriptor().as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    let mut flags = kind | placing;
    if access == libc::PROT_NONE {
        flags |= libc::MAP_NORESERVE;
    }
    // SAFETY: only ranges of the window are replaced, which is ours: those that are free or being freed, and in a
    // forked child those whose bytes `memory` has.
    let address = unsafe { libc::mmap(start as *mut c_void, length, access, flags, descriptor, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    if address as usize != start {
        // SAFETY: mapped just now, by a system that does not know `MAP_FIXED_NOREPLACE`.
        unsafe { libc::munmap(address, length) };
        return Err(io::Error::from(io::ErrorKind::AddrInUse));
    }
    Ok(address)
}

/// Takes `length` bytes at a multiple of `align` from the lowest free range that holds them.
fn take(free: &mut BTreeMap<usize, usize>, length: usize, align: usize) -> Option<usize> {
    let (start, size, aligned) = free.iter().find_map(|(&start, &size)| {
        let aligned = start.checked_next_multiple_of(align)?;
        (aligned.checked_add(length)? <= start + size).then_some((start, size, aligned))
    })?;
    free.remove(&start);
    if aligned > start {
        free.insert(start, aligned - start);
    }
    let end = aligned + length;
    if end < start + size {
        free.insert(end, start + size - end);
    }
    Some(aligned)
}

fn insert_free(free: &mut BTreeMap<usize, usize>, mut start: usize, mut length: usize) {
    if let Some((&before, &size)) = free.range(..start).next_back()
        && before + size == start
    {
        free.remove(&before);
        start = before;
        length += size;
    }
    if let Some(size) = free.remove(&(start + length)) {
        length += size;
    }
    free.insert(start, length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_at_any_place_and_nothing_beside_them() {
        // The window of this process, which no other test opens.
        WINDOWS.host.open((0x5a00_0000_0000, 1 << 30)).unwrap();
        let (first, last) = (0x5a00_0000_0000_u64, 0x5a00_3fff_ffff);
        let mut values: Vec<u64> =
            (0..200).map(|value| value << 40 | 7).filter(|value| value >> 40 != 0x5a).collect();
        values.extend([first - 1, last + 1, 0, u64::MAX]);
        assert_eq!(addresses_in(&values).count(), 0);
        for place in [0, 63, 64, 127, 150, values.len() - 1] {
            let mut some = values.clone();
            some[place] = last;
            some.push(first);
            assert_eq!(addresses_in(&some).collect::<Vec<_>>(), [last as usize, first as usize]);
        }
    }

    #[test]
    fn ranges_are_taken_aligned_and_merge_again() {
        let mut free = BTreeMap::from([(page_size(), 8 * HUGE_PAGE)]);
        let small = take(&mut free, page_size(), page_size()).unwrap();
        let large = take(&mut free, HUGE_PAGE, HUGE_PAGE).unwrap();
        let between = take(&mut free, 3 * page_size(), page_size()).unwrap();
        assert_eq!((small, large, between), (page_size(), HUGE_PAGE, 2 * page_size()));
        assert_eq!(take(&mut free, 8 * HUGE_PAGE, page_size()), None);
        for (start, length) in [(large, HUGE_PAGE), (small, page_size()), (between, 3 * page_size())] {
            insert_free(&mut free, start, length);
        }
        assert_eq!(free, BTreeMap::from([(page_size(), 8 * HUGE_PAGE)]));
    }
}

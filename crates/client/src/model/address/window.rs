//! The range of addresses that device memory has.

use crate::locks::{Mutex, rank};
use crate::log::info;
use causeway_api::handle::MAX_SERVERS;
use causeway_api::snapshot;
use causeway_api::sys::CUresult;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A range of addresses, and which of them are free.
#[derive(Debug)]
pub struct Window {
    base: u64,
    size: u64,
    granularity: u64,
    /// First address and size of each free range; neighbours are always merged.
    free: Mutex<rank::FreeAddresses, BTreeMap<u64, u64>>,
}

/// A window with its place, as the servers offered it. Sessions that offer the same one share it, so that no
/// two of them give out the same address.
type Known = ((u64, u64), &'static Window);

/// The windows of the process.
struct Windows {
    /// The windows of all sessions.
    reserved: Mutex<rank::AddressWindows, Vec<Known>>,
    /// What is known of the window of the session with each server.
    of_servers: [OfServer; MAX_SERVERS],
    /// The first address of all windows.
    first: AtomicU64,
    /// The address behind all windows.
    end: AtomicU64,
}

static WINDOWS: Windows = Windows {
    reserved: Mutex::new(Vec::new()),
    of_servers: [const { OfServer::new() }; MAX_SERVERS],
    first: AtomicU64::new(u64::MAX),
    end: AtomicU64::new(0),
};

/// What is known of the window of the session with a server.
struct OfServer {
    /// As the server offered it when the session was opened.
    offered: OnceLock<snapshot::Window>,
    window: OnceLock<Option<&'static Window>>,
    opened: OnceLock<Result<(), CUresult>>,
    /// Whether the server turned out not to have the window after all.
    is_lost: AtomicBool,
}

impl OfServer {
    const fn new() -> Self {
        Self {
            offered: OnceLock::new(),
            window: OnceLock::new(),
            opened: OnceLock::new(),
            is_lost: AtomicBool::new(false),
        }
    }
}

/// A server offers a window, as its session is being opened.
pub fn offer(server: usize, offered: snapshot::Window) {
    WINDOWS.of_servers[server].offered.get_or_init(|| offered);
}

/// The window of the session with a server; nothing where server or client cannot reserve one.
pub fn window(server: usize) -> Option<&'static Window> {
    let own = &WINDOWS.of_servers[server];
    let offered = *own.offered.get()?;
    own.window.get_or_init(|| find(offered)).filter(|_| !own.is_lost.load(Ordering::Relaxed))
}

/// The window that a server offers, once for all sessions.
fn find(offered: snapshot::Window) -> Option<&'static Window> {
    if offered.size == 0 {
        return None;
    }
    let offered_range = (offered.address, offered.size);
    let mut windows = WINDOWS.reserved.lock();
    if let Some((_, known)) = windows.iter().find(|(known, _)| *known == offered_range) {
        return Some(known);
    }
    match reserve(offered.address, offered.size) {
        Ok(()) => {
            let window = Window::new(offered.address, offered.size, offered.granularity);
            let window: &'static Window = Box::leak(Box::new(window));
            windows.push((offered_range, window));
            WINDOWS.first.fetch_min(offered.address, Ordering::Relaxed);
            WINDOWS.end.fetch_max(offered.address + offered.size, Ordering::Relaxed);
            Some(window)
        }
        Err(cause) => {
            info!(
                "cannot reserve {} bytes of addresses at {:#x} ({cause}); every allocation is a call to the \
                 server",
                offered.size, offered.address
            );
            None
        }
    }
}

/// The window of the session with a server, which the server has reserved as well from here on; `open` has it
/// do so.
pub fn opened(
    server: usize,
    open: impl FnOnce() -> Result<(), CUresult>,
) -> Result<&'static Window, CUresult> {
    let window = window(server).ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
    WINDOWS.of_servers[server].opened.get_or_init(open).map(|()| window)
}

/// The window in which an address lies, of whichever session.
pub fn at(address: u64) -> Option<&'static Window> {
    // Usually an address lies in none.
    if !(WINDOWS.first.load(Ordering::Relaxed)..WINDOWS.end.load(Ordering::Relaxed)).contains(&address) {
        return None;
    }
    let known = WINDOWS.of_servers.iter().filter_map(|own| *own.window.get()?);
    known.into_iter().find(|window| address.wrapping_sub(window.base) < window.size)
}

/// Notes that a server cannot reserve the window.
pub fn lose(server: usize) {
    if !WINDOWS.of_servers[server].is_lost.swap(true, Ordering::Relaxed) {
        info!(
            "the server's driver cannot reserve the window of addresses; every allocation is a call to the \
            server"
        );
    }
}

/// Keeps the range free of anything else in this process.
fn reserve(address: u64, size: u64) -> std::io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: with this flag the system maps the range only where nothing is mapped.
    let mapped =
        unsafe { libc::mmap(address as *mut libc::c_void, size as usize, libc::PROT_NONE, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    if mapped as u64 != address {
        // A kernel that does not know the flag takes the address for a wish.
        // SAFETY: mapped just now, and nobody knows of it.
        unsafe { libc::munmap(mapped, size as usize) };
        return Err(std::io::Error::from_raw_os_error(libc::EEXIST));
    }
    Ok(())
}

impl Window {
    fn new(base: u64, size: u64, granularity: u64) -> Self {
        Self { base, size, granularity, free: Mutex::new(BTreeMap::from([(base, size)])) }
    }

    /// What addresses and sizes of mappings are multiples of.
    pub fn granularity(&self) -> u64 {
        self.granularity
    }

    /// Whether nobody has taken an address.
    pub fn is_free(&self, address: u64) -> bool {
        let free = self.free.lock();
        free.range(..=address).next_back().is_some_and(|(start, length)| address - start < *length)
    }

    /// Takes `size` bytes of addresses at a multiple of `alignment`: at `hint` when they are free, else the
    /// lowest.
    pub fn take(&self, size: u64, alignment: u64, hint: u64) -> Option<u64> {
        let alignment = alignment.max(self.granularity);
        let mut free = self.free.lock();
        let at_hint = free.range(..=hint).next_back().and_then(|(start, length)| {
            let fits = hint.is_multiple_of(alignment) && hint.checked_add(size)? <= start + length;
            fits.then_some((*start, *length, hint))
        });
        let (start, length, taken) = at_hint.or_else(|| {
            free.iter().find_map(|(start, length)| {
                let aligned = start.checked_next_multiple_of(alignment)?;
                (aligned.checked_add(size)? <= start + length).then_some((*start, *length, aligned))
            })
        })?;
        free.remove(&start);
        if taken > start {
            free.insert(start, taken - start);
        }
        let (end, taken_end) = (start + length, taken + size);
        if end > taken_end {
            free.insert(taken_end, end - taken_end);
        }
        Some(taken)
    }

    /// Gives addresses back that [`Self::take`] gave.
    pub fn release(&self, mut start: u64, mut size: u64) {
        let mut free = self.free.lock();
        if let Some((before, length)) = free.range(..start).next_back().map(|(a, b)| (*a, *b))
            && before + length == start
        {
            free.remove(&before);
            (start, size) = (before, size + length);
        }
        if let Some(length) = free.remove(&(start + size)) {
            size += length;
        }
        free.insert(start, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_honour_the_hint_and_are_coalesced() {
        const UNIT: u64 = 2 << 20;
        let window = Window::new(1 << 40, 16 * UNIT, UNIT);
        let first = window.take(UNIT, 0, 0).unwrap();
        assert_eq!(first, 1 << 40);
        let hint = (1 << 40) + 8 * UNIT;
        assert_eq!(window.take(2 * UNIT, 0, hint), Some(hint));
        assert_eq!(window.take(2 * UNIT, 4 * UNIT, hint), Some((1 << 40) + 4 * UNIT));
        assert_eq!(window.take(7 * UNIT, 0, 0), None);
        assert!(!window.is_free(hint + 2 * UNIT - 1) && window.is_free(hint + 2 * UNIT));
        assert!(window.is_free(hint - 1) && !window.is_free((1 << 40) - 1) && !window.is_free(1 << 41));
        window.release(hint, 2 * UNIT);
        window.release(first, UNIT);
        window.release((1 << 40) + 4 * UNIT, 2 * UNIT);
        assert_eq!(window.take(16 * UNIT, 0, 0), Some(1 << 40));
    }

    #[test]
    fn a_range_that_is_in_use_is_not_reserved() {
        const SIZE: u64 = 1 << 20;
        let address = 0x0dea_0000_0000;
        reserve(address, SIZE).unwrap();
        assert_eq!(reserve(address, SIZE).unwrap_err().raw_os_error(), Some(libc::EEXIST));
    }
}

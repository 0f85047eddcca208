//! Reachability: which memory with a mirror kernels may use, because a device may have its address.
//!
//! A server looks through mirrors after each wait, and a program may have thousands of them, most of which no
//! kernel uses at the time. A kernel has an address from a parameter, from bytes that a copy brought, or from
//! memory that it shares with the program; from one address it gets to others in the same allocation. So all
//! that goes to a server is looked through for addresses, at any byte and whatever its upper 16 bits hold, in
//! which programs keep tags. Memory is *reachable* once such an address lies in it or beside it (one that begins
//! before its memory, as of arrays that count from 1, or ends behind it). It stays so. Memory that is not
//! reachable is neither compared nor sent, and the server does not look through its mirror.
//!
//! Where addresses cannot be recognized, all memory that there is counts as reachable: copies that are too long to be looked
//! through, that are read later or that have gaps; code that the program has made at run time, which may hold
//! addresses as constants. All that there ever will be counts as reachable with memory that other processes may
//! write to (IPC) and on the server's own host, where kernels see what the program writes without a command.

use core::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use causeway_api::calls::{Call, Opcode};
use causeway_api::sys::CUresult;

use crate::locks::{Mutex, rank};
use crate::model::host_window;
use crate::remote::session;

/// The longest copy to a device, in bytes, that is looked through for addresses: structures with pointers in
/// them are shorter, and 256 KiB take about as long as a command.
pub const MAX_SCANNED: usize = 256 << 10;

/// The bits of an address; programs keep tags in the others.
const ADDRESS: u64 = (1 << 48) - 1;

/// An address may lie this far outside a window and still mean memory in it.
const MARGIN: usize = 64 << 10;

/// Whether new memory of this library's own, with a mirror on a server, may begin as memory that is not
/// reachable.
pub fn may_begin_unreachable(server: usize) -> Result<bool, CUresult> {
    let is_seen_at_once = session::all().any(|session| session.shares_memory());
    Ok(!is_seen_at_once && session::with(server)?.knows(Opcode::mirror_search))
}

/// What has been found since the table was last told. A command may be sent by a thread that holds locks, so
/// that the table's cannot be taken there.
#[derive(Default)]
pub struct Noted {
    /// Addresses that devices may have.
    pub addresses: Vec<u64>,
    /// Ranges of which devices may have any address.
    pub ranges: Vec<Range<usize>>,
}

/// How many regions are not reachable. Written with the table locked.
pub static UNREACHABLE: AtomicUsize = AtomicUsize::new(0);

/// Whether any memory has a mirror that no kernel can use yet.
#[inline]
pub fn has_unreachable() -> bool {
    // Relaxed: who gives a device the address of memory has that from the call that made the mirror.
    UNREACHABLE.load(Ordering::Relaxed) != 0
}

static NOTED: Mutex<rank::NotedAddresses, Noted> =
    Mutex::new(Noted { addresses: Vec::new(), ranges: Vec::new() });

/// Addresses that are kept. With more, devices may have any address.
const MAX_NOTED: usize = 4096;

/// Takes what has been found.
pub fn take_noted() -> Noted {
    core::mem::take(&mut *NOTED.lock())
}

impl Noted {
    fn limit(&mut self) {
        if self.addresses.len() > MAX_NOTED {
            (self.addresses, self.ranges) = (Vec::new(), vec![0..usize::MAX]);
        }
    }
}

/// Looks through a command that is about to be sent to a server.
#[inline]
pub fn note_command<C: Call>(request: &C) {
    if matches!(C::OPCODE, Opcode::allocation_export | Opcode::allocation_import) {
        note_ranges(&[0..usize::MAX]);
    } else if has_unreachable() {
        let mut bytes = Vec::with_capacity(512);
        request.encode(&mut bytes);
        note_bytes(&bytes);
    }
}

/// Looks through bytes that are about to be sent to a server.
pub fn note_bytes(bytes: &[u8]) {
    if has_unreachable() {
        let mut found = Vec::new();
        addresses_in(bytes, &mut found);
        if !found.is_empty() {
            let mut noted = NOTED.lock();
            noted.addresses.append(&mut found);
            noted.limit();
        }
    }
}

/// A device may have any address of memory that there is.
pub fn note_unknown() {
    note_ranges(&host_window::ever_allocated());
}

fn note_ranges(ranges: &[Range<usize>]) {
    let mut noted = NOTED.lock();
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        match noted.ranges.iter_mut().find(|known| known.start == range.start) {
            Some(known) => known.end = known.end.max(range.end),
            None => noted.ranges.push(range.clone()),
        }
    }
}

/// Whether there may be an address among bytes.
pub fn is_any_in(bytes: &[u8]) -> bool {
    let mut found = Vec::new();
    addresses_in(bytes, &mut found);
    !found.is_empty()
}

/// Adds the addresses in or beside a window that bytes hold, wherever each begins.
pub fn addresses_in(bytes: &[u8], found: &mut Vec<u64>) {
    for window in host_window::both() {
        if !window.is_empty() {
            addresses_of(
                &(window.start.saturating_sub(MARGIN)..window.end.saturating_add(MARGIN)),
                bytes,
                found,
            );
        }
    }
}

/// Adds those addresses of a range that bytes hold.
///
/// Most bytes hold none: many are compared at a time, without a branch for each, by the upper halves, of which
/// a window has few.
fn addresses_of(range: &Range<usize>, bytes: &[u8], found: &mut Vec<u64>) {
    const HALF: usize = size_of::<u32>();
    const WORD: usize = 2 * HALF;
    const BLOCK: usize = 256 * HALF;
    let (first, last) = ((range.start as u64 >> 32) as u32, ((range.end - 1) as u64 >> 32) as u32);
    let is_upper = |half: u32| (half & (ADDRESS >> 32) as u32).wrapping_sub(first) <= last - first;
    let half_at = |half: &[u8]| u32::from_le_bytes(half.try_into().expect("half a word"));
    for shift in 0..HALF.min(bytes.len().saturating_sub(WORD - 1)) {
        let halves = &bytes[HALF + shift..];
        for (number, block) in halves.chunks(BLOCK).enumerate() {
            let any = block.chunks_exact(HALF).fold(false, |any, half| any | is_upper(half_at(half)));
            if !any {
                continue;
            }
            for (index, half) in block.chunks_exact(HALF).enumerate() {
                let at = shift + number * BLOCK + index * HALF;
                if is_upper(half_at(half)) {
                    let word = u64::from_le_bytes(bytes[at..at + WORD].try_into().expect("a word")) & ADDRESS;
                    if range.contains(&(word as usize)) {
                        found.push(word);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Range<usize> = 0x5a00_0000_0000..0x5a05_0000_0000;

    fn found(bytes: &[u8]) -> Vec<u64> {
        let mut found = Vec::new();
        addresses_of(&WINDOW, bytes, &mut found);
        found.sort_unstable();
        found
    }

    #[test]
    fn addresses_are_found_at_any_byte_and_with_tags() {
        for length in [8, 9, 15, 16, 17, 1031, 1032, 5000] {
            for at in (0..=length - 8).filter(|at| *at < 20 || *at + 20 > length || (1010..1040).contains(at))
            {
                for address in [WINDOW.start as u64, WINDOW.end as u64 - 1, 0x5a03_1234_5678] {
                    let mut bytes = vec![0; length];
                    bytes[at..at + 8].copy_from_slice(&(address | 0xbeef << 48).to_le_bytes());
                    assert_eq!(found(&bytes), [address], "at {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn other_bytes_are_no_addresses() {
        for bytes in [&[][..], &[0x5a; 7], &[0; 64], &[0xff; 64]] {
            assert!(found(bytes).is_empty(), "{bytes:x?}");
        }
        for beside in [WINDOW.start as u64 - 1, WINDOW.end as u64] {
            assert!(found(&beside.to_le_bytes()).is_empty(), "{beside:#x}");
        }
    }
}

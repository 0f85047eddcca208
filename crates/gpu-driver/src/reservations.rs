//! Reservations of addresses by NVIDIA's driver: where they are to lie, so that they are the same in every process.
//!
//! The driver reserves addresses by `mmap` without a hint, and puts into them what nobody chooses an address for: code,
//! variables of code, stacks of kernels. The system answers with other addresses in each process, for safety, and wherever
//! a thread has come between. A session that moves to another process then finds its variables elsewhere, which is no use
//! to a program that knows the address of one, as cuBLAS does. With a hint for each reservation, one behind the other, they
//! depend on nothing but what the driver has been asked for before: the same on 580.159 with an H200, whatever other
//! threads did meanwhile (2026-11-29). Addresses of the device are no secret to its session; those of the process's own
//! code, stacks and heap stay as random as they are.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Where they begin: between the windows of `window`, wherever these are.
const START: usize = 0x3200_0000_0000;

/// Where they end.
const END: usize = 0x3400_0000_0000;

/// Smaller ones are no reservations.
const MIN_BYTES: usize = 1 << 20;

/// Reservations of so many bytes begin at a multiple of them, as the driver itself gives its larger ones.
const LARGE: usize = 64 << 20;

/// Smaller ones begin at a multiple of what a device maps at once.
const SMALL: usize = 2 << 20;

/// Where the next one begins; 0 as long as there are no hints.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// From now on there are hints. To be called before the driver is loaded.
pub fn begin() {
    // It may have been called before.
    let _ = NEXT.compare_exchange(0, START, Ordering::Relaxed, Ordering::Relaxed);
}

/// The address for a call of `mmap`: the given one, or a hint for a reservation that has none.
pub fn hint(address: usize, bytes: usize, protection: i32, flags: i32) -> usize {
    let is_reservation = address == 0
        && bytes >= MIN_BYTES
        && protection == libc::PROT_NONE
        && flags == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    if is_reservation { next(&NEXT, bytes).unwrap_or(0) } else { address }
}

fn next(next: &AtomicUsize, bytes: usize) -> Option<usize> {
    let multiple = if bytes >= LARGE { LARGE } else { SMALL };
    let mut found = None;
    let _ = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| {
        let start = at.checked_next_multiple_of(multiple)?;
        let end = start.checked_add(bytes)?;
        found = (at != 0 && end <= END).then_some(start);
        found.map(|_| end)
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_lie_one_behind_the_other() {
        let at = AtomicUsize::new(0);
        assert_eq!(next(&at, 1 << 20), None);
        at.store(START, Ordering::Relaxed);
        assert_eq!(next(&at, 1 << 20), Some(START));
        assert_eq!(next(&at, LARGE - 1), Some(START + SMALL));
        assert_eq!(next(&at, LARGE), Some(START + 2 * LARGE));
        assert_eq!(next(&at, END - START), None);
        assert_eq!(next(&at, usize::MAX), None);
        assert_eq!(next(&at, 3), Some(START + 3 * LARGE));
    }

    #[test]
    fn only_reservations_without_a_hint_get_one() {
        begin();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let first = hint(0, SMALL, libc::PROT_NONE, flags);
        assert!((START..END).contains(&first));
        assert_eq!(hint(0x1000, SMALL, libc::PROT_NONE, flags), 0x1000);
        assert_eq!(hint(0, 4096, libc::PROT_NONE, flags), 0);
        assert_eq!(hint(0, SMALL, libc::PROT_READ, flags), 0);
        assert_eq!(hint(0, SMALL, libc::PROT_NONE, flags | libc::MAP_NORESERVE), 0);
        begin();
        assert!(hint(0, SMALL, libc::PROT_NONE, flags) > first);
    }
}

//! Memory of the program that the link's threads still read, for copies that were put in line.

use crate::locks::{Mutex, rank};
use parking_lot::Condvar;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// First address and size of what is read, by number.
type Ranges = HashMap<u64, (usize, usize)>;

static RANGES: LazyLock<Mutex<rank::Uploads, Ranges>> = LazyLock::new(Mutex::default);
static CHANGED: Condvar = Condvar::new();
static NEXT: AtomicU64 = AtomicU64::new(0);
/// The bytes of all, so that the common case of none costs one load.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// A range that is being read, as long as this lives.
pub struct Reading(u64);

impl Reading {
    /// The addresses from `start` to before `end`.
    pub fn of(start: usize, end: usize) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        RANGES.lock().insert(number, (start, end));
        BYTES.fetch_add(end - start, Ordering::AcqRel);
        Self(number)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some((start, end)) = RANGES.lock().remove(&self.0) {
            BYTES.fetch_sub(end - start, Ordering::AcqRel);
        }
        CHANGED.notify_all();
    }
}

/// How many bytes are being read.
pub fn bytes() -> usize {
    BYTES.load(Ordering::Acquire)
}

/// Waits until nothing reads in this range, which is about to be freed.
pub fn wait_for_range(start: usize, end: usize) {
    if bytes() == 0 {
        return;
    }
    let mut ranges = RANGES.lock();
    while ranges.values().any(|range| range.0 < end && start < range.1) {
        ranges.wait(&CHANGED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_frees_memory_waits_for_its_readers_alone() {
        let reading = Reading::of(0x1000, 0x2000);
        assert_eq!(bytes(), 0x1000);
        wait_for_range(0x2000, 0x3000);
        wait_for_range(0, 0x1000);
        let waiting = std::thread::spawn(|| wait_for_range(0x1fff, 0x3000));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waiting.is_finished());
        drop(reading);
        waiting.join().unwrap();
        assert_eq!(bytes(), 0);
    }
}

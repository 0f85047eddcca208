//! Memory of the program that the link's threads still read, for copies that were queued.

use crate::locks::{Monitor, rank};
use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// First address and size of what is read, by number.
type Ranges = HashMap<u64, (usize, usize)>;

/// Memory that is being read for copies.
struct Uploads {
    /// By number; their ends are waited for.
    ranges: LazyLock<Monitor<rank::Uploads, Ranges>>,
    /// The next number.
    next: AtomicU64,
    /// The bytes of all, so that the common case of none costs one load.
    bytes: AtomicUsize,
}

static UPLOADS: Uploads =
    Uploads { ranges: LazyLock::new(Monitor::default), next: AtomicU64::new(0), bytes: AtomicUsize::new(0) };

/// A range that is being read, as long as this lives.
pub struct Reading(u64);

impl Reading {
    /// The addresses from `start` to before `end`.
    pub fn of(start: usize, end: usize) -> Self {
        let number = UPLOADS.next.fetch_add(1, Ordering::Relaxed);
        UPLOADS.ranges.lock().insert(number, (start, end));
        UPLOADS.bytes.fetch_add(end - start, Ordering::AcqRel);
        Self(number)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some((start, end)) = UPLOADS.ranges.change(|ranges| ranges.remove(&self.0)) {
            UPLOADS.bytes.fetch_sub(end - start, Ordering::AcqRel);
        }
    }
}

/// How many bytes are being read.
pub fn bytes() -> usize {
    UPLOADS.bytes.load(Ordering::Acquire)
}

/// Waits until nothing reads in this range, which is about to be freed.
pub fn wait_for_range(start: usize, end: usize) {
    if bytes() == 0 {
        return;
    }
    UPLOADS.ranges.wait(|ranges| {
        let is_read = ranges.values().any(|range| range.0 < end && start < range.1);
        (!is_read).then_some(())
    });
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

//! Numbers that stand for this back end's objects.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that no other object of this process has or had. Zero is never given out: it is the null handle.
pub(super) fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

//! Numbers that nothing else of the process has had: of transfers, watches and offers.

use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A number that no transfer, watch or offer of any session has had.
pub fn fresh() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

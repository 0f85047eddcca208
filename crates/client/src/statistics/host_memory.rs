//! Statistics of registered memory: bytes that the worker shares, and bytes of which it has a mirror.

use crate::locks::{Mutex, rank};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of registered memory that kernels got the address of.
struct Counts {
    shared: AtomicU64,
    /// By the reason why they are not shared.
    mirrored: Mutex<rank::MirrorReasons, BTreeMap<String, u64>>,
}

static COUNTS: Counts = Counts { shared: AtomicU64::new(0), mirrored: Mutex::new(BTreeMap::new()) };

/// What the report says of it.
#[derive(Serialize)]
pub struct RegisteredMemory {
    shared_bytes: u64,
    mirrored_bytes: BTreeMap<String, u64>,
}

/// The worker has got so many bytes of the program's.
pub fn note_shared(bytes: usize) {
    COUNTS.shared.fetch_add(bytes as u64, Relaxed);
}

/// So many bytes have a mirror, for this reason.
pub fn note_mirrored(bytes: usize, reason: String) {
    *COUNTS.mirrored.lock().entry(reason).or_default() += bytes as u64;
}

/// What has been counted so far.
pub fn report() -> RegisteredMemory {
    RegisteredMemory {
        shared_bytes: COUNTS.shared.load(Relaxed),
        mirrored_bytes: COUNTS.mirrored.lock().clone(),
    }
}

//! Numbers that stand for this back end's objects, names of streams, and points in them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A number that no other object of this process has or had. Zero is never given out: it is the null handle.
pub(super) fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// Names a stream; never used again in this process.
pub(super) type StreamId = u64;

/// A point in a stream: it is reached when the stream has completed `sequence` commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) stream: StreamId,
    pub(super) sequence: u64,
}

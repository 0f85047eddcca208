//! Names of streams, and points in them.

/// Names a stream; never used again in this process.
pub(super) type StreamId = u64;

/// A point in a stream: it is reached when the stream has completed `sequence` commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) stream: StreamId,
    pub(super) sequence: u64,
}

//! One event: the point that its last record names, and when that was reached.

use super::context::ContextId;
use crate::handles::Point;
use std::time::Instant;

/// One event.
pub(super) struct Event {
    pub(super) context: ContextId,
    /// Whether the event keeps the time.
    pub(super) timing: bool,
    /// How often it was recorded.
    pub(super) record: u64,
    /// The point that the last record names; nothing before the first one.
    pub(super) point: Option<Point>,
    /// When that point was reached.
    pub(super) time: Option<Instant>,
}

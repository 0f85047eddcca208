//! Pacing of transfers, so that they keep to a rate.

use std::time::Duration;

/// Which way bytes have gone, as this end sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the peer.
    Received,
    /// To the peer.
    Sent,
}

/// Says how long a thread that carries transfers waits before it carries more. Messages are not asked about.
pub trait Pacer: Send + Sync {
    /// So many bytes of transfers have gone; how long to wait. May wait for an answer from elsewhere itself.
    fn pause(&self, direction: Direction, bytes: usize) -> Duration;
}

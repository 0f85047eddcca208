//! Set of servers that have an object that belongs to no context.

use std::sync::atomic::{AtomicU32, Ordering};

/// Some of the program's servers.
#[derive(Default)]
pub(super) struct Servers(AtomicU32);

impl Servers {
    /// One of them.
    pub(super) fn only(server: usize) -> Self {
        Self(AtomicU32::new(1 << server))
    }

    /// Whether a server is among them.
    #[inline]
    pub(super) fn contain(&self, server: usize) -> bool {
        self.0.load(Ordering::Acquire) & 1 << server != 0
    }

    /// Adds a server.
    pub(super) fn add(&self, server: usize) {
        self.0.fetch_or(1 << server, Ordering::AcqRel);
    }
}

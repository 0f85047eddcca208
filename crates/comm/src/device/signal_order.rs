//! Order of a queue's signals to one peer that go different ways. Pure.
//!
//! A signal goes by this proxy's own stores and lane, or over the link to the peer. Each way keeps its order; one
//! would overtake the other.

use super::layout::MAX_RANKS;

/// How a signal goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalPath {
    /// By this proxy.
    Mapped = 0,
    /// Over the link to the peer's proxy.
    Linked = 1,
}

/// The last signal to each peer by each way.
#[derive(Debug)]
pub struct SignalOrder(Vec<[Option<u64>; 2]>);

impl Default for SignalOrder {
    fn default() -> Self {
        Self(vec![[None; 2]; MAX_RANKS])
    }
}

impl SignalOrder {
    /// Takes a signal with a number of the queue; the last one of the other way, behind which it has to come.
    pub fn push(&mut self, peer: u32, path: SignalPath, number: u64) -> Option<u64> {
        let last = &mut self.0[peer as usize];
        last[path as usize] = Some(number);
        last[1 - path as usize]
    }
}

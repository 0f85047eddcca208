//! State of the completion poller between polls.

use std::cell::Cell;

use causeway_ibverbs::{Completion, Receive};

use crate::stripes::PartialPieces;

/// Completions that are taken at a time.
pub const AT_ONCE: usize = 32;

thread_local! {
    /// Whether this thread polls, and will see to what is given back meanwhile.
    pub static RETURNS_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// What came in a receive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReceiveKind {
    Control,
    CreditUpdate,
    Hello,
}

/// What whoever polls keeps from one poll to the next.
pub struct PollState {
    pub completions: [Completion; AT_ONCE],
    pub partial: PartialPieces,
    /// Those of transfers that come where they belong.
    pub placed: PartialPieces,
    /// For each path: receives to be posted again, and of what they were.
    pub again: Vec<Vec<(Receive, ReceiveKind)>>,
}

impl PollState {
    /// Nobody has polled yet, on so many paths.
    pub fn new(paths: usize) -> Self {
        let completions = [Completion::default(); AT_ONCE];
        let (partial, placed) = Default::default();
        Self { completions, partial, placed, again: (0..paths).map(|_| Vec::new()).collect() }
    }
}

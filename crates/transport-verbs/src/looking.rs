//! What does whoever looks for completions keep, from one look to the next?

use std::cell::Cell;

use causeway_ibverbs::{Completion, Receive};

use crate::parts::Joins;

/// Completions that are taken at a time.
pub const AT_ONCE: usize = 32;

thread_local! {
    /// Whether this thread looks, and will see to what is given back meanwhile.
    pub static RETURNS_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// What came in a receive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Was {
    Control,
    Extra,
    Hello,
}

/// What whoever looks keeps from one look to the next.
pub struct Looking {
    pub completions: [Completion; AT_ONCE],
    pub joins: Joins,
    /// Those of transfers that come where they belong.
    pub placed: Joins,
    /// For each path: receives to be posted again, and of what they were.
    pub again: Vec<Vec<(Receive, Was)>>,
}

impl Looking {
    /// Nobody has looked yet, on so many paths.
    pub fn new(paths: usize) -> Self {
        let completions = [Completion::default(); AT_ONCE];
        let (joins, placed) = Default::default();
        Self { completions, joins, placed, again: (0..paths).map(|_| Vec::new()).collect() }
    }
}

//! Waiting instructions: those that depend on other threads.
//!
//! Threads of a block take turns on one processor. Where none waits, they run one after the other, each to
//! its end; where one may, each is a coroutine, and one that waits lets the others run.

use crate::parse::syntax::Instruction;

/// Modifiers of loads that see what other threads store meanwhile.
pub(super) const ORDERED: [&str; 4] = ["volatile", "relaxed", "acquire", "cv"];

/// Whether an instruction waits for what other threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// Nothing that another thread does changes what comes of it.
    Never,
    /// It waits by itself, or gives way.
    Always,
    /// A loop around it may poll for what another thread writes: it gives a value of memory that others
    /// change, or has a plain load beside it see that.
    Polling,
    /// The same, if it is one of [`ORDERED`].
    PollingIfOrdered,
}

impl Waits {
    /// Whether a thread may poll with this instruction, which lies in a loop or not.
    pub(super) fn polls(self, instruction: &Instruction, in_loop: bool) -> bool {
        let is_ordered = || instruction.modifiers.iter().any(|modifier| ORDERED.contains(&modifier.as_str()));
        match self {
            Self::Never | Self::Always => false,
            Self::Polling => in_loop,
            Self::PollingIfOrdered => in_loop && is_ordered(),
        }
    }
}

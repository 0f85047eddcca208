//! Fetch order, and its outcome.

use std::sync::Arc;

use super::super::choosing::Kind;
use super::super::state_words::StateWords;
use crate::cuda::{CudaError, Mapping, Opened, PendingCopy};
use crate::matching;
use crate::scheduler::Decision;
use crate::tracer::Traffic;

/// What is to be fetched, and where to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    pub(crate) operation: u64,
    pub(crate) bytes: u64,
    pub(crate) source: matching::Source,
    pub(crate) word: Option<u16>,
    pub(crate) to: u64,
    /// Whether that was memory on a GPU when the receive was posted.
    pub(crate) to_gpu: bool,
    /// What the sender says of its traffic with this rank.
    pub(crate) traffic: Traffic,
}

/// Whether the payload is there when a call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It is.
    UntilThere,
    /// It may be under way: the program does something else meanwhile.
    ForNothing,
}

/// What a fetch has come to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The payload is there.
    There(Decision),
    /// It is being copied.
    InFlight(Box<PendingFetch>),
}

/// A payload that is being copied from memory that is open here.
#[derive(Debug)]
pub(crate) struct PendingFetch {
    pub(super) copy: PendingCopy,
    /// What is copied from, which stays open until then.
    pub(super) _source: Source,
    pub(super) state_words: Arc<StateWords>,
    pub(super) word: u16,
    pub(super) operation: u64,
    pub(crate) fetched: Decision,
    pub(super) kind: Kind,
    pub(crate) bytes: u64,
    pub(super) traffic: Traffic,
}

impl PendingFetch {
    /// The number of the context in whose stream the copy goes.
    pub(crate) fn life(&self) -> u64 {
        self.copy.life()
    }

    /// Tells the sender that the copy is over. Any thread may do so, and it is no message that could wait.
    pub(crate) fn notify_sender(&self, is_well: bool) {
        if is_well {
            self.state_words.finish(self.word, self.operation);
        } else {
            self.state_words.fail(self.word, self.operation);
        }
    }

    /// Whether the copy is done.
    pub(crate) fn is_done(&self) -> Result<bool, CudaError> {
        self.copy.is_done()
    }
}

/// A buffer of a peer's that is open here.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Opened(Arc<Opened>),
    Mapped(Arc<Mapping>),
}

impl Source {
    /// Whether kernels of a context on a device reach it.
    pub(super) fn is_for(&self, context: u64, device: i32) -> bool {
        match self {
            Self::Opened(opened) => opened.context == context,
            Self::Mapped(mapping) => mapping.let_use(device).is_ok(),
        }
    }

    /// Where so many bytes lie from an offset on; none where they do not all lie in it. A peer names the
    /// offset, and a kernel that leaves memory ends its context.
    pub(super) fn at(&self, offset: u64, bytes: u64) -> Option<u64> {
        let all = match self {
            Self::Opened(opened) => opened.bytes,
            Self::Mapped(mapping) => mapping.bytes as u64,
        };
        is_within(offset, bytes, all).then(|| self.start().saturating_add(offset))
    }

    /// Where it begins.
    pub(super) fn start(&self) -> u64 {
        match self {
            Self::Opened(opened) => opened.address,
            Self::Mapped(mapping) => mapping.address,
        }
    }
}

/// Whether so many bytes from an offset on are among so many.
fn is_within(offset: u64, bytes: u64, all: u64) -> bool {
    offset <= all && bytes <= all - offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_a_peer_names_lies_in_its_memory_or_not() {
        for (offset, bytes, inside) in [
            (0, 4096, true),
            (4096, 0, true),
            (1, 4096, false),
            (4097, 0, false),
            (u64::MAX, 2, false),
            (2, u64::MAX, false),
        ] {
            assert_eq!(is_within(offset, bytes, 4096), inside, "{offset} {bytes}");
        }
    }
}

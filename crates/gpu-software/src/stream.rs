//! What a stream holds and how far it is. The [`scheduler`](super::scheduler) moves it on.

use super::action::Action;
use super::context::Context;
use crate::handles::{Point, StreamId};
use causeway_api::types::LaunchAttribute;
use causeway_gpu::CuResult;
use causeway_sync::face::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How a stream relates to the legacy default stream of its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamKind {
    /// It is that stream.
    Legacy,
    /// Its commands wait for earlier ones of the legacy stream, and the other way round.
    Blocking,
    /// Neither waits for the other.
    NonBlocking,
}

/// An entry of a stream's queue.
pub(super) struct Command {
    /// Points of other streams that must be reached before.
    pub(super) after: Vec<Point>,
    pub(super) action: Action,
    /// About how much memory it takes.
    pub(super) bytes: usize,
    /// Whether the points of the stream count it. What a conditional node has chosen is none of the commands
    /// that the stream was given.
    pub(super) counts: bool,
}

impl Command {
    /// A command that comes after all points of `after`.
    pub(super) fn new(after: Vec<Point>, action: Action) -> Self {
        let operation = if let Action::Run(operation) = &action { operation.bytes() } else { 0 };
        let bytes = size_of::<Self>() + after.len() * size_of::<Point>() + operation;
        Self { after, action, bytes, counts: true }
    }
}

/// What is left of a command that has been taken out of its queue.
#[derive(Clone, Copy)]
pub(super) struct Done {
    /// About how much memory it took.
    pub(super) bytes: usize,
    /// As [`Command::counts`].
    pub(super) counts: bool,
}

/// What a stream is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// Its queue is empty.
    Idle,
    /// It waits for an executor thread.
    Ready,
    /// An executor thread works on it.
    Running,
    /// Its front command waits for another stream, a value or a gate; no thread is held by it.
    Stopped,
}

/// Who wants to know that a point has been reached.
pub(super) enum Waiter {
    /// A stopped stream.
    Stream(StreamId),
    /// A completion.
    Watch(Arc<Watch>),
}

/// A completion that waits for several points.
pub(super) struct Watch {
    pub(super) context: Arc<Context>,
    pub(super) progress: Mutex<WatchProgress>,
}

/// How many points are not reached yet, and what to call then.
pub(super) struct WatchProgress {
    pub(super) missing: usize,
    pub(super) done: Option<causeway_gpu::Completion>,
}

impl Watch {
    /// Counts one point as reached; gives the completion when it was the last.
    pub(super) fn count_down(&self) -> Option<Fired> {
        let mut progress = self.progress.lock();
        progress.missing = progress.missing.saturating_sub(1);
        let done = if progress.missing == 0 { progress.done.take() } else { None };
        done.map(|done| Fired { done, outcome: self.context.outcome() })
    }
}

/// A completion that is due; to be called without any lock held.
pub(super) struct Fired {
    pub(super) done: causeway_gpu::Completion,
    pub(super) outcome: CuResult<()>,
}

impl Fired {
    /// Calls it.
    pub(super) fn call(self) {
        (self.done)(self.outcome);
    }
}

/// One stream.
pub(super) struct Stream {
    pub(super) context: Arc<Context>,
    pub(super) kind: StreamKind,
    pub(super) priority: i32,
    /// Attributes that were set, beside the priority, and their values.
    pub(super) attributes: BTreeMap<u32, LaunchAttribute>,
    pub(super) queue: VecDeque<Command>,
    /// Commands given to the stream so far.
    pub(super) issued: u64,
    /// Commands completed so far.
    pub(super) completed: u64,
    pub(super) activity: Activity,
    pub(super) waiters: BTreeMap<u64, Vec<Waiter>>,
    /// For a blocking stream and the legacy stream of its context: how much of the other's work is waited for
    /// already.
    pub(super) legacy_awaited: u64,
    /// For a blocking stream: how much of its own work the legacy stream waits for already.
    pub(super) awaited_by_legacy: u64,
    /// Destroyed by the client; goes away when its queue is empty.
    pub(super) closing: bool,
}

impl Stream {
    /// A stream without commands.
    pub(super) fn new(context: &Arc<Context>, kind: StreamKind, priority: i32) -> Self {
        Self {
            context: Arc::clone(context),
            kind,
            priority,
            attributes: BTreeMap::new(),
            queue: VecDeque::new(),
            issued: 0,
            completed: 0,
            activity: Activity::Idle,
            waiters: BTreeMap::new(),
            legacy_awaited: 0,
            awaited_by_legacy: 0,
            closing: false,
        }
    }

    /// Whether some of its commands are not complete.
    pub(super) fn is_busy(&self) -> bool {
        self.issued > self.completed
    }
}

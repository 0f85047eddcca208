//! What happens when it is a command's turn in its stream.

use super::operation::{Condition, Operation};
use crate::operation::{Branch, Node, Sequence, ValueStep};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What happens when it is a command's turn.
pub(super) enum Action {
    /// Work for an executor thread.
    Run(Operation),
    /// Nothing: the command is there for what it waits for.
    Pass,
    /// Notes the time at which `event` was reached, unless it has been recorded again (`record` tells).
    Record { event: u64, record: u64 },
    /// Stops the stream until memory holds a value.
    WaitValue(Condition),
    /// Gives values what a launch of their graph begins with.
    Begin(Arc<Sequence>),
    /// A conditional node: what it chooses comes before the rest of the stream.
    Branch(Arc<Branch>),
    /// Stops the stream until `open` is set, after having called `reached` once.
    Gate { reached: Option<Box<dyn FnOnce() + Send>>, open: Arc<AtomicBool> },
}

impl Action {
    /// Whether the action takes less time than waking a thread for it.
    pub(super) fn is_quick(&self) -> bool {
        match self {
            Self::Run(operation) => operation.is_quick(),
            Self::Pass | Self::Record { .. } | Self::WaitValue(_) => true,
            Self::Gate { .. } | Self::Begin(_) | Self::Branch(_) => false,
        }
    }
}

impl Node {
    /// Appends what a stream does for it; nothing for records of events, which the scheduler has to know
    /// before.
    pub(super) fn append_to(&self, actions: &mut Vec<Action>) {
        match self {
            Self::Empty | Self::Record(_) | Self::Conditional { .. } => {}
            Self::Run(operation) | Self::Kernel(operation) => {
                actions.push(Action::Run(Operation::Shared(Arc::clone(operation))));
            }
            Self::Values(steps) => actions.extend(steps.iter().filter_map(|step| match *step {
                ValueStep::Write { address, value } => {
                    Some(Action::Run(Operation::WriteValue { address, value }))
                }
                ValueStep::Wait(condition) => Some(Action::WaitValue(condition)),
                ValueStep::Barrier => None,
            })),
            Self::Branch(branch) => actions.push(Action::Branch(Arc::clone(branch))),
        }
    }
}

impl Sequence {
    /// What a stream does for it.
    pub(super) fn actions(self: &Arc<Self>) -> Vec<Action> {
        let mut actions = Vec::new();
        if !self.conditions.is_empty() {
            actions.push(Action::Begin(Arc::clone(self)));
        }
        self.nodes.iter().for_each(|node| node.append_to(&mut actions));
        actions
    }
}

//! What a graph does: nodes in their order, and the values that they begin with.

use super::condition::{Choice, Condition as Steering};
use super::operation::{Condition, Operation, Value};
use std::sync::Arc;

/// What a node does.
#[derive(Clone)]
pub(super) enum Node {
    /// Nothing.
    Empty,
    /// Work for an executor thread.
    Run(Arc<Operation>),
    /// A kernel; its attributes are those of its first launch.
    Kernel(Arc<Operation>),
    /// Records an event.
    Record(u64),
    /// Writes values and waits for values.
    Values(Arc<[ValueStep]>),
    /// Carries one of these graphs out as a value says.
    Conditional { condition: Arc<Steering>, choice: Choice, bodies: Arc<[u64]> },
    /// The same in an executable graph.
    Branch(Arc<Branch>),
}

/// One stream memory operation.
#[derive(Clone, Copy)]
pub(super) enum ValueStep {
    /// Writes a value.
    Write { address: u64, value: Value },
    /// Stops the stream until memory holds a value.
    Wait(Condition),
    /// Orders memory, which is in order here anyway.
    Barrier,
}

impl Node {
    /// Whether the other one is of the same kind.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        core::mem::discriminant(self) == core::mem::discriminant(other)
    }
}

/// What a graph does: values that it begins with, and its nodes in their order.
#[derive(Default)]
pub(super) struct Sequence {
    pub(super) conditions: Vec<Arc<Steering>>,
    pub(super) nodes: Vec<Node>,
}

/// A conditional node of an executable graph.
pub(super) struct Branch {
    pub(super) condition: Arc<Steering>,
    pub(super) choice: Choice,
    pub(super) bodies: Vec<Arc<Sequence>>,
}

impl Branch {
    /// What is to be carried out now, and whether the value is to be looked at again afterwards.
    pub(super) fn next(&self) -> Option<(Arc<Sequence>, bool)> {
        let body = self.bodies.get(self.choice.of(self.condition.value()))?;
        Some((Arc::clone(body), self.choice == Choice::While))
    }
}

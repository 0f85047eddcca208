//! A body as far as it has been read, and the scopes in it.

use std::collections::HashMap;

use crate::parse::syntax::{Body, Function, Label, Register, Scalar};

/// A body as far as it has been read.
pub(super) struct Builder<'s, 'f> {
    pub(super) function: &'f Function,
    pub(super) body: Body,
    /// All scopes of the body, closed ones too: a branch may name a label that comes later.
    pub(super) scopes: Vec<Scope<'s>>,
    /// The open ones, innermost last.
    pub(super) open: Vec<usize>,
    /// Operands that name a label: statement, operand, name, scope, line.
    pub(super) pending_branches: Vec<(PendingLabel, &'s str, usize, u32)>,
}

/// Where the number of a label goes once it is known.
pub(super) enum PendingLabel {
    Operand { statement: usize, operand: usize },
    Table { name: String, index: usize },
}

/// The names of one `{ }`.
#[derive(Default)]
pub(super) struct Scope<'s> {
    pub(super) parent: Option<usize>,
    pub(super) registers: HashMap<&'s str, Register>,
    /// `.reg .b32 %r<100>`: prefix to type and count.
    pub(super) ranges: Vec<(&'s str, Scalar, u64)>,
    pub(super) variables: HashMap<&'s str, usize>,
    pub(super) labels: HashMap<&'s str, Label>,
}

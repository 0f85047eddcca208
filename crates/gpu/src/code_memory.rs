//! Memory of the variables of loaded code: its addresses, so that a session's state can be made again elsewhere.

use causeway_api::handle::{Context, Library, Module, Native};

/// What has been loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeOwner {
    /// A module.
    Module(Native<Module>),
    /// A library, in one of the contexts that use it.
    Library(Native<Library>),
}

/// The variables of a module, or of a library in one context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeMemory {
    /// What they belong to.
    pub owner: CodeOwner,
    /// In which context.
    pub context: Native<Context>,
    /// First address and size of each range, in the order in which the back end has allocated them.
    pub ranges: Vec<(u64, u64)>,
}

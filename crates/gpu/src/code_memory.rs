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

/// Code that a session has loaded, as it came.
#[derive(Debug, Clone, Copy)]
pub struct LoadedCode<'a> {
    /// What it has become.
    pub owner: CodeOwner,
    /// In which context it was loaded.
    pub context: Native<Context>,
    /// The number of its [`Form`](causeway_api::image::Form).
    pub form: u32,
    /// Its bytes.
    pub image: &'a [u8],
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
    /// Its variables in the order of the image, where the back end cannot load code at addresses of another process and
    /// somebody else has to find them again; else nothing.
    pub variables: Vec<CodeVariable>,
}

/// A variable of loaded code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeVariable {
    /// Its name in the image.
    pub name: String,
    /// Where it lies.
    pub address: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// Where it holds addresses that were put there when it was loaded, from its beginning.
    pub pointers: Vec<u64>,
}

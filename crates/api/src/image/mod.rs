//! Module images: what forms they have in memory and on the wire.

mod contents;
mod cubin;
mod form;
pub mod sample;
pub mod texts;
mod variables;

pub use contents::{Entry, EntryKind, Packing, cubin_architecture, entries, runs_on};
pub use cubin::cubin_kernels;
pub use form::{
    ELF_MAGIC, FATBIN_HEADER_BYTES, FATBIN_MAGIC, Form, WRAPPER_MAGIC, fatbin_bytes, split_linked,
};
pub use variables::{Variable, Variables, cubin_variables, ptx_variables};

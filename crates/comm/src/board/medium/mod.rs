//! What do the processes of a host share, so that a board can lie there?

mod file;
mod kind;
mod sweep;
mod system_v;

pub(super) use file::FileMedium;
pub(crate) use file::open_folder;
pub(crate) use kind::FILE_PREFIX;
pub(super) use kind::Medium;
pub use kind::{MediumError, MediumKind};
pub(super) use system_v::SystemVMedium;

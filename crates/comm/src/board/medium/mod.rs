//! Media of boards: files and System V shared memory.

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

//! Facts from the kernel's file systems.

mod gpus;
mod machine;
mod pci;
mod rdma;
mod system;

pub use gpus::NOT_FORWARDED;
pub use system::System;

use crate::facts::{Facts, Live};

/// All facts that files tell, with what is known otherwise.
pub fn facts(system: &System, live: Live) -> Facts {
    Facts { machine: machine::read(system), rdma: rdma::read(system), gpus: gpus::read(system), live }
}

//! Memory of another process's device, mapped for copies from it.

use causeway_api::errors;
use causeway_api::sys::CUresult;
use thiserror::Error;

/// A whole allocation of another process's device.
#[derive(Debug, PartialEq, Eq)]
pub struct ImportedMemory {
    /// Where it lies here.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// Why memory of another process's device cannot be mapped; a part of a sentence, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ImportError {
    /// The descriptor stands for nothing that this device can use.
    #[error("the driver does not import the other device's memory ({})", named(*.0))]
    Import(CUresult),
    /// There are no addresses for it.
    #[error("the driver has no addresses for the other device's memory ({})", named(*.0))]
    Addresses(CUresult),
    /// It cannot be mapped.
    #[error("the driver does not map the other device's memory ({})", named(*.0))]
    Map(CUresult),
    /// The devices do not reach each other's memory.
    #[error("the device does not reach the other one's memory ({})", named(*.0))]
    Access(CUresult),
    /// The size of the memory could still change under this process.
    #[error("the memory is not sealed, or not of the size that was told")]
    NotSealed,
}

fn named(status: CUresult) -> String {
    match errors::name(status) {
        Some(name) => name.to_string_lossy().into_owned(),
        None => format!("error {}", status.0),
    }
}

//! Detection of BAR access: gdrdrv or dma-buf.

use std::path::Path;
use std::sync::OnceLock;

use super::error::BarError;
use super::gdrdrv::Gdrdrv;
use super::window::{MappingMethod, Window};
use crate::cuda::{DeviceMemory, Driver, Scope};

/// By what this process maps a GPU's BAR, or why it cannot. Found out once, with the first memory that is
/// asked about.
pub(crate) fn usable(driver: &'static Driver, memory: &DeviceMemory) -> Result<(), &'static str> {
    mapping_method(driver, memory).map(drop)
}

pub(super) fn mapping_method(
    driver: &'static Driver,
    memory: &DeviceMemory,
) -> Result<MappingMethod, &'static str> {
    static WAY: OnceLock<Result<MappingMethod, String>> = OnceLock::new();
    if memory.is_managed {
        return Err("managed memory moves between host and GPU, and has no place in the BAR");
    }
    WAY.get_or_init(|| find(driver, memory))
        .as_ref()
        .map(|mapping_method| *mapping_method)
        .map_err(String::as_str)
}

fn find(driver: &'static Driver, memory: &DeviceMemory) -> Result<MappingMethod, String> {
    if Driver::is_remote() {
        return Err(BarError::Remote.to_string());
    }
    let no_module = match Gdrdrv::open() {
        // It is used until the process ends.
        Ok(module) => return Ok(MappingMethod::Gdrdrv(Box::leak(Box::new(module)))),
        Err(error) => error,
    };
    // Whether dma-bufs can be mapped is not told, but tried.
    let mapped = match Scope::of(driver, memory) {
        Ok(scope) => Window::new(MappingMethod::DmaBuf, &scope, memory, memory.start, memory.bytes).map(drop),
        Err(error) => Err(BarError::NoDmaBuf(error)),
    };
    mapped.map(|()| MappingMethod::DmaBuf).map_err(|error| format!("{no_module}; and {error}"))
}

/// Whether GDRCOPY's module is there, by the files below a root.
pub(crate) fn has_module(root: &Path) -> bool {
    root.join("dev/gdrdrv").exists()
}

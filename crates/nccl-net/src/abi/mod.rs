//! Tables of functions that NCCL looks for: `ncclNetPlugin_v8` (NCCL 2.20) to `ncclNetPlugin_v12` (2.30).
//!
//! The layouts are those of NCCL's headers, `plugins/net/example/nccl/net_v*.h`. Each version is a file with its
//! structures and what differs; functions that are the same in several are in `calls`, and all do what [`plugin`] does.
//!
//! [`plugin`]: crate::plugin

mod calls;
mod v10;
mod v11;
mod v12;
mod v8;
mod v9;

use core::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{NetError, ResultCode};
use crate::log;
use crate::plugin::Properties;

/// The name by which `NCCL_NET` chooses it, and which stands in NCCL's log.
const NAME: &core::ffi::CStr = c"Causeway";

/// A table, whose pointers are to functions and text that are there for good.
#[repr(transparent)]
pub struct Table<T>(T);

// SAFETY: functions and constant text.
unsafe impl<T> Sync for Table<T> {}

/// What stands first in the properties of all versions.
#[repr(C)]
struct Identity {
    name: *const c_char,
    pci_path: *const c_char,
    guid: u64,
    pointers: c_int,
    reg_is_global: c_int,
}

impl Identity {
    fn of(properties: &Properties) -> Self {
        Self {
            name: NAME.as_ptr(),
            // It is no device of a bus.
            pci_path: core::ptr::null(),
            guid: properties.guid,
            pointers: properties.pointers,
            reg_is_global: 0,
        }
    }
}

/// What stands behind that, and behind `forceFlush` from version 9 on.
#[repr(C)]
struct Port {
    speed: c_int,
    port: c_int,
    latency: f32,
    max_communicators: c_int,
    max_receives: c_int,
    /// `NCCL_NET_DEVICE_HOST`: kernels do not use the network by themselves.
    device_type: c_int,
    device_version: c_int,
}

impl Port {
    fn of(properties: &Properties) -> Self {
        Self {
            speed: properties.speed,
            port: 0,
            // NCCL then takes its own figure.
            latency: 0.0,
            max_communicators: properties.max_communicators,
            max_receives: properties.max_receives,
            device_type: 0,
            device_version: 0,
        }
    }
}

/// Devices that are used as one, of which there are none: the device alone. `N` is how many there could be.
#[repr(C)]
struct VirtualDevice<const N: usize> {
    count: c_int,
    devices: [c_int; N],
}

impl<const N: usize> VirtualDevice<N> {
    fn of(device: c_int) -> Self {
        let mut devices = [0; N];
        devices[0] = device;
        Self { count: 1, devices }
    }
}

/// Does a call. Nothing that goes wrong in it leaves the library as a panic.
fn call(body: impl FnOnce() -> Result<(), NetError>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(NetError::Panicked));
    match outcome {
        Ok(()) => ResultCode::Success as c_int,
        Err(error) => {
            // What failed before was logged then.
            if !matches!(error, NetError::Failed(_)) {
                log::warn(&error.to_string());
            }
            error.code() as c_int
        }
    }
}

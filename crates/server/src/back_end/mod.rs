//! Back end: selection, and opening.
//!
//! | Module | Question it answers |
//! |---|---|
//! | `choice` | Which one does the server's owner want? |
//! | `built_in` | Which ones does this build hold? Each is a feature of this crate. |
//! | `devices` | Which of the machine's devices does it show? |
//! | `driver`, `software` | How is each opened? |
//! | `error` | Why can none serve as it is wanted? |
//! | `fallback` | What serves where NVIDIA's driver cannot be used? |

mod built_in;
mod choice;
pub mod devices;
mod driver;
mod error;
mod fallback;
mod software;

use std::sync::Arc;

use causeway_gpu::Gpu;
use causeway_gpu::monitor::Monitor;
use fallback::without_driver;

pub use built_in::{BUILT_IN, BackEnd, NotBuiltIn};
pub use choice::{GpuChoice, UnknownGpu};
pub use devices::{DeviceList, DeviceListError};
pub use error::BackEndError;
pub use fallback::is_reported;

/// Whether a server can work like this at all. Nothing is started.
///
/// # Errors
/// What its owner has to change.
pub fn check(choice: GpuChoice) -> Result<(), BackEndError> {
    built_in::check(choice, built_in::is_built_in)?;
    match choice {
        // Workers read it again; whoever starts the server is to hear of a mistake, not its clients.
        GpuChoice::Cpu | GpuChoice::Auto { allows_software: true } => software::check_environment(),
        GpuChoice::Driver | GpuChoice::Auto { allows_software: false } => Ok(()),
    }
}

/// Opens what executes a client's calls.
///
/// # Errors
/// A sentence for the client's user and the server's owner.
pub fn open_gpu(choice: GpuChoice) -> Result<Arc<dyn Gpu>, String> {
    match choice {
        GpuChoice::Cpu => software::gpu(),
        GpuChoice::Driver | GpuChoice::Auto { .. } => {
            driver::gpu().or_else(|cause| without_driver(choice, cause, software::gpu))
        }
    }
}

/// Opens what tells of the GPU that workers use.
///
/// # Errors
/// A sentence for the client's user and the server's owner.
pub fn open_monitor(choice: GpuChoice) -> Result<Arc<dyn Monitor>, String> {
    let monitor = match choice {
        GpuChoice::Cpu => software::monitor(),
        // Workers may have a GPU all the same, and then this must not tell of another one.
        GpuChoice::Auto { allows_software: true } => driver::monitor().or_else(|cause| match driver::gpu() {
            Ok(_) => Err(cause),
            Err(_) => without_driver(choice, cause, software::monitor),
        }),
        GpuChoice::Driver | GpuChoice::Auto { .. } => {
            driver::monitor().or_else(|cause| without_driver(choice, cause, software::monitor))
        }
    };
    devices::shown(monitor?)
}

/// The list of the devices that a server shows, as workers of this back end take it.
///
/// # Errors
/// It names a device that is not there.
pub fn devices_for(choice: GpuChoice, list: &DeviceList) -> Result<String, DeviceListError> {
    let uuids = match choice {
        GpuChoice::Cpu => software::uuids(),
        GpuChoice::Driver | GpuChoice::Auto { .. } => devices::uuids_of_driver(),
    };
    list.for_driver(&uuids)
}

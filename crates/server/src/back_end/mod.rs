//! Back end: selection, fallback to the software GPU where NVIDIA's driver is unusable, and opening.

mod built_in;
mod choice;
pub mod devices;
mod driver;
mod error;
mod software;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_gpu::Gpu;
use causeway_gpu::monitor::Monitor;

pub use built_in::{BUILT_IN, BackEnd, NotBuiltIn};
#[cfg(feature = "driver")]
pub use causeway_gpu_driver::reservations;
pub use choice::{GpuChoice, UnknownGpu};
pub use devices::{DeviceList, DeviceListError};
pub use error::BackEndError;

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

/// Opens the monitor of the GPU that workers use.
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

static IS_REPORTED: AtomicBool = AtomicBool::new(false);

/// Another process of this server has said what the machine lacks.
pub fn is_reported() {
    IS_REPORTED.store(true, Ordering::Relaxed);
}

/// Opens the software GPU in the driver's place, if that is allowed. `cause` is the sentence that says why
/// the driver, or what else was to be opened of it, cannot be used.
///
/// # Errors
/// A sentence for the client's user and the server's owner, if it is not allowed or fails, too.
pub fn without_driver<T>(
    choice: GpuChoice,
    cause: String,
    software: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    match choice {
        GpuChoice::Auto { allows_software: true } => {
            if IS_REPORTED.load(Ordering::Relaxed) {
                tracing::debug!("serving the software GPU, since the GPU cannot be used: {cause}");
            } else {
                tracing::warn!(
                    "serving the software GPU (--allow-software), since the GPU cannot be used: {cause}"
                );
            }
            software()
        }
        GpuChoice::Auto { allows_software: false } => Err(format!(
            "the GPU cannot be used: {}. To serve the software GPU instead, which is many times slower, \
             start the server with `--gpu cpu`, or with `--allow-software`, which serves it only if the \
             driver fails",
            cause.trim_end_matches('.')
        )),
        GpuChoice::Cpu | GpuChoice::Driver => Err(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(choice: GpuChoice) -> Result<&'static str, String> {
        without_driver(choice, "There is no driver.".to_owned(), || Ok("software"))
    }

    #[test]
    fn only_who_allows_it_gets_the_software_gpu() {
        assert_eq!(outcome(GpuChoice::Auto { allows_software: true }), Ok("software"));
        assert_eq!(outcome(GpuChoice::Driver), Err("There is no driver.".to_owned()));
        let why = outcome(GpuChoice::Auto { allows_software: false }).unwrap_err();
        for part in ["the GPU cannot be used: There is no driver. To", "`--gpu cpu`", "`--allow-software`"] {
            assert!(why.contains(part), "{why}");
        }
    }
}

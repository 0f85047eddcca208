//! Opening the driver library and starting it.

use crate::functions::Functions;
use crate::reservations;
use causeway_api::sys::CUresult;
use causeway_config::read::PROCESS;
use causeway_config::table::DRIVER;
use causeway_cuda::{Library, LibraryError};
use core::ffi::{CStr, c_void};
use core::ptr;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The library that the system's loader is asked for otherwise.
const LIBRARY: &str = "libcuda.so.1";

/// Why the driver could not be used.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The library could not be opened.
    #[error(
        "The NVIDIA driver library `{}` could not be loaded ({}). Install NVIDIA's driver on the server's machine, or \
         name the library in CAUSEWAY_DRIVER.", path.display(), source
    )]
    NotFound {
        /// What was asked for.
        path: PathBuf,
        /// What the system's loader answered.
        source: LibraryError,
    },
    /// The library is Causeway's own client.
    #[error(
        "The library `{}` is Causeway's own client, not NVIDIA's driver. Start the server without LD_LIBRARY_PATH or \
         LD_PRELOAD pointing at the client, or name NVIDIA's library in CAUSEWAY_DRIVER.", path.display()
    )]
    OwnClient {
        /// What was loaded.
        path: PathBuf,
    },
    /// `cuInit` failed.
    #[error(
        "The NVIDIA driver library `{}` was loaded, but cuInit returned {} ({}): {}. {}", path.display(),
        status.0, text(*status, Part::Name), text(*status, Part::Text), advice(*status)
    )]
    Init {
        /// What was loaded.
        path: PathBuf,
        /// What `cuInit` answered.
        status: CUresult,
    },
    /// No thread could be started.
    #[error(
        "Cannot start the thread that waits for the GPU: {source}. Raise this user's limit of processes."
    )]
    Thread {
        /// What the system answered.
        source: std::io::Error,
    },
}

impl LoadError {
    /// What `cuInit` of a client is to answer.
    pub fn status(&self) -> CUresult {
        match self {
            Self::NotFound { .. } | Self::OwnClient { .. } => CUresult::CUDA_ERROR_NO_DEVICE,
            Self::Init { status, .. } => *status,
            Self::Thread { .. } => CUresult::CUDA_ERROR_OPERATING_SYSTEM,
        }
    }
}

enum Part {
    Name,
    Text,
}

fn text(status: CUresult, part: Part) -> String {
    let found = match part {
        Part::Name => causeway_api::errors::name(status),
        Part::Text => causeway_api::errors::text(status),
    };
    found.map_or_else(|| "unknown".to_owned(), |text| text.to_string_lossy().into_owned())
}

/// What to do about a failed `cuInit`.
fn advice(status: CUresult) -> &'static str {
    match status {
        CUresult::CUDA_ERROR_NO_DEVICE => {
            "Check with nvidia-smi that this machine has a GPU and that CUDA_VISIBLE_DEVICES does not hide it."
        }
        CUresult::CUDA_ERROR_NOT_FOUND => "The library has no cuInit, so it is not a CUDA driver.",
        CUresult::CUDA_ERROR_STUB_LIBRARY => {
            "This is the toolkit's stub for linking; the driver's own library must be found before it."
        }
        CUresult::CUDA_ERROR_OPERATING_SYSTEM => {
            "The device files /dev/nvidia* must exist and be accessible, and /proc must be mounted."
        }
        CUresult::CUDA_ERROR_SYSTEM_NOT_READY => {
            "The system is still starting its GPUs; machines with NVSwitch need a running fabric manager."
        }
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "Library and kernel module have different versions; a restart after a driver update fixes that."
        }
        CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => {
            "Another process holds the GPU exclusively; see the compute mode in nvidia-smi."
        }
        _ => "See the kernel's log (dmesg).",
    }
}

/// The library that is to be loaded: named by the environment, or found by the system's loader.
pub(crate) fn chosen_path() -> PathBuf {
    PROCESS.path(&DRIVER).unwrap_or_else(|| PathBuf::from(LIBRARY))
}

/// Loads the library and starts the driver.
///
/// Library and table live as long as the process: the driver keeps threads and exit handlers of its own, so
/// that it cannot be unloaded.
pub(crate) fn load(path: &Path) -> Result<&'static Functions, LoadError> {
    reservations::begin();
    // SAFETY: the initialisers of NVIDIA's driver may run in any process; whoever names another library in
    // the environment runs this process.
    let library = unsafe { Library::open(path) }
        .map_err(|source| LoadError::NotFound { path: path.to_owned(), source })?;
    let find = |name: &CStr| -> *const c_void {
        library.function(name).map_or(ptr::null(), |function| function.as_ptr().cast_const())
    };
    if library.is_client() {
        return Err(LoadError::OwnClient { path: path.to_owned() });
    }
    // SAFETY: a CUDA driver library exports these names with the signatures of `cuda.h`.
    let functions: &'static Functions = Box::leak(Box::new(unsafe { Functions::load(find) }));
    // SAFETY: `cuInit` takes no pointers.
    unsafe { functions.cuInit(0) }.map_err(|status| LoadError::Init { path: path.to_owned(), status })?;
    Ok(functions)
}

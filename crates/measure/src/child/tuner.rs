//! How long does a copy take with a plan that is chosen for it? For `causeway tune`, through the client library that programs
//! use.

use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;
use std::path::Path;
use std::time::{Duration, Instant};

use libloading::Library;
use thiserror::Error;

use super::driver::{DriverError, Gpu, cuda};
use super::memory::{DeviceMemory, HostMemory};

/// Why nothing could be measured.
#[derive(Debug, Error)]
pub enum TunerError {
    /// A call of the driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// It is a driver whose copies have no plans.
    #[error(
        "the library {0} is not this release's client library: it has no plans to choose from; CAUSEWAY_LIB_DIR names \
         another folder"
    )]
    OtherLibrary(String),
    /// The library does not take the plans.
    #[error("the client library does not understand the plans `{0}`")]
    NotUnderstood(String),
}

/// A session whose copies can be carried in any way.
#[derive(Debug)]
pub struct Tuner {
    gpu: &'static Gpu,
    use_pipeline: unsafe extern "C" fn(*const c_char) -> c_int,
    pair: [String; 4],
    host: HostMemory,
    device: DeviceMemory,
}

impl Tuner {
    /// Opens a session through the client library, with buffers for copies of up to `most_bytes`.
    pub fn open(path: &Path, most_bytes: usize) -> Result<Self, TunerError> {
        let gpu: &'static Gpu = Box::leak(Box::new(Gpu::open(path, false)?));
        let other = |_| TunerError::OtherLibrary(path.display().to_string());
        // SAFETY: the library is loaded already, and stays so, as `Gpu` never lets go of it.
        let library = unsafe { Library::new(path) }.map_err(other)?;
        // SAFETY: the client library exports these functions with these types.
        let (use_pipeline, pair) = unsafe {
            let use_pipeline = *library.get(b"causeway_use_pipeline").map_err(other)?;
            let pair: unsafe extern "C" fn(*mut c_char, usize) -> usize =
                *library.get(b"causeway_pipeline_pair").map_err(other)?;
            (use_pipeline, pair)
        };
        let mut text = [0_u8; 1024];
        // SAFETY: there is as much room as is said.
        let length = unsafe { pair(text.as_mut_ptr().cast(), text.len()) }.min(text.len());
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        let pair = text.splitn(4, '\n').map(str::to_owned).collect::<Vec<_>>();
        let pair = pair.try_into().map_err(|_| TunerError::OtherLibrary(path.display().to_string()))?;
        let mut host = HostMemory::pageable(most_bytes);
        // Pages that were never touched would be made by the first copy.
        host.bytes_mut().fill(0xa5);
        let device = DeviceMemory::new(gpu, gpu.context(), most_bytes)?;
        Ok(Self { gpu, use_pipeline, pair, host, device })
    }

    /// The server's host, the UUID of its first device, the module that carries copies, and the client's host.
    pub fn pair(&self) -> &[String; 4] {
        &self.pair
    }

    /// The name of the first device.
    pub fn device_name(&self) -> Result<String, TunerError> {
        Ok(self.gpu.device_name()?)
    }

    /// Carries copies as these plans say, from the next one on.
    pub fn use_plans(&self, plans: &str) -> Result<(), TunerError> {
        let not_understood = || TunerError::NotUnderstood(plans.to_owned());
        let text = CString::new(plans).map_err(|_| not_understood())?;
        let text: &CStr = &text;
        // SAFETY: the text ends with a zero, and is read before the call returns.
        let status = unsafe { (self.use_pipeline)(text.as_ptr()) };
        if status == 0 { Ok(()) } else { Err(not_understood()) }
    }

    /// Copies `bytes` bytes of pageable memory and waits; how long that took.
    pub fn time_copy(&self, to_device: bool, bytes: usize) -> Result<Duration, TunerError> {
        let (host, device) = (self.host.at(0), self.device.address());
        let begun = Instant::now();
        if to_device {
            cuda!(self.gpu, cuMemcpyHtoD_v2(device, host, bytes))?;
        } else {
            cuda!(self.gpu, cuMemcpyDtoH_v2(host, device, bytes))?;
        }
        Ok(begun.elapsed())
    }
}

//! Time of a copy with a chosen plan, for `causeway tune`, through the client library that programs use.

use std::path::Path;
use std::time::{Duration, Instant};

use causeway_pipeline::{Direction, Plan};
use thiserror::Error;

use super::driver::{DriverError, Gpu, cuda};
use super::memory::{DeviceMemory, HostMemory};
use super::plans::{Plans, PlansError};

/// Why nothing could be measured.
#[derive(Debug, Error)]
pub enum TunerError {
    /// A call of the driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// There are no plans to choose from, or not these.
    #[error(transparent)]
    Plans(#[from] PlansError),
}

/// A session whose copies can be carried in any way.
#[derive(Debug)]
pub struct Tuner {
    gpu: &'static Gpu,
    plans: Plans,
    pair: [String; 4],
    host: HostMemory,
    device: DeviceMemory,
}

impl Tuner {
    /// Opens a session through the client library, with buffers for copies of up to `max_bytes`.
    pub fn open(path: &Path, max_bytes: usize) -> Result<Self, TunerError> {
        let gpu: &'static Gpu = Box::leak(Box::new(Gpu::open(path, false)?));
        let plans = Plans::of_library(path)?;
        let pair = plans.pair()?;
        let mut host = HostMemory::pageable(max_bytes);
        // Pages that were never touched would be made by the first copy.
        host.bytes_mut().fill(0xa5);
        let device = DeviceMemory::new(gpu, gpu.context, max_bytes)?;
        Ok(Self { gpu, plans, pair, host, device })
    }

    /// The server's host, the UUID of its first device, the module that carries copies, and the client's
    /// host.
    pub fn pair(&self) -> &[String; 4] {
        &self.pair
    }

    /// The name of the first device.
    pub fn device_name(&self) -> Result<String, TunerError> {
        Ok(self.gpu.device_name()?)
    }

    /// Carries copies as these plans say, from the next one on.
    pub fn use_plans(&self, plans: &str) -> Result<(), TunerError> {
        Ok(self.plans.choose(Some(plans))?)
    }

    /// The plan for a copy that is in use by default: the built-in one for this network.
    pub fn built_in(&self, direction: Direction, bytes: usize) -> Result<Plan, TunerError> {
        self.plans.choose(Some(""))?;
        Ok(self.plans.plan(direction, bytes)?)
    }

    /// Copies `bytes` bytes of pageable memory and waits; how long that took.
    pub fn time_copy(&self, to_device: bool, bytes: usize) -> Result<Duration, TunerError> {
        let (host, device) = (self.host.at(0), self.device.address());
        let started = Instant::now();
        if to_device {
            cuda!(self.gpu, cuMemcpyHtoD_v2(device, host, bytes))?;
        } else {
            cuda!(self.gpu, cuMemcpyDtoH_v2(host, device, bytes))?;
        }
        Ok(started.elapsed())
    }
}

//! Probe of NVIDIA's driver, if this build holds its bindings (feature `driver`).

#[cfg(feature = "driver")]
pub use bound::ask;

/// Says that it cannot be asked.
#[cfg(not(feature = "driver"))]
pub fn ask() -> crate::facts::DriverProbe {
    crate::facts::DriverProbe::NotBuiltIn
}

#[cfg(feature = "driver")]
mod bound {
    use crate::facts::{CudaDevice, DriverProbe};
    use causeway_gpu::Gpu as _;
    use causeway_gpu_driver::{Driver, LoadError};
    use core::time::Duration;
    use std::sync::mpsc;

    /// How long NVIDIA's driver may take to start. Machines with many GPUs and no persistence daemon need
    /// seconds.
    const DRIVER_TIMEOUT: Duration = Duration::from_secs(40);

    /// Starts the driver on a thread of its own: one that hangs must not keep the others from being told.
    pub fn ask() -> DriverProbe {
        let (sender, reply) = mpsc::channel();
        let started = std::thread::Builder::new().name("driver".into()).spawn(move || {
            // Nobody waits any more if it took too long.
            let _ = sender.send(start_driver());
        });
        match started {
            Err(error) => {
                DriverProbe::None { is_installed: false, why: format!("No thread could be started: {error}.") }
            }
            Ok(_) => reply.recv_timeout(DRIVER_TIMEOUT).unwrap_or_else(|_| DriverProbe::None {
                is_installed: true,
                why: format!(
                    "NVIDIA's driver library did not start within {} s; the kernel's log (dmesg) may say why.",
                    DRIVER_TIMEOUT.as_secs()
                ),
            }),
        }
    }

    fn start_driver() -> DriverProbe {
        let driver = match Driver::load() {
            Ok(driver) => driver,
            Err(error) => {
                let is_installed = !matches!(error, LoadError::NotFound { .. });
                return DriverProbe::None { is_installed, why: error.to_string() };
            }
        };
        let snapshot = match driver.snapshot() {
            Ok(snapshot) => snapshot,
            Err(status) => {
                let why = format!("The driver started, but cannot list its devices (error {}).", status.0);
                return DriverProbe::None { is_installed: true, why };
            }
        };
        let devices = snapshot.devices.iter().zip(0..).map(|(device, number)| {
            let paths = driver.gpudirect_paths(number);
            CudaDevice {
                name: device.name.to_string(),
                address: device.pci_bus_id.to_lowercase(),
                paths: paths.usable.iter().map(ToString::to_string).collect(),
                closed: paths.refused.into_iter().map(|(way, why)| (way.to_string(), why)).collect(),
            }
        });
        DriverProbe::Started { name: snapshot.backend.to_string(), devices: devices.collect() }
    }
}

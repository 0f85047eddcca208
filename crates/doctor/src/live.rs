//! Live facts: system calls, libraries, and a probe of NVIDIA's driver (feature `driver`).

use core::time::Duration;
use std::fs;
use std::io;

use causeway_cuda::Library;
use causeway_ibverbs::{Device, DeviceError, Libraries};
use causeway_memory::pagemap::{Pagemap, Scan};
use causeway_memory::userfaultfd::Userfaultfd;
use rustix::fs::{MemfdFlags, memfd_create, statvfs};
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, getuid, pidfd_open};

use crate::facts::{Feature, Live, PathMtu, Verbs};

#[cfg(feature = "driver")]
use bound::probe_driver;

/// The libraries that are looked for: verbs, the connection manager, NVIDIA's driver and management library,
/// GDRCopy.
pub const LIBRARIES: [&str; 5] =
    ["libibverbs.so.1", "librdmacm.so.1", "libcuda.so.1", "libnvidia-ml.so.1", "libgdrapi.so.2"];

/// How long NVIDIA's driver may take to start; one that takes longer is reported as one that hangs. Machines with many GPUs
/// and no persistence daemon need seconds.
pub const DRIVER_TIMEOUT: Duration = Duration::from_secs(40);

/// Collects all live facts.
pub fn probe() -> Live {
    let memlock = getrlimit(Resource::Memlock);
    Live {
        release: env!("CARGO_PKG_VERSION").to_owned(),
        client_library: None,
        without_stub: Vec::new(),
        is_root: getuid().is_root(),
        memlock: memlock.current,
        memlock_max: memlock.maximum,
        may_lock_all: has_ipc_lock(&fs::read_to_string("/proc/self/status").unwrap_or_default()),
        shm: statvfs("/dev/shm").ok().map(|shm| shm.f_blocks.saturating_mul(shm.f_frsize)),
        libraries: LIBRARIES.iter().map(|name| ((*name).to_owned(), why_not(name))).collect(),
        verbs: query_verbs(),
        driver: probe_driver(),
        features: features(),
    }
}

/// Whether the effective capabilities in a text like that of `/proc/self/status` have `CAP_IPC_LOCK`.
fn has_ipc_lock(status: &str) -> bool {
    const IPC_LOCK: u64 = 1 << 14;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set & IPC_LOCK != 0)
}

/// Why a library cannot be loaded.
fn why_not(name: &str) -> Option<String> {
    // SAFETY: the initialisers of these libraries may run in any process.
    unsafe { Library::open(name) }.err().map(|error| error.to_string())
}

/// Opens each RDMA device as a program would.
fn query_verbs() -> Verbs {
    // Why it cannot be loaded is among the libraries.
    let Ok(libraries) = Libraries::load() else { return Verbs::default() };
    let ports = |name: &str| -> Result<Vec<PathMtu>, DeviceError> {
        let ports = Device::open(libraries, name)?.describe()?.ports;
        let mtus = ports.iter().map(|port| PathMtu {
            port: port.number.into(),
            active: port.mtu.bytes(),
            max: port.max_mtu.bytes(),
        });
        Ok(mtus.collect())
    };
    let names = Device::names(libraries).unwrap_or_default();
    let devices = names.into_iter().map(|name| {
        let ports = ports(&name).map_err(|error| error.to_string());
        (name, ports)
    });
    Verbs { has_dma_buf: libraries.has_dma_buf(), devices: devices.collect() }
}

fn features() -> Vec<(Feature, bool)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    vec![
        (Feature::SealedMemory, memfd_create("causeway-doctor", flags).is_ok()),
        (Feature::ProcessDescriptors, pidfd_open(getpid(), PidfdFlags::empty()).is_ok()),
        (Feature::CloseRange, can_close_ranges()),
        (Feature::WrittenPages, tracks_written_pages().is_ok()),
    ]
}

fn can_close_ranges() -> bool {
    // SAFETY: the call takes numbers; no descriptor has a number this high.
    let status = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            libc::c_uint::MAX - 1,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    status == 0
}

/// Asks the kernel for what the client library asks it for (`client/src/remote/mirrored/dirty_pages.rs`), of no
/// memory at all.
fn tracks_written_pages() -> io::Result<()> {
    let _faults = Userfaultfd::for_tracking_writes()?;
    Pagemap::open()?.scan(0..0, &Scan::default(), &mut []).map(drop)
}

/// Without the bindings the driver is not probed.
#[cfg(not(feature = "driver"))]
fn probe_driver() -> crate::facts::DriverProbe {
    crate::facts::DriverProbe::NotBuiltIn
}

#[cfg(feature = "driver")]
mod bound {
    use crate::facts::{CudaDevice, DriverProbe};
    use crate::live::DRIVER_TIMEOUT;
    use causeway_gpu::Gpu as _;
    use causeway_gpu_driver::{Driver, LoadError};
    use std::sync::mpsc;

    /// Starts the driver on a thread of its own: one that hangs must not keep the others from being told.
    pub(super) fn probe_driver() -> DriverProbe {
        let (sender, reply) = mpsc::channel();
        let started = std::thread::Builder::new().name("driver".into()).spawn(move || {
            // Nobody waits any more if it took too long.
            let _ = sender.send(start_driver());
        });
        match started {
            Err(error) => {
                DriverProbe::None { is_installed: false, why: format!("Cannot start a thread: {error}.") }
            }
            Ok(_) => reply.recv_timeout(DRIVER_TIMEOUT).unwrap_or_else(|_| DriverProbe::None {
                is_installed: true,
                why: format!(
                    "NVIDIA's driver library did not start within {} s; see the kernel's log (dmesg).",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_as_a_set_of_bits() {
        assert!(has_ipc_lock("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!has_ipc_lock("CapEff:\t00000000a80425fb\n"), "what Docker gives");
        assert!(!has_ipc_lock(""));
    }

    #[test]
    fn this_machine_can_be_probed() {
        let live = probe();
        assert_eq!(live.libraries.len(), LIBRARIES.len());
        assert_ne!(live.driver, crate::facts::DriverProbe::NotProbed);
        assert!(live.features.contains(&(Feature::SealedMemory, true)));
    }
}

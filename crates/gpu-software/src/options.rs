//! Settings of the software GPU.

use super::attributes::{CAPABILITIES, DEFAULT_CAPABILITY, DRIVER_VERSION, uuid_of};
use super::image::newest_ptx;
use causeway_api::snapshot::uuid_text;
use causeway_api::visible::{DuplicateDevice, choose};
use causeway_config::ValueError;
use causeway_config::read::PROCESS;
use causeway_config::table::{
    CUDA_VISIBLE_DEVICES, SOFTWARE_GPU_CAPABILITY, SOFTWARE_GPU_CUDA, SOFTWARE_GPU_DEVICES,
    SOFTWARE_GPU_MEMORY, SOFTWARE_GPU_PINNED,
};
use causeway_ptx::LAST_VERSION;
use core::str::FromStr;
use thiserror::Error;

/// Memory of the device when nobody sets it: this, or half of the machine's if that is less.
const DEFAULT_MEMORY: u64 = 8 << 30;

/// How a software GPU is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of device memory, which all devices share.
    pub memory: u64,
    /// A list of devices in the form of `CUDA_VISIBLE_DEVICES`: no others can be used. All can where there is
    /// none.
    pub visible: Option<String>,
    /// How many devices there are. They share processor and memory: more than one are for tests of programs
    /// that use several.
    pub devices: u32,
    /// The CUDA version that `cuDriverGetVersion` answers (13000 is 13.0).
    pub driver_version: i32,
    /// The last version of PTX that is taken, major times ten plus minor.
    pub newest_ptx: u32,
    /// The compute capability of the devices, major times ten plus minor. PTX for later ones is refused.
    pub capability: u32,
    /// Bytes of host memory that may be registered at a time.
    pub pinned: u64,
}

impl Default for Options {
    fn default() -> Self {
        let memory = DEFAULT_MEMORY.min(machine_memory() / 2);
        Self {
            memory,
            devices: 1,
            visible: None,
            driver_version: DRIVER_VERSION,
            newest_ptx: LAST_VERSION,
            capability: DEFAULT_CAPABILITY,
            pinned: u64::MAX,
        }
    }
}

impl Options {
    /// What the environment says.
    ///
    /// # Errors
    /// When a variable of the software GPU holds something that makes no sense.
    pub fn from_environment() -> Result<Self, ValueError> {
        let mut options = Self { visible: visible(), ..Self::default() };
        if let Some(memory) = PROCESS.size(&SOFTWARE_GPU_MEMORY)? {
            options.memory = memory;
        }
        if let Some(devices) = PROCESS.number(&SOFTWARE_GPU_DEVICES)? {
            options.devices = devices as u32;
        }
        if let Some(CudaVersion(version)) = PROCESS.parsed(&SOFTWARE_GPU_CUDA)? {
            (options.driver_version, options.newest_ptx) = (version, newest_ptx(version));
        }
        if let Some(Capability(capability)) = PROCESS.parsed(&SOFTWARE_GPU_CAPABILITY)? {
            options.capability = capability;
        }
        if let Some(pinned) = PROCESS.size(&SOFTWARE_GPU_PINNED)? {
            options.pinned = pinned;
        }
        Ok(options)
    }
}

/// The list of devices that can be used, as for NVIDIA's driver: an empty one leaves none.
fn visible() -> Option<String> {
    PROCESS.raw(&CUDA_VISIBLE_DEVICES).map(|list| list.to_string_lossy().into_owned())
}

impl Options {
    /// The UUIDs of all devices, by their numbers.
    pub fn uuids(&self) -> Vec<String> {
        (0..self.devices).map(|number| uuid_text(&uuid_of(number))).collect()
    }

    /// The numbers of the devices that can be used, in the order in which they are offered.
    ///
    /// # Errors
    /// A device is listed twice.
    pub(super) fn visible_devices(&self) -> Result<Vec<u32>, DuplicateDevice> {
        match &self.visible {
            None => Ok((0..self.devices).collect()),
            Some(list) => Ok(choose(list, &self.uuids())?.into_iter().map(|place| place as u32).collect()),
        }
    }
}

/// A version of CUDA as the driver counts it: 12040 is 12.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CudaVersion(i32);

/// A text that is no version of CUDA.
#[derive(Debug, Error)]
#[error("give a version of CUDA such as 12.4")]
struct NoVersion;

impl FromStr for CudaVersion {
    type Err = NoVersion;

    fn from_str(text: &str) -> Result<Self, NoVersion> {
        let (major, minor) = text.split_once('.').ok_or(NoVersion)?;
        let (major, minor) =
            (major.parse::<u8>().map_err(|_| NoVersion)?, minor.parse::<u8>().map_err(|_| NoVersion)?);
        if minor < 100 { Ok(Self(i32::from(major) * 1000 + i32::from(minor) * 10)) } else { Err(NoVersion) }
    }
}

/// A compute capability, major times ten plus minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Capability(u32);

/// A text that is no compute capability which a device has.
#[derive(Debug, Error)]
#[error("give a compute capability that a device has, such as 9.0")]
struct NoCapability;

impl FromStr for Capability {
    type Err = NoCapability;

    fn from_str(text: &str) -> Result<Self, NoCapability> {
        let known = CAPABILITIES.into_iter().find(|it| format!("{}.{}", it / 10, it % 10) == text);
        known.map(Self).ok_or(NoCapability)
    }
}

fn machine_memory() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    match (u64::try_from(pages), u64::try_from(page)) {
        (Ok(pages), Ok(page)) => pages.saturating_mul(page),
        _ => DEFAULT_MEMORY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_config::Values;

    #[test]
    fn versions_have_two_numbers() {
        let parse = |text: &str| text.parse().ok().map(|CudaVersion(version)| version);
        assert_eq!((parse("12.4"), parse("13.0")), (Some(12040), Some(13000)));
        for wrong in ["", "12", "12.", "twelve", "12.4.1", "-1.0", "999.0"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_devices_that_are_listed_can_be_used() {
        let visible = |list: Option<&str>| {
            let visible = list.map(str::to_owned);
            Options { devices: 3, visible, ..Options::default() }.visible_devices().unwrap()
        };
        assert_eq!((visible(None), visible(Some(""))), (vec![0, 1, 2], vec![]));
        assert_eq!((visible(Some("2,0")), visible(Some("1,3,0"))), (vec![2, 0], vec![1]));
        let uuids = [2, 0].map(|number| uuid_text(&uuid_of(number)));
        assert_eq!(visible(Some(&uuids.join(","))), [2, 0]);
    }

    #[test]
    fn the_table_has_the_capabilities_that_devices_have() {
        let Values::Word(words) = SOFTWARE_GPU_CAPABILITY.values else { panic!("they are words") };
        let known: Vec<_> = CAPABILITIES.iter().map(|it| format!("{}.{}", it / 10, it % 10)).collect();
        assert_eq!(words, known);
        assert_eq!("9.0".parse::<Capability>().ok(), Some(Capability(90)));
        assert!("9.1".parse::<Capability>().is_err());
    }
}

//! Settings of the software GPU.

use super::attributes::{CAPABILITIES, DEFAULT_CAPABILITY, DRIVER_VERSION, uuid_of};
use super::image::newest_ptx;
use causeway_api::snapshot::uuid_text;
use causeway_api::visible::{NamedTwice, choose};
use causeway_ptx::LAST_VERSION;
use std::env;
use thiserror::Error;

/// Names the size of the device's memory.
const MEMORY_VARIABLE: &str = "CAUSEWAY_SOFTWARE_GPU_MEMORY";
/// Names the CUDA version that the driver says it has.
const CUDA_VARIABLE: &str = "CAUSEWAY_SOFTWARE_GPU_CUDA";
/// Names the compute capability of the devices.
const CAPABILITY_VARIABLE: &str = "CAUSEWAY_SOFTWARE_GPU_CAPABILITY";
/// Names how many devices there are.
const DEVICES_VARIABLE: &str = "CAUSEWAY_SOFTWARE_GPU_DEVICES";
/// Lists the devices that can be used, as for NVIDIA's driver.
const VISIBLE_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
/// Names how much host memory may be registered.
const PINNED_VARIABLE: &str = "CAUSEWAY_SOFTWARE_GPU_PINNED";
/// More devices than this no program expects.
const MOST_DEVICES: u32 = 16;
/// Less no program runs with, and more no address space holds beside everything else.
const MEMORY_LIMITS: core::ops::RangeInclusive<u64> = 1 << 20..=1 << 43;
/// Memory of the device when nobody sets it: this, or half of the machine's if that is less.
const DEFAULT_MEMORY: u64 = 8 << 30;

/// How a software GPU is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of device memory, which all devices share.
    pub memory: u64,
    /// A list of devices in the form of `CUDA_VISIBLE_DEVICES`: no others can be used. All can where there is none.
    pub visible: Option<String>,
    /// How many devices there are. They share processor and memory: more than one are for tests of programs that use
    /// several.
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

/// The environment gives something that makes no sense.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum InvalidOption {
    /// A size of memory that is none.
    #[error(
        "{MEMORY_VARIABLE} is `{0}`, which is no size of memory; give a number of bytes, or of KiB, MiB or GiB with \
         the suffix K, M or G (for example 4G)"
    )]
    Memory(String),
    /// A limit of registered memory that is none.
    #[error(
        "{PINNED_VARIABLE} is `{0}`, which is no size of memory; give a number of bytes, or of KiB, MiB or GiB with \
         the suffix K, M or G (for example 64M)"
    )]
    Pinned(String),
    /// A number of devices that there cannot be.
    #[error("{DEVICES_VARIABLE} is `{0}`; give a number from 1 to {MOST_DEVICES}")]
    Devices(String),
    /// A version that is none.
    #[error("{CUDA_VARIABLE} is `{0}`, which is no version of CUDA; give one such as 12.4")]
    Cuda(String),
    /// A compute capability that no device has.
    #[error("{CAPABILITY_VARIABLE} is `{0}`; give one of {list}", list = capabilities())]
    Capability(String),
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
    /// What the environment says: `CAUSEWAY_SOFTWARE_GPU_MEMORY` is the size of the device's memory in bytes, or
    /// in KiB, MiB or GiB with the suffix `K`, `M` or `G`; `CAUSEWAY_SOFTWARE_GPU_DEVICES` is the number of devices;
    /// `CAUSEWAY_SOFTWARE_GPU_CUDA` is the version of CUDA that the driver has, whose PTX alone it takes then;
    /// `CAUSEWAY_SOFTWARE_GPU_CAPABILITY` is the compute capability of the devices; `CAUSEWAY_SOFTWARE_GPU_PINNED` is how
    /// much host memory may be registered, a size as that of the memory.
    ///
    /// # Errors
    /// When one of them holds something else.
    pub fn from_environment() -> Result<Self, InvalidOption> {
        let read = |name| env::var_os(name).map(|text| text.to_string_lossy().into_owned());
        let mut options = Self::default();
        if let Some(text) = read(MEMORY_VARIABLE) {
            let memory = parse_size(&text).filter(|bytes| MEMORY_LIMITS.contains(bytes));
            options.memory = memory.ok_or(InvalidOption::Memory(text))?;
        }
        if let Some(text) = read(DEVICES_VARIABLE) {
            let devices = text.trim().parse().ok().filter(|devices| (1..=MOST_DEVICES).contains(devices));
            options.devices = devices.ok_or(InvalidOption::Devices(text))?;
        }
        options.visible = read(VISIBLE_VARIABLE);
        if let Some(text) = read(CUDA_VARIABLE) {
            options.driver_version = parse_version(&text).ok_or(InvalidOption::Cuda(text))?;
            options.newest_ptx = newest_ptx(options.driver_version);
        }
        if let Some(text) = read(CAPABILITY_VARIABLE) {
            options.capability = parse_capability(&text).ok_or(InvalidOption::Capability(text))?;
        }
        if let Some(text) = read(PINNED_VARIABLE) {
            options.pinned = parse_size(&text).ok_or(InvalidOption::Pinned(text))?;
        }
        Ok(options)
    }
}

impl Options {
    /// The numbers of the devices that can be used, in the order in which they are offered.
    ///
    /// # Errors
    /// A device is listed twice.
    pub(super) fn visible_devices(&self) -> Result<Vec<u32>, NamedTwice> {
        match &self.visible {
            None => Ok((0..self.devices).collect()),
            Some(list) => {
                let uuids: Vec<_> = (0..self.devices).map(|number| uuid_text(&uuid_of(number))).collect();
                Ok(choose(list, &uuids)?.into_iter().map(|place| place as u32).collect())
            }
        }
    }
}

fn parse_version(text: &str) -> Option<i32> {
    let (major, minor) = text.trim().split_once('.')?;
    let (major, minor) = (major.parse::<u8>().ok()?, minor.parse::<u8>().ok()?);
    (minor < 100).then_some(i32::from(major) * 1000 + i32::from(minor) * 10)
}

fn parse_capability(text: &str) -> Option<u32> {
    let (major, minor) = text.trim().split_once('.')?;
    let (major, minor) = (major.parse::<u8>().ok()?, minor.parse::<u8>().ok()?);
    CAPABILITIES.iter().copied().find(|it| (*it / 10, *it % 10) == (major.into(), minor.into()))
}

/// All compute capabilities that a device may have, for people.
fn capabilities() -> String {
    let names: Vec<_> = CAPABILITIES.iter().map(|it| format!("{}.{}", it / 10, it % 10)).collect();
    names.join(", ")
}

fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, shift) = match text.as_bytes().last()?.to_ascii_uppercase() {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
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

    #[test]
    fn versions_have_two_numbers() {
        assert_eq!((parse_version("12.4"), parse_version(" 13.0 ")), (Some(12040), Some(13000)));
        for wrong in ["", "12", "12.", "twelve", "12.4.1", "-1.0", "999.0"] {
            assert_eq!(parse_version(wrong), None, "{wrong}");
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
    fn a_capability_is_one_that_a_gpu_has() {
        for it in CAPABILITIES {
            assert_eq!(parse_capability(&format!(" {}.{} ", it / 10, it % 10)), Some(it));
        }
        for wrong in ["", "9", "90", "9.", "9.1", "12.00x", "-7.5", "13.0", "sm_90", "9.0a"] {
            assert_eq!(parse_capability(wrong), None, "{wrong}");
        }
        let refused = InvalidOption::Capability("9.1".into()).to_string();
        assert!(refused.contains("`9.1`; give one of 5.0, ") && refused.ends_with(", 12.1"), "{refused}");
    }

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(parse_size("2097152"), Some(2 << 20));
        assert_eq!(parse_size("64M"), Some(64 << 20));
        assert_eq!(parse_size(" 3g "), Some(3 << 30));
        assert_eq!(parse_size("0"), Some(0));
        for wrong in ["", "G", "-1", "1.5G", "99999999999G", "4T", "é"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }
}

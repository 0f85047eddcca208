//! Visible devices: those of the machine that the server exposes.
//!
//! Its owner names them, and all that a client sees has them alone, in this order: what a worker's driver is
//! told (`CUDA_VISIBLE_DEVICES`) and what answers monitoring sessions.

use core::fmt;
use core::str::FromStr;
use std::path::Path;
use std::sync::Arc;

use causeway_config::read::PROCESS;
use causeway_config::table::{CUDA_DEVICE_ORDER, CUDA_VISIBLE_DEVICES};
use causeway_gpu::monitor::Monitor;
use causeway_gpu::monitor::visible_devices::VisibleDevices;
use thiserror::Error;

/// Where NVIDIA's driver says which devices there are: a folder for each, by its PCI address.
const DRIVERS_FOLDER: &str = "/proc/driver/nvidia/gpus";

/// What the UUIDs of whole devices begin with.
const UUID_PREFIX: &str = "GPU-";

/// The devices that a server shows, in order: numbers as `nvidia-smi` counts them, or UUIDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceList(Vec<DeviceName>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum DeviceName {
    Number(u32),
    /// The beginning of one is enough.
    Uuid(String),
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Uuid(uuid) => uuid.fmt(f),
        }
    }
}

impl fmt::Display for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(DeviceName::to_string).collect();
        f.write_str(&names.join(","))
    }
}

/// Why devices cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeviceListError {
    /// A text names no devices.
    #[error(
        "`{0}` names no device: give numbers as `nvidia-smi -L` counts them, or UUIDs (GPU-...), with commas between them"
    )]
    NoName(String),
    /// One is there twice.
    #[error("device {0} is named twice; name each once")]
    Twice(String),
    /// Both are used, and nobody can say which device has which UUID.
    #[error(
        "--devices {0} has numbers and UUIDs, and the driver does not say which belong together (there is no {DRIVERS_FOLDER}): give \
         all by number or all by UUID"
    )]
    Mixed(String),
    /// There is no such device.
    #[error("there is no device {name} on this machine, which has {count}; `nvidia-smi -L` lists them")]
    Unknown {
        /// As it was named.
        name: String,
        /// How many devices there are.
        count: usize,
    },
}

impl FromStr for DeviceList {
    type Err = DeviceListError;

    fn from_str(text: &str) -> Result<Self, DeviceListError> {
        let mut names: Vec<DeviceName> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let hexadecimal = |digits: &str| {
                !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
            };
            let name = match (part.parse(), part.strip_prefix(UUID_PREFIX)) {
                (Ok(number), _) if !part.starts_with('+') => DeviceName::Number(number),
                (_, Some(digits)) if hexadecimal(digits) => DeviceName::Uuid(part.to_owned()),
                _ => return Err(DeviceListError::NoName(part.to_owned())),
            };
            if names.contains(&name) {
                return Err(DeviceListError::Twice(name.to_string()));
            }
            names.push(name);
        }
        Ok(Self(names))
    }
}

impl DeviceList {
    /// The list as the driver takes it, which wants all numbers or all UUIDs. `uuids` are those of the machine's
    /// devices, in the order of their numbers; none where nobody knows.
    ///
    /// # Errors
    /// It names a device that is not there, or one twice, or what it mixes cannot be distinguished.
    pub fn for_driver(&self, uuids: &[String]) -> Result<String, DeviceListError> {
        if uuids.is_empty() {
            let is_number = |name: &DeviceName| matches!(name, DeviceName::Number(_));
            let numbers = self.0.iter().filter(|name| is_number(name)).count();
            return match numbers == 0 || numbers == self.0.len() {
                true => Ok(self.to_string()),
                false => Err(DeviceListError::Mixed(self.to_string())),
            };
        }
        let mut chosen: Vec<&str> = Vec::new();
        for name in &self.0 {
            let unknown = || DeviceListError::Unknown { name: name.to_string(), count: uuids.len() };
            let uuid = match name {
                DeviceName::Number(number) => uuids.get(*number as usize).ok_or_else(unknown)?,
                DeviceName::Uuid(start) => {
                    let begins = |uuid: &&String| {
                        uuid.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start))
                    };
                    let mut found = uuids.iter().filter(begins);
                    match (found.next(), found.next()) {
                        (Some(uuid), None) => uuid,
                        _ => return Err(unknown()),
                    }
                }
            };
            if chosen.contains(&uuid.as_str()) {
                return Err(DeviceListError::Twice(name.to_string()));
            }
            chosen.push(uuid);
        }
        Ok(chosen.join(","))
    }
}

/// Variables for processes that use the devices: this list, whose numbers count by the bus, as
/// those of the management library do.
pub fn variables(list: &str) -> [(&'static str, String); 2] {
    [(CUDA_VISIBLE_DEVICES.name, list.to_owned()), (CUDA_DEVICE_ORDER.name, "PCI_BUS_ID".to_owned())]
}

/// The UUIDs of NVIDIA's devices by their numbers; none where the driver does not say.
pub fn uuids_of_driver() -> Vec<String> {
    uuids_in(Path::new(DRIVERS_FOLDER))
}

fn uuids_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut devices: Vec<_> = entries.map(|entry| entry.path()).collect();
    // By their addresses, as the management library numbers them.
    devices.sort_unstable();
    let uuids: Option<Vec<String>> = devices
        .iter()
        .map(|device| {
            let text = std::fs::read_to_string(device.join("information")).ok()?;
            let uuid = text.lines().find_map(|line| line.strip_prefix("GPU UUID:"))?.trim();
            uuid.starts_with(UUID_PREFIX).then(|| uuid.to_owned())
        })
        .collect();
    uuids.unwrap_or_default()
}

/// A monitor that reports only the devices that `CUDA_VISIBLE_DEVICES` leaves workers of this environment.
///
/// # Errors
/// The variable names a device twice, so that workers have none.
pub fn shown(monitor: Arc<dyn Monitor>) -> Result<Arc<dyn Monitor>, String> {
    match PROCESS.raw(&CUDA_VISIBLE_DEVICES).map(|list| list.to_string_lossy().into_owned()) {
        None => Ok(monitor),
        // Programs of NVIDIA's library, too, see the whole device of which CUDA has an instance.
        Some(list) if list.trim_start().starts_with("MIG-") => Ok(monitor),
        Some(list) => match VisibleDevices::new(monitor, &list) {
            Ok(shown) => Ok(Arc::new(shown)),
            Err(error) => Err(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> DeviceList {
        text.parse().unwrap()
    }

    #[test]
    fn devices_are_named_by_number_or_uuid_and_once() {
        assert_eq!(list("0, 2,GPU-0a1B-2").to_string(), "0,2,GPU-0a1B-2");
        for wrong in ["", "0,", "x", "-1", "+1", "GPU-", "GPU-xyz", "MIG-00", "0;1", "4294967296"] {
            assert!(matches!(wrong.parse::<DeviceList>(), Err(DeviceListError::NoName(_))), "{wrong}");
        }
        assert_eq!("0,1,0".parse::<DeviceList>(), Err(DeviceListError::Twice("0".into())));
    }

    #[test]
    fn the_driver_is_told_uuids_where_they_are_known_and_one_kind_otherwise() {
        let uuids = ["GPU-aa00", "GPU-bb11", "GPU-bb22"].map(str::to_owned);
        assert_eq!(list("2,GPU-AA").for_driver(&uuids).unwrap(), "GPU-bb22,GPU-aa00");
        for (wrong, name) in [("3", "3"), ("0,GPU-bb", "GPU-bb"), ("GPU-cc", "GPU-cc")] {
            let unknown = DeviceListError::Unknown { name: name.into(), count: 3 };
            assert_eq!(list(wrong).for_driver(&uuids), Err(unknown), "{wrong}");
        }
        assert_eq!(list("0,GPU-aa").for_driver(&uuids), Err(DeviceListError::Twice("GPU-aa".into())));
        assert_eq!(list("2,0").for_driver(&[]).unwrap(), "2,0");
        assert_eq!(list("GPU-1,GPU-0").for_driver(&[]).unwrap(), "GPU-1,GPU-0");
        assert!(matches!(list("0,GPU-1").for_driver(&[]), Err(DeviceListError::Mixed(_))));
    }

    #[test]
    fn the_driver_says_which_device_has_which_uuid() {
        let folder = tempfile::tempdir().unwrap();
        let add = |address: &str, uuid: &str| {
            std::fs::create_dir(folder.path().join(address)).unwrap();
            let text = format!("Model: \t\t H100\nGPU UUID: \t {uuid}\nDevice Minor: \t 0\n");
            std::fs::write(folder.path().join(address).join("information"), text).unwrap();
        };
        assert!(uuids_in(&folder.path().join("none")).is_empty());
        add("0000:81:00.0", "GPU-2");
        add("0000:01:00.0", "GPU-1");
        assert_eq!(uuids_in(folder.path()), ["GPU-1", "GPU-2"]);
        add("0000:91:00.0", "GPU?");
        assert!(uuids_in(folder.path()).is_empty(), "numbers would be wrong without one of them");
    }
}

//! The devices that the program sees: those of its servers, after `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`.
//!
//! They are numbered in the order in which the program names the servers, then in each server's order.

use crate::environment;
use causeway_api::handle::{Context, Handle};
use causeway_api::snapshot::{self, Snapshot};
use causeway_api::sys::{CUdevice, CUdevice_attribute, CUresult};
use std::sync::OnceLock;

/// A device that the program sees.
#[derive(Debug)]
pub struct Device {
    /// The place of its server among those that the program names.
    pub server: usize,
    /// Its number on the server.
    pub ordinal: i32,
    /// What the server said about it.
    pub info: snapshot::Device,
    /// What a launch may ask for.
    pub limits: LaunchLimits,
}

/// The largest launch of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaunchLimits {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Threads of a block in all.
    pub threads: u32,
}

impl Device {
    fn new(server: usize, ordinal: usize, info: snapshot::Device) -> Self {
        let limit = |attribute: CUdevice_attribute| {
            info.attribute(attribute.0 as i32).map_or(u32::MAX, |value| value.max(0) as u32)
        };
        let limits = LaunchLimits {
            grid: [
                limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
            ],
            block: [
                limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
            ],
            threads: limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        };
        Self { server, ordinal: ordinal as i32, info, limits }
    }

    /// The value of an attribute, if the server reported it.
    pub fn attribute(&self, attribute: CUdevice_attribute) -> Option<i32> {
        self.info.attribute(attribute.0 as i32)
    }
}

static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();

/// Fixes the devices that the program sees. Called once, before any session is open.
pub fn open(devices: Vec<Device>) {
    DEVICES.get_or_init(|| devices);
}

/// Every device that the program sees, in its order; none before `cuInit`.
pub fn all() -> &'static [Device] {
    DEVICES.get().map_or(&[], Vec::as_slice)
}

/// The device that a program's number means.
pub fn device(number: CUdevice) -> Result<&'static Device, CUresult> {
    let index = usize::try_from(number).map_err(|_| CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    all().get(index).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
}

/// The server's number for a program's number.
pub fn on_server(number: CUdevice) -> Result<CUdevice, CUresult> {
    Ok(device(number)?.ordinal)
}

/// Where commands go that are about a device and need no context.
pub fn without_context(number: CUdevice) -> Result<Handle<Context>, CUresult> {
    Ok(Handle::null_of(device(number)?.server))
}

/// The program's number for a server's number, if the program sees that device.
pub fn number_of(server: usize, ordinal: i32) -> Option<CUdevice> {
    let is_meant = |device: &Device| (device.server, device.ordinal) == (server, ordinal);
    all().iter().position(is_meant).map(|number| number as CUdevice)
}

/// The devices of the servers that the environment lets the program see.
pub fn visible(snapshots: &[&Snapshot]) -> Vec<Device> {
    let by_bus = environment::read("CUDA_DEVICE_ORDER").as_deref() == Some("PCI_BUS_ID");
    let mut order: Vec<(usize, usize, &snapshot::Device)> = Vec::new();
    for (server, snapshot) in snapshots.iter().enumerate() {
        let mut of_server: Vec<_> = snapshot.devices.iter().enumerate().collect();
        if by_bus {
            of_server.sort_by_key(|(_, device)| device.pci_bus_id.to_ascii_lowercase());
        }
        order.extend(of_server.into_iter().map(|(ordinal, device)| (server, ordinal, device)));
    }
    let uuids: Vec<String> = order.iter().map(|(_, _, device)| uuid_text(&device.uuid)).collect();
    let chosen = match environment::read("CUDA_VISIBLE_DEVICES") {
        Some(list) => choose(&list, &uuids),
        None => (0..order.len()).collect(),
    };
    let device = |(server, ordinal, info): (usize, usize, &snapshot::Device)| {
        Device::new(server, ordinal, info.clone())
    };
    chosen.into_iter().map(|place| device(order[place])).collect()
}

/// Which of the devices with these UUIDs a `CUDA_VISIBLE_DEVICES` list means. The list ends at its first entry
/// that names no device, or one that was named before.
fn choose(list: &str, uuids: &[String]) -> Vec<usize> {
    let mut chosen = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let found = match entry.parse::<usize>() {
            Ok(number) => (number < uuids.len()).then_some(number),
            Err(_) => by_uuid(entry, uuids),
        };
        match found {
            Some(place) if !chosen.contains(&place) => chosen.push(place),
            _ => break,
        }
    }
    chosen
}

/// The one device whose UUID begins with `text`, "GPU-8932f9".
fn by_uuid(text: &str, uuids: &[String]) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    let digits = text.strip_prefix("gpu-").filter(|digits| !digits.is_empty())?;
    let mut found = uuids.iter().enumerate().filter(|(_, uuid)| uuid.starts_with(digits));
    match (found.next(), found.next()) {
        (Some((place, _)), None) => Some(place),
        _ => None,
    }
}

/// A UUID as `nvidia-smi -L` prints it, without its "GPU-".
fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuids() -> Vec<String> {
        ["8932f937-d72c-4106", "8932aaaa-d72c-4106", "01020304-0506-0708"].map(str::to_owned).to_vec()
    }

    #[test]
    fn numbers_choose_and_reorder_and_the_first_invalid_one_ends_the_list() {
        assert_eq!(choose("2,0", &uuids()), [2, 0]);
        assert_eq!(choose("1, 5,0", &uuids()), [1]);
        assert_eq!(choose("0,-1,1", &uuids()), [0]);
        assert_eq!(choose("1,1,0", &uuids()), [1]);
        assert!(choose("", &uuids()).is_empty() && choose("-1", &uuids()).is_empty());
        assert!(choose("NoDevFiles", &uuids()).is_empty());
    }

    #[test]
    fn a_uuid_prefix_must_mean_one_device() {
        assert_eq!(choose("GPU-8932f9,GPU-01020304-0506", &uuids()), [0, 2]);
        assert!(choose("GPU-8932", &uuids()).is_empty());
        assert!(choose("GPU-,GPU-0", &uuids()).is_empty());
        assert!(choose("MIG-8932f937", &uuids()).is_empty());
    }

    #[test]
    fn a_uuid_reads_as_tools_print_it() {
        let bytes = core::array::from_fn(|index| index as u8 + 0x10);
        assert_eq!(uuid_text(&bytes), "10111213-1415-1617-1819-1a1b1c1d1e1f");
    }
}

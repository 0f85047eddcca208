//! The devices that the program sees: those of its servers, after `CUDA_VISIBLE_DEVICES` and
//! `CUDA_DEVICE_ORDER`.
//!
//! They are numbered in the order in which the program names the servers, then in each server's order.

use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use causeway_api::handle::{Context, Handle};
use causeway_api::snapshot::{self, Snapshot};
use causeway_api::sys::{CUdevice, CUdevice_attribute, CUresult};
use causeway_api::visible::{DuplicateDevice, choose};
use causeway_config::table::{CUDA_DEVICE_ORDER, CUDA_VISIBLE_DEVICES};

use crate::environment;

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
///
/// # Errors
/// The environment's list names a device twice.
pub fn visible(snapshots: &[&Snapshot]) -> Result<Vec<Device>, DuplicateDevice> {
    let by_bus = environment::read(&CUDA_DEVICE_ORDER).as_deref() == Some("PCI_BUS_ID");
    let mut order: Vec<(usize, usize, &snapshot::Device)> = Vec::new();
    for (server, snapshot) in snapshots.iter().enumerate() {
        let mut of_server: Vec<_> = snapshot.devices.iter().enumerate().collect();
        if by_bus {
            of_server.sort_by_key(|(_, device)| device.pci_bus_id.to_ascii_lowercase());
        }
        order.extend(of_server.into_iter().map(|(ordinal, device)| (server, ordinal, device)));
    }
    let uuids: Vec<String> = order.iter().map(|(_, _, device)| device.uuid_text()).collect();
    let chosen = match environment::read(&CUDA_VISIBLE_DEVICES) {
        Some(list) => choose(&list, &uuids)?,
        None => (0..order.len()).collect(),
    };
    let device = |(server, ordinal, info): (usize, usize, &snapshot::Device)| {
        Device::new(server, ordinal, info.clone())
    };
    Ok(chosen.into_iter().map(|index| device(order[index])).collect())
}

/// What descriptors of RDMA devices lead to.
pub const FOLDER: &str = "/dev/infiniband/";

/// How many were opened for sessions.
static OWN: AtomicUsize = AtomicUsize::new(0);

/// Opens sessions. RDMA devices that are open afterwards and were not before are this library's.
pub fn while_opening<T>(open: impl FnOnce() -> T) -> T {
    let before = count();
    let opened = open();
    OWN.fetch_add(count().unwrap_or(0).saturating_sub(before.unwrap_or(usize::MAX)), Ordering::Relaxed);
    opened
}

/// Whether sessions have any open.
pub fn are_ours_open() -> bool {
    OWN.load(Ordering::Relaxed) != 0
}

/// Whether the program has any open; `true` where that is unknown.
pub fn are_others_open() -> bool {
    count().is_none_or(|count| count > OWN.load(Ordering::Relaxed))
}

/// The process's descriptors of such devices; nothing where the system does not say.
fn count() -> Option<usize> {
    let is_rdma_device =
        |entry: &fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(FOLDER));
    Some(fs::read_dir("/proc/self/fd").ok()?.flatten().filter(is_rdma_device).count())
}

/// The next number of each sort.
struct Numbers {
    messages: AtomicU64,
    contexts: AtomicU64,
    streams: AtomicU64,
    memory: AtomicU64,
}

static NUMBERS: Numbers = Numbers {
    messages: AtomicU64::new(1),
    contexts: AtomicU64::new(1),
    streams: AtomicU64::new(1),
    memory: AtomicU64::new(1),
};

fn next(number: &AtomicU64) -> u64 {
    number.fetch_add(1, Ordering::Relaxed)
}

/// A number that no transfer, watch or offer of any session has had.
pub fn fresh() -> u64 {
    next(&NUMBERS.messages)
}

/// What a program asks for as a context's id.
pub fn of_context() -> u64 {
    next(&NUMBERS.contexts)
}

/// What a program asks for as a stream's id.
pub fn of_stream() -> u64 {
    next(&NUMBERS.streams)
}

/// What a program asks for as the id of a piece of CUDA's memory, the device's or the host's.
pub fn of_memory() -> u64 {
    next(&NUMBERS.memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_cards_has_none() {
        assert_eq!(while_opening(|| 7), 7);
        assert!(!are_ours_open());
        assert_eq!(are_others_open(), count() != Some(0));
    }
}

//! GPU attributes, peer access, and imported memory of other processes with its device.

use core::ffi::{c_int, c_void};
use std::collections::{BTreeMap, HashMap};

use crate::functions::Driver;
use crate::locks::{Mutex, MutexGuard, rank};

/// The first 8 bytes of a GPU's UUID, which are the same in every process and container.
pub type GpuNumber = u64;

/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED`.
const EXPORT_SUPPORTED: i32 = 103;

/// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED`.
const GPUDIRECT_SUPPORTED: c_int = 116;

/// `CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID`, `PCI_BUS_ID` and `PCI_DEVICE_ID`.
const PCI_ADDRESS: [c_int; 3] = [50, 33, 34];

/// `CU_DEVICE_ATTRIBUTE_MPS_ENABLED`.
const MPS_ENABLED: c_int = 133;

/// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING`.
const WRITES_ORDERING: c_int = 118;

/// `CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER`.
const ORDERED_FOR_OWNER: c_int = 100;

/// `CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED`.
const NATIVE_ATOMICS: c_int = 3;

/// How many answers about GPUs of peers are known at a time.
const MAX_CACHED_RESULTS: usize = 64;

/// An attribute of a device; none where the driver does not know it.
fn device_attribute(driver: &Driver, attribute: i32, device: i32) -> Option<i32> {
    let mut value = 0;
    // SAFETY: there is room for the value.
    unsafe { driver.device_attribute(&raw mut value, attribute, device) }.ok()?;
    Some(value)
}

/// Whether a device makes memory that can be exported as a descriptor.
pub(super) fn exports_memory(driver: &Driver, device: i32) -> bool {
    device_attribute(driver, EXPORT_SUPPORTED, device) == Some(1)
}

/// What a device's driver says that others can do with its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// It can be exported as a descriptor.
    pub export: bool,
    /// Network cards reach it.
    pub gpudirect: bool,
}

/// What others can do with a device's memory. Whether a handle of cudaIPC can be had is asked of memory.
pub fn abilities(driver: &Driver, device: i32) -> Abilities {
    Abilities {
        export: exports_memory(driver, device),
        gpudirect: device_attribute(driver, GPUDIRECT_SUPPORTED, device) == Some(1),
    }
}

/// Where a device is on this host's PCI bus, as the kernel writes it; none where it is another host's.
pub fn pci_address(driver: &Driver, device: i32) -> Option<String> {
    if Driver::is_remote() {
        return None;
    }
    let [domain, bus, slot] = PCI_ADDRESS.map(|attribute| device_attribute(driver, attribute, device));
    Some(format!("{:04x}:{:02x}:{:02x}.0", domain?, bus?, slot?))
}

/// Whether a device's kernels see what other devices have written to its memory without more ado.
pub(super) fn writes_are_ordered(driver: &Driver, device: i32) -> bool {
    device_attribute(driver, WRITES_ORDERING, device).is_none_or(|ordering| ordering >= ORDERED_FOR_OWNER)
}

/// Whether this process shares a device by NVIDIA's MPS, without which processes on it take turns.
pub fn is_under_mps(driver: &Driver, device: i32) -> bool {
    device_attribute(driver, MPS_ENABLED, device).is_some_and(|enabled| enabled != 0)
}

/// The device of the calling thread's context.
pub fn current_device(driver: &Driver) -> Option<i32> {
    let mut context: *mut c_void = core::ptr::null_mut();
    // SAFETY: there is room for the context.
    unsafe { driver.current_context(&raw mut context) }.ok()?;
    if context.is_null() {
        return None;
    }
    let mut device = 0;
    // SAFETY: there is room for the number.
    unsafe { driver.context_device(&raw mut device) }.ok()?;
    Some(device)
}

/// The number by which other processes know a device.
pub fn gpu_number(driver: &Driver, device: i32) -> Option<GpuNumber> {
    static NUMBERS: Mutex<rank::Leaf, Vec<(i32, GpuNumber)>> = Mutex::new(Vec::new());
    let mut numbers = NUMBERS.lock();
    if let Some((_, number)) = numbers.iter().find(|(known, _)| *known == device) {
        return Some(*number);
    }
    let mut uuid = [0; 16];
    // SAFETY: there is room for the 16 bytes.
    unsafe { driver.device_uuid(&raw mut uuid, device) }.ok()?;
    // Of all bytes: those of several software GPUs differ in the last one alone.
    let [one, two] = [0, 8].map(|at| u64::from_le_bytes(core::array::from_fn(|byte| uuid[at + byte])));
    let number = one ^ two.rotate_left(32);
    numbers.push((device, number));
    Some(number)
}

/// The name of a device's model; empty where there is none to be had.
pub fn gpu_model(driver: &Driver, device: i32) -> String {
    let mut name = [0_u8; 128];
    // SAFETY: there is room for so many bytes, the last of which stays 0.
    let named = unsafe { driver.device_name(name.as_mut_ptr().cast(), name.len() as c_int - 1, device) };
    let text = core::ffi::CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy();
    named.map_or_else(|_| String::new(), |()| text.into_owned())
}

/// What a device of this process is to a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuAccess {
    /// It reaches the GPU's memory, or is that GPU.
    Peer,
    /// It does not, but the GPU is a device of this process, too, and the driver copies between the two.
    Seen(i32),
    /// The GPU is none of this process's devices.
    Unseen,
}

/// The device of this process that is the GPU with that number.
fn device_with(driver: &Driver, number: GpuNumber) -> Option<i32> {
    let mut count = 0;
    // SAFETY: there is room for the number.
    unsafe { driver.device_count(&raw mut count) }.ok()?;
    (0..count).find(|device| gpu_number(driver, *device) == Some(number))
}

/// Whether a device's atomic operations are atomic on the memory of the GPU with that number. Of one that is none of this
/// process's devices the driver says nothing: as between containers with a GPU each, which are joined as the host is.
pub fn has_native_atomics(driver: &Driver, device: i32, number: GpuNumber) -> bool {
    let Some(other) = device_with(driver, number).filter(|other| *other != device) else { return true };
    let mut value = 0;
    // SAFETY: there is room for the answer.
    let known = unsafe { driver.peer_attribute(&raw mut value, NATIVE_ATOMICS, device, other) };
    known.is_ok() && value != 0
}

/// What a device here is to the GPU with that number.
pub fn gpu_access(driver: &Driver, device: i32, number: GpuNumber) -> GpuAccess {
    type Known = HashMap<(i32, GpuNumber), GpuAccess>;
    static ACCESS_CACHE: Mutex<rank::GpuAccess, Option<Known>> = Mutex::new(None);
    let mut cache = ACCESS_CACHE.lock();
    let query = || {
        let Some(other) = device_with(driver, number) else { return GpuAccess::Unseen };
        if other == device {
            return GpuAccess::Peer;
        }
        let mut can = 0;
        // SAFETY: there is room for the answer.
        let known = unsafe { driver.can_access_peer(&raw mut can, device, other) };
        if known.is_ok() && can != 0 { GpuAccess::Peer } else { GpuAccess::Seen(other) }
    };
    let cache = cache.get_or_insert_default();
    // Peers name the numbers.
    if cache.len() > MAX_CACHED_RESULTS {
        cache.clear();
    }
    *cache.entry((device, number)).or_insert_with(query)
}

/// From where on memory is mapped, how many bytes of it, and for which device.
type Imported = BTreeMap<u64, (usize, i32)>;

fn imported() -> MutexGuard<'static, rank::Leaf, Imported> {
    static IMPORTED: Mutex<rank::Leaf, Imported> = Mutex::new(BTreeMap::new());
    IMPORTED.lock()
}

/// Memory has been mapped for a device.
pub fn note(address: u64, bytes: usize, device: i32) {
    imported().insert(address, (bytes, device));
}

/// Memory is about to be unmapped; nothing where none was noted.
pub fn forget(address: u64) {
    imported().remove(&address);
}

/// The device for which the memory is mapped in which an address lies, if that is another process's.
pub fn device_for(address: u64) -> Option<i32> {
    let imported = imported();
    let (start, (bytes, device)) = imported.range(..=address).next_back()?;
    (address - start < *bytes as u64).then_some(*device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_others_has_the_device_that_it_is_mapped_for() {
        let start = 0x7fff_0000_0000;
        note(start, 0x2000, 3);
        assert_eq!(
            [start - 1, start, start + 0x1fff, start + 0x2000].map(device_for),
            [None, Some(3), Some(3), None]
        );
        forget(start);
        assert_eq!(device_for(start), None);
    }
}

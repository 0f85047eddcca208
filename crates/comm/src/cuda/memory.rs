//! What the driver knows of a pointer, and of the GPUs.

use core::ffi::{c_int, c_void};

use super::functions::Driver;

/// The first 8 bytes of a GPU's UUID, which are the same in every process and container.
pub type GpuNumber = u64;

mod attribute {
    pub(super) const CONTEXT: i32 = 1;
    pub(super) const MEMORY_TYPE: i32 = 2;
    pub(super) const BUFFER_ID: i32 = 7;
    pub(super) const IS_MANAGED: i32 = 8;
    pub(super) const DEVICE_ORDINAL: i32 = 9;
    pub(super) const IS_IPC_CAPABLE: i32 = 10;
    pub(super) const RANGE_START: i32 = 11;
    pub(super) const RANGE_SIZE: i32 = 12;
    pub(super) const ALLOWED_HANDLE_TYPES: i32 = 14;
}

/// `CU_MEMORYTYPE_DEVICE`.
const ON_DEVICE: i32 = 2;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR_TYPE: u64 = 1;

/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED`.
const EXPORT_SUPPORTED: i32 = 103;

/// An allocation on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// The context that it belongs to, 0 where it belongs to none (virtual memory management, pools).
    pub(super) context: u64,
    /// The device's number in this process.
    pub device: i32,
    /// A number that no other allocation of this process has, now or later.
    pub buffer: u64,
    /// The first address of the allocation, or of the mapping.
    pub start: u64,
    /// Bytes from there.
    pub bytes: u64,
    /// Whether a handle of cudaIPC can be had for it.
    pub ipc: bool,
    /// Whether the allocation itself can be exported as a descriptor.
    pub exportable: bool,
    /// Whether the device makes memory that can be exported, such as a bounce buffer.
    pub device_exports: bool,
}

impl DeviceMemory {
    /// The allocation that an address lies in, if it is on a GPU. Managed memory is.
    pub fn at(driver: &Driver, address: u64) -> Option<Self> {
        if !Self::is_at(driver, address) {
            return None;
        }
        let long = |attribute| read::<u64>(driver, attribute, address);
        let word = |attribute| read::<c_int>(driver, attribute, address);
        let managed = word(attribute::IS_MANAGED).unwrap_or(0) & 0xff != 0;
        let device = word(attribute::DEVICE_ORDINAL)?;
        let handle_types = long(attribute::ALLOWED_HANDLE_TYPES).unwrap_or(0) & 0xffff_ffff;
        Some(Self {
            context: long(attribute::CONTEXT).unwrap_or(0),
            device,
            buffer: long(attribute::BUFFER_ID)?,
            start: long(attribute::RANGE_START)?,
            bytes: long(attribute::RANGE_SIZE)?,
            // One byte is written; a driver that does not know the attribute has only such memory.
            ipc: !managed && word(attribute::IS_IPC_CAPABLE).is_none_or(|flag| flag & 0xff != 0),
            exportable: !managed && handle_types & DESCRIPTOR_TYPE != 0,
            device_exports: device_attribute(driver, EXPORT_SUPPORTED, device) == Some(1),
        })
    }

    /// Whether an address is that of memory on a GPU: one call of the driver.
    pub fn is_at(driver: &Driver, address: u64) -> bool {
        read::<c_int>(driver, attribute::MEMORY_TYPE, address) == Some(ON_DEVICE)
    }
}

fn read<T: Default>(driver: &Driver, attribute: i32, address: u64) -> Option<T> {
    let mut value = T::default();
    // SAFETY: every attribute that is asked for has at most the size of the type it is asked with; any
    // address may be asked for.
    let status = unsafe { (driver.pointer_attribute)((&raw mut value).cast(), attribute, address) };
    (status == 0).then_some(value)
}

fn device_attribute(driver: &Driver, attribute: i32, device: i32) -> Option<i32> {
    let mut value = 0;
    // SAFETY: there is room for the value.
    let status = unsafe { (driver.device_attribute)(&raw mut value, attribute, device) };
    (status == 0).then_some(value)
}

/// The device of the calling thread's context.
pub fn current_device(driver: &Driver) -> Option<i32> {
    let mut context: *mut c_void = core::ptr::null_mut();
    // SAFETY: there is room for the context.
    let status = unsafe { (driver.current_context)(&raw mut context) };
    if status != 0 || context.is_null() {
        return None;
    }
    let mut device = 0;
    // SAFETY: there is room for the number.
    let status = unsafe { (driver.context_device)(&raw mut device) };
    (status == 0).then_some(device)
}

/// The number by which other processes know a device.
pub fn gpu_number(driver: &Driver, device: i32) -> Option<GpuNumber> {
    let mut uuid = [0; 16];
    // SAFETY: there is room for the 16 bytes.
    let status = unsafe { (driver.device_uuid)(&raw mut uuid, device) };
    let number = uuid.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))?;
    (status == 0).then_some(number)
}

/// The name of a device's model; empty where there is none to be had.
pub fn gpu_model(driver: &Driver, device: i32) -> String {
    let mut name = [0_u8; 128];
    // SAFETY: there is room for so many bytes, the last of which stays 0.
    let status = unsafe { (driver.device_name)(name.as_mut_ptr().cast(), name.len() as c_int - 1, device) };
    let text = core::ffi::CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy();
    if status == 0 { text.into_owned() } else { String::new() }
}

/// Whether a device here reaches the memory of the GPU with that number, as far as this process sees it.
pub fn reaches(driver: &Driver, device: i32, number: GpuNumber) -> bool {
    let mut count = 0;
    // SAFETY: there is room for the number.
    let status = unsafe { (driver.device_count)(&raw mut count) };
    let other = (0..count).find(|other| status == 0 && gpu_number(driver, *other) == Some(number));
    other.is_some_and(|other| {
        let mut can = 0;
        // SAFETY: there is room for the answer.
        let status = unsafe { (driver.can_access_peer)(&raw mut can, device, other) };
        status == 0 && can != 0
    })
}

//! Memory that two processes map: by handles of cudaIPC, and by descriptors of virtual memory management.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use super::entry_points::CudaError;
use causeway_api::sys::{
    CUipcMemHandle, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationType, CUmemLocation, CUmemLocationType,
};

use super::functions::Driver;
use super::memory::DeviceMemory;
use super::order::synchronize;
use super::scope::Scope;
use crate::device;
use crate::lookup::check_setup_call;

/// Bytes of a handle of cudaIPC.
pub const IPC_HANDLE_BYTES: usize = 64;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: c_int = 1;

fn location(device: i32) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

/// A handle by which another process opens the allocation of an address, from its start. Needs a scope.
///
/// # Errors
/// What the driver says.
pub fn ipc_handle(driver: &Driver, memory: &DeviceMemory) -> Result<[u8; IPC_HANDLE_BYTES], CudaError> {
    let mut handle = CUipcMemHandle::default();
    // SAFETY: there is room for the handle.
    unsafe { driver.get_ipc_handle(&raw mut handle, memory.start) }?;
    synchronize(driver, memory);
    Ok(handle.reserved.map(|byte| byte as u8))
}

/// A descriptor by which another process imports the allocation that is mapped at an address.
///
/// # Errors
/// What the driver says.
pub fn export(driver: &Driver, memory: &DeviceMemory) -> Result<OwnedFd, CudaError> {
    let exported = export_unordered(driver, memory);
    synchronize(driver, memory);
    exported
}

/// The same, for memory whose user keeps its own order with earlier copies: nothing is waited for, so that it can be
/// called while kernels wait for the caller.
///
/// # Errors
/// What the driver says.
pub fn export_unordered(driver: &Driver, memory: &DeviceMemory) -> Result<OwnedFd, CudaError> {
    let mut allocation = 0;
    // SAFETY: there is room for the handle.
    unsafe { driver.retain_memory(&raw mut allocation, memory.start) }?;
    let exported = export_allocation(driver, allocation);
    // SAFETY: the reference that was taken above.
    let _ = unsafe { driver.release_memory(allocation) };
    exported
}

fn export_allocation(driver: &Driver, allocation: u64) -> Result<OwnedFd, CudaError> {
    let mut descriptor: c_int = -1;
    // SAFETY: there is room for a descriptor.
    unsafe { driver.export_memory(&raw mut descriptor, allocation, DESCRIPTOR, 0) }?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Memory of another process, opened by a handle of cudaIPC.
#[derive(Debug)]
pub struct Opened {
    driver: &'static Driver,
    /// Where it begins here.
    pub address: u64,
    /// The context in which it was opened.
    pub context: u64,
    life: u64,
    /// Its bytes from the address on, as far as the driver knows.
    pub bytes: u64,
}

impl Opened {
    /// Opens it in a context.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(scope: &Scope<'static>, handle: &[u8; IPC_HANDLE_BYTES]) -> Result<Self, CudaError> {
        let driver = scope.driver();
        /// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
        const LAZY: u32 = 1;
        let mut address = 0;
        let handle = CUipcMemHandle { reserved: handle.map(|byte| byte as _) };
        // SAFETY: there is room for the address; the driver checks the handle.
        unsafe { driver.open_ipc_handle(&raw mut address, handle, LAZY) }?;
        let memory = DeviceMemory::at(driver, address);
        let bytes =
            memory.map_or(0, |memory| memory.start.saturating_add(memory.bytes).saturating_sub(address));
        Ok(Self { driver, address, context: scope.context(), life: scope.life(), bytes })
    }

    /// Whether the context in which it was opened is still there: it takes what is open in it along.
    pub fn is_open(&self) -> bool {
        Scope::of_context(self.driver, self.context).is_ok_and(|scope| scope.life() == self.life)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: it was opened, and nothing of it is under way.
        let _ = unsafe { self.driver.close_ipc_handle(self.address) };
    }
}

/// An allocation that is mapped for devices.
#[derive(Debug)]
pub struct Mapping {
    driver: &'static Driver,
    allocation: u64,
    /// Where it begins here.
    pub address: u64,
    /// Its bytes.
    pub bytes: usize,
    /// The devices that may use it, a bit each.
    users: AtomicU64,
}

impl Mapping {
    /// Maps the allocation of a descriptor for a device.
    ///
    /// # Errors
    /// What the driver says: also when the allocation is shorter than is said.
    pub fn import(
        driver: &'static Driver,
        descriptor: BorrowedFd<'_>,
        bytes: usize,
        device: i32,
    ) -> Result<Self, CudaError> {
        check_setup_call("cuMemImportFromShareableHandle");
        let mut allocation = 0;
        // The driver takes the number of the descriptor where a pointer stands.
        let number = descriptor.as_raw_fd() as usize as *mut c_void;
        // SAFETY: there is room for the handle, and the descriptor is open.
        unsafe { driver.import_memory(&raw mut allocation, number, DESCRIPTOR) }?;
        let mapping = Self::map(driver, allocation, bytes, device)?;
        device::note(mapping.address, bytes, device);
        Ok(mapping)
    }

    /// Takes the allocation over, also where it fails.
    fn map(driver: &'static Driver, allocation: u64, bytes: usize, device: i32) -> Result<Self, CudaError> {
        let mut address = 0;
        // SAFETY: there is room for the address.
        let reserved = unsafe { driver.reserve_addresses(&raw mut address, bytes, 0, 0, 0) };
        if let Err(error) = reserved {
            // SAFETY: the handle is this function's.
            let _ = unsafe { driver.release_memory(allocation) };
            return Err(error);
        }
        // From here on it is undone where it is dropped; to unmap what is not mapped is an error of no
        // effect.
        let mapping = Self { driver, allocation, address, bytes, users: AtomicU64::new(0) };
        // SAFETY: addresses that were reserved above, and an allocation; the driver checks its size.
        unsafe { driver.map_memory(address, bytes, 0, allocation, 0) }?;
        mapping.let_use(device)?;
        Ok(mapping)
    }

    /// Lets a device read and write the memory, unless it may already.
    ///
    /// # Errors
    /// What the driver says: when that device does not reach the one where the memory lies.
    pub fn let_use(&self, device: i32) -> Result<(), CudaError> {
        let user = 1_u64.checked_shl(device.unsigned_abs()).unwrap_or(0);
        // Two threads that let the same device use it do no harm.
        if self.users.load(Ordering::Relaxed) & user != 0 {
            return Ok(());
        }
        check_setup_call("cuMemSetAccess");
        let access = CUmemAccessDesc {
            location: location(device),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: one descriptor of access is passed, for addresses that are mapped.
        unsafe { self.driver.set_access(self.address, self.bytes, &raw const access, 1) }?;
        self.users.fetch_or(user, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        check_setup_call("cuMemUnmap");
        // Before the addresses may be another mapping's.
        device::forget(self.address);
        // SAFETY: addresses and a handle of this value, of which nothing is under way.
        unsafe {
            let _ = self.driver.unmap_memory(self.address, self.bytes);
            let _ = self.driver.free_addresses(self.address, self.bytes);
            let _ = self.driver.release_memory(self.allocation);
        }
    }
}

/// A buffer on a GPU that other processes can import: the way out for memory that cannot be exported.
#[derive(Debug)]
pub struct Bounce {
    /// The buffer, as it is mapped here.
    pub mapping: Mapping,
    /// What others import.
    pub descriptor: OwnedFd,
    /// Its bytes: what was asked for, rounded up.
    pub bytes: usize,
}

impl Bounce {
    /// Makes one of at least so many bytes on a device.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(driver: &'static Driver, device: i32, bytes: usize) -> Result<Self, CudaError> {
        let properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            location: location(device),
            ..CUmemAllocationProp::default()
        };
        let mut granularity = 0;
        // SAFETY: there is room for the number; the properties are read.
        unsafe { driver.granularity(&raw mut granularity, &raw const properties, 0) }?;
        let bytes = bytes.next_multiple_of(granularity.max(1));
        let mut allocation = 0;
        // SAFETY: there is room for the handle; the properties are read.
        unsafe { driver.create_memory(&raw mut allocation, bytes, &raw const properties, 0) }?;
        let mapping = Mapping::map(driver, allocation, bytes, device)?;
        let descriptor = export_allocation(driver, allocation)?;
        Ok(Self { mapping, descriptor, bytes })
    }
}

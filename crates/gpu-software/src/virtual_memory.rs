//! Memory whose addresses the client chooses: made as a file in memory, which other workers' devices can map as well.

use super::handles;
use causeway_api::snapshot::Window;
use causeway_api::sys::{
    CUdevice, CUmemAccess_flags, CUmemAllocationHandleType, CUmemLocationType, CUresult,
};
use causeway_api::types::{AddressAccess, AllocationProperties};
use causeway_gpu::CuResult;
use causeway_gpu::borrowed::{BorrowError, Borrowed};
use causeway_ptx::memory::{Access, AddressSpace, MemoryError};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Sizes and addresses of mappings are multiples of this, as on NVIDIA's devices.
pub(super) const GRANULARITY: u64 = 2 << 20;

/// Nobody can take pages away of memory that others have mapped, which would end their processes.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

fn is_sealed(file: &OwnedFd) -> bool {
    // SAFETY: the descriptor is open.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

fn size_of_file(file: &OwnedFd) -> Option<u64> {
    // SAFETY: a record of plain numbers, for which zeros are valid.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the descriptor is open and there is room for the record.
    if unsafe { libc::fstat(file.as_raw_fd(), &mut status) } != 0 {
        return None;
    }
    u64::try_from(status.st_size).ok()
}

/// Memory that may be mapped any number of times.
struct Allocation {
    file: OwnedFd,
    size: u64,
    /// The device that it belongs to.
    device: CUdevice,
    /// Where it counts; nothing for memory that another process's device made.
    charged: Option<Arc<AddressSpace>>,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Some(space) = &self.charged {
            space.discharge(self.size);
        }
    }
}

#[derive(Default)]
struct Table {
    allocations: HashMap<u64, Arc<Allocation>>,
    /// By first address, with the size.
    mappings: BTreeMap<u64, (u64, Arc<Allocation>)>,
}

/// All such memory of the device.
pub(super) struct VirtualMemory {
    space: Arc<AddressSpace>,
    table: Mutex<Table>,
}

/// Refuses what these devices cannot make: memory that is not theirs, and handles that are not file descriptors.
pub(super) fn check(properties: &AllocationProperties) -> CuResult<()> {
    let handle_types = CUmemAllocationHandleType(properties.handle_types);
    let is_known = handle_types == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE
        || handle_types == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if properties.location != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0 || !is_known {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    Ok(())
}

fn status(error: MemoryError) -> CUresult {
    tracing::debug!("{error}");
    match error {
        MemoryError::Refused { .. } => CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        _ => CUresult::CUDA_ERROR_INVALID_VALUE,
    }
}

impl VirtualMemory {
    pub(super) fn new(space: Arc<AddressSpace>) -> Self {
        Self { space, table: Mutex::default() }
    }

    /// The part of the window whose addresses are the client's; the last quarter is for borrowed memory.
    pub(super) fn window(&self) -> Window {
        let (address, size) = self.space.device_window();
        let size = (size - size / 4) / GRANULARITY * GRANULARITY;
        Window { address, size, granularity: GRANULARITY }
    }

    /// Makes memory that is zero.
    pub(super) fn create(&self, size: u64, device: CUdevice) -> CuResult<u64> {
        if size == 0 || !size.is_multiple_of(GRANULARITY) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        self.space.charge(size).map_err(|error| {
            tracing::debug!("{error}");
            out_of_memory
        })?;
        // SAFETY: the call takes text that lives for ever; the descriptor is new and owned by nobody else.
        let file = unsafe {
            match libc::memfd_create(
                c"causeway device memory".as_ptr(),
                libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
            ) {
                -1 => None,
                descriptor => Some(OwnedFd::from_raw_fd(descriptor)),
            }
        };
        let Some(file) = file else {
            self.space.discharge(size);
            return Err(out_of_memory);
        };
        let allocation = Allocation { file, size, device, charged: Some(Arc::clone(&self.space)) };
        // SAFETY: the descriptor is open.
        if unsafe { libc::ftruncate(allocation.file.as_raw_fd(), size.cast_signed()) } != 0 {
            return Err(out_of_memory);
        }
        // SAFETY: as above.
        if unsafe { libc::fcntl(allocation.file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(out_of_memory);
        }
        Ok(self.insert(allocation))
    }

    fn insert(&self, allocation: Allocation) -> u64 {
        let id = handles::next();
        self.table.lock().allocations.insert(id, Arc::new(allocation));
        id
    }

    /// Forgets an allocation; it stays where it is mapped.
    pub(super) fn release(&self, id: u64) -> CuResult<()> {
        let released = self.table.lock().allocations.remove(&id);
        released.map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Maps a part of an allocation, without access.
    pub(super) fn map(&self, id: u64, address: u64, size: u64, offset: u64) -> CuResult<()> {
        let mut table = self.table.lock();
        let allocation = table.allocations.get(&id).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if offset.checked_add(size).is_none_or(|end| end > allocation.size) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.space.map(address, size, allocation.file.as_fd(), offset).map_err(status)?;
        table.mappings.insert(address, (size, allocation));
        Ok(())
    }

    /// Takes away the mappings that fill a range.
    pub(super) fn unmap(&self, address: u64, size: u64) -> CuResult<()> {
        let mut table = self.table.lock();
        self.space.unmap(address, size).map_err(status)?;
        table.mappings.retain(|start, _| start.wrapping_sub(address) >= size);
        Ok(())
    }

    /// Sets what kernels and copies may do in a range. Devices share their memory: what one of them may do, all may, and
    /// only the owner can close it.
    pub(super) fn set_access(&self, address: u64, size: u64, access: &[AddressAccess]) -> CuResult<()> {
        let mapped =
            self.table.lock().mappings.range(..=address).next_back().map(|(_, (_, memory))| memory.device);
        let owner = mapped.unwrap_or(0);
        for entry in access {
            if entry.location != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0 {
                return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
            }
            let access = match CUmemAccess_flags(entry.flags) {
                CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE => Access::None,
                CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ => Access::Read,
                CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE => Access::ReadWrite,
                _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            };
            if access != Access::ReadWrite && entry.location_id != owner {
                continue;
            }
            self.space.set_access(address, size, access).map_err(status)?;
        }
        Ok(())
    }

    /// Makes memory, maps it and opens it.
    pub(super) fn create_block(&self, address: u64, size: u64, device: CUdevice) -> CuResult<u64> {
        let id = self.create(size, device)?;
        let opened = self.map(id, address, size, 0).and_then(|()| {
            self.space.set_access(address, size, Access::ReadWrite).map_err(status).inspect_err(|_| {
                // Mapped just above, so this cannot fail; nobody would be helped by hearing of it.
                let _ = self.unmap(address, size);
            })
        });
        match opened {
            Ok(()) => Ok(id),
            Err(error) => {
                self.release(id)?;
                Err(error)
            }
        }
    }

    /// A descriptor for another process.
    pub(super) fn export(&self, id: u64) -> CuResult<OwnedFd> {
        let table = self.table.lock();
        let allocation = table.allocations.get(&id).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        allocation.file.try_clone().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// Maps all memory of another process's device that is not the client's to place, for reading.
    pub(super) fn borrow(&self, file: OwnedFd, size: u64) -> Result<Borrowed, BorrowError> {
        if !is_sealed(&file) || size_of_file(&file) != Some(size) {
            return Err(BorrowError::NotSealed);
        }
        let Window { address, size: clients, .. } = self.window();
        let (start, window) = self.space.device_window();
        let mut table = self.table.lock();
        let mut free = address + clients;
        for (base, (length, _)) in table.mappings.range(free..) {
            if base - free >= size {
                break;
            }
            free = base + length;
        }
        if size > (start + window).saturating_sub(free) {
            return Err(BorrowError::Addresses(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        }
        self.space.map(free, size, file.as_fd(), 0).map_err(|error| BorrowError::Map(status(error)))?;
        table.mappings.insert(free, (size, Arc::new(Allocation { file, size, device: 0, charged: None })));
        drop(table);
        self.space.set_access(free, size, Access::Read).map_err(|error| {
            // The first error is the one that counts.
            let _ = self.unmap(free, size);
            BorrowError::Access(status(error))
        })?;
        Ok(Borrowed { address: free, size })
    }

    /// Memory of another process's device.
    pub(super) fn import(&self, file: OwnedFd) -> CuResult<u64> {
        let size = size_of_file(&file).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok(self.insert(Allocation { file, size, device: 0, charged: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> VirtualMemory {
        VirtualMemory::new(Arc::new(AddressSpace::new(64 << 20).unwrap()))
    }

    #[test]
    fn memory_of_another_device_is_borrowed_at_addresses_that_no_client_has() {
        let (lender, borrower) = (device(), device());
        let base = lender.window().address;
        let ids = [0, 1].map(|block| {
            let id = lender.create_block(base + block * GRANULARITY, GRANULARITY, 0).unwrap();
            lender.space.write(base + block * GRANULARITY, &[block as u8 + 1; 16]).unwrap();
            id
        });
        let borrowed = ids.map(|id| borrower.borrow(lender.export(id).unwrap(), GRANULARITY).unwrap());
        let Window { address, size, .. } = borrower.window();
        for (expected, borrowed) in [1, 2].into_iter().zip(&borrowed) {
            assert!(borrowed.address >= address + size);
            let mut bytes = [0; 16];
            borrower.space.read(borrowed.address, &mut bytes).unwrap();
            assert_eq!(bytes, [expected; 16]);
            assert!(borrower.space.write(borrowed.address, &bytes).is_err(), "it is for reading");
        }
        // What has been given back is free again.
        let first = &borrowed[0];
        borrower.unmap(first.address, first.size).unwrap();
        let again = borrower.borrow(lender.export(ids[1]).unwrap(), GRANULARITY).unwrap();
        assert_eq!(again.address, first.address);
    }

    #[test]
    fn what_could_shrink_or_is_of_another_size_is_not_borrowed() {
        let (lender, borrower) = (device(), device());
        let id = lender.create(GRANULARITY, 0).unwrap();
        let lent = || lender.export(id).unwrap();
        assert_eq!(borrower.borrow(lent(), 2 * GRANULARITY), Err(BorrowError::NotSealed));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(borrower.borrow(file.into(), GRANULARITY), Err(BorrowError::NotSealed));
        assert!(borrower.borrow(lent(), GRANULARITY).is_ok());
    }
}

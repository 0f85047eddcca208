//! Memory whose addresses the client chooses: made as a file in memory, which other workers' devices can map
//! as well.

use super::handles;
use causeway_api::snapshot::Window;
use causeway_api::sys::{
    CUdevice, CUmemAccess_flags, CUmemAllocationHandleType, CUmemLocationType, CUresult,
};
use causeway_api::types::{AddressAccess, AllocationProperties};
use causeway_gpu::device_memory::{ImportError, ImportedMemory};
use causeway_gpu::{CuResult, Staging};
use causeway_ptx::memory::{Access, AddressSpace, MemoryError};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
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

/// Bytes that are moved between memory and a file at once.
const PIECE: u64 = 1 << 20;

/// Device memory whose bytes are in a file.
pub(super) struct SwappedAllocations {
    /// Memory, where its bytes are there, how many, and where in the file.
    extents: Vec<(Arc<Allocation>, u64, u64, u64)>,
    allocations: Vec<Arc<Allocation>>,
    end: u64,
}

impl SwappedAllocations {
    /// Where their part of the file ends.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Gives their memory back to the system. Nobody may use it until it has been [read](Self::read_from) back.
    pub(super) fn free(&self) {
        for allocation in &self.allocations {
            let (flags, size) =
                (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, allocation.size.cast_signed());
            // SAFETY: a plain system call on an open descriptor; mappings of the file stay.
            if unsafe { libc::fallocate(allocation.file.as_raw_fd(), flags, 0, size) } != 0 {
                tracing::debug!("device memory is not freed: {}", io::Error::last_os_error());
            }
        }
    }

    /// Brings the bytes back.
    pub(super) fn read_from(&self, file: &File) -> io::Result<()> {
        let mut buffer = vec![0; PIECE as usize];
        for (allocation, start, bytes, offset) in &self.extents {
            let memory = File::from(allocation.file.try_clone()?);
            for done in (0..*bytes).step_by(PIECE as usize) {
                let piece = &mut buffer[..PIECE.min(bytes - done) as usize];
                file.read_exact_at(piece, offset + done)?;
                memory.write_all_at(piece, start + done)?;
            }
        }
        Ok(())
    }
}

/// The next bytes of a file in memory from `offset` on that have been written; nothing behind the last ones.
fn next_data(file: &OwnedFd, offset: u64) -> io::Result<Option<(u64, u64)>> {
    let seek = |offset: u64, what| {
        // SAFETY: a plain system call on an open descriptor.
        let found = unsafe { libc::lseek(file.as_raw_fd(), offset.cast_signed(), what) };
        u64::try_from(found).map_err(|_| io::Error::last_os_error())
    };
    match seek(offset, libc::SEEK_DATA) {
        Ok(start) => Ok(Some((start, seek(start, libc::SEEK_HOLE)?))),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
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

/// Refuses what these devices cannot make: memory that is not theirs, and handles that are not file
/// descriptors.
pub(super) fn check(properties: &AllocationProperties) -> CuResult<()> {
    let handle_types = CUmemAllocationHandleType(properties.handle_types);
    let is_known = handle_types == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE
        || handle_types == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if properties.location != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0 || !is_known {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    Ok(())
}

/// Whether memory of the host is asked for. Which node's makes no difference.
pub(super) fn is_hosts(properties: &AllocationProperties) -> bool {
    let location = CUmemLocationType(properties.location);
    location == CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST
        || location == CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA
}

/// Memory of `size` zeros as a file that keeps its size; nothing where the system has none.
fn new_file(size: u64) -> Option<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the call takes text that lives for ever.
    let descriptor = unsafe { libc::memfd_create(c"causeway device memory".as_ptr(), flags) };
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the descriptor is new and owned by nobody else.
    let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // SAFETY: the descriptor is open.
    let is_made = unsafe {
        libc::ftruncate(file.as_raw_fd(), size.cast_signed()) == 0
            && libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) == 0
    };
    is_made.then_some(file)
}

fn check_size(size: u64) -> CuResult<()> {
    if size == 0 || !size.is_multiple_of(GRANULARITY) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
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

    /// The part of the window whose addresses are the client's; the last quarter is for imported memory.
    pub(super) fn window(&self) -> Window {
        let (address, size) = self.space.device_window();
        let size = (size - size / 4) / GRANULARITY * GRANULARITY;
        Window { address, size, granularity: GRANULARITY }
    }

    /// Makes memory that is zero.
    pub(super) fn create(&self, size: u64, device: CUdevice) -> CuResult<u64> {
        check_size(size)?;
        let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        self.space.charge(size).map_err(|error| {
            tracing::debug!("{error}");
            out_of_memory
        })?;
        let Some(file) = new_file(size) else {
            self.space.discharge(size);
            return Err(out_of_memory);
        };
        Ok(self.insert(Allocation { file, size, device, charged: Some(Arc::clone(&self.space)) }))
    }

    /// Makes memory of the host, which the device has nothing of. It is zero.
    pub(super) fn create_in_host(&self, size: u64) -> CuResult<u64> {
        check_size(size)?;
        let file = new_file(size).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        Ok(self.insert(Allocation { file, size, device: 0, charged: None }))
    }

    /// Makes memory of the host of a file that another process has made, which must keep its size.
    pub(super) fn adopt(&self, file: OwnedFd, size: u64) -> CuResult<u64> {
        check_size(size)?;
        if !is_sealed(&file) || size_of_file(&file) != Some(size) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(self.insert(Allocation { file, size, device: 0, charged: None }))
    }

    /// All bytes of an allocation, for this process. They lie outside of what kernels reach.
    pub(super) fn memory_of(&self, id: u64, size: u64) -> CuResult<Staging> {
        let allocation = self.table.lock().allocations.get(&id).cloned();
        let allocation = allocation.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        // Memory of another process's device may be a file that shrinks.
        if allocation.size != size || !is_sealed(&allocation.file) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let address = unsafe {
            let file = allocation.file.as_raw_fd();
            libc::mmap(core::ptr::null_mut(), size as usize, access, libc::MAP_SHARED, file, 0)
        };
        if address == libc::MAP_FAILED {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        // SAFETY: mapped just now, of a file that has all of these bytes as long as it exists; only `release`
        // unmaps it.
        Ok(unsafe {
            Staging::new(address.cast(), size as usize, |address, bytes| {
                libc::munmap(address.cast(), bytes);
            })
        })
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

    /// Sets what kernels and copies may do in a range. Devices share their memory: what one of them may do,
    /// all may, and only the owner can close it.
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
    pub(super) fn import_mapped(&self, file: OwnedFd, size: u64) -> Result<ImportedMemory, ImportError> {
        if !is_sealed(&file) || size_of_file(&file) != Some(size) {
            return Err(ImportError::NotSealed);
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
            return Err(ImportError::Addresses(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        }
        self.space.map(free, size, file.as_fd(), 0).map_err(|error| ImportError::Map(status(error)))?;
        table.mappings.insert(free, (size, Arc::new(Allocation { file, size, device: 0, charged: None })));
        drop(table);
        self.space.set_access(free, size, Access::Read).map_err(|error| {
            // The first error is the one that counts.
            let _ = self.unmap(free, size);
            ImportError::Access(status(error))
        })?;
        Ok(ImportedMemory { address: free, size })
    }

    /// Writes the bytes of the device's own memory to the beginning of a file. Nobody may change them meanwhile.
    pub(super) fn write_to(&self, file: &File) -> io::Result<SwappedAllocations> {
        let allocations: Vec<Arc<Allocation>> = {
            let table = self.table.lock();
            let known = table.allocations.values().chain(table.mappings.values().map(|(_, memory)| memory));
            let own = known.filter(|allocation| allocation.charged.is_some());
            let by_file: BTreeMap<_, _> = own.map(|memory| (memory.file.as_raw_fd(), memory)).collect();
            by_file.into_values().cloned().collect()
        };
        let (mut extents, mut end, mut buffer) = (Vec::new(), 0, vec![0; PIECE as usize]);
        for allocation in &allocations {
            let memory = File::from(allocation.file.try_clone()?);
            let mut next = 0;
            while let Some((start, data_end)) = next_data(&allocation.file, next)? {
                for at in (start..data_end).step_by(PIECE as usize) {
                    let piece = &mut buffer[..PIECE.min(data_end - at) as usize];
                    memory.read_exact_at(piece, at)?;
                    file.write_all_at(piece, end + (at - start))?;
                }
                extents.push((Arc::clone(allocation), start, data_end - start, end));
                end += data_end - start;
                next = data_end;
            }
        }
        Ok(SwappedAllocations { extents, allocations, end })
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
    fn device_memory_goes_to_a_file_and_comes_back_where_it_was() {
        let device = device();
        let base = device.window().address;
        let bytes: Vec<u8> = (0..GRANULARITY).map(|index| (index / 3) as u8).collect();
        let used = |id: u64| {
            let file = File::from(device.export(id).unwrap());
            std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap())
        };
        let first = device.create_block(base, 2 * GRANULARITY, 0).unwrap();
        let second = device.create_block(base + 2 * GRANULARITY, GRANULARITY, 0).unwrap();
        // A block whose handle has gone, but not its mapping; and memory of the host, which stays.
        device.release(second).unwrap();
        let host = device.create_in_host(GRANULARITY).unwrap();
        device.memory_of(host, GRANULARITY).unwrap().as_mut_slice().fill(9);
        device.space.write(base + GRANULARITY, &bytes).unwrap();
        device.space.write(base + 2 * GRANULARITY, &bytes[..5]).unwrap();
        let (before, of_host, file) = (used(first), used(host), tempfile());
        for _ in 0..2 {
            let swapped = device.write_to(&file).unwrap();
            assert!(swapped.end() >= GRANULARITY && swapped.end() < 2 * GRANULARITY, "{}", swapped.end());
            swapped.free();
            assert!(before > 0 && used(first) == 0 && used(host) == of_host && of_host > 0);
            swapped.read_from(&file).unwrap();
            let mut found = vec![0; bytes.len()];
            device.space.read(base + GRANULARITY, &mut found).unwrap();
            assert!(found == bytes);
            device.space.read(base + 2 * GRANULARITY, &mut found[..6]).unwrap();
            assert_eq!(found[..6], [&bytes[..5], &[0]].concat());
        }
        assert!(device.write_to(&File::options().write(true).open("/dev/full").unwrap()).is_err());
    }

    /// A file without a name.
    fn tempfile() -> File {
        File::from(new_file_of("swap"))
    }

    fn new_file_of(name: &str) -> OwnedFd {
        let name = std::ffi::CString::new(name).unwrap();
        // SAFETY: the call takes text; the descriptor is new and owned by nobody else.
        unsafe { OwnedFd::from_raw_fd(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC)) }
    }

    #[test]
    fn memory_of_another_device_is_borrowed_at_addresses_that_no_client_has() {
        let (exporter, importer) = (device(), device());
        let base = exporter.window().address;
        let ids = [0, 1].map(|block| {
            let id = exporter.create_block(base + block * GRANULARITY, GRANULARITY, 0).unwrap();
            exporter.space.write(base + block * GRANULARITY, &[block as u8 + 1; 16]).unwrap();
            id
        });
        let imported =
            ids.map(|id| importer.import_mapped(exporter.export(id).unwrap(), GRANULARITY).unwrap());
        let Window { address, size, .. } = importer.window();
        for (expected, imported) in [1, 2].into_iter().zip(&imported) {
            assert!(imported.address >= address + size);
            let mut bytes = [0; 16];
            importer.space.read(imported.address, &mut bytes).unwrap();
            assert_eq!(bytes, [expected; 16]);
            assert!(importer.space.write(imported.address, &bytes).is_err(), "it is for reading");
        }
        // What has been released is free again.
        let first = &imported[0];
        importer.unmap(first.address, first.size).unwrap();
        let again = importer.import_mapped(exporter.export(ids[1]).unwrap(), GRANULARITY).unwrap();
        assert_eq!(again.address, first.address);
    }

    #[test]
    fn memory_of_the_host_is_none_of_the_devices_and_this_process_has_it_as_kernels_do() {
        let device = device();
        let base = device.window().address;
        let id = device.create_in_host(GRANULARITY).unwrap();
        assert_eq!(device.space.allocated(), 0);
        device.map(id, base, GRANULARITY, 0).unwrap();
        device.space.set_access(base, GRANULARITY, Access::ReadWrite).unwrap();
        let mut memory = device.memory_of(id, GRANULARITY).unwrap();
        memory.as_mut_slice()[5] = 7;
        let mut bytes = [0; 6];
        device.space.read(base, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 0, 7]);
        device.space.write(base, &[3]).unwrap();
        // What the program unmaps stays this process's.
        device.unmap(base, GRANULARITY).unwrap();
        device.release(id).unwrap();
        assert_eq!(memory.as_slice()[..6], [3, 0, 0, 0, 0, 7]);
        assert!(device.create_in_host(GRANULARITY + 1).is_err());
    }

    #[test]
    fn only_memory_that_keeps_its_size_is_adopted_or_this_processs() {
        let device = device();
        let sealed = || new_file(GRANULARITY).unwrap();
        let id = device.adopt(sealed(), GRANULARITY).unwrap();
        assert!(device.adopt(sealed(), 2 * GRANULARITY).is_err());
        assert!(device.memory_of(id, GRANULARITY).is_ok());
        for (id, size) in [(id, 2 * GRANULARITY), (id + 1, GRANULARITY)] {
            assert!(device.memory_of(id, size).is_err());
        }
        let file = File::open("/dev/null").unwrap();
        assert!(device.adopt(file.into(), GRANULARITY).is_err());
    }

    #[test]
    fn what_could_shrink_or_is_of_another_size_is_not_imported() {
        let (exporter, importer) = (device(), device());
        let id = exporter.create(GRANULARITY, 0).unwrap();
        let exported = || exporter.export(id).unwrap();
        assert_eq!(importer.import_mapped(exported(), 2 * GRANULARITY), Err(ImportError::NotSealed));
        let file = File::open("/dev/null").unwrap();
        assert_eq!(importer.import_mapped(file.into(), GRANULARITY), Err(ImportError::NotSealed));
        assert!(importer.import_mapped(exported(), GRANULARITY).is_ok());
    }
}

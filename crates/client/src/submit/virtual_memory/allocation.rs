//! Allocations that have a handle, the map of what is reserved and mapped, and memory of the host.
//!
//! Memory of the host that the program makes by `cuMemCreate`: which pages it has here, and how devices get
//! them.
//!
//! The pages are a sealed file in memory, so that the program can have them at several addresses. On the
//! server's own host the worker maps the same file, if its back end can make an allocation of it. Else the
//! worker has an allocation of its own and a mirror of that; for the exchange with the mirror all pages have
//! one address more here, in the session's window, where the worker has nothing.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_api::calls;
use causeway_api::handle::{Allocation, Context, Handle};
use causeway_api::sys::{
    CUdevice, CUdevice_attribute, CUdeviceptr, CUmemAccess_flags, CUmemLocation, CUmemLocationType, CUresult,
};
use causeway_api::types::{AddressAccess, AllocationProperties, ExportToken};
use causeway_memory::SealedMemory;

use crate::locks::{Mutex, rank};
use crate::log::info;
use crate::model::address::window::{self, Window};
use crate::model::host_memory::{self, HostMapping};
use crate::model::{device, handles, transfers};
use crate::remote::mirrored::regions;
use crate::remote::session;
use crate::submit::{ipc_imports, send};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Memory that `cuMemCreate` made or that came from another process.
pub struct AllocationState {
    /// Its handle.
    pub handle: Handle<Allocation>,
    /// Where commands about it go: the null context of its server.
    pub(super) nowhere: Handle<Context>,
    /// Its size in bytes.
    pub size: u64,
    /// What the program asked for; devices have the server's numbers.
    pub properties: AllocationProperties,
    /// The program's number of its device; of memory of the host, that of a device that may be given access.
    pub device: CUdevice,
    /// Its pages in this process, if it is memory of the host.
    pub(super) host: Option<HostPages>,
    pub(super) uses: Mutex<rank::AllocationUses, Uses>,
}

/// The server releases memory when nothing of this is left.
#[derive(Default)]
pub(super) struct Uses {
    /// How often the program has to release it.
    pub(super) references: usize,
    pub(super) mappings: usize,
    pub(super) token: Option<ExportToken>,
}

impl handles::Object for AllocationState {
    type Kind = Allocation;
}

impl AllocationState {
    /// Where it is, as the program hears it. Memory of the host without a wish is that of node 0, with
    /// NVIDIA's driver, too.
    pub fn location(&self) -> CUmemLocation {
        let location_type = CUmemLocationType(self.properties.location);
        match location_type {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => {
                CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, id: 0 }
            }
            _ if self.host.is_some() => {
                CUmemLocation { type_: location_type, id: self.properties.location_id }
            }
            _ => CUmemLocation { type_: location_type, id: self.device },
        }
    }

    /// Takes one use away; the last one releases the memory.
    pub(super) fn drop_use(&self, count: impl FnOnce(&mut Uses) -> &mut usize) -> Result<(), CUresult> {
        let mut uses = self.uses.lock();
        let count = count(&mut uses);
        *count = count.checked_sub(1).ok_or(INVALID)?;
        if uses.references > 0 || uses.mappings > 0 {
            return Ok(());
        }
        if let Some(token) = uses.token.take() {
            send::post_in(self.nowhere, &calls::export_withdraw { token })?;
        }
        handles::remove::<AllocationState>(self.handle);
        handles::drop_handle(self.handle);
        // Nobody finds it any more, and imports have a lock of their own, which comes before this one.
        drop(uses);
        ipc_imports::end(self.handle);
        let ended = self.host.as_ref().map_or(Ok(()), HostPages::end);
        send::post_in(self.nowhere, &calls::allocation_release { allocation: self.handle }).and(ended)
    }
}

const OUT_OF_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;

/// Whether a server's back end has refused to make allocations of this process's memory: it would again.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether a type of location means the host, as far as access is concerned: of which node is not told apart.
pub fn is_host(location: CUmemLocationType) -> bool {
    matches!(
        location,
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA
    )
}

/// Whether memory of the host can be made for devices of a server: there must be a window, and a driver that
/// maps such memory at chosen addresses.
pub fn is_supported(server: usize) -> bool {
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    let has_it = |device: &device::Device| {
        device.server == server && device.attribute(attribute).is_some_and(|value| value != 0)
    };
    window::window(server).is_some() && device::all().iter().any(has_it)
}

/// The pages of an allocation.
pub struct HostPages {
    pages: SealedMemory,
    /// Where commands about it go.
    nowhere: Handle<Context>,
    /// Whether the worker has the same pages.
    is_shared: bool,
    /// Where all of them lie here for the exchange with the worker's mirror, once there is one.
    mirrored_at: Mutex<rank::AllocationMirror, Option<usize>>,
}

impl HostPages {
    /// Makes the pages, and on the server the allocation of this handle.
    pub fn create(
        allocation: Handle<Allocation>,
        nowhere: Handle<Context>,
        size: u64,
        properties: AllocationProperties,
    ) -> Result<Self, CUresult> {
        if size > physical_memory() {
            return Err(OUT_OF_MEMORY);
        }
        let pages = SealedMemory::new("causeway-host", size).map_err(|cause| {
            info!("{cause}");
            OUT_OF_MEMORY
        })?;
        let is_shared = share(allocation, nowhere, &pages);
        if !is_shared {
            let request = calls::allocation_create { allocation, size: size as usize, properties };
            send::call_in(nowhere, &request)?;
        }
        Ok(Self { pages, nowhere, is_shared, mirrored_at: Mutex::new(None) })
    }

    /// Puts the first `size` bytes at `base`, a free part of the window, where nobody may use them yet.
    pub fn map(&self, allocation: Handle<Allocation>, base: usize, size: usize) -> Result<(), CUresult> {
        self.mirror(allocation)?;
        put(base, size, libc::PROT_NONE, Some(&self.pages))?;
        let server = self.nowhere.server();
        host_memory::note_mapping(base, HostMapping { size, server, host_access: 0, device_access: 0 });
        Ok(())
    }

    /// Takes what [`Self::map`] put at `base` away, after the copies that still write to it.
    pub fn unmap(&self, base: usize, size: usize) -> Result<(), CUresult> {
        host_memory::forget_mapping(base);
        transfers::wait_for_range(base, base + size);
        put(base, size, libc::PROT_NONE, None)
    }

    /// Makes the mirror, where the worker needs one.
    fn mirror(&self, allocation: Handle<Allocation>) -> Result<(), CUresult> {
        let mut mirrored_at = self.mirrored_at.lock();
        if self.is_shared || mirrored_at.is_some() {
            return Ok(());
        }
        let window = send::opened(self.nowhere.server())?;
        let size = self.pages.bytes();
        let address = window.take(size, 0, 0).ok_or(OUT_OF_MEMORY)? as usize;
        let made = put(address, size as usize, libc::PROT_READ | libc::PROT_WRITE, Some(&self.pages))
            .and_then(|()| regions::mirror_allocation(self.nowhere, allocation, address, size as usize));
        if let Err(status) = made {
            leave(self.nowhere.server(), address, size)?;
            return Err(status);
        }
        *mirrored_at = Some(address);
        Ok(())
    }

    /// Takes the mirror away. Nothing may be mapped any more.
    pub fn end(&self) -> Result<(), CUresult> {
        let Some(address) = self.mirrored_at.lock().take() else { return Ok(()) };
        let forgotten = regions::forget(address);
        leave(self.nowhere.server(), address, self.pages.bytes()).and(forgotten)
    }
}

/// Sets what the program may do with a mapping (`CUmemAccess_flags`).
pub fn protect(base: usize, flags: u32) -> Result<(), CUresult> {
    let mapping = host_memory::find_mapping(base).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let access = match CUmemAccess_flags(flags) {
        CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE => libc::PROT_NONE,
        CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ => libc::PROT_READ,
        CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE => libc::PROT_READ | libc::PROT_WRITE,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    // SAFETY: a mapping of the program's own, in the window, of which it says itself who may use it.
    if unsafe { libc::mprotect(base as *mut libc::c_void, mapping.size, access) } != 0 {
        return Err(CUresult::CUDA_ERROR_OPERATING_SYSTEM);
    }
    host_memory::note_mapping(base, HostMapping { host_access: flags, ..mapping });
    Ok(())
}

/// Notes what devices may do with a mapping at most (`CUmemAccess_flags`).
pub fn note_device_access(base: usize, flags: u32) {
    if let Some(mapping) = host_memory::find_mapping(base) {
        host_memory::note_mapping(base, HostMapping { device_access: flags, ..mapping });
    }
}

/// Has the worker make an allocation of these pages; `false` where it cannot.
fn share(allocation: Handle<Allocation>, nowhere: Handle<Context>, pages: &SealedMemory) -> bool {
    let Ok(session) = session::of(nowhere) else { return false };
    if !session.shares_memory() || IS_REFUSED.load(Ordering::Relaxed) {
        return false;
    }
    let (number, size) = (device::fresh(), pages.bytes() as usize);
    let shared = session
        .hand_over(number, pages)
        .and_then(|()| send::call_in(nowhere, &calls::client_allocation_create { allocation, size, number }));
    if let Err(status) = shared {
        info!("the server cannot allocate in memory of this process ({status:?}): it is mirrored");
        IS_REFUSED.store(true, Ordering::Relaxed);
    }
    shared.is_ok()
}

/// Bytes of memory that this machine has. More cannot be had, and a file in memory of any size can.
fn physical_memory() -> u64 {
    // SAFETY: the call takes a number and gives one.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(u64::MAX).saturating_mul(u64::try_from(page).unwrap_or(1))
}

/// Puts `pages`, or nothing that can be used, at an address of the window.
fn put(address: usize, size: usize, access: i32, pages: Option<&SealedMemory>) -> Result<(), CUresult> {
    let (kind, descriptor) = match pages {
        Some(pages) => (libc::MAP_SHARED, pages.descriptor().as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1),
    };
    // SAFETY: only parts of the window are replaced, which this process has reserved: they are free, or being
    // freed.
    let mapped = unsafe {
        libc::mmap(address as *mut libc::c_void, size, access, kind | libc::MAP_FIXED, descriptor, 0)
    };
    if mapped == libc::MAP_FAILED { Err(OUT_OF_MEMORY) } else { Ok(()) }
}

/// Gives a part of the window back in which pages lie.
fn leave(server: usize, address: usize, size: u64) -> Result<(), CUresult> {
    put(address, size as usize, libc::PROT_NONE, None)?;
    if let Some(window) = window::window(server) {
        window.release(address as u64, size);
    }
    Ok(())
}

/// An allocation at an address.
pub(super) struct Mapping {
    pub size: u64,
    pub allocation: Arc<AllocationState>,
    /// What devices may do there.
    pub access: Vec<AddressAccess>,
}

/// What the program has reserved and mapped.
pub(super) struct Map {
    /// Sizes of reserved ranges by first address, and where they come from.
    pub reserved: BTreeMap<CUdeviceptr, (u64, &'static Window)>,
    /// By first address.
    pub mappings: BTreeMap<CUdeviceptr, Mapping>,
}

impl Mapping {
    /// Notes what a device may do.
    pub fn note(&mut self, entry: AddressAccess) {
        self.access
            .retain(|other| (other.location, other.location_id) != (entry.location, entry.location_id));
        self.access.push(entry);
    }

    /// What the device may do that may do most.
    pub fn max_access(&self) -> u32 {
        self.access.iter().map(|entry| entry.flags).max().unwrap_or(0)
    }
}

impl Map {
    /// Nothing reserved.
    pub const fn new() -> Self {
        Self { reserved: BTreeMap::new(), mappings: BTreeMap::new() }
    }

    /// Whether anything is mapped from `start` to before `end`.
    pub fn overlaps_mapping(&self, start: u64, end: u64) -> bool {
        self.mappings.range(..end).next_back().is_some_and(|(base, mapping)| base + mapping.size > start)
    }

    /// The mapping in which an address lies, and where it begins.
    pub fn mapping_at(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (base, mapping) = self.mappings.range(..=address).next_back()?;
        (address - base < mapping.size).then_some((*base, mapping))
    }

    /// Where the mappings begin that fill a range exactly, and where commands about them go: they must be of
    /// one server.
    pub fn mappings_of(&self, base: u64, size: u64) -> Result<(Vec<u64>, Handle<Context>), CUresult> {
        let end = base.checked_add(size).ok_or(INVALID)?;
        let nowhere = self.mappings.get(&base).ok_or(INVALID)?.allocation.nowhere;
        let (mut starts, mut next) = (Vec::new(), base);
        while next < end {
            starts.push(next);
            let mapping = self.mappings.get(&next).ok_or(INVALID)?;
            if mapping.allocation.nowhere != nowhere {
                return Err(INVALID);
            }
            next += mapping.size;
        }
        if next == end && size > 0 { Ok((starts, nowhere)) } else { Err(INVALID) }
    }
}

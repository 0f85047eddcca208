//! Memory that the program gives addresses to itself: what it reserved, made and mapped.
//!
//! Everything that can be checked is checked here, so that mapping needs no answer of the server. Addresses
//! come from the session's window. Memory of the host is the program's own as well: see [`allocation`].

mod allocation;

pub use allocation::{AllocationState, is_supported};
use allocation::{HostPages, Map, Mapping, Uses};

use crate::locks::{Mutex, rank};
use crate::log::refuse_use;
use crate::model::handles::RawHandle as _;
use crate::model::memory::{self, Origin, Piece};
use crate::model::{context, device, exchange, handles, host_memory};
use crate::submit::context::work;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Allocation, Context, Handle};
use causeway_api::sys::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemLocation,
    CUmemLocationType, CUresult,
};
use causeway_api::types::{AddressAccess, AllocationProperties, ExportToken};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

static MAP: Mutex<rank::VirtualMemory, Map> = Mutex::new(Map::new());

/// Held by who changes mappings, also while the server is waited for.
static CHANGES: Mutex<rank::VirtualMemoryChanges, ()> = Mutex::new(());

/// Reserves addresses: at `hint` when they are free, else anywhere.
pub fn reserve(size: u64, alignment: u64, hint: CUdeviceptr) -> Result<CUdeviceptr, CUresult> {
    // They are the program's, for memory of any server that has the same window.
    let server = context::current_or_none().server();
    let window =
        send::opened(server).map_err(|_| refuse_use!("reserving addresses: the session has no window"))?;
    let is_round = size > 0 && size.is_multiple_of(window.granularity());
    if !is_round || (alignment != 0 && !alignment.is_power_of_two()) {
        return Err(INVALID);
    }
    let base = window.take(size, alignment, hint).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    MAP.lock().reserved.insert(base, (size, window));
    Ok(base)
}

/// Gives a reserved range back, in which nothing may be mapped.
pub fn free_reserved(base: CUdeviceptr, size: u64) -> Result<(), CUresult> {
    let _changes = CHANGES.lock();
    let mut map = MAP.lock();
    match map.reserved.get(&base) {
        Some((reserved, window)) if *reserved == size && !map.overlaps_mapping(base, base + size) => {
            window.release(base, size);
            map.reserved.remove(&base);
            Ok(())
        }
        _ => Err(INVALID),
    }
}

/// Makes memory.
pub fn create(
    size: u64,
    properties: AllocationProperties,
    device: CUdevice,
) -> Result<Handle<Allocation>, CUresult> {
    let handle = handles::create::<Allocation>();
    let request = calls::allocation_create { allocation: handle, size: size as usize, properties };
    let nowhere = device::without_context(device)?;
    send::call_in(nowhere, &request).inspect_err(|_| {
        handles::drop_handle(handle);
    })?;
    Ok(keep(handle, nowhere, size, properties, device, None))
}

/// Makes memory of the host, for devices of the current context's server.
pub fn create_in_host(size: u64, properties: AllocationProperties) -> Result<Handle<Allocation>, CUresult> {
    let current = context::current_or_none();
    let nowhere = Handle::null_of(current.server());
    if !is_supported(nowhere.server()) {
        return Err(refuse_use!(
            "host memory by virtual memory management: the server's driver does not support it"
        ));
    }
    if !size.is_multiple_of(send::opened(nowhere.server())?.granularity()) {
        return Err(INVALID);
    }
    let device = match context::state(current) {
        Ok(state) => state.device,
        Err(_) => device::number_of(nowhere.server(), 0).unwrap_or(0),
    };
    let handle = handles::create::<Allocation>();
    let pages = HostPages::create(handle, nowhere, size, properties).inspect_err(|_| {
        handles::drop_handle(handle);
    })?;
    Ok(keep(handle, nowhere, size, properties, device, Some(pages)))
}

/// What sizes and addresses of memory of the host are multiples of.
pub fn host_granularity() -> Result<u64, CUresult> {
    let server = context::current_or_none().server();
    if !is_supported(server) {
        return Err(refuse_use!(
            "host memory by virtual memory management: the server's driver does not support it"
        ));
    }
    Ok(send::opened(server)?.granularity())
}

fn keep(
    handle: Handle<Allocation>,
    nowhere: Handle<Context>,
    size: u64,
    properties: AllocationProperties,
    device: CUdevice,
    host: Option<HostPages>,
) -> Handle<Allocation> {
    let uses = Mutex::new(Uses { references: 1, ..Uses::default() });
    let state = AllocationState { handle, nowhere, size, properties, device, host, uses };
    handles::insert(handle, Arc::new(state));
    handle
}

/// The allocation of a handle that the program has not released.
pub fn resolve(raw: u64) -> Result<Arc<AllocationState>, CUresult> {
    let state = handles::get::<AllocationState>(Handle::from_raw(raw)).map_err(|_| INVALID)?;
    if state.uses.lock().references > 0 { Ok(state) } else { Err(INVALID) }
}

/// Undoes one `cuMemCreate`, import or retain. Memory that is mapped stays until it is unmapped.
pub fn release(state: &AllocationState) -> Result<(), CUresult> {
    state.drop_use(|uses| &mut uses.references)
}

/// Maps an allocation from its start on, without access.
pub fn map(base: CUdeviceptr, size: u64, state: &Arc<AllocationState>) -> Result<(), CUresult> {
    let window = send::opened(state.nowhere.server())?;
    let end = base.checked_add(size).ok_or(INVALID)?;
    let is_round = [base, size].iter().all(|value| value.is_multiple_of(window.granularity()));
    let _changes = CHANGES.lock();
    let map = MAP.lock();
    let is_reserved =
        map.reserved.range(..=base).next_back().is_some_and(|(start, (length, reserved_in))| {
            let is_contained = base - start < *length && size <= length - (base - start);
            is_contained && core::ptr::eq(*reserved_in, window)
        });
    if size == 0 || !is_round || !is_reserved || map.overlaps_mapping(base, end) {
        return Err(INVALID);
    }
    drop(map);
    if size > state.size {
        // What NVIDIA's driver says (580, H100).
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let request =
        calls::allocation_map { allocation: state.handle, address: base, size: size as usize, offset: 0 };
    if let Some(pages) = &state.host {
        pages.map(state.handle, base as usize, size as usize)?;
    }
    send::post_in(state.nowhere, &request)?;
    state.uses.lock().mappings += 1;
    let mapping = Mapping { size, allocation: Arc::clone(state), access: Vec::new() };
    MAP.lock().mappings.insert(base, mapping);
    memory::insert(Piece {
        base,
        size,
        context: state.nowhere,
        device: state.device,
        origin: Origin::Mapping,
        id: device::of_memory(),
        heap: None,
    })
}

/// Takes away the mappings that fill a range.
pub fn unmap(base: CUdeviceptr, size: u64) -> Result<(), CUresult> {
    work::finish_published()?;
    let changes = CHANGES.lock();
    let (starts, nowhere) = MAP.lock().mappings_of(base, size)?;
    send::call_in(nowhere, &calls::allocation_unmap { address: base, size: size as usize })?;
    let (mut unmapped, mut outcome) = (Vec::new(), Ok(()));
    for start in starts {
        memory::remove(start, Origin::Mapping);
        let mapping = MAP.lock().mappings.remove(&start);
        if let Some(mapping) = mapping {
            if let Some(pages) = &mapping.allocation.host {
                outcome = outcome.and(pages.unmap(start as usize, mapping.size as usize));
            }
            unmapped.push(mapping.allocation);
        }
    }
    // The last use of an allocation ends what other servers have imported of it, whose lock comes before this one.
    drop(changes);
    for allocation in unmapped {
        outcome = outcome.and(allocation.drop_use(|uses| &mut uses.mappings));
    }
    outcome
}

/// Sets who may do what in the mappings that fill a range.
pub fn set_access(base: CUdeviceptr, size: u64, entries: &[CUmemAccessDesc]) -> Result<(), CUresult> {
    let _changes = CHANGES.lock();
    let map = MAP.lock();
    let (starts, nowhere) = map.mappings_of(base, size)?;
    let is_hosts = starts
        .iter()
        .all(|start| map.mappings.get(start).is_some_and(|mapping| mapping.allocation.host.is_some()));
    drop(map);
    let (of_host, of_devices): (Vec<_>, Vec<_>) =
        entries.iter().partition(|entry| is_hosts && allocation::is_host(entry.location.type_));
    let access =
        of_devices.iter().map(|entry| on_server(nowhere.server(), entry)).collect::<Result<Vec<_>, _>>()?;
    if !access.is_empty() {
        let request = calls::address_access { address: base, size: size as usize, access: access.clone() };
        send::call_in(nowhere, &request)?;
    }
    let mut map = MAP.lock();
    for start in starts {
        let Some(mapping) = map.mappings.get_mut(&start) else { continue };
        access.iter().for_each(|entry| mapping.note(*entry));
        if mapping.allocation.host.is_some() {
            allocation::note_device_access(start as usize, mapping.max_access());
        }
        for entry in &of_host {
            allocation::protect(start as usize, entry.flags.0)?;
        }
    }
    Ok(())
}

/// What the server of the memory gets. Devices of other servers cannot have access to it.
fn on_server(server: usize, entry: &CUmemAccessDesc) -> Result<AddressAccess, CUresult> {
    if device::device(entry.location.id).is_ok_and(|device| device.server != server) {
        return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    Ok(AddressAccess {
        location: entry.location.type_.0,
        location_id: location_on_server(&entry.location)?,
        flags: entry.flags.0,
    })
}

/// The server's number for a location; only devices can be meant.
pub fn location_on_server(location: &CUmemLocation) -> Result<i32, CUresult> {
    if location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
        return Err(refuse_use!("memory of a device that is open to the host"));
    }
    device::on_server(location.id)
}

/// Whether the device can certainly write at an address; of other addresses only the server knows.
pub fn is_writable(address: CUdeviceptr) -> bool {
    const READ_AND_WRITE: u32 = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE.0;
    match memory::find(address) {
        Some(Piece { origin: Origin::Mapping, device, .. }) => {
            let type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
            let access = access(address, &CUmemLocation { type_, id: device });
            access == Ok(READ_AND_WRITE)
        }
        found => found.is_some(),
    }
}

/// What a location may do at an address: `CUmemAccess_flags`.
pub fn access(address: CUdeviceptr, location: &CUmemLocation) -> Result<u32, CUresult> {
    if allocation::is_host(location.type_)
        && let Some(mapping) = host_memory::find_mapping(address as usize)
    {
        return Ok(mapping.host_access);
    }
    let number = location_on_server(location)?;
    let map = MAP.lock();
    let (_, mapping) = map.mapping_at(address).ok_or(INVALID)?;
    let entry = mapping.access.iter().find(|entry| entry.location_id == number);
    Ok(entry.map_or(0, |entry| entry.flags))
}

/// Whether any device may use the mapping at an address, such as another one than that whose memory it is.
pub fn is_open(address: CUdeviceptr) -> bool {
    let map = MAP.lock();
    map.mapping_at(address).is_some_and(|(_, mapping)| mapping.access.iter().any(|entry| entry.flags != 0))
}

/// One more reference to the allocation that is mapped at an address.
pub fn retain(address: CUdeviceptr) -> Result<Handle<Allocation>, CUresult> {
    let map = MAP.lock();
    let (_, mapping) = map.mapping_at(address).ok_or(INVALID)?;
    mapping.allocation.uses.lock().references += 1;
    Ok(mapping.allocation.handle)
}

/// The reserved range in which an address lies: its first address and its size.
pub fn reserved_at(address: CUdeviceptr) -> Option<(u64, u64)> {
    let map = MAP.lock();
    let (base, (size, _)) = map.reserved.range(..=address).next_back()?;
    (address - base < *size).then_some((*base, *size))
}

/// Where the mapping begins in which an address lies, if a device may use it.
pub fn open_mapping_at(address: CUdeviceptr) -> Option<CUdeviceptr> {
    let map = MAP.lock();
    let (base, mapping) = map.mapping_at(address)?;
    (mapping.max_access() != 0).then_some(base)
}

/// The allocation that is mapped at an address.
pub fn allocation_at(address: CUdeviceptr) -> Option<Arc<AllocationState>> {
    MAP.lock().mapping_at(address).map(|(_, mapping)| Arc::clone(&mapping.allocation))
}

/// A descriptor by which another process of this server can import the memory.
pub fn export(state: &AllocationState) -> Result<OwnedFd, CUresult> {
    if state.properties.handle_types & CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0
        == 0
    {
        return Err(INVALID);
    }
    let known = state.uses.lock().token;
    let token = match known {
        Some(token) => token,
        None => {
            let (size, properties) = (state.size as usize, state.properties);
            let request = calls::allocation_export { allocation: state.handle, size, properties };
            let made = send::call_in(state.nowhere, &request)?;
            let token = *state.uses.lock().token.get_or_insert(made);
            if token != made {
                // Another thread was faster.
                send::post_in(state.nowhere, &calls::export_withdraw { token: made })?;
            }
            token
        }
    };
    let descriptor = exchange::descriptor(exchange::Kind::Allocation, &token.0)?;
    // As for a handle of `cuIpc*`.
    work::finish_published()?;
    Ok(descriptor)
}

/// The memory that a descriptor of [`export`] means.
pub fn import(descriptor: BorrowedFd<'_>) -> Result<Handle<Allocation>, CUresult> {
    let token = ExportToken(exchange::read(descriptor, exchange::Kind::Allocation)?);
    let handle = handles::create::<Allocation>();
    let request = calls::allocation_import { allocation: handle, token };
    // The call says no device, so it is looked for where the current context is.
    let nowhere = Handle::null_of(context::current_or_none().server());
    let (size, properties) = send::call_in(nowhere, &request).inspect_err(|_| {
        handles::drop_handle(handle);
    })?;
    // Memory of a device that this program does not see has a number that it cannot use.
    let device = device::number_of(nowhere.server(), properties.location_id).unwrap_or(-1);
    Ok(keep(handle, nowhere, size as u64, properties, device, None))
}

//! Memory pools for stream-ordered allocation (`cuMemPoolCreate`, `cuMemAllocAsync`).
//!
//! A pool is a heap whose free memory belongs to the stream that freed it until the work before the free is
//! known to be done, so neither allocating nor freeing asks the server. Where the session has no window of
//! addresses, pools are the server's. Memory that the program reaches, too, is made of ranges of the host
//! window.

use crate::locks::{Mutex, RwLock, rank};
use crate::log::{info, refuse_use};
use crate::model::address::heap::{self, Heap, ReusePoint};
use crate::model::address::window;
use crate::model::handles::{self, RawHandle as _};
use crate::model::memory::{self, Origin, Piece};
use crate::model::stream::StreamState;
use crate::model::{context, device, host_window};
use crate::remote::session;
use crate::submit::{capture, device_memory, event, ipc, send, streams};
use causeway_api::calls;
use causeway_api::handle::{Handle, MemoryPool};
use causeway_api::sys::{
    CUdevice, CUdevice_attribute, CUdeviceptr, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUmemPool_attribute, CUresult,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub mod host_ranges;

use host_ranges::{Kind, Ranges};

/// Destroys a pool, which must be none that its place has from the start.
pub fn destroy(pool: &PoolState) -> Result<(), CUresult> {
    if is_default(pool) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    end(pool)
}

/// Allocates from a pool, for use in `stream` from its end on.
pub fn allocate(pool: &PoolState, size: usize, stream: &StreamState) -> Result<CUdeviceptr, CUresult> {
    session::of(stream.context)?.faults().check()?;
    if pool.is_imported {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if let Some(ranges) = &pool.ranges {
        return ranges.allocate(size, stream, context::state(stream.context)?.device);
    }
    if let Some(heap) = &pool.heap {
        let outcome = match heap.take(size as u64, Some(stream)) {
            Some(base) => Ok(base),
            None => {
                if pool.may_join() && heap.is_full_of_free() {
                    join(heap, size as u64, stream)?;
                }
                heap.allocate(size as u64, Some(stream))
            }
        };
        let base = outcome?;
        memory::insert(Piece {
            base,
            size: size as u64,
            context: stream.context,
            device: pool.device,
            origin: Origin::Pool,
            id: device::of_memory(),
            heap: Some(Arc::clone(heap)),
        })?;
        return Ok(base);
    }
    let request = calls::memory_allocate_async { size, pool: pool.handle, stream: stream.handle };
    let address = send::call_in(stream.context, &request)?;
    memory::add(address, size as u64, stream.context, pool.device, Origin::Pool)?;
    Ok(address)
}

/// Frees memory when `stream` gets here.
pub fn free(address: CUdeviceptr, stream: &Arc<StreamState>) -> Result<(), CUresult> {
    streams::synchronize_implicitly(stream)?;
    if host_ranges::free(address, Some(heap::reuse_point(stream))).is_some() {
        return session::of(stream.context)?.faults().check();
    }
    // As NVIDIA's driver answers (580.159 on an H200).
    if memory::starts(address, Origin::Managed) {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let piece = match memory::take(address) {
        Err(_) if memory::starts(address, Origin::PoolImport) => {
            ipc::close_in(address, stream);
            return session::of(stream.context)?.faults().check();
        }
        taken => taken?,
    };
    match piece.heap {
        Some(heap) => {
            heap.free(piece.base, piece.size, Some(heap::reuse_point(stream)));
            session::of(stream.context)?.faults().check()
        }
        None => send::post_in(stream.context, &calls::memory_free_async { address, stream: stream.handle }),
    }
}

/// Makes `stream` wait for another one that freed enough memory, so that it can use that.
fn join(heap: &Heap, size: u64, stream: &StreamState) -> Result<(), CUresult> {
    let Some(ReusePoint { stream: other, .. }) = heap.blocking_reuse_point(size) else { return Ok(()) };
    let exists = other.is_legacy() || handles::is_valid(other.handle);
    if other.context != stream.context || !exists || capture::of(&other) != 0 {
        return Ok(());
    }
    info!("a stream waits for another one to use memory that it has freed");
    let sequence = other.newest();
    event::join(stream, &other)?;
    heap.join(stream.id, other.id, sequence);
    Ok(())
}

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// What a pool is made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PoolLocation {
    /// Memory of a device, by the program's number.
    Device(CUdevice),
    /// Pinned memory of the host: of any node, or of the one with this number.
    Host(Option<i32>),
    /// Managed memory, and where it had better be: the type of the location, and its number where that
    /// counts.
    Managed(u32, i32),
}

impl PoolLocation {
    /// The kind of memory that the program reaches, too; nothing for a device's own.
    pub fn kind(self) -> Option<Kind> {
        match self {
            Self::Device(_) => None,
            Self::Host(_) => Some(Kind::Pinned),
            Self::Managed(..) => Some(Kind::Managed),
        }
    }
}

/// The place that a location and a kind of memory mean, for a pool that is made, as a driver (580) judges
/// them.
pub fn pool_location(location: &CUmemLocation, kind: CUmemAllocationType) -> Result<PoolLocation, CUresult> {
    type Type = CUmemLocationType;
    let id = location.id;
    let device = || device::device(id).map(|_| id).map_err(|_| INVALID);
    let node = || if is_node(id) { Ok(id) } else { Err(INVALID) };
    match kind {
        CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED => match location.type_ {
            Type::CU_MEM_LOCATION_TYPE_DEVICE => device().map(PoolLocation::Device),
            Type::CU_MEM_LOCATION_TYPE_HOST => Ok(PoolLocation::Host(None)),
            Type::CU_MEM_LOCATION_TYPE_HOST_NUMA => node().map(|id| PoolLocation::Host(Some(id))),
            _ => Err(INVALID),
        },
        CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED => {
            let id = match location.type_ {
                Type::CU_MEM_LOCATION_TYPE_DEVICE => device()?,
                Type::CU_MEM_LOCATION_TYPE_HOST_NUMA => node()?,
                // `CU_MEM_LOCATION_TYPE_NONE` is another name of this one.
                Type::CU_MEM_LOCATION_TYPE_INVALID
                | Type::CU_MEM_LOCATION_TYPE_HOST
                | Type::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => 0,
                _ => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            };
            Ok(PoolLocation::Managed(location.type_.0, id))
        }
        _ => Err(INVALID),
    }
}

/// As [`pool_location`], for a pool that is asked for or set: "the node of this thread" is no place then.
pub fn fixed_location(location: &CUmemLocation, kind: CUmemAllocationType) -> Result<PoolLocation, CUresult> {
    if location.type_.0 < CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT.0 {
        pool_location(location, kind)
    } else {
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }
}

/// Whether this machine has a NUMA node of this number. Every one has the first; a program may also know the
/// one that a server names as its device's.
pub fn is_node(id: i32) -> bool {
    let nearest = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID;
    id == 0
        || id > 0
            && (Path::new(&format!("/sys/devices/system/node/node{id}")).exists()
                || device::all().iter().any(|device| device.attribute(nearest) == Some(id)))
}

/// A pool.
pub struct PoolState {
    /// Its handle.
    pub handle: Handle<MemoryPool>,
    /// Where its memory lies.
    pub location: PoolLocation,
    /// The program's number of its device; of the first one where the memory is no device's.
    pub device: CUdevice,
    /// `CUmemAllocationHandleType`s that it was made for.
    pub handle_types: u32,
    /// Its memory of a device; nothing for a pool of the server, or of another place.
    pub heap: Option<Arc<Heap>>,
    /// Its memory that the program reaches, too.
    pub ranges: Option<Arc<Ranges>>,
    /// Whether the pool is another process's, from which nothing can be allocated here.
    pub is_imported: bool,
    /// The three attributes that permit reuse across streams, in the order of their numbers.
    reuse: [AtomicBool; 3],
    release_threshold: AtomicU64,
}

impl handles::Object for PoolState {
    type Kind = MemoryPool;
}

impl PoolState {
    pub(super) fn new(location: PoolLocation, limit: u64, handle_types: u32, is_imported: bool) -> Arc<Self> {
        let handle = handles::create::<MemoryPool>();
        let (device, is_devices) = match location {
            PoolLocation::Device(device) => (device, true),
            _ => (0, false),
        };
        let known = device::device(device).ok().filter(|_| is_devices);
        let pool = Arc::new(Self {
            handle,
            location,
            device,
            handle_types,
            is_imported,
            heap: known
                .and_then(|known| window::window(known.server))
                .map(|_| device_memory::new(device, limit)),
            ranges: location.kind().map(|kind| Ranges::new(kind, handle, limit)),
            reuse: [const { AtomicBool::new(true) }; 3],
            release_threshold: AtomicU64::new(0),
        });
        handles::insert(pool.handle, Arc::clone(&pool));
        pool
    }

    /// The value of an attribute.
    pub fn attribute(&self, attribute: CUmemPool_attribute) -> Result<u64, CUresult> {
        type Attribute = CUmemPool_attribute;
        let (used, reserved) = match (&self.ranges, &self.heap) {
            (Some(ranges), _) => ranges.gauges(),
            (None, Some(heap)) => heap.gauges(),
            (None, None) => {
                let request = calls::memory_pool_attribute_get { pool: self.handle, attribute };
                return send::call_in(device::without_context(self.device)?, &request);
            }
        };
        Ok(match attribute {
            Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => self.release_threshold.load(Ordering::Relaxed),
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => reserved.current,
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => reserved.high,
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => used.current,
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH => used.high,
            other => self.reuse(other)?.load(Ordering::Relaxed).into(),
        })
    }

    /// Sets an attribute. High marks can only be taken back, by setting them to 0.
    pub fn set_attribute(&self, attribute: CUmemPool_attribute, value: u64) -> Result<(), CUresult> {
        type Attribute = CUmemPool_attribute;
        if self.is_on_server() {
            let request = calls::memory_pool_attribute_set { pool: self.handle, attribute, value };
            return send::call_in(device::without_context(self.device)?, &request);
        }
        let reset_high = |of_reserved| match (&self.ranges, &self.heap) {
            (Some(ranges), _) => ranges.reset_high(of_reserved),
            (None, heap) => heap.iter().for_each(|heap| heap.reset_high(of_reserved)),
        };
        match attribute {
            Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => {
                self.release_threshold.store(value, Ordering::Relaxed);
                self.heap.iter().for_each(|heap| heap.set_keep(value));
                self.ranges.iter().for_each(|ranges| ranges.set_keep(value));
            }
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if value == 0 => reset_high(true),
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH if value == 0 => reset_high(false),
            other => self.reuse(other)?.store(value != 0, Ordering::Relaxed),
        }
        Ok(())
    }

    /// Whether its memory is the server's to manage.
    pub fn is_on_server(&self) -> bool {
        self.heap.is_none() && self.ranges.is_none()
    }

    fn reuse(&self, attribute: CUmemPool_attribute) -> Result<&AtomicBool, CUresult> {
        let first = CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES.0;
        let index = attribute.0.wrapping_sub(first) as usize;
        self.reuse.get(index).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Whether streams may be made to wait for each other so that one can use memory that another freed.
    pub(super) fn may_join(&self) -> bool {
        let [_, _, internal_dependencies] = &self.reuse;
        internal_dependencies.load(Ordering::Relaxed)
    }
}

/// The pool of a handle.
pub fn get(handle: Handle<MemoryPool>) -> Result<Arc<PoolState>, CUresult> {
    handles::get::<PoolState>(handle)
}

/// The pool that a piece of memory came from, while it exists.
pub fn of_piece(piece: &Piece) -> Option<Arc<PoolState>> {
    if let Some(handle) = host_ranges::pool_of(piece.base) {
        return get(handle).ok();
    }
    let heap = piece.heap.as_ref().filter(|_| piece.origin == Origin::Pool)?;
    let is_owner = |pool: &PoolState| pool.heap.as_ref().is_some_and(|other| Arc::ptr_eq(other, heap));
    handles::select::<PoolState>(is_owner).pop().map(|(_, pool)| pool)
}

/// Memory of destroyed pools that is not free yet, or not known to be.
struct Ending {
    heaps: Mutex<rank::EndingPools, Vec<Arc<Heap>>>,
    ranges: Mutex<rank::EndingPools, Vec<Arc<Ranges>>>,
}

static ENDING: Ending = Ending { heaps: Mutex::new(Vec::new()), ranges: Mutex::new(Vec::new()) };

/// Makes a pool that holds at most `limit` bytes; 0 sets no limit.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` for memory that the program reaches, too, where there are no addresses for it.
pub fn create(location: PoolLocation, limit: usize, handle_types: u32) -> Result<Arc<PoolState>, CUresult> {
    if location.kind().is_some() && !host_window::is_open() {
        return Err(refuse_use!("pools of host or managed memory: no addresses are free for it"));
    }
    sweep();
    let pool = PoolState::new(location, limit as u64, handle_types, false);
    if pool.is_on_server() {
        let on_server = device::on_server(pool.device)?;
        let request = calls::memory_pool_create { pool: pool.handle, device: on_server, limit };
        send::call_in(device::without_context(pool.device)?, &request).inspect_err(|_| {
            handles::remove::<PoolState>(pool.handle);
            handles::drop_handle(pool.handle);
        })?;
    }
    Ok(pool)
}

/// A pool of another process, of the device with this number on the server.
pub fn import(ordinal: i32) -> Result<Arc<PoolState>, CUresult> {
    // The call says no device, so it is looked for where the current context is.
    let server = context::current_or_none().server();
    let number = device::number_of(server, ordinal).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    let descriptor = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;
    Ok(PoolState::new(PoolLocation::Device(number), 0, descriptor, true))
}

/// Ends a pool. Memory that is allocated from it stays valid until it is freed.
pub(super) fn end(pool: &PoolState) -> Result<(), CUresult> {
    handles::remove::<PoolState>(pool.handle);
    match (&pool.ranges, &pool.heap) {
        (Some(ranges), _) => {
            handles::drop_handle(pool.handle);
            ranges.end();
            ENDING.ranges.lock().push(Arc::clone(ranges));
            sweep();
            Ok(())
        }
        (None, Some(heap)) => {
            handles::drop_handle(pool.handle);
            heap.end();
            ENDING.heaps.lock().push(Arc::clone(heap));
            sweep();
            Ok(())
        }
        (None, None) => {
            let request =
                calls::cuMemPoolDestroy { pool: handles::retire::<MemoryPool>(pool.handle.as_raw())? };
            send::post_in(device::without_context(pool.device)?, &request)
        }
    }
}

/// Lets go of what destroyed pools have free by now.
fn sweep() {
    ENDING.heaps.lock().retain(|heap| {
        heap.trim(0);
        heap.gauges().1.current > 0
    });
    // The server is told without the lock.
    let ending = core::mem::take(&mut *ENDING.ranges.lock());
    let left = ending.into_iter().filter(|ranges| {
        ranges.trim(0);
        ranges.gauges().1.current > 0
    });
    let left: Vec<_> = left.collect();
    ENDING.ranges.lock().extend(left);
}

/// The pools of one device.
#[derive(Default, Clone)]
struct OfDevice {
    default: Option<Arc<PoolState>>,
    /// What allocations without a pool come from, where it is not the default pool.
    current: Option<Arc<PoolState>>,
}

/// The pools of a place that is no device.
#[derive(Clone)]
struct LocationPools {
    default: Arc<PoolState>,
    current: Option<Arc<PoolState>>,
}

/// The pools of all places.
struct Defaults {
    devices: RwLock<rank::PoolsOfDevices, Vec<OfDevice>>,
    locations: Mutex<rank::PoolsOfLocations, BTreeMap<PoolLocation, LocationPools>>,
}

static DEFAULTS: Defaults =
    Defaults { devices: RwLock::new(Vec::new()), locations: Mutex::new(BTreeMap::new()) };

/// The pool that a device has from the start.
pub fn default_of_device(number: CUdevice) -> Result<Arc<PoolState>, CUresult> {
    let on_server = device::on_server(number)?;
    let mut devices = DEFAULTS.devices.write();
    let index = number as usize;
    if devices.len() <= index {
        devices.resize_with(index + 1, OfDevice::default);
    }
    if let Some(pool) = &devices[index].default {
        return Ok(Arc::clone(pool));
    }
    let pool = PoolState::new(PoolLocation::Device(number), 0, 0, false);
    if pool.is_on_server() {
        let request = calls::memory_pool_default { pool: pool.handle, device: on_server };
        send::post_in(device::without_context(number)?, &request)?;
    }
    devices[index].default = Some(Arc::clone(&pool));
    Ok(pool)
}

/// The pool that allocations without a pool come from.
pub fn current_of_device(number: CUdevice) -> Result<Arc<PoolState>, CUresult> {
    let known = DEFAULTS.devices.read().get(number as usize).and_then(|pools| {
        let current = pools.current.as_ref().filter(|pool| handles::is_valid(pool.handle));
        current.or(pools.default.as_ref()).cloned()
    });
    known.map_or_else(|| default_of_device(number), Ok)
}

/// Makes a pool the one that allocations without a pool come from.
pub fn set_current_of_device(number: CUdevice, pool: &Arc<PoolState>) -> Result<(), CUresult> {
    if pool.location != PoolLocation::Device(number) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    default_of_device(number)?;
    if pool.is_on_server() {
        let request =
            calls::memory_pool_current_set { device: device::on_server(number)?, pool: pool.handle };
        send::post_in(device::without_context(number)?, &request)?;
    }
    DEFAULTS.devices.write()[number as usize].current = Some(Arc::clone(pool));
    Ok(())
}

fn of(location: PoolLocation) -> Result<LocationPools, CUresult> {
    let mut locations = DEFAULTS.locations.lock();
    if let Some(pools) = locations.get(&location) {
        return Ok(pools.clone());
    }
    let default = create(location, 0, 0)?;
    Ok(locations.entry(location).insert_entry(LocationPools { default, current: None }).get().clone())
}

/// The pool that a place has from the start.
pub fn default_of(location: PoolLocation) -> Result<Arc<PoolState>, CUresult> {
    match location {
        PoolLocation::Device(device) => default_of_device(device),
        _ => Ok(of(location)?.default),
    }
}

/// The pool that was last set for a place.
pub fn current_of(location: PoolLocation) -> Result<Arc<PoolState>, CUresult> {
    if let PoolLocation::Device(device) = location {
        return current_of_device(device);
    }
    let pools = of(location)?;
    Ok(pools.current.filter(|pool| handles::is_valid(pool.handle)).unwrap_or(pools.default))
}

/// Sets the pool of a place, which must be of this place.
pub fn set_current(location: PoolLocation, pool: &Arc<PoolState>) -> Result<(), CUresult> {
    if let PoolLocation::Device(device) = location {
        return set_current_of_device(device, pool);
    }
    if pool.location != location {
        return Err(INVALID);
    }
    of(location)?;
    if let Some(pools) = DEFAULTS.locations.lock().get_mut(&location) {
        pools.current = Some(Arc::clone(pool));
    }
    Ok(())
}

/// Whether a pool is one that a place has from the start.
pub fn is_default(pool: &PoolState) -> bool {
    let is_devices =
        |pools: &OfDevice| pools.default.as_ref().is_some_and(|default| default.handle == pool.handle);
    DEFAULTS.devices.read().iter().any(is_devices)
        || DEFAULTS.locations.lock().values().any(|pools| pools.default.handle == pool.handle)
}

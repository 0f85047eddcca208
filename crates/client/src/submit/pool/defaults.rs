//! Default and current memory pool of each location.

use super::lifetime;
use super::locations::PoolLocation;
use super::state::PoolState;
use crate::locks::{Mutex, RwLock, rank};
use crate::model::{device, handles};
use crate::submit::send;
use causeway_api::calls;
use causeway_api::sys::{CUdevice, CUresult};
use std::collections::BTreeMap;
use std::sync::Arc;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

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
    let default = lifetime::create(location, 0, 0)?;
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

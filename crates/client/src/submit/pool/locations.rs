//! Location of a pool's memory (`CUmemLocation`).

use super::ranges::Kind;
use crate::model::device;
use causeway_api::sys::{
    CUdevice, CUdevice_attribute, CUmemAllocationType, CUmemLocation, CUmemLocationType, CUresult,
};
use std::path::Path;

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

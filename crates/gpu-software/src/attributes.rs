//! What the software GPU says about itself.

use super::texture_limits;
use causeway_api::snapshot::{Device, Peer, Snapshot, Window};
use causeway_api::sys::{
    CUdevice_P2PAttribute as P, CUdevice_attribute as A, CUlaunchAttributeID as Id, CUresult,
};
use causeway_api::types::LaunchAttribute;
use causeway_gpu::CuResult;
use std::ops::Range;
use std::{fs, thread};

/// The device's name.
const NAME: &str = "Causeway software GPU";
/// The newest driver API of which it knows the calls (13.0), as `cuDriverGetVersion` gives it.
pub(super) const DRIVER_VERSION: i32 = 13000;
/// The compute capabilities that a device may have, times ten: those of NVIDIA's GPUs since 5.0, for whose
/// PTX compilers of CUDA 12 and 13 are.
pub(super) const CAPABILITIES: [u32; 21] =
    [50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 103, 107, 110, 120, 121];
/// That of a device for which nobody chooses one. Libraries that are built for many GPUs have PTX for the
/// newest of them alone, of which this is the one that they are built for.
pub(super) const DEFAULT_CAPABILITY: u32 = 120;
/// The first with clusters of more than one block.
pub(super) const CLUSTERS_SINCE: u32 = 90;
/// That of the first device; the last byte counts on. The same for every software GPU: nothing outlives a
/// worker.
const UUID: [u8; 16] = *b"causeway-softgpu";
/// Lowest and highest priority of streams, as on NVIDIA's devices.
pub(super) const PRIORITIES: (i32, i32) = (0, -5);

pub(super) const WARP_SIZE: u32 = causeway_ptx::WARP_SIZE;
pub(super) const MAX_THREADS_PER_BLOCK: u32 = causeway_ptx::MAX_THREADS_PER_BLOCK;
pub(super) const SHARED_PER_BLOCK: u32 = 48 << 10;
pub(super) const SHARED_PER_BLOCK_OPT_IN: u32 = causeway_ptx::MAX_SHARED_PER_BLOCK;
/// Threads, and blocks, that may wait for each other on a core.
pub(super) const MAX_THREADS_PER_MULTIPROCESSOR: u32 = causeway_ptx::MAX_THREADS_PER_WORKER;
pub(super) const MAX_BLOCKS_PER_MULTIPROCESSOR: u32 = causeway_ptx::MAX_BLOCKS_PER_WORKER;
/// The other limits of a multiprocessor decide nothing here. They are what a device of this compute capability
/// has, so that programs which fit their launches to them make sensible ones.
pub(super) const REGISTERS_PER_MULTIPROCESSOR: u32 = 65_536;
pub(super) const SHARED_PER_MULTIPROCESSOR: u32 = 228 << 10;
pub(super) const RESERVED_SHARED_PER_BLOCK: u32 = 1 << 10;
/// Two channels of DDR5-4800, whatever this machine has: programs divide by the bandwidth that these give
/// (76.8 GB/s), and no GPU says 0.
const MEMORY_CLOCK_RATE_KHZ: u32 = 2_400_000;
const MEMORY_BUS_WIDTH: u32 = 128;

/// The UUID of the device with this number.
pub(super) fn uuid_of(number: u32) -> [u8; 16] {
    let mut uuid = UUID;
    uuid[15] = uuid[15].wrapping_add(number as u8);
    uuid
}

/// The snapshot of a machine on which the devices of these numbers can be used.
pub(super) fn snapshot(
    memory: u64,
    devices: &[u32],
    driver_version: i32,
    capability: u32,
    host_window: Range<u64>,
    device_window: Window,
) -> Snapshot {
    let device = |number: u32| Device {
        name: NAME.into(),
        uuid: uuid_of(number),
        total_memory: memory,
        // There are no such buses.
        pci_bus_id: format!("0000:{number:02x}:00.0").into(),
        attributes: attributes(number, capability),
        stream_priorities: PRIORITIES,
    };
    let pairs = devices.iter().flat_map(|from| devices.iter().map(move |to| (from, to)));
    let half = (host_window.end - host_window.start) / 2;
    Snapshot {
        backend: concat!("software GPU ", env!("CARGO_PKG_VERSION")).into(),
        driver_version,
        machine_code: false,
        devices: devices.iter().copied().map(device).collect(),
        peers: pairs.map(|(from, to)| peer(from != to)).collect(),
        host_window: (host_window.start, half),
        // Both are the host's memory.
        managed_window: (host_window.start + half, half),
        device_window,
    }
}

/// What one device may do with another's memory: everything, since they share it.
fn peer(others: bool) -> Peer {
    let attributes = [
        P::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED,
        P::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
        P::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED,
    ];
    let attributes = attributes.iter().map(|attribute| (attribute.0.cast_signed(), i32::from(others)));
    Peer { can_access: others, attributes: attributes.collect() }
}

/// Every attribute of a device. Those that are not named are 0: pageable memory, events for other processes, multicast and the like are things
/// that this device does not have.
fn attributes(number: u32, capability: u32) -> Vec<(i32, i32)> {
    let [block_x, block_y, block_z] = causeway_ptx::MAX_BLOCK;
    let [grid_x, grid_y, grid_z] = causeway_ptx::MAX_GRID;
    let present: &[(A, u32)] = &[
        (A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, MAX_THREADS_PER_BLOCK),
        (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, block_x),
        (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, block_y),
        (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, block_z),
        (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, grid_x),
        (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, grid_y),
        (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, grid_z),
        (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SHARED_PER_BLOCK),
        (A::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10),
        (A::CU_DEVICE_ATTRIBUTE_WARP_SIZE, WARP_SIZE),
        (A::CU_DEVICE_ATTRIBUTE_MAX_PITCH, i32::MAX.cast_unsigned()),
        (A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, REGISTERS_PER_MULTIPROCESSOR),
        (A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE, clock_rate_khz()),
        (A::CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1),
        (A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, cores()),
        (A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, number),
        (A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1),
        (A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1),
        (A::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1),
        (A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, MEMORY_CLOCK_RATE_KHZ),
        (A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, MEMORY_BUS_WIDTH),
        (A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, last_level_cache_bytes()),
        (A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, MAX_THREADS_PER_MULTIPROCESSOR),
        (A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2),
        (A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
        (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, capability / 10),
        (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, capability % 10),
        (A::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1),
        (A::CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1),
        (A::CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1),
        (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, SHARED_PER_MULTIPROCESSOR),
        (A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, REGISTERS_PER_MULTIPROCESSOR),
        (A::CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2),
        (A::CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1),
        (A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1),
        (A::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, u32::from(capability >= CLUSTERS_SINCE)),
        (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, SHARED_PER_BLOCK_OPT_IN),
        (A::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1),
        (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, MAX_BLOCKS_PER_MULTIPROCESSOR),
        (A::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, RESERVED_SHARED_PER_BLOCK),
        (A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1),
        // `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
        (A::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 1),
        (A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1),
        (A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1),
        (A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1),
        (A::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1),
        (A::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1),
        (A::CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 1),
        (A::CU_DEVICE_ATTRIBUTE_NUMA_ID, u32::MAX),
    ];
    let textures = texture_limits::attributes();
    let value = |number: u32| {
        let mut all = present.iter().chain(&textures);
        all.find(|(a, _)| a.0 == number).map_or(0, |(_, value)| *value)
    };
    (1..A::CU_DEVICE_ATTRIBUTE_MAX.0)
        .map(|number| (number.cast_signed(), value(number).cast_signed()))
        .collect()
}

/// The value of a stream's attribute.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` for an attribute that streams of this device do not have.
pub(super) fn of_stream(id: u32, priority: i32) -> CuResult<LaunchAttribute> {
    let mut value = [0; 64];
    match Id(id) {
        // No window, and the domain and its map are both 0.
        Id::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
        | Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
        | Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => {}
        Id::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY => value[0] = 1,
        Id::CU_LAUNCH_ATTRIBUTE_PRIORITY => value[..4].copy_from_slice(&priority.to_ne_bytes()),
        _ => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
    }
    Ok(LaunchAttribute { id, value })
}

/// The priority that an attribute sets, within those that there are; none of another attribute.
pub(super) fn priority(attribute: &LaunchAttribute) -> Option<i32> {
    let (lowest, highest) = PRIORITIES;
    let [a, b, c, d, ..] = attribute.value;
    let is_priority = Id(attribute.id) == Id::CU_LAUNCH_ATTRIBUTE_PRIORITY;
    is_priority.then(|| i32::from_ne_bytes([a, b, c, d]).clamp(highest, lowest))
}

/// A core is what comes nearest to a multiprocessor: it runs blocks.
pub(super) fn cores() -> u32 {
    thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

/// The processor's clock as the system tells it, or 1 GHz when it does not.
fn clock_rate_khz() -> u32 {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("cpu MHz"));
    let megahertz = line.and_then(|line| line.split(':').nth(1)?.trim().parse::<f64>().ok());
    megahertz.map_or(1_000_000, |megahertz| (megahertz * 1e3) as u32)
}

/// Bytes of the cache that all cores share, or 0 when the system does not tell.
fn last_level_cache_bytes() -> u32 {
    let size = |index: u32| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = fs::read_to_string(path).ok()?;
        text.trim().strip_suffix('K')?.parse::<u32>().ok()?.checked_mul(1024)
    };
    (0..8).filter_map(size).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attribute_has_a_value() {
        let snapshot = snapshot(1 << 30, &[2, 0], DRIVER_VERSION, 89, 1 << 40..1 << 41, Window::default());
        let device = &snapshot.devices[0];
        assert_eq!((snapshot.devices.len(), snapshot.peers.len()), (2, 4));
        assert!(snapshot.peers[1].can_access && !snapshot.peers[0].can_access);
        assert_eq!([device.uuid, snapshot.devices[1].uuid], [uuid_of(2), UUID]);
        assert_eq!(device.pci_bus_id.as_str(), "0000:02:00.0");
        assert_eq!(device.attributes.len(), 147);
        let capability = [
            A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        ];
        assert_eq!(capability.map(|it| device.attribute(it.0.cast_signed())), [Some(8), Some(9)]);
        assert_eq!(device.attribute(A::CU_DEVICE_ATTRIBUTE_WARP_SIZE.0.cast_signed()), Some(32));
        assert_eq!(device.attribute(A::CU_DEVICE_ATTRIBUTE_NUMA_ID.0.cast_signed()), Some(-1));
        assert_eq!(
            device.attribute(A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS.0.cast_signed()),
            Some(0)
        );
        // What programs divide by.
        for attribute in [
            A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
            A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
            A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
        ] {
            assert!(device.attribute(attribute.0.cast_signed()) > Some(0), "{attribute:?}");
        }
    }
}

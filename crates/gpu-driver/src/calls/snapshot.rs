//! What the client learns of the devices when the session opens.

use crate::calls::virtual_memory::window_of_client;
use crate::driver::Driver;
use causeway_gpu::CuResult;

use causeway_api::snapshot::{Device, Peer, Snapshot, Window};
use causeway_api::sys::{
    CUdevice, CUdevice_P2PAttribute, CUdevice_attribute as Attribute, CUmemAllocationHandleType, CUuuid,
};
use core::ffi::{CStr, c_char};

/// Attributes whose truth is another one for a program on another machine, in this version of Causeway.
///
/// A program that reads these takes the way that works for it. Each entry goes when what it denies is
/// forwarded.
const CORRECTED: &[(Attribute, i32)] = &[
    // Host memory of the program lies on its own machine: what kernels reach is a copy of it, which follows
    // it when work is given to the device and waited for. So neither side sees the other's atomics.
    (Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED, 0),
    // The same goes for managed memory; other memory of the program is not followed at all.
    (Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, 0),
    // Memory can be given to other processes of the program's machine as a file descriptor only.
    (Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, 0),
    // Memory of the host is the client's, which makes pools of it without the driver, and shares it with no
    // other process.
    (Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 0),
    // The network cards and graphics that these are for are on the program's machine.
    (Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED, 0),
    // The nodes meant here are of the server's memory; -1 is "none".
    (Attribute::CU_DEVICE_ATTRIBUTE_NUMA_CONFIG, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_NUMA_ID, -1),
    (Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, -1),
    // The calls that these announce are not forwarded.
    (Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, 0),
    (Attribute::CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH, 0),
];

/// The last `CUdevice_P2PAttribute` of CUDA 13.0.
const LAST_PEER_ATTRIBUTE: u32 =
    CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED.0;
/// Where a loaded driver of Linux tells its own version.
const MODULE_VERSION: &str = "/sys/module/nvidia/version";

/// What is sent to the client about an attribute that has `value` here.
fn corrected(attribute: Attribute, value: i32) -> i32 {
    if attribute == Attribute::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES {
        // Of the handles for other processes only file descriptors are forwarded.
        return value & CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0 as i32;
    }
    CORRECTED.iter().find(|(other, _)| *other == attribute).map_or(value, |(_, truth)| *truth)
}

/// The priorities of streams. The driver tells them only where a context is, which a snapshot must not make;
/// all devices that have priorities have had these since CUDA 11.4, and the driver clamps what is beyond.
fn stream_priorities(device: &Device) -> (i32, i32) {
    let supported = Attribute::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED.0 as i32;
    if device.attribute(supported).unwrap_or(0) != 0 { (0, -5) } else { (0, 0) }
}

/// Whether memory of a device can be made apart from its addresses, and given to other processes.
fn maps_memory(device: &Device) -> bool {
    [
        Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    ]
    .iter()
    .all(|attribute| device.attribute(attribute.0 as i32).unwrap_or(0) != 0)
}

fn text(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

impl Driver {
    pub(crate) fn take_snapshot(&self) -> CuResult<Snapshot> {
        let mut driver_version = 0;
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuDriverGetVersion(&mut driver_version)? };
        let handles = self.all_devices()?;
        let peers = handles.iter().flat_map(|from| handles.iter().map(|to| self.peer(*from, *to)));
        let (major, minor) = (driver_version / 1000, driver_version % 1000 / 10);
        let version = std::fs::read_to_string(MODULE_VERSION).unwrap_or_default();
        let devices = handles.iter().map(|device| self.device(*device)).collect::<CuResult<Vec<_>>>()?;
        Ok(Snapshot {
            device_window: if devices.iter().all(maps_memory) {
                window_of_client(self.window_addresses.device)
            } else {
                Window::default()
            },
            managed_window: if devices.iter().all(maps_memory) {
                self.window_addresses.managed
            } else {
                (0, 0)
            },
            backend: match version.trim() {
                "" => format!("NVIDIA driver (CUDA {major}.{minor})"),
                version => format!("NVIDIA driver {version} (CUDA {major}.{minor})"),
            }
            .into(),
            driver_version,
            machine_code: true,
            devices,
            peers: peers.collect::<CuResult<_>>()?,
            host_window: self.window.place(),
        })
    }

    /// The driver's handles of all devices, in its order.
    pub(crate) fn all_devices(&self) -> CuResult<Vec<CUdevice>> {
        let mut count = 0;
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuDeviceGetCount(&mut count)? };
        let handles = (0..count).map(|ordinal| {
            let mut device = 0;
            // SAFETY: the pointer is to a local.
            unsafe { self.functions.cuDeviceGet(&mut device, ordinal) }.map(|()| device)
        });
        handles.collect()
    }

    fn device(&self, device: CUdevice) -> CuResult<Device> {
        let driver = self.functions;
        let (mut name, mut pci_bus_id) = ([0u8; 256], [0u8; 32]);
        let (mut total_memory, mut uuid) = (0, CUuuid::default());
        // SAFETY: the pointers are to locals of the sizes that are passed along.
        unsafe {
            driver.cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, device)?;
            driver.cuDeviceGetPCIBusId(pci_bus_id.as_mut_ptr().cast(), pci_bus_id.len() as i32, device)?;
            driver.cuDeviceTotalMem_v2(&mut total_memory, device)?;
            // The newer call tells the instances of a divided GPU apart.
            driver
                .cuDeviceGetUuid_v2(&mut uuid, device)
                .or_else(|_| driver.cuDeviceGetUuid(&mut uuid, device))?;
        }
        let attributes = (1..Attribute::CU_DEVICE_ATTRIBUTE_MAX.0).filter_map(|number| {
            let (attribute, mut value) = (Attribute(number), 0);
            // SAFETY: the pointer is to a local. Numbers that the driver does not know are left out.
            unsafe { driver.cuDeviceGetAttribute(&mut value, attribute, device) }.ok()?;
            Some((number as i32, corrected(attribute, value)))
        });
        let mut found = Device {
            name: text(&name).into(),
            uuid: uuid.bytes.map(c_char::cast_unsigned),
            total_memory: total_memory as u64,
            pci_bus_id: text(&pci_bus_id).into(),
            attributes: attributes.collect(),
            stream_priorities: (0, 0),
        };
        found.stream_priorities = stream_priorities(&found);
        Ok(found)
    }

    fn peer(&self, from: CUdevice, to: CUdevice) -> CuResult<Peer> {
        if from == to {
            return Ok(Peer::default());
        }
        let mut can_access = 0;
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuDeviceCanAccessPeer(&mut can_access, from, to)? };
        let attributes = (1..=LAST_PEER_ATTRIBUTE).filter_map(|number| {
            let (attribute, mut value) = (CUdevice_P2PAttribute(number), 0);
            // SAFETY: the pointer is to a local.
            unsafe { self.functions.cuDeviceGetP2PAttribute(&mut value, attribute, from, to) }.ok()?;
            Some((number as i32, value))
        });
        Ok(Peer { can_access: can_access != 0, attributes: attributes.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_forwarded_is_not_announced() {
        assert_eq!(corrected(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1), 0);
        assert_eq!(corrected(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32), 32);
    }

    #[test]
    fn priorities_follow_the_attribute() {
        let device = |value| Device { attributes: vec![(78, value)], ..Device::default() };
        assert_eq!(stream_priorities(&device(1)), (0, -5));
        assert_eq!(stream_priorities(&device(0)), (0, 0));
    }
}

//! Properties of the device, as each version of NCCL's interface wants them described.

use core::ffi::{CStr, c_char, c_int};

use super::call;
use crate::error::NetError;
use crate::plugin::{self, Properties};

/// The name by which `NCCL_NET` chooses the plugin, and which stands in NCCL's log.
pub(super) const NAME: &CStr = c"Causeway";

/// `getProperties`.
pub(super) type GetProperties<P> = unsafe extern "C" fn(c_int, *mut P) -> c_int;

/// What stands first in the properties of all versions.
#[repr(C)]
struct Identity {
    name: *const c_char,
    pci_path: *const c_char,
    guid: u64,
    pointers: c_int,
    reg_is_global: c_int,
}

impl Identity {
    fn of(properties: &Properties) -> Self {
        Self {
            name: NAME.as_ptr(),
            // It is no device of a bus.
            pci_path: core::ptr::null(),
            guid: properties.guid,
            pointers: properties.pointers,
            reg_is_global: 0,
        }
    }
}

/// What stands behind that, and behind `forceFlush` from version 9 on.
#[repr(C)]
struct Port {
    speed: c_int,
    port: c_int,
    latency: f32,
    max_communicators: c_int,
    max_receives: c_int,
    /// `NCCL_NET_DEVICE_HOST`: kernels do not use the network by themselves.
    device_type: c_int,
    device_version: c_int,
}

impl Port {
    fn of(properties: &Properties) -> Self {
        Self {
            speed: properties.speed,
            port: 0,
            // NCCL then takes its own figure.
            latency: 0.0,
            max_communicators: properties.max_communicators,
            max_receives: properties.max_receives,
            device_type: 0,
            device_version: 0,
        }
    }
}

/// Devices that are used as one, of which there are none: the device alone. `N` is how many there could be.
#[repr(C)]
struct VirtualDevice<const N: usize> {
    count: c_int,
    devices: [c_int; N],
}

impl<const N: usize> VirtualDevice<N> {
    fn of(device: c_int) -> Self {
        let mut devices = [0; N];
        devices[0] = device;
        Self { count: 1, devices }
    }
}

/// Properties of a version.
pub(super) trait Describe {
    /// Those of a device.
    fn describe(device: c_int, properties: &Properties) -> Self;
}

/// `ncclNetProperties_v8_t`.
#[repr(C)]
pub struct Properties8 {
    identity: Identity,
    port: Port,
}

impl Describe for Properties8 {
    fn describe(_: c_int, properties: &Properties) -> Self {
        Self { identity: Identity::of(properties), port: Port::of(properties) }
    }
}

/// `ncclNetProperties_v9_t` and `ncclNetProperties_v10_t`, and the beginning of later ones. `N` are the devices that may
/// be joined.
#[repr(C)]
pub struct Properties9<const N: usize = 4> {
    identity: Identity,
    force_flush: c_int,
    port: Port,
    virtual_device: VirtualDevice<N>,
    max_p2p_bytes: usize,
    max_collective_bytes: usize,
}

impl<const N: usize> Describe for Properties9<N> {
    fn describe(device: c_int, properties: &Properties) -> Self {
        Self {
            identity: Identity::of(properties),
            force_flush: 0,
            port: Port::of(properties),
            virtual_device: VirtualDevice::of(device),
            max_p2p_bytes: properties.max_bytes,
            max_collective_bytes: properties.max_bytes,
        }
    }
}

/// `ncclNetProperties_v11_t`.
#[repr(C)]
pub struct Properties11 {
    first: Properties9,
    /// Requests that may be passed as one.
    max_multi_request: c_int,
}

impl Describe for Properties11 {
    fn describe(device: c_int, properties: &Properties) -> Self {
        Self { first: Properties9::describe(device, properties), max_multi_request: 1 }
    }
}

/// `ncclNetProperties_v12_t`.
#[repr(C)]
pub struct Properties12 {
    first: Properties9<8>,
    max_multi_request: c_int,
    /// `NCCL_NET_ID_UNDEF`.
    rail: i16,
    plane: i16,
}

impl Describe for Properties12 {
    fn describe(device: c_int, properties: &Properties) -> Self {
        Self { first: Properties9::describe(device, properties), max_multi_request: 1, rail: -1, plane: -1 }
    }
}

// As the compiler of C lays them out on 64-bit machines.
const _: () = assert!(
    size_of::<Properties8>() == 64
        && size_of::<Properties9>() == 104
        && size_of::<Properties11>() == 112
        && size_of::<Properties12>() == 128
);

pub(super) unsafe extern "C" fn get_properties<P: Describe>(device: c_int, output: *mut P) -> c_int {
    call(|| {
        if output.is_null() {
            return Err(NetError::Argument("no place for properties"));
        }
        let properties = P::describe(device, &plugin::properties(device)?);
        // SAFETY: NCCL's place for them.
        unsafe { output.write(properties) };
        Ok(())
    })
}

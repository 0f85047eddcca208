//! Version 12 of the table: NCCL 2.30.

use core::ffi::{c_char, c_int, c_void};

use super::calls::{self, DeviceRegistration, ReceiveConsumed, RegisterDmaBuf};
use super::{Identity, NAME, Port, Table, VirtualDevice, call};
use crate::error::NetError;
use crate::log::Logger;
use crate::plugin;

/// `ncclNetProperties_v12_t`.
#[repr(C)]
struct Properties {
    identity: Identity,
    force_flush: c_int,
    port: Port,
    virtual_device: VirtualDevice<8>,
    max_p2p_bytes: usize,
    max_collective_bytes: usize,
    /// Requests that may be passed as one.
    max_multi_request: c_int,
    /// `NCCL_NET_ID_UNDEF`.
    rail: i16,
    plane: i16,
}

// As the compiler of C lays it out on 64-bit machines.
const _: () = assert!(size_of::<Properties>() == 128);

/// `ncclNet_v12_t`.
#[repr(C)]
pub struct Net {
    name: *const c_char,
    init: unsafe extern "C" fn(*mut *mut c_void, u64, *mut c_void, Option<Logger>, *const c_void) -> c_int,
    devices: unsafe extern "C" fn(*mut c_int) -> c_int,
    get_properties: unsafe extern "C" fn(c_int, *mut Properties) -> c_int,
    listen: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut *mut c_void) -> c_int,
    connect:
        unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut *mut c_void, *mut *mut c_void) -> c_int,
    accept: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut *mut c_void) -> c_int,
    register: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, *mut *mut c_void) -> c_int,
    register_dma_buf: RegisterDmaBuf,
    deregister: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
    send: unsafe extern "C" fn(
        *mut c_void,
        *mut c_void,
        usize,
        c_int,
        *mut c_void,
        *mut c_void,
        *mut *mut c_void,
    ) -> c_int,
    receive: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        *mut *mut c_void,
        *mut usize,
        *mut c_int,
        *mut *mut c_void,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> c_int,
    flush: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        *mut *mut c_void,
        *mut c_int,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> c_int,
    test: unsafe extern "C" fn(*mut c_void, *mut c_int, *mut c_int) -> c_int,
    close_send: unsafe extern "C" fn(*mut c_void) -> c_int,
    close_receive: unsafe extern "C" fn(*mut c_void) -> c_int,
    close_listen: unsafe extern "C" fn(*mut c_void) -> c_int,
    device_registration: DeviceRegistration,
    receive_consumed: ReceiveConsumed,
    make_virtual_device: Option<unsafe extern "C" fn(*mut c_int, *mut c_void) -> c_int>,
    finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
    set_attributes: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
}

const _: () = assert!(size_of::<Net>() == 176);

/// The table.
#[allow(non_upper_case_globals, reason = "the name that NCCL looks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v12: Table<Net> = Table(Net {
    name: NAME.as_ptr(),
    init: calls::init_context,
    devices: calls::devices,
    get_properties,
    listen: calls::listen_context,
    connect: calls::connect_context,
    accept: calls::accept,
    register: calls::register,
    register_dma_buf: None,
    deregister: calls::deregister,
    send: calls::send_profiled,
    receive: calls::receive_profiled,
    flush: calls::flush,
    test: calls::test,
    close_send: calls::close_communicator,
    close_receive: calls::close_communicator,
    close_listen: calls::close_listener,
    device_registration: None,
    receive_consumed: None,
    make_virtual_device: None,
    finalize: calls::finalize,
    set_attributes: calls::set_attributes,
});

unsafe extern "C" fn get_properties(device: c_int, output: *mut Properties) -> c_int {
    call(|| {
        if output.is_null() {
            return Err(NetError::Argument("no place for properties"));
        }
        let properties = plugin::properties(device)?;
        let properties = Properties {
            identity: Identity::of(&properties),
            force_flush: 0,
            port: Port::of(&properties),
            virtual_device: VirtualDevice::of(device),
            max_p2p_bytes: properties.max_bytes,
            max_collective_bytes: properties.max_bytes,
            max_multi_request: 1,
            rail: -1,
            plane: -1,
        };
        // SAFETY: NCCL's place for them.
        unsafe { output.write(properties) };
        Ok(())
    })
}

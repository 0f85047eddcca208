//! Version 9 of the table: NCCL 2.24 and 2.25.

use core::ffi::{c_char, c_int, c_void};

use super::calls::{self, DeviceRegistration, ReceiveConsumed, RegisterDmaBuf};
use super::{Identity, NAME, Port, Table, VirtualDevice, call};
use crate::error::NetError;
use crate::log::Logger;
use crate::plugin;

/// `ncclNetProperties_v9_t`.
#[repr(C)]
struct Properties {
    identity: Identity,
    force_flush: c_int,
    port: Port,
    virtual_device: VirtualDevice<4>,
    max_p2p_bytes: usize,
    max_collective_bytes: usize,
}

// As the compiler of C lays it out on 64-bit machines.
const _: () = assert!(size_of::<Properties>() == 104);

/// `ncclNet_v9_t`.
#[repr(C)]
pub struct Net {
    name: *const c_char,
    init: unsafe extern "C" fn(Option<Logger>) -> c_int,
    devices: unsafe extern "C" fn(*mut c_int) -> c_int,
    get_properties: unsafe extern "C" fn(c_int, *mut Properties) -> c_int,
    listen: unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void) -> c_int,
    connect: unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void, *mut *mut c_void) -> c_int,
    accept: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut *mut c_void) -> c_int,
    register: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, *mut *mut c_void) -> c_int,
    register_dma_buf: RegisterDmaBuf,
    deregister: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
    send:
        unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, *mut c_void, *mut *mut c_void) -> c_int,
    receive: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        *mut *mut c_void,
        *mut usize,
        *mut c_int,
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
}

const _: () = assert!(size_of::<Net>() == 160);

/// The table.
#[allow(non_upper_case_globals, reason = "the name that NCCL looks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v9: Table<Net> = Table(Net {
    name: NAME.as_ptr(),
    init,
    devices: calls::devices,
    get_properties,
    listen: calls::listen,
    connect: calls::connect,
    accept: calls::accept,
    register: calls::register,
    register_dma_buf: None,
    deregister: calls::deregister,
    send: calls::send,
    receive: calls::receive,
    flush: calls::flush,
    test: calls::test,
    close_send: calls::close_communicator,
    close_receive: calls::close_communicator,
    close_listen: calls::close_listener,
    device_registration: None,
    receive_consumed: None,
    make_virtual_device: None,
});

unsafe extern "C" fn init(logger: Option<Logger>) -> c_int {
    call(|| plugin::init(logger))
}

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
        };
        // SAFETY: NCCL's place for them.
        unsafe { output.write(properties) };
        Ok(())
    })
}

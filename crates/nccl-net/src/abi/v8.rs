//! Version 8 of the table: NCCL 2.20 to 2.23.

use core::ffi::{c_char, c_int, c_void};

use super::calls::{self, DeviceRegistration, ReceiveConsumed, RegisterDmaBuf};
use super::{Identity, NAME, Port, Table, call};
use crate::error::NetError;
use crate::log::Logger;
use crate::plugin;

/// `ncclNetProperties_v8_t`.
#[repr(C)]
struct Properties {
    identity: Identity,
    port: Port,
}

// As the compiler of C lays it out on 64-bit machines.
const _: () = assert!(size_of::<Properties>() == 64);

/// `ncclNet_v8_t`.
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
        unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, c_int, *mut c_void, *mut *mut c_void) -> c_int,
    receive: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        *mut *mut c_void,
        *mut c_int,
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
}

const _: () = assert!(size_of::<Net>() == 152);

/// The table.
#[allow(non_upper_case_globals, reason = "the name that NCCL looks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v8: Table<Net> = Table(Net {
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
    send,
    receive,
    flush: calls::flush,
    test: calls::test,
    close_send: calls::close_communicator,
    close_receive: calls::close_communicator,
    close_listen: calls::close_listener,
    device_registration: None,
    receive_consumed: None,
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
        let properties = Properties { identity: Identity::of(&properties), port: Port::of(&properties) };
        // SAFETY: NCCL's place for them.
        unsafe { output.write(properties) };
        Ok(())
    })
}

unsafe extern "C" fn send(
    communicator: *mut c_void,
    data: *mut c_void,
    bytes: c_int,
    _tag: c_int,
    registration: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    let Ok(bytes) = usize::try_from(bytes) else {
        return call(|| Err(NetError::Argument("a size below zero")));
    };
    // SAFETY: as NCCL promises of `isend`.
    unsafe { calls::send_bytes(communicator, data, bytes, registration, request) }
}

unsafe extern "C" fn receive(
    communicator: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut c_int,
    _tags: *mut c_int,
    registrations: *mut *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    let bytes_of = |size| usize::try_from(size).ok();
    // SAFETY: as NCCL promises of `irecv`.
    unsafe { calls::receive_bytes(communicator, count, data, sizes, registrations, request, bytes_of) }
}

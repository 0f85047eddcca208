//! Tables of functions, one for each version of NCCL's interface. All have one structure: what a version has of its own
//! are the signatures of some functions, the properties, and what stands at the end.

use core::ffi::{c_char, c_int, c_void};

use super::calls::{
    self, Accept, Close, Connect, Connect10, Connect11, Count, Deregister, Flush, Init, Init10, Init11,
};
use super::calls::{Listen, Listen11, Receive, Receive10, Register, Send, Send10, SetAttributes, Test};
use super::properties::{
    GetProperties, NAME, Properties8, Properties9, Properties11, Properties12, get_properties,
};

/// A table, whose pointers are to functions and text that are there for good.
#[repr(transparent)]
pub struct Table<T>(T);

// SAFETY: functions and constant text.
unsafe impl<T> Sync for Table<T> {}

/// A function that the plugin does not have: NCCL tests for null, and never calls it.
type NotThere = *const c_void;
const NOT_THERE: NotThere = core::ptr::null();

/// `ncclNet_v8_t` to `ncclNet_v12_t`.
#[repr(C)]
pub struct Net<Init, Properties, Listen, Connect, Send, Receive, End> {
    name: *const c_char,
    init: Init,
    devices: Count,
    get_properties: GetProperties<Properties>,
    listen: Listen,
    connect: Connect,
    accept: Accept,
    register: Register,
    register_dma_buf: NotThere,
    deregister: Deregister,
    send: Send,
    receive: Receive,
    flush: Flush,
    test: Test,
    close_send: Close,
    close_receive: Close,
    close_listen: Close,
    /// `getDeviceMr` and `irecvConsumed` are of plugins whose network kernels use by themselves.
    device_registration: NotThere,
    receive_consumed: NotThere,
    end: End,
}

/// The end of versions 9 and 10: `makeVDevice`, which joins several devices.
#[repr(C)]
pub struct End9 {
    make_virtual_device: NotThere,
}

/// The end of versions 11 and 12.
#[repr(C)]
pub struct End11 {
    make_virtual_device: NotThere,
    finalize: Close,
    set_attributes: SetAttributes,
}

/// A table with the functions that are its version's own, and with those that all have.
const fn table<I, P, L, C, S, R, E>(
    init: I,
    get_properties: GetProperties<P>,
    (listen, connect): (L, C),
    (send, receive): (S, R),
    end: E,
) -> Table<Net<I, P, L, C, S, R, E>>
where
    L: Copy,
    C: Copy,
    S: Copy,
    R: Copy,
{
    Table(Net {
        name: NAME.as_ptr(),
        init,
        devices: calls::devices,
        get_properties,
        listen,
        connect,
        accept: calls::accept,
        register: calls::register,
        register_dma_buf: NOT_THERE,
        deregister: calls::deregister,
        send,
        receive,
        flush: calls::flush,
        test: calls::test,
        close_send: calls::close_communicator,
        close_receive: calls::close_communicator,
        close_listen: calls::close_listener,
        device_registration: NOT_THERE,
        receive_consumed: NOT_THERE,
        end,
    })
}

const END_9: End9 = End9 { make_virtual_device: NOT_THERE };
const END_11: End11 = End11 {
    make_virtual_device: NOT_THERE,
    finalize: calls::finalize,
    set_attributes: calls::set_attributes,
};

type Net8 = Net<Init, Properties8, Listen, Connect, Send<c_int>, Receive<c_int>, ()>;
type Net9 = Net<Init, Properties9, Listen, Connect, Send<usize>, Receive<usize>, End9>;
type Net10 = Net<Init10, Properties9, Listen, Connect10, Send10, Receive10, End9>;
type Net11 = Net<Init11, Properties11, Listen11, Connect11, Send10, Receive10, End11>;
type Net12 = Net<Init11, Properties12, Listen11, Connect11, Send10, Receive10, End11>;

/// NCCL 2.20 to 2.23.
#[allow(non_upper_case_globals, reason = "the name that NCCL looks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v8: Table<Net8> = table(
    calls::init,
    get_properties,
    (calls::listen, calls::connect),
    (calls::send::<c_int>, calls::receive::<c_int>),
    (),
);

/// NCCL 2.24 and 2.25.
#[allow(non_upper_case_globals, reason = "the name that NCCL looks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v9: Table<Net9> = table(
    calls::init,
    get_properties,
    (calls::listen, calls::connect),
    (calls::send::<usize>, calls::receive::<usize>),
    END_9,
);

/// NCCL 2.26 and 2.27.
#[allow(non_upper_case_globals, reason = "the name that NCCL looks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v10: Table<Net10> = table(
    calls::init_profiled,
    get_properties,
    (calls::listen, calls::connect_configured),
    (calls::send_profiled, calls::receive_profiled),
    END_9,
);

/// NCCL 2.28 and 2.29.
#[allow(non_upper_case_globals, reason = "the name that NCCL looks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v11: Table<Net11> = table(
    calls::init_context,
    get_properties,
    (calls::listen_context, calls::connect_context),
    (calls::send_profiled, calls::receive_profiled),
    END_11,
);

/// NCCL 2.30.
#[allow(non_upper_case_globals, reason = "the name that NCCL looks for")]
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v12: Table<Net12> = table(
    calls::init_context,
    get_properties,
    (calls::listen_context, calls::connect_context),
    (calls::send_profiled, calls::receive_profiled),
    END_11,
);

// As the compiler of C lays them out on 64-bit machines.
const _: () = assert!(
    size_of_val(&ncclNetPlugin_v8) == 152
        && size_of_val(&ncclNetPlugin_v9) == 160
        && size_of_val(&ncclNetPlugin_v10) == 160
        && size_of_val(&ncclNetPlugin_v11) == 176
        && size_of_val(&ncclNetPlugin_v12) == 176
);

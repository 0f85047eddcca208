//! Functions of the tables, and their types. A number behind a type or a suffix is of the version that brought it.

use core::ffi::{c_int, c_void};

use super::call;
use crate::bootstrap::Listener;
use crate::communicator::Request;
use crate::error::NetError;
use crate::handle::HANDLE_BYTES;
use crate::log::Logger;
use crate::plugin::{self, Communicator, MAX_GROUPED_RECEIVES, Registration};

/// What a null pointer is refused with.
fn missing(what: &'static str) -> NetError {
    NetError::Argument(what)
}

/// Writes a result to where NCCL wants it.
///
/// # Safety
/// Null, or a place for one.
unsafe fn put<T>(pointer: *mut T, value: T, what: &'static str) -> Result<(), NetError> {
    if pointer.is_null() {
        return Err(missing(what));
    }
    // SAFETY: not null, so there is room for one, by what the caller guarantees.
    unsafe { pointer.write(value) };
    Ok(())
}

/// What stands behind a handle of NCCL's.
///
/// # Safety
/// Null, or a handle that this library has made and not closed yet.
unsafe fn borrow<'a, T>(handle: *mut c_void, what: &'static str) -> Result<&'a T, NetError> {
    // SAFETY: what is not null is a handle of this library that NCCL has not closed yet.
    unsafe { handle.cast::<T>().as_ref() }.ok_or(missing(what))
}

fn raw<T>(value: T) -> *mut c_void {
    Box::into_raw(Box::new(value)).cast()
}

pub(super) type Init = unsafe extern "C" fn(Option<Logger>) -> c_int;
pub(super) type Init10 = unsafe extern "C" fn(Option<Logger>, *const c_void) -> c_int;
pub(super) type Init11 =
    unsafe extern "C" fn(*mut *mut c_void, u64, *mut c_void, Option<Logger>, *const c_void) -> c_int;
pub(super) type Count = unsafe extern "C" fn(*mut c_int) -> c_int;
pub(super) type Listen = unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void) -> c_int;
pub(super) type Listen11 = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut *mut c_void) -> c_int;
pub(super) type Connect =
    unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void, *mut *mut c_void) -> c_int;
pub(super) type Connect10 =
    unsafe extern "C" fn(c_int, *mut c_void, *mut c_void, *mut *mut c_void, *mut *mut c_void) -> c_int;
pub(super) type Connect11 =
    unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut *mut c_void, *mut *mut c_void) -> c_int;
pub(super) type Accept = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut *mut c_void) -> c_int;
pub(super) type Register =
    unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, *mut *mut c_void) -> c_int;
pub(super) type Deregister = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
pub(super) type Send<B> =
    unsafe extern "C" fn(*mut c_void, *mut c_void, B, c_int, *mut c_void, *mut *mut c_void) -> c_int;
pub(super) type Send10 = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    usize,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut *mut c_void,
) -> c_int;
pub(super) type Receive<B> = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut *mut c_void,
    *mut B,
    *mut c_int,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;
pub(super) type Receive10 = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut *mut c_void,
    *mut usize,
    *mut c_int,
    *mut *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;
pub(super) type Flush = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut *mut c_void,
    *mut c_int,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;
pub(super) type Test = unsafe extern "C" fn(*mut c_void, *mut c_int, *mut c_int) -> c_int;
pub(super) type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
pub(super) type SetAttributes = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

pub(super) unsafe extern "C" fn init(logger: Option<Logger>) -> c_int {
    call(|| plugin::init(logger))
}

pub(super) unsafe extern "C" fn init_profiled(logger: Option<Logger>, _profiler: *const c_void) -> c_int {
    call(|| plugin::init(logger))
}

pub(super) unsafe extern "C" fn devices(count: *mut c_int) -> c_int {
    // SAFETY: NCCL's place for a number.
    call(|| unsafe { put(count, 1, "no place for the number of devices") })
}

pub(super) unsafe extern "C" fn listen(
    device: c_int,
    handle: *mut c_void,
    listener: *mut *mut c_void,
) -> c_int {
    call(|| {
        if handle.is_null() || listener.is_null() {
            return Err(missing("no place for a listener"));
        }
        let made = plugin::listen(device)?;
        // SAFETY: NCCL's places for a connect handle and for a listener.
        unsafe {
            handle.cast::<[u8; HANDLE_BYTES]>().write(made.handle.encode());
            listener.write(raw(made));
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn connect(
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
    _: *mut *mut c_void,
) -> c_int {
    call(|| {
        if handle.is_null() || communicator.is_null() {
            return Err(missing("no connect handle, or no place for a communicator"));
        }
        // SAFETY: NCCL's copy of a connect handle, and its place for a communicator.
        unsafe {
            communicator.write(core::ptr::null_mut());
            let made = plugin::connect(device, &*handle.cast())?;
            communicator.write(made.map_or(core::ptr::null_mut(), raw));
        }
        Ok(())
    })
}

/// The configuration of a communicator is a traffic class of networks that have some.
pub(super) unsafe extern "C" fn connect_configured(
    device: c_int,
    _configuration: *mut c_void,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL passes the handle that the peer's `listen` wrote, and room for the results.
    unsafe { connect(device, handle, communicator, device_handle) }
}

pub(super) unsafe extern "C" fn accept(
    listener: *mut c_void,
    communicator: *mut *mut c_void,
    _: *mut *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: a listener of `listen`, which NCCL has not closed.
        let listener = unsafe { borrow::<Listener>(listener, "no listener") }?;
        // SAFETY: NCCL's place for a communicator.
        unsafe { put(communicator, core::ptr::null_mut(), "no place for a communicator") }?;
        let made = plugin::accept(listener)?;
        // SAFETY: NCCL's place for a communicator.
        unsafe { put(communicator, made.map_or(core::ptr::null_mut(), raw), "no place for a communicator") }
    })
}

pub(super) unsafe extern "C" fn register(
    communicator: *mut c_void,
    data: *mut c_void,
    bytes: usize,
    kind: c_int,
    registration: *mut *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: a communicator of `connect` or `accept`, which NCCL has not closed.
        let communicator = unsafe { borrow::<Communicator>(communicator, "no communicator") }?;
        let made = communicator.register(data as u64, bytes, kind)?;
        // SAFETY: NCCL's place for a registration.
        unsafe { put(registration, raw(made), "no place for a registration") }
    })
}

pub(super) unsafe extern "C" fn deregister(communicator: *mut c_void, registration: *mut c_void) -> c_int {
    call(|| {
        // SAFETY: a communicator of `connect` or `accept`, which NCCL has not closed.
        let communicator = unsafe { borrow::<Communicator>(communicator, "no communicator") }?;
        if !registration.is_null() {
            // SAFETY: made by `register`, and NCCL has no use for it any more.
            let registration = unsafe { Box::from_raw(registration.cast::<Registration>()) };
            communicator.deregister(&registration);
        }
        Ok(())
    })
}

/// `isend`, whose sizes are of type `B`.
pub(super) unsafe extern "C" fn send<B: TryInto<usize>>(
    communicator: *mut c_void,
    data: *mut c_void,
    bytes: B,
    _tag: c_int,
    registration: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    call(|| {
        let bytes = bytes.try_into().map_err(|_| missing("a size below zero"))?;
        // SAFETY: a communicator of `connect`, which NCCL has not closed.
        let communicator = unsafe { borrow::<Communicator>(communicator, "no communicator") }?;
        // SAFETY: null, or made by `register`; NCCL has not deregistered it.
        let registration = unsafe { registration.cast::<Registration>().as_ref() };
        // SAFETY: NCCL keeps the memory as it is until the request is done, or it has closed the communicator.
        let made = unsafe { communicator.send(data.cast(), bytes, registration) }?;
        // SAFETY: NCCL's place for a request.
        unsafe { put(request, handle_of(made), "no place for a request") }
    })
}

pub(super) unsafe extern "C" fn send_profiled(
    communicator: *mut c_void,
    data: *mut c_void,
    bytes: usize,
    tag: c_int,
    registration: *mut c_void,
    _profiler: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL passes a communicator of `connect`, `bytes` readable bytes until the request is done, a
    // registration or null, and room for a request.
    unsafe { send(communicator, data, bytes, tag, registration, request) }
}

/// `irecv`, whose sizes are of type `B`.
pub(super) unsafe extern "C" fn receive<B: TryInto<usize> + Copy>(
    communicator: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut B,
    _tags: *mut c_int,
    registrations: *mut *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: a communicator of `accept`, which NCCL has not closed.
        let communicator = unsafe { borrow::<Communicator>(communicator, "no communicator") }?;
        if count != MAX_GROUPED_RECEIVES || data.is_null() || sizes.is_null() {
            return Err(missing("another number of receives than one"));
        }
        // SAFETY: as many addresses and sizes as NCCL says, of which there is one.
        let (data, size) = unsafe { (data.read(), sizes.read()) };
        // SAFETY: null, or as many registrations, which are null or made by `register` and not deregistered yet.
        let registration = unsafe {
            registrations.as_ref().and_then(|registration| registration.cast::<Registration>().as_ref())
        };
        let bytes = size.try_into().map_err(|_| missing("a size below zero"))?;
        // SAFETY: NCCL leaves the memory alone until the request is done, or it has closed the communicator.
        let made = unsafe { communicator.receive(data.cast(), bytes, registration) }?;
        // SAFETY: NCCL's place for a request.
        unsafe { put(request, handle_of(made), "no place for a request") }
    })
}

pub(super) unsafe extern "C" fn receive_profiled(
    communicator: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut usize,
    tags: *mut c_int,
    registrations: *mut *mut c_void,
    _profilers: *mut *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL passes a communicator of `accept`, lists of `count` entries whose memory is writable until
    // the request is done, and room for a request.
    unsafe { receive(communicator, count, data, sizes, tags, registrations, request) }
}

/// NCCL's handle of a request: null where the call is to be made again.
fn handle_of(request: Option<&Request>) -> *mut c_void {
    request.map_or(core::ptr::null_mut(), |request| core::ptr::from_ref(request).cast_mut().cast())
}

/// `iflush`: what is done has been written by the processor or by copies that were waited for, so that there is nothing
/// to be flushed.
pub(super) unsafe extern "C" fn flush(
    _communicator: *mut c_void,
    _count: c_int,
    _data: *mut *mut c_void,
    _sizes: *mut c_int,
    _registrations: *mut *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL's place for a request.
    call(|| unsafe { put(request, core::ptr::null_mut(), "no place for a request") })
}

pub(super) unsafe extern "C" fn test(request: *mut c_void, done: *mut c_int, sizes: *mut c_int) -> c_int {
    call(|| {
        // SAFETY: a request of a communicator that NCCL has not closed.
        let request = unsafe { borrow::<Request>(request, "no request") }?;
        // SAFETY: NCCL's place for a flag.
        unsafe { put(done, 0, "no place for a flag") }?;
        let Some(bytes) = request.test().map_err(NetError::Failed)? else { return Ok(()) };
        // SAFETY: NCCL's place for a size, where it wants one: it is an int whatever the sizes of messages are.
        unsafe {
            if !sizes.is_null() {
                sizes.write(bytes as c_int);
            }
            done.write(1);
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn close_communicator(communicator: *mut c_void) -> c_int {
    call(|| {
        if !communicator.is_null() {
            // SAFETY: made by `connect` or `accept`, and NCCL closes it once.
            plugin::close(unsafe { Box::from_raw(communicator.cast()) });
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn close_listener(listener: *mut c_void) -> c_int {
    call(|| {
        if !listener.is_null() {
            // SAFETY: made by `listen`, and NCCL closes it once.
            drop(unsafe { Box::from_raw(listener.cast::<Listener>()) });
        }
        Ok(())
    })
}

/// `init`, from version 11 on: there is a context.
pub(super) unsafe extern "C" fn init_context(
    context: *mut *mut c_void,
    _communicator: u64,
    _configuration: *mut c_void,
    logger: Option<Logger>,
    _profiler: *const c_void,
) -> c_int {
    call(|| {
        plugin::init(logger)?;
        if !context.is_null() {
            // There is nothing that belongs to one communicator of NCCL's alone.
            // SAFETY: NCCL's place for a context.
            unsafe { context.write(core::ptr::null_mut()) };
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn listen_context(
    _context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    listener: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL has room for a handle and for a listener.
    unsafe { listen(device, handle, listener) }
}

pub(super) unsafe extern "C" fn connect_context(
    _context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut c_void,
) -> c_int {
    // SAFETY: NCCL passes the handle that the peer's `listen` wrote, and room for the results.
    unsafe { connect(device, handle, communicator, device_handle) }
}

pub(super) unsafe extern "C" fn finalize(_context: *mut c_void) -> c_int {
    call(|| Ok(()))
}

/// How much a communicator is about to be used is nothing that the plugin prepares for.
pub(super) unsafe extern "C" fn set_attributes(_context: *mut c_void, _attributes: *mut c_void) -> c_int {
    call(|| Ok(()))
}

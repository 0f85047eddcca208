//! Calls answered locally: start and shutdown, status texts, names of the program's
//! own processes, and sets of events, which stay empty.

use crate::log::{self, Level};
use crate::session;
use causeway_api::nvml::status::{self, Status};
use core::ffi::{c_char, c_uint, c_void};
use core::time::Duration;

/// By this name the server's loader tells this library from NVIDIA's.
#[unsafe(no_mangle)]
pub static causeway_nvml_marker: u8 = 1;

/// Says what a function answers.
pub fn traced(function: &str, status: Status) -> Status {
    log::write(Level::Trace, format_args!("{function} = {status}"));
    status
}

#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit() -> Status {
    traced("nvmlInit", session::initialise())
}

#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Status {
    traced("nvmlInit_v2", session::initialise())
}

/// The flags say that a machine without GPUs is fine, and that GPUs need not be attached: here they never
/// are.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> Status {
    traced("nvmlInitWithFlags", session::initialise())
}

#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Status {
    traced("nvmlShutdown", session::shut_down())
}

#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(status: Status) -> *const c_char {
    status::text(status).as_ptr()
}

/// The processes that are listed are the client's own, so their names are found on this machine.
///
/// # Safety
/// As `nvml.h` demands: `name` has room for `length` bytes.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetProcessName(pid: c_uint, name: *mut c_char, length: c_uint) -> Status {
    if !session::is_initialised() {
        return status::UNINITIALIZED;
    }
    if name.is_null() || length == 0 {
        return status::INVALID_ARGUMENT;
    }
    let Ok(line) = std::fs::read(format!("/proc/{pid}/cmdline")) else { return status::NOT_FOUND };
    let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let copied = &program[..program.len().min(length as usize - 1)];
    // SAFETY: the caller vouches for `length` bytes; the text is shortened to fit with its end.
    unsafe {
        core::ptr::copy_nonoverlapping(copied.as_ptr(), name.cast(), copied.len());
        name.add(copied.len()).write(0);
    }
    status::SUCCESS
}

/// The handle of every set of events: nothing tells them apart.
const EVENT_SET: usize = 1;

/// Makes a set of events. nvidia-smi makes one before anything else, and goes on when no device can be
/// registered with it.
///
/// # Safety
/// As `nvml.h` demands: `set` is null or may be written to.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetCreate(set: *mut *mut c_void) -> Status {
    if !session::is_initialised() {
        return traced("nvmlEventSetCreate", status::UNINITIALIZED);
    }
    if set.is_null() {
        return traced("nvmlEventSetCreate", status::INVALID_ARGUMENT);
    }
    // SAFETY: the caller vouches for it.
    unsafe { set.write(core::ptr::without_provenance_mut(EVENT_SET)) };
    traced("nvmlEventSetCreate", status::SUCCESS)
}

/// Waits as long as it may: no event comes to a set that no device is registered with.
fn wait_for_event(function: &str, set: *const c_void, timeout: c_uint) -> Status {
    if !session::is_initialised() {
        return traced(function, status::UNINITIALIZED);
    }
    if set.addr() != EVENT_SET {
        return traced(function, status::INVALID_ARGUMENT);
    }
    std::thread::sleep(Duration::from_millis(timeout.into()));
    traced(function, status::TIMEOUT)
}

#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetWait(set: *const c_void, _data: *mut c_void, timeout: c_uint) -> Status {
    wait_for_event("nvmlEventSetWait", set, timeout)
}

#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetWait_v2(set: *const c_void, _data: *mut c_void, timeout: c_uint) -> Status {
    wait_for_event("nvmlEventSetWait_v2", set, timeout)
}

#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(set: *const c_void) -> Status {
    let known = set.addr() == EVENT_SET;
    traced("nvmlEventSetFree", if known { status::SUCCESS } else { status::INVALID_ARGUMENT })
}

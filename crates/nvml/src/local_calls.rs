//! Calls answered locally: start and shutdown, status texts, process names, event sets, older and private
//! entry points.
//!
//! Sets of events stay empty. Of older forms that programs still make `nvml.h` no longer has the structures,
//! so that they are no lines of the list: today's call is made, and what both structures begin with is
//! written.
//!
//! nvidia-smi asks for one table of functions and ends where there is none ("Mismatch in versions between
//! nvidia-smi and NVML", seen with version 535.261). It goes on, and prints N/A, where a function of the
//! table answers that it is not supported; so all functions of the table that it gets here do that, whatever
//! they are.

use core::ffi::{c_char, c_uint, c_void};
use core::time::Duration;

use causeway_api::nvml::status::{self, Status};

use crate::log::{self, Level};
use crate::{call, session};

/// By this name the server's loader tells this library from NVIDIA's.
#[unsafe(no_mangle)]
pub static causeway_nvml_marker: u8 = 1;

/// Says what a function answers.
fn traced(function: &str, status: Status) -> Status {
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
    // SAFETY: `set` is not null, so the caller has room for a handle there.
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

/// Bytes of `nvmlPciInfo_t` of today, and those that it begins with in all its forms: the address as text of 16
/// bytes, and its numbers.
const PCI_INFO: usize = 68;
const PCI_INFO_BEGIN: usize = 36;

/// The older form of `nvmlDeviceGetNvLinkRemotePciInfo_v2`, by which NCCL finds out what GPUs are joined. Of what
/// follows the numbers, which is reserved there, nothing is written.
///
/// # Safety
/// As `nvml.h` demanded: `pci` has room for a structure of at least 36 bytes, or is null.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo(device: u64, link: u64, pci: *mut u8) -> Status {
    if pci.is_null() {
        return status::INVALID_ARGUMENT;
    }
    let mut info = [0_u8; PCI_INFO];
    const INDEX: usize = causeway_api::nvml::index_of("nvmlDeviceGetNvLinkRemotePciInfo_v2");
    // SAFETY: the device is the caller's, and there is room for the structure.
    let status = unsafe { call::forward(INDEX, &[device, link, info.as_mut_ptr() as u64]) };
    if status == status::SUCCESS {
        // SAFETY: the caller vouches for so many bytes.
        unsafe { core::ptr::copy_nonoverlapping(info.as_ptr(), pci, PCI_INFO_BEGIN) };
    }
    status
}

/// By this nvidia-smi names the table.
const TABLE_ID: [u8; 16] =
    [0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4];

/// More functions than the table is known to have; the highest that was seen to be called is number 80.
const FUNCTIONS: usize = 1024;

#[repr(C)]
struct Table {
    /// Tables of this kind begin with their size in bytes.
    size: usize,
    functions: [extern "C" fn() -> Status; FUNCTIONS],
}

static TABLE: Table = Table { size: size_of::<Table>(), functions: [not_supported; FUNCTIONS] };

/// The caller clears up its own arguments, so that this need not name them.
extern "C" fn not_supported() -> Status {
    traced("a function of nvidia-smi's own table", status::NOT_SUPPORTED)
}

/// Gives out a table of functions.
///
/// # Safety
/// `table` is null or may be written to, and `id` is null or points to 16 bytes.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlInternalGetExportTable(
    table: *mut *const c_void,
    id: *const [u8; 16],
) -> Status {
    let name = "nvmlInternalGetExportTable";
    if table.is_null() || id.is_null() {
        return traced(name, status::INVALID_ARGUMENT);
    }
    // SAFETY: neither is null, so the caller has 16 bytes at `id` and room for an address at `table`.
    unsafe {
        if *id == TABLE_ID {
            table.write((&raw const TABLE).cast());
            traced(name, status::SUCCESS)
        } else {
            table.write(core::ptr::null());
            traced(name, status::NOT_FOUND)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidia_smis_table_is_there_and_no_other() {
        let mut table: *const c_void = core::ptr::null();
        // SAFETY: the pointers are to locals.
        unsafe {
            assert_eq!(nvmlInternalGetExportTable(&mut table, &[7; 16]), status::NOT_FOUND);
            assert!(table.is_null());
            assert_eq!(nvmlInternalGetExportTable(&mut table, &TABLE_ID), status::SUCCESS);
            let table = &*table.cast::<Table>();
            assert_eq!(table.size, 8 * (FUNCTIONS + 1));
            assert!(table.functions.iter().all(|function| function() == status::NOT_SUPPORTED));
        }
    }
}

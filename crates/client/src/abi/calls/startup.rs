//! Version, initialisation, error texts, entry points.

use crate::abi::entry::Outcome;
use crate::abi::stubs::ENTRY_POINTS;
use crate::arguments::{text, write_optional, write_out};
use crate::nvidia;
use crate::remote::session;
use crate::submit::context::lifetime;
use crate::submit::session_callbacks::Submit;
use causeway_api::coverage::{Lookup, lookup};
use causeway_api::errors;
use causeway_api::sys::{CUdriverProcAddressQueryResult, CUresult, CUuuid};
use core::ffi::{CStr, c_char, c_void};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Asks for the variants of the per-thread default stream.
const PER_THREAD: u64 = 2;

pub unsafe fn cuInit(Flags: u32) -> Outcome {
    if Flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    lifetime::set_end_listener(nvidia::context_ends);
    session::connect::open(&Submit)
}

pub unsafe fn cuDriverGetVersion(driverVersion: *mut i32) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(driverVersion, session::connect::reported_driver_version()) }
}

pub unsafe fn cuGetErrorString(error: CUresult, pStr: *mut *mut c_void) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_text(pStr, errors::text(error)) }
}

pub unsafe fn cuGetErrorName(error: CUresult, pStr: *mut *mut c_void) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_text(pStr, errors::name(error)) }
}

/// # Safety
/// `pointer` is null or has room for an address.
unsafe fn write_text(pointer: *mut *mut c_void, text: Option<&'static CStr>) -> Outcome {
    let address = text.map_or(core::ptr::null(), CStr::as_ptr);
    // SAFETY: the caller passes null or room for an address.
    unsafe { write_out(pointer, address.cast_mut().cast()) }?;
    text.map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// The address of the entry point that `cuGetProcAddress` finds, or why there is none.
fn find(symbol: &str, version: i32, flags: u64) -> Result<*mut c_void, CUdriverProcAddressQueryResult> {
    static ADDRESSES: LazyLock<HashMap<&str, crate::abi::entry::Address>> =
        LazyLock::new(|| ENTRY_POINTS.iter().copied().collect());
    let version = u32::try_from(version).unwrap_or(0);
    match lookup(symbol, version, flags & PER_THREAD != 0) {
        Lookup::Found(symbol) => match ADDRESSES.get(symbol) {
            Some(address) => Ok(address.0.cast_mut()),
            None => Err(CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
        },
        Lookup::TooOld => Err(CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT),
        Lookup::Unknown => Err(CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
    }
}

pub unsafe fn cuGetProcAddress_v2(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cudaVersion: i32,
    flags: u64,
    symbolStatus: *mut CUdriverProcAddressQueryResult,
) -> Outcome {
    const KNOWN_FLAGS: u64 = 1 | PER_THREAD;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: NUL-terminated text, or null.
    let found = find(unsafe { text(symbol) }?, cudaVersion, flags);
    let status = found.err().unwrap_or(CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS);
    // SAFETY: room for both results, or null.
    unsafe {
        write_out(pfn, found.unwrap_or(core::ptr::null_mut()))?;
        write_optional(symbolStatus, status);
    }
    Ok(())
}

pub unsafe fn cuGetProcAddress(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cudaVersion: i32,
    flags: u64,
) -> Outcome {
    let mut status = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS;
    // SAFETY: the program passes NUL-terminated text and room for an address; `status` is a local.
    unsafe { cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, &mut status) }?;
    if status == CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS {
        Ok(())
    } else {
        Err(CUresult::CUDA_ERROR_NOT_FOUND)
    }
}

pub unsafe fn cuGetExportTable(ppExportTable: *mut *mut c_void, pExportTableId: *const CUuuid) -> Outcome {
    // SAFETY: an identifier, or null.
    let identifier = unsafe { pExportTableId.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let table = nvidia::table(&identifier.bytes.map(|byte| byte as u8));
    // SAFETY: room for the result, or null.
    unsafe { write_out(ppExportTable, table.unwrap_or(core::ptr::null()).cast_mut()) }?;
    table.map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(symbol: &CStr, version: i32, flags: u64) -> (CUresult, Option<&'static str>, u32) {
        let mut address = core::ptr::dangling_mut::<c_void>();
        let mut status = CUdriverProcAddressQueryResult(99);
        // SAFETY: text and room for both results.
        let outcome =
            unsafe { cuGetProcAddress_v2(symbol.as_ptr(), &mut address, version, flags, &mut status) };
        let name = ENTRY_POINTS.iter().find(|(_, known)| core::ptr::eq(known.0, address));
        (outcome.err().unwrap_or(CUresult::CUDA_SUCCESS), name.map(|(name, _)| *name), status.0)
    }

    #[test]
    fn entry_points_are_found_by_version_and_flag() {
        let found = |symbol, version, flags| ask(symbol, version, flags).1;
        assert_eq!(found(c"cuGetProcAddress", 11030, 0), Some("cuGetProcAddress"));
        assert_eq!(found(c"cuGetProcAddress", 12000, 0), Some("cuGetProcAddress_v2"));
        assert_eq!(found(c"cuMemcpyHtoDAsync", 13000, 2), Some("cuMemcpyHtoDAsync_v2_ptsz"));
        assert_eq!(found(c"cuMemcpyHtoDAsync", 13000, 1), Some("cuMemcpyHtoDAsync_v2"));
        assert_eq!(found(c"cuMemAlloc", 13000, 2), Some("cuMemAlloc_v2"));
        assert_eq!(found(c"cuInit", 2000, 0), Some("cuInit"));
    }

    #[test]
    fn what_is_not_found_is_told_apart() {
        let success = CUresult::CUDA_SUCCESS;
        assert_eq!(ask(c"", 0, 0), (success, None, 1));
        assert_eq!(ask(c"cuNoSuchThing", 13000, 0), (success, None, 1));
        assert_eq!(ask(c"cuLibraryLoadData", 11080, 0), (success, None, 2));
        assert_eq!(ask(c"cuInit", 13000, 64).0, CUresult::CUDA_ERROR_INVALID_VALUE);
        let mut address = core::ptr::null_mut();
        // SAFETY: text and room for the result.
        let old = unsafe { cuGetProcAddress(c"cuNoSuchThing".as_ptr(), &mut address, 11030, 0) };
        assert_eq!(old, Err(CUresult::CUDA_ERROR_NOT_FOUND));
    }
}

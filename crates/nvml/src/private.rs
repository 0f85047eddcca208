//! Private NVML entry points that NVIDIA's own tools use.
//!
//! nvidia-smi asks for one table of functions and ends where there is none ("Mismatch in versions between
//! nvidia-smi and NVML", seen with version 535.261). It goes on, and prints N/A, where a function of the
//! table answers that it is not supported; so all functions of the table that it gets here do that, whatever
//! they are.

use crate::here::traced;
use causeway_api::nvml::status::{self, Status};
use core::ffi::c_void;

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
    // SAFETY: the caller vouches for both.
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

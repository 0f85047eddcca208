//! Statistics of the library for programs that ask for them (`causeway_statistics`).

use crate::{process, remote::session};
use core::ffi::c_char;

/// What has been counted so far, as the JSON that `CAUSEWAY_STATS` names a file for. The length of the text,
/// which is written if there is room for all of it; 0 while there is no session. The Python package asks.
///
/// # Safety
/// `size` bytes at `out` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_statistics(out: *mut c_char, size: usize) -> usize {
    if !process::is_ready() {
        return 0;
    }
    let text = session::report();
    if text.len() <= size {
        // SAFETY: as this function demands.
        unsafe { out.cast::<u8>().copy_from(text.as_ptr(), text.len()) };
    }
    text.len()
}

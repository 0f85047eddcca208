//! Entry points of Causeway beside CUDA's: for `causeway tune` and `causeway bench pipeline`, and for
//! programs that ask for the library's statistics (`causeway_statistics`).

use core::ffi::{CStr, c_char, c_int};

use causeway_pipeline::profile::Pair;
use causeway_pipeline::{Direction, Plan, Table};

use crate::process;
use crate::remote::session;

/// For `causeway tune` and `causeway bench pipeline`: carries copies as this table says, in the language of
/// `CAUSEWAY_PIPELINE`, and the built-in one where it says nothing; a null pointer brings back what the
/// session began with. 0, or 1 when the text is no table.
///
/// # Safety
/// `text` must be null or point to a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_use_pipeline(text: *const c_char) -> c_int {
    // SAFETY: as this function demands.
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy());
    let Ok(table) = text.map(|text| Table::parse(&text)).transpose() else { return 1 };
    session::all().for_each(|session| session.plans.replace(table.as_ref()));
    0
}

/// For `causeway tune`: how the first session carries a copy of so many bytes now, to a device where
/// `to_device` is not 0. Writes the plan's buffers, bytes of a buffer, lanes and threads; 0, or 1 when there
/// is no session.
///
/// # Safety
/// `out` must point to four numbers that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_pipeline_plan(
    to_device: c_int,
    bytes: usize,
    out: *mut [usize; 4],
) -> c_int {
    let Ok(session) = session::with(0) else { return 1 };
    let direction = if to_device != 0 { Direction::ToDevice } else { Direction::FromDevice };
    let Plan { buffers, buffer_bytes, lanes, threads } = session.plans.plan(direction, bytes);
    // SAFETY: as this function demands.
    unsafe { out.write([buffers, buffer_bytes, lanes, threads]) };
    0
}

/// For `causeway tune`: the pair of the first session, as four lines: the server's host, the UUID of its
/// first device, the module and the client's host. The length of the text, of which as much is written as
/// there is room for; 0 when there is no session.
///
/// # Safety
/// `size` bytes at `out` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_pipeline_pair(out: *mut c_char, size: usize) -> usize {
    let Ok(session) = session::with(0) else { return 0 };
    let Pair { server, device, module, client } = &session.plans.pair;
    let text = format!("{server}\n{device}\n{module}\n{client}");
    // SAFETY: as this function demands.
    unsafe { out.cast::<u8>().copy_from(text.as_ptr(), text.len().min(size)) };
    text.len()
}

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

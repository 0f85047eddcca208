//! Entry points of Causeway beside CUDA's: for `causeway tune` and `causeway bench pipeline`, and for
//! programs that ask for the library's statistics (`causeway_statistics`).

use core::ffi::{CStr, c_char, c_int};

use causeway_pipeline::profile::Pair;
use causeway_pipeline::{Direction, Plan, Table};

use crate::remote::session::{self, fork};
use crate::{call_gate, guard, process};

/// For `causeway tune` and `causeway bench pipeline`: carries copies as this table says, in the language of
/// `CAUSEWAY_PIPELINE`, and the built-in one where it says nothing; a null pointer brings back what the
/// session began with. 0, or 1 when the text is no table.
///
/// # Safety
/// `text` must be null or point to a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_use_pipeline(text: *const c_char) -> c_int {
    let _call = call_gate::begin();
    // SAFETY: it is not null, and so NUL-terminated text, which the caller keeps until the call returns.
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
    let _call = call_gate::begin();
    let Ok(session) = session::with(0) else { return 1 };
    let direction = if to_device != 0 { Direction::ToDevice } else { Direction::FromDevice };
    let Plan { buffers, buffer_bytes, lanes, threads } = session.plans.plan(direction, bytes);
    // SAFETY: the caller has room for four numbers at `out`.
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
    let _call = call_gate::begin();
    let Ok(session) = session::with(0) else { return 0 };
    let Pair { server, device, module, client } = &session.plans.pair;
    let text = format!("{server}\n{device}\n{module}\n{client}");
    // SAFETY: no more than `size` bytes are written, for which the caller has room at `out`.
    unsafe { out.cast::<u8>().copy_from(text.as_ptr(), text.len().min(size)) };
    text.len()
}

/// Forks the process as `fork` does, together with its session: the child goes on with a copy of the GPU's
/// state, at the same addresses. Returns as `fork` does; -1 where nothing was forked. `reason` gets a text
/// that ends with a zero and is cut to the room there is: empty, or why nothing was forked, or in the child
/// why it has no session, so that its CUDA calls fail.
///
/// # Safety
/// `size` bytes at `reason` must be writable. What the program does before and after `fork` it has to do
/// here, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_fork(reason: *mut c_char, size: usize) -> libc::pid_t {
    // SAFETY: the caller has room for `size` bytes at `reason`.
    unsafe { causeway_fork_between(None, None, None, reason, size) }
}

/// The same with what an interpreter does around its forks: calls `before` first, and `in_parent` or
/// `in_child` right after the fork; `in_parent` also where nothing was forked. Each may be null. The Python
/// package has Python's own called, in one call that keeps the interpreter's lock: another thread that got it
/// would wait with it for this one.
///
/// # Safety
/// As for [`causeway_fork`]. The functions must return.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_fork_between(
    before: Option<extern "C" fn()>,
    in_parent: Option<extern "C" fn()>,
    in_child: Option<extern "C" fn()>,
    reason: *mut c_char,
    size: usize,
) -> libc::pid_t {
    let call = |function: Option<extern "C" fn()>| function.into_iter().for_each(|function| function());
    call(before);
    // SAFETY: the caller has room for `size` bytes at `reason`.
    if unsafe { outcome(fork::prepare, reason, size) } != 0 {
        call(in_parent);
        return -1;
    }
    // SAFETY: the child goes on with what the calling thread has; what other threads do to the library's
    // state is whole, and the program knows of its own.
    let child = unsafe { libc::fork() };
    let error = std::io::Error::last_os_error();
    if child == 0 {
        call(in_child);
        // SAFETY: the caller has room for `size` bytes at `reason`.
        unsafe { outcome(fork::in_child, reason, size) };
        return child;
    }
    // In this order: what the program does then may use CUDA.
    guard::run(|| fork::in_parent((child > 0).then_some(child)));
    call(in_parent);
    if child < 0 {
        // SAFETY: the caller has room for `size` bytes at `reason`.
        unsafe { outcome(|| Err(format!("cannot start a process: {error}")), reason, size) };
    }
    child
}

/// Runs a step of a fork, and writes why it has failed.
///
/// # Safety
/// `size` bytes at `reason` must be writable.
unsafe fn outcome(step: impl FnOnce() -> Result<(), String>, reason: *mut c_char, size: usize) -> c_int {
    let failed = || Err("it failed inside the library".to_owned());
    let outcome = guard::run(step).unwrap_or_else(failed);
    let text = outcome.as_ref().err().map_or("", String::as_str);
    if let Some(space) = size.checked_sub(1) {
        let length = text.len().min(space);
        // SAFETY: `length` and the zero behind it are within `size` bytes, for which the caller has room at
        // `reason`.
        unsafe {
            reason.cast::<u8>().copy_from(text.as_ptr(), length);
            reason.add(length).write(0);
        }
    }
    outcome.is_err().into()
}

/// What has been counted so far, as the JSON that `CAUSEWAY_STATS` names a file for. The length of the text,
/// which is written if there is room for all of it; 0 while there is no session. The Python package asks.
///
/// # Safety
/// `size` bytes at `out` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_statistics(out: *mut c_char, size: usize) -> usize {
    let _call = call_gate::begin();
    if !process::is_ready() {
        return 0;
    }
    let text = session::report();
    if text.len() <= size {
        // SAFETY: no more than `size` bytes are written, for which the caller has room at `out`.
        unsafe { out.cast::<u8>().copy_from(text.as_ptr(), text.len()) };
    }
    text.len()
}

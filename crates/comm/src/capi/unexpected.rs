//! The functions by which a program keeps messages that probes took out of the MPI's queue.

use core::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::matching::{Pattern, Unexpected};

/// Messages that probes took out of the MPI's queue: addresses of the caller's.
static UNEXPECTED: Mutex<Option<Unexpected<usize>>> = Mutex::new(None);

fn pattern(communicator: u64, source: c_int, tag: c_int) -> Pattern {
    let known = |number: c_int| (number >= 0).then_some(number);
    Pattern { communicator, source: known(source), tag: known(tag) }
}

/// Keeps a message that a probe took out, behind all others.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_keep(communicator: u64, source: c_int, tag: c_int, message: *mut c_void) {
    let mut list = UNEXPECTED.lock().unwrap_or_else(PoisonError::into_inner);
    list.get_or_insert_default().push(communicator, source, tag, message as usize);
}

/// The first kept message that matches, or null; -1 matches any source or tag. It goes from the list if
/// `is_taken` is not 0.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_kept(
    communicator: u64,
    source: c_int,
    tag: c_int,
    is_taken: c_int,
) -> *mut c_void {
    let mut list = UNEXPECTED.lock().unwrap_or_else(PoisonError::into_inner);
    let found = list.as_mut().and_then(|list| {
        let pattern = pattern(communicator, source, tag);
        if is_taken != 0 { list.take(pattern) } else { list.find(pattern).copied() }
    });
    found.map_or(core::ptr::null_mut(), |message| message as *mut c_void)
}

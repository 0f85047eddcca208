//! What does the library keep for programs in C: this process's part in a job, and each thread's last error.

use core::cell::RefCell;
use core::ffi::{c_char, c_int};
use std::ffi::CString;
use std::sync::{Arc, PoisonError, RwLock};

use crate::fork;
use crate::world::World;

/// This process's part, while it has one.
pub(super) static WORLD: RwLock<Option<Arc<World>>> = RwLock::new(None);

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// This process's part in a job.
pub(crate) fn world() -> Option<Arc<World>> {
    // Its copy of the world belongs to its parent, and so may locks in it.
    if fork::is_child() {
        return None;
    }
    WORLD.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Keeps an error's words for [`causeway_comm_error`].
pub(crate) fn fail(error: impl ToString) -> c_int {
    let text = CString::new(error.to_string()).unwrap_or_default();
    ERROR.with(|kept| *kept.borrow_mut() = text);
    -1
}

/// The words of the calling thread's last error, until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_error() -> *const c_char {
    ERROR.with(|kept| kept.borrow().as_ptr())
}

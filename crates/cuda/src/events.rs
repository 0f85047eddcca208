//! Events by which the end of a copy is seen. They are used again and again.

use core::ffi::c_void;
use std::collections::HashMap;

use super::entry_points::CudaError;
use super::functions::Driver;
use crate::locks::{Mutex, MutexGuard, rank};
use crate::lookup::check_setup_call;

/// `CU_EVENT_DISABLE_TIMING`.
const WITHOUT_TIMING: u32 = 2;

/// Events that wait for the next copies, of each context.
const MAX_EVENTS: usize = 256;

/// One of the calling thread's context, which has that number ([`super::scope`]).
pub(super) fn take(driver: &Driver, life: u64) -> Result<u64, CudaError> {
    if let Some(event) = events().get_or_insert_default().entry(life).or_default().pop() {
        return Ok(event);
    }
    create(driver)
}

/// One of the calling thread's context.
fn create(driver: &Driver) -> Result<u64, CudaError> {
    check_setup_call("cuEventCreate");
    let mut event: *mut c_void = core::ptr::null_mut();
    // SAFETY: there is room for the event.
    unsafe { driver.create_event(&raw mut event, WITHOUT_TIMING) }?;
    Ok(event as u64)
}

/// Makes so many more of the calling thread's context, which has that number ([`super::scope`]).
pub(super) fn reserve(driver: &Driver, life: u64, count: usize) -> Result<(), CudaError> {
    events().get_or_insert_default().entry(life).or_default();
    for _ in 0..count {
        release(driver, life, create(driver)?);
    }
    Ok(())
}

/// Takes one back that nobody looks at any more. One of a context that was forgotten went with it.
pub(super) fn release(driver: &Driver, life: u64, event: u64) {
    let mut events = events();
    let Some(of_context) = events.get_or_insert_default().get_mut(&life) else { return };
    if of_context.len() < MAX_EVENTS {
        of_context.push(event);
        return;
    }
    // SAFETY: the event is nobody's; the driver lets one that was recorded end first.
    let _ = unsafe { driver.destroy_event(event as *mut c_void) };
}

/// Those of a context that is destroyed are useless.
pub(super) fn forget(life: u64) {
    events().get_or_insert_default().remove(&life);
}

fn events() -> MutexGuard<'static, rank::Leaf, Option<HashMap<u64, Vec<u64>>>> {
    static EVENTS: Mutex<rank::Leaf, Option<HashMap<u64, Vec<u64>>>> = Mutex::new(None);
    EVENTS.lock()
}

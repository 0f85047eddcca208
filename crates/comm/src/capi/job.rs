//! The functions by which a program takes part in a job, and leaves it.

use core::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, PoisonError};

use super::state::{WORLD, fail, world};
use crate::fork;
use crate::report;
use crate::settings::Settings;
use crate::world::World;

/// Takes part in a job. 0, or -1.
///
/// # Safety
/// `nonce` is text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_join(nonce: *const c_char, rank: u32, ranks: u32) -> c_int {
    // SAFETY: as promised.
    let text = unsafe { CStr::from_ptr(nonce) }.to_str().unwrap_or_default().trim();
    let nonce = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32);
    let Some(nonce) = nonce else {
        return fail("CAUSEWAY_COMM_JOB takes 32 hexadecimal digits, new ones for each job");
    };
    if fork::is_child() {
        return fail("this process was made by fork by one that takes part in a job: start a new program");
    }
    let joined = Settings::from_environment().map_err(|error| error.to_string()).and_then(|settings| {
        World::join(nonce.to_be_bytes(), rank, ranks, settings).map_err(|error| error.to_string())
    });
    match joined {
        Ok(joined) => {
            if let Some(trouble) = joined.profile_trouble() {
                report::print([trouble.to_string()]);
            }
            *WORLD.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(joined));
            0
        }
        Err(error) => fail(error),
    }
}

/// Has this process's part follow it into the container where it is now. 0, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_move() -> c_int {
    let Some(world) = world() else { return fail("this process has no part in a job") };
    match world.move_here() {
        Ok(()) => 0,
        Err(error) => fail(error),
    }
}

/// Ends this process's part, after all messages, when all ranks have joined. Prints a report where
/// `CAUSEWAY_COMM_EXPLAIN` asks for one.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_leave() {
    if world().is_some_and(|world| !world.drain()) {
        report::print(["a message that was sent has not been received by the end of the job".to_owned()]);
    }
    if fork::is_child() {
        return;
    }
    let left = WORLD.write().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(world) = &left {
        world.forget_names();
        if let Err(error) = world.keep_profile() {
            report::print([error.to_string()]);
        }
    }
    report::print(left.iter().filter_map(|world| world.report()).flatten());
}

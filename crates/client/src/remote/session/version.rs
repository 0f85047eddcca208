//! Driver version that the program gets (`cuDriverGetVersion`).

use super::{all, connect};
use crate::process;
use std::sync::atomic::{AtomicI32, Ordering};

/// The CUDA version whose driver API this library has.
const VERSION: i32 = 13000;

/// The driver version that the program gets: the server's. The runtime asks before `cuInit`, and does not
/// call that when the driver is older than itself. Without a server it is this library's own, so that
/// `cuInit` says what is wrong. Once told it stays, for the runtime takes a later change for a broken driver.
pub fn reported_driver_version() -> i32 {
    static REPORTED: AtomicI32 = AtomicI32::new(0);
    match REPORTED.load(Ordering::Acquire) {
        0 => {}
        reported => return reported,
    }
    let version = match all().map(|session| session.snapshot.driver_version).min() {
        Some(version) => Some(version),
        None if process::is_fresh() => connect::driver_version_before_init(),
        None => None,
    };
    let version = version.map_or(VERSION, |version| version.min(VERSION));
    match REPORTED.compare_exchange(0, version, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => version,
        Err(reported) => reported,
    }
}

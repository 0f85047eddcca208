//! Tables of functions that NCCL looks for: `ncclNetPlugin_v8` (NCCL 2.20) to `ncclNetPlugin_v12` (2.30).
//!
//! The layouts are those of NCCL's headers, `plugins/net/example/nccl/net_v*.h`: `tables` has the tables, `properties` what
//! each version describes the device, `calls` the functions, which all do what [`plugin`] does.
//!
//! [`plugin`]: crate::plugin

mod calls;
mod properties;
mod tables;

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{NetError, ResultCode};
use crate::log;

/// Does a call. Nothing that goes wrong in it leaves the library as a panic.
fn call(body: impl FnOnce() -> Result<(), NetError>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(NetError::Panicked));
    match outcome {
        Ok(()) => ResultCode::Success as c_int,
        Err(error) => {
            // What failed before was logged then.
            if !matches!(error, NetError::Failed(_)) {
                log::warn(&error.to_string());
            }
            error.code() as c_int
        }
    }
}

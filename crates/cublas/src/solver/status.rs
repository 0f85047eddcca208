//! Results of functions, `cusolverStatus_t`.

use crate::log;
use crate::status::{Done, Status};

/// `CUSOLVER_STATUS_NOT_SUPPORTED`
pub const NOT_SUPPORTED: u32 = 9;

/// The result of a function's body as cuSOLVER has it; what is refused is logged by its name.
pub fn status(function: &'static str, done: Done) -> u32 {
    match done {
        Ok(()) | Err(Status::Success) => 0,
        // CUSOLVER_STATUS_NOT_INITIALIZED
        Err(Status::NotInitialized) => 1,
        // CUSOLVER_STATUS_ALLOC_FAILED
        Err(Status::AllocFailed) => 2,
        // CUSOLVER_STATUS_INVALID_VALUE
        Err(Status::InvalidValue) => 3,
        // CUSOLVER_STATUS_EXECUTION_FAILED
        Err(Status::ExecutionFailed) => 6,
        Err(Status::NotSupported) => {
            let _ = log::refused(function, "matrices of this type or size are not implemented");
            NOT_SUPPORTED
        }
    }
}

/// Exports functions whose body is a result.
macro_rules! solver_functions {
    ($($all:tt)*) => { crate::exports::functions_with! { crate::solver::status::status, $($all)* } };
}

pub(crate) use solver_functions;

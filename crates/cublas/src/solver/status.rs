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
    ($($(#[$comment:meta])* fn $name:ident($($argument:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$comment])*
            ///
            /// # Safety
            /// As the documentation of cuSOLVER requires.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, unused_unsafe, clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name($($argument: $ty),*) -> u32 {
                // SAFETY: as the caller promises: handles are valid or null, pointers lead to values, and
                // buffers have the sizes given.
                let body = || -> crate::status::Done { unsafe { $body } };
                crate::solver::status::status(stringify!($name), body())
            }
        )*
    };
}

pub(crate) use solver_functions;

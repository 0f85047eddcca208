//! Results of functions, `curandStatus_t`.

use crate::log;
use crate::status::Status;

/// `CURAND_STATUS_NOT_INITIALIZED`
pub const NOT_INITIALIZED: u32 = 101;
/// `CURAND_STATUS_TYPE_ERROR`: also of what is not implemented, since there is no other one.
pub const TYPE_ERROR: u32 = 103;
/// `CURAND_STATUS_OUT_OF_RANGE`
pub const OUT_OF_RANGE: u32 = 104;
/// `CURAND_STATUS_LENGTH_NOT_MULTIPLE`
pub const LENGTH_NOT_MULTIPLE: u32 = 105;

/// What a function failed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure(pub u32);

/// The result of a function's body.
pub type Result<T> = core::result::Result<T, Failure>;

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self(match status {
            Status::Success => 0,
            Status::NotInitialized => NOT_INITIALIZED,
            // CURAND_STATUS_ALLOCATION_FAILED
            Status::AllocFailed => 102,
            Status::InvalidValue => OUT_OF_RANGE,
            // CURAND_STATUS_LAUNCH_FAILURE
            // No function of cuRAND finds a pivot.
            Status::ExecutionFailed | Status::ZeroPivot => 201,
            Status::NotSupported => TYPE_ERROR,
        })
    }
}

/// Refuses, and says so.
pub fn refused<T>(function: &'static str, reason: &'static str) -> Result<T> {
    let _ = log::refused(function, reason);
    Err(Failure(TYPE_ERROR))
}

/// Exports functions whose body is a result.
macro_rules! random_functions {
    ($($(#[$comment:meta])* fn $name:ident($($argument:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$comment])*
            ///
            /// # Safety
            /// As the documentation of cuRAND requires.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, unused_unsafe)]
            pub unsafe extern "C" fn $name($($argument: $ty),*) -> u32 {
                // SAFETY: the program passes what cuRAND documents: generators that are valid or null, and
                // pointers to values.
                let body = || -> crate::random::status::Result<()> { unsafe { $body } };
                body().err().map_or(0, |failure| failure.0)
            }
        )*
    };
}

pub(crate) use random_functions;

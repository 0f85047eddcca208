//! Results of functions, `cusolverStatus_t`.

use crate::exports::number;
use crate::status::Done;

/// `CUSOLVER_STATUS_NOT_SUPPORTED`
pub const NOT_SUPPORTED: u32 = 9;

/// The result of a function's body as cuSOLVER has it; what is refused is logged by its name.
pub fn status(function: &'static str, done: Done) -> u32 {
    number(function, done, NOT_SUPPORTED, "matrices of this type or size are not implemented")
}

/// Exports functions whose body is a result.
macro_rules! solver_functions {
    ($($all:tt)*) => { crate::exports::functions_with! { crate::solver::status::status, $($all)* } };
}

pub(crate) use solver_functions;

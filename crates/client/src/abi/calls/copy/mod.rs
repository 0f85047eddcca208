//! Copies: every form is turned into two places and one call of
//! [`submit::copy::copy`](crate::submit::copy::copy).

mod boxes;
pub(super) mod copy_mode;
pub(super) mod linear;

pub use boxes::*;
pub use linear::*;

//! Copies: every form is turned into two places and one call of
//! [`submit::copy::copy`](crate::submit::copy::copy).

mod boxes;
pub(super) mod linear;
pub(super) mod when;

pub use boxes::*;
pub use linear::*;

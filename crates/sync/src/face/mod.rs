//! What the protocols are written against: the standard library's in a program, loom's under `--cfg loom`.
//!
//! Both faces have the same names and signatures, so that no protocol knows which it has. Loom has no time: there a wait
//! with a limit lasts until it is woken, so that a test which needs the limit hangs and loom reports a deadlock.

#[cfg(loom)]
mod for_loom;
#[cfg(not(loom))]
mod for_std;

#[cfg(loom)]
pub use for_loom::*;
#[cfg(not(loom))]
pub use for_std::*;

//! What the protocols are written against: the standard library's in a program, loom's under `--cfg loom`, shuttle's
//! under `--cfg shuttle`.
//!
//! All have the same names and signatures, so that no protocol knows which it has. Loom runs through every order of the
//! steps of a few threads that the memory model allows; shuttle takes orders by chance, of sequentially consistent steps
//! alone, and so has room for whole structures of several crates.
//!
//! Neither has a clock. With loom a wait with a limit lasts until it is woken, so that a test which needs the limit hangs
//! and loom reports a deadlock. With shuttle such a wait is over soon, and [`Stopwatch`] says by chance that much time has
//! passed or none: what hangs there is a thread that is never woken.

#[cfg(not(any(loom, shuttle)))]
mod condvar;
#[cfg(not(any(loom, shuttle)))]
mod for_std;
#[cfg(any(loom, shuttle))]
mod modelled;

#[cfg(not(any(loom, shuttle)))]
pub use for_std::*;
#[cfg(any(loom, shuttle))]
pub use modelled::*;

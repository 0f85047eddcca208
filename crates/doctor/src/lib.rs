//! What a machine has for remote GPUs, InfiniBand and GPUDirect, and what to do about what it lacks.
//!
//! | module | question |
//! | --- | --- |
//! | [`facts`] | What can be known of a machine? Plain data, which travels as JSON. |
//! | [`read`] | What do the kernel's file systems say? From a root that tests make up. |
//! | [`live`] | What do system calls, libraries and the GPU's driver say? |
//! | [`distance`] | How far is a card from a GPU? Pure. |
//! | [`mod@checks`] | What is right, what is not, and what is to be done? Pure. |
//! | [`mod@print`] | How is a person told? |
//!
//! Nothing here changes the machine, needs a GPU, a card or privileges, or fails: what cannot be read is a
//! fact as well.

pub mod checks;
pub mod distance;
mod driver;
pub mod facts;
pub mod live;
pub mod print;
pub mod read;
mod unit;

pub use checks::{Finding, Level, check};
pub use facts::{Facts, MAX_BYTES};

/// Everything that can be known of this machine, as far as this process may know it.
pub fn examine() -> Facts {
    let system = read::System::new("/");
    read::facts(&system, live::probe())
}

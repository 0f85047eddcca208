//! What a machine has for remote GPUs, InfiniBand and GPUDirect, and what to do about what it lacks.
//!
//! | module | contents |
//! | --- | --- |
//! | [`facts`] | Facts about a machine: plain data, which travels as JSON |
//! | [`read`] | Facts from the kernel's file systems, below a root that tests make up |
//! | [`live`] | Facts from system calls, libraries and the GPU's driver |
//! | [`distance`] | PCI distance of a card from a GPU. Pure |
//! | [`mod@checks`] | Findings from facts, with what to do. Pure |
//! | [`mod@print`] | Printed form of facts and findings |
//! | [`report`] | JSON form of facts, for other programs |
//!
//! Nothing here changes the machine, needs a GPU, a card or privileges, or fails: what cannot be read is a
//! fact as well.

pub mod checks;
pub mod distance;
pub mod facts;
pub mod live;
pub mod print;
pub mod read;
pub mod report;

pub use checks::{Finding, Level, check};
pub use facts::{Facts, MAX_BYTES};

/// Everything that can be known of this machine, as far as this process may know it.
pub fn examine() -> Facts {
    let system = read::System::new("/");
    read::facts(&system, live::probe())
}

//! What a machine has for remote GPUs, InfiniBand and GPUDirect, and what to do about what it lacks.
//!
//! | module | contents |
//! | --- | --- |
//! | `facts` | What can be known of a machine |
//! | `read` | Facts from the kernel's file systems: the machine, the PCI bus, RDMA devices and NVIDIA's GPUs |
//! | `live` | Live facts: system calls, libraries, and a probe of NVIDIA's driver (feature `driver`) |
//! | `distance` | PCI distance of a network card from a GPU, in the words of `nvidia-smi topo` |
//! | `report` | Report: facts as JSON for other programs, with a name for each value |
//! | `checks` | Checks: findings from facts, with what to do |
//! | `print` | Printed form of facts and findings |
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

//! Programs from seeds.
//!
//! A generator first chooses the scenery (buffers, streams, graphs), then issues operations one after the
//! other. What the order of things does not allow yet is put in order first, by one of the ways that CUDA has
//! for it.

mod builder;
mod patterns;
mod random;
mod scenery;

use crate::program::Program;
pub use patterns::PATTERNS;

/// How long programs and their buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Mostly small buffers and 5 to 40 operations.
    Small,
    /// Also buffers of a few MiB, which are copied in pieces, and up to 120 operations.
    Long,
}

/// What programs may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Devices, 1 or 2.
    pub devices: usize,
    /// `cuMemAllocManaged`.
    pub managed: bool,
    /// `cuMemAllocAsync`.
    pub pools: bool,
    /// `cuStreamWaitValue32`.
    pub values: bool,
    /// That synchronous copies from locked memory to a device return when all is done.
    pub uploads_wait: bool,
    /// That streams put what touches the same host memory in order.
    pub host_order: bool,
    /// That they put what reads host memory behind what wrote it.
    pub host_sources: bool,
    /// Lengths.
    pub profile: Profile,
}

/// The name of programs that follow no pattern.
pub const RANDOM: &str = "random";

/// Makes the program of a seed. The same seed and setting give the same program.
pub fn generate(seed: u64, setting: &Setting) -> Program {
    // Seeds that follow each other give generators that have nothing in common.
    let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66_D1CE_4E5B);
    if rng.u32(..100) < 65 {
        random::program(seed, setting, &mut rng)
    } else {
        let pattern = rng.usize(..PATTERNS.len());
        patterns::program(seed, pattern, setting, &mut rng)
    }
}

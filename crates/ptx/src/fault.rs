//! What can go wrong while a kernel runs.

use std::fmt;

use thiserror::Error;

/// The thread that raised a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPosition {
    /// Name of the kernel.
    pub kernel: String,
    /// `%ctaid`: the index of the block in the grid.
    pub block: [u32; 3],
    /// `%tid`: the index of the thread in the block.
    pub thread: [u32; 3],
}

impl fmt::Display for ThreadPosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(formatter, "thread ({tx}, {ty}, {tz}) of block ({bx}, {by}, {bz}) of kernel `{}`", self.kernel)
    }
}

/// Why a launch did not run to its end.
///
/// The first fault of a launch ends it: blocks that have not started do not start. Memory written until then
/// stays written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// An access outside of live memory (CUDA: `ILLEGAL_ADDRESS`).
    #[error("{at} accessed address {address:#x}, which is not device memory")]
    IllegalAddress {
        /// The address: generic for global and generic accesses, an offset in the window for shared and local
        /// ones.
        address: u64,
        /// Who did it.
        at: ThreadPosition,
    },
    /// An access that is not a multiple of its size (CUDA: `MISALIGNED_ADDRESS`).
    #[error(
        "{at} accessed {size} bytes at address {address:#x}, which is not aligned to the size of the access"
    )]
    Misaligned {
        /// The address, as for [`Fault::IllegalAddress`].
        address: u64,
        /// Bytes of the access.
        size: u32,
        /// Who did it.
        at: ThreadPosition,
    },
    /// `trap` was executed (CUDA: `LAUNCH_FAILED`).
    #[error("{at} executed `trap`")]
    Trap {
        /// Who did it.
        at: ThreadPosition,
    },
    /// A device-side `assert` failed (CUDA: `ASSERT`). The message also went to [`crate::Host::assertion`].
    #[error("{message}")]
    Assert {
        /// The text in the form the CUDA runtime prints.
        message: String,
        /// Who did it.
        at: ThreadPosition,
    },
    /// Calls nested too deeply, or local memory is used up (CUDA: `HARDWARE_STACK_ERROR`).
    #[error("{at} ran out of stack")]
    StackOverflow {
        /// Who did it.
        at: ThreadPosition,
    },
    /// An indirect call to something that is not a function, or an illegal operand (CUDA:
    /// `ILLEGAL_INSTRUCTION`).
    #[error("{at} executed an illegal instruction: {reason}")]
    IllegalInstruction {
        /// What was wrong.
        reason: String,
        /// Who did it.
        at: ThreadPosition,
    },
    /// An instruction reads or writes by a handle that no texture or surface has (CUDA: `ILLEGAL_ADDRESS`).
    #[error("{at} used {handle:#x}, which is not a {what} of this context")]
    NoObject {
        /// "texture" or "surface".
        what: &'static str,
        /// What it gave as a handle.
        handle: u64,
        /// Who did it.
        at: ThreadPosition,
    },
    /// An access outside of a surface that is to trap there (CUDA: `ILLEGAL_ADDRESS`, as on an H100).
    #[error("{at} accessed memory outside of surface {surface:#x}")]
    OutsideSurface {
        /// Its handle.
        surface: u64,
        /// Who did it.
        at: ThreadPosition,
    },
    /// The threads of a block wait for each other for ever. A GPU would hang until its watchdog ends the
    /// launch (CUDA: `LAUNCH_TIMEOUT`).
    #[error("{at} waits at a barrier or warp operation that the other threads it names never reach")]
    Deadlock {
        /// One of the waiting threads.
        at: ThreadPosition,
    },
    /// The program has no kernel of this name (CUDA: `NOT_FOUND`).
    #[error("there is no kernel `{0}` in this program")]
    UnknownKernel(String),
    /// The kernel needs something that the software GPU does not have (CUDA: `NOT_SUPPORTED`).
    #[error("kernel `{kernel}` cannot be launched: {reason}")]
    Unsupported {
        /// Name of the kernel.
        kernel: String,
        /// What it is, with its line.
        reason: String,
    },
    /// The launch was refused before anything ran (CUDA: `INVALID_VALUE`).
    #[error("kernel `{kernel}` cannot be launched: {reason}")]
    InvalidConfiguration {
        /// Name of the kernel.
        kernel: String,
        /// Which limit was broken, with numbers.
        reason: String,
    },
    /// The launch needs more of something than there is (CUDA: `LAUNCH_OUT_OF_RESOURCES`).
    #[error("kernel `{kernel}` cannot be launched: {reason}")]
    OutOfResources {
        /// Name of the kernel.
        kernel: String,
        /// Which resource, with numbers.
        reason: String,
    },
}

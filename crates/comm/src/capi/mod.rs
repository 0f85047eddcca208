//! C API of `libcauseway_comm.so`, which `mpi/causeway_comm.h` declares and describes: the state of this
//! process, the last error of each thread, and the version of the functions.
//!
//! A process takes part in one job at a time.
//!
//! | module | contents |
//! | --- | --- |
//! | `messages` | Point-to-point messages for C programs: joining a job, queries of memory, offers, fetches and the queue of unexpected messages |
//! | `collectives` | Collective calls for C programs: groups, reductions, exchanges, and calls in CUDA graphs |
//! | `memory` | Memory for C programs: strided elements, scratch memory, the control channel of the ranks of a node, and memory of another rank that kernels use |
//! | `team` | Teams for C programs: ranks whose kernels communicate |
//! | `verbs` | RDMA queue pairs for C programs, whose work requests kernels write themselves |

mod collectives;
mod memory;
mod messages;
mod team;
mod verbs;

use core::cell::RefCell;
use core::ffi::{c_char, c_int};
use std::ffi::CString;
use std::sync::Arc;

use causeway_sync::fork;

use crate::locks::{RwLock, rank};
use crate::world::World;

/// The version of the functions that `mpi/causeway_comm.h` declares: another one for each change of them.
const VERSION: u32 = 9;

/// This process's part, while it has one.
static WORLD: RwLock<rank::Leaf, Option<Arc<World>>> = RwLock::new(None);

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// This process's part in a job.
pub(crate) fn world() -> Option<Arc<World>> {
    // The copy belongs to the parent, which may hold locks in it.
    if fork::is_child() {
        return None;
    }
    WORLD.read().clone()
}

/// Stores the message of an error for [`causeway_comm_error`].
pub(crate) fn fail(error: impl ToString) -> c_int {
    let text = CString::new(error.to_string()).unwrap_or_default();
    ERROR.with(|last| *last.borrow_mut() = text);
    -1
}

/// The message of the calling thread's last error, until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_error() -> *const c_char {
    ERROR.with(|last| last.borrow().as_ptr())
}

/// The version of the library's functions.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_version() -> u32 {
    VERSION
}

#[cfg(test)]
mod tests {
    use super::VERSION;

    /// What the header declares: its lines without comments, and without the version.
    fn declarations(header: &str) -> (Option<u32>, String) {
        let (mut version, mut rest) = (None, Vec::new());
        for line in header.lines().map(|line| line.split("//").next().unwrap_or_default().trim()) {
            match line.strip_prefix("#define CAUSEWAY_COMM_VERSION ") {
                Some(number) => version = number.parse().ok(),
                None if line.is_empty() => {}
                None => rest.push(line),
            }
        }
        (version, rest.join(" "))
    }

    #[test]
    fn header_matches_version() {
        /// Of the declarations of [`VERSION`].
        const HASH: u64 = 0xf37e_055a_bf87_3f3e;
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../mpi/causeway_comm.h");
        let header = std::fs::read_to_string(header).expect("the header is in the tree");
        let (version, declarations) = declarations(&header);
        assert_eq!(version, Some(VERSION), "header and library have one version");
        // FNV-1a.
        let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let hash = declarations.bytes().fold(0xcbf2_9ce4_8422_2325, step);
        assert_eq!(
            hash, HASH,
            "the declarations have changed: raise the version in both files, and note this hash"
        );
    }
}

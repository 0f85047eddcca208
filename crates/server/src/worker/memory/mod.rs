//! Host memory of the client's program that kernels access.
//!
//! | module | contents |
//! | --- | --- |
//! | `mirrors` | Memory of the client that kernels reach: the worker's copies of it, and what has changed in them |
//! | `client_memory` | Memory of the client that lies in this process, too: both are on one host, and kernels reach the program's own bytes |
//! | `cut_short` | SIGBUS handling: a mapped file of the client was truncated |

pub mod client_memory;
mod cut_short;
pub mod mirrors;

use causeway_api::handle::{Context, Handle};
use client_memory::ClientMemory;
use mirrors::Mirrors;

/// Memory of the client's program that kernels reach.
#[derive(Default)]
pub struct HostMemory {
    /// Copies of it in this process or on a device.
    pub mirrors: Mirrors,
    /// Itself, where client and worker share it.
    pub shared: ClientMemory,
}

impl HostMemory {
    /// Lets go of the memory of a context, which is about to end.
    pub fn end_context(&self, context: Handle<Context>) {
        self.mirrors.end_context(context);
        self.shared.end_context(context);
    }
}

//! Host memory of the client's program that kernels access.
//!
//! | Module          | Question it answers                                                         |
//! |-----------------|-----------------------------------------------------------------------------|
//! | `mirrors`       | What has changed in the worker's copies of the client's memory?            |
//! | `client_memory` | Which memory of a client of the same host lies in this process, too?       |
//! | `cut_short`     | What happens when a file of the client is cut short?                       |

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

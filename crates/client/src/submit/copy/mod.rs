//! Copies between the program's memory and a device, and within devices.
//!
//! *To the device*: the source is read before the call returns, with one exception. An asynchronous copy from
//! pinned memory is read when its stream reaches it, and what lies ahead there may still change the memory: a
//! host function, a wait-value that another thread ends, a copy from a device. Then the stream tells us when
//! it gets there, and the bytes are read and sent at that moment. With nothing of that kind ahead, pinned
//! memory is queued for the link's threads, which read it while the program goes on: CUDA forbids the
//! program to change it before the copy is done, and the copy is not done before the bytes have come. Some
//! synchronous copies return before the device has the bytes, too: they are *published*.
//!
//! *From the device*: into pinned memory the bytes come when they come, and whoever says that the stream is
//! done waits for them; into pageable memory, and for synchronous copies, the call waits.
//!
//! | Module        | Contents                                                              |
//! |---------------|----------------------------------------------------------------------------------|
//! | `region`      | Where does the program's memory begin and end, and how is it packed?               |
//! | `sides`       | Where does the box lie that a program describes?                                    |
//! | `pieces`      | Which pieces has a copy, by the plan for its size?                                 |
//! | `to_device`   | When is the source read, and how does it get to the server?                        |
//! | `early_return` | Which synchronous copies need not be waited for until the device has the bytes?   |
//! | `gpudirect`   | What does the server's network card read by itself?                                |
//! | `from_device` | Where do the bytes go, and who waits for them?                                    |
//! | `mode`        | When does a copying call return?                                                 |
//! | `owning_context`        | To which context does a place belong?                                            |
//! | `one_server`  | How is a copy carried out that concerns one server?                              |
//! | `cross_server`      | Which server carries a copy out, where devices of several are concerned?          |
//! | `client_relay`      | What happens where their servers do not reach each other?                         |
//! | `within`      | Which command carries a copy between places of one server, and in which order?    |

mod client_relay;
mod cross_server;
mod early_return;
mod from_device;
mod gpudirect;
mod mode;
mod one_server;
mod owning_context;
mod pieces;
mod sides;
mod to_device;
mod within;

use crate::model::stream::StreamState;
use crate::remote::session;
use causeway_api::sys::CUresult;

pub use crate::model::region::{Endpoint, HostRegion};
pub use cross_server::by_proxy_stream;
pub use mode::Mode;
pub use owning_context::owner_of;
pub use sides::{CopyBox, endpoints};
pub use within::{Contexts, between_contexts};

/// Copies in the order of `stream`.
///
/// # Safety
/// The program's memory must be valid as `cuMemcpy` and its like demand it.
pub unsafe fn copy(
    destination: Endpoint,
    source: Endpoint,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    if session::are_several() {
        session::of(stream.context)?.faults().check()?;
        // SAFETY: as this function demands.
        if let Some(outcome) = unsafe { cross_server::route(destination, source, stream, mode) } {
            return outcome;
        }
    }
    // SAFETY: as this function demands.
    unsafe { one_server::copy(destination, source, stream, mode) }
}

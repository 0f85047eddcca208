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
//! | module | contents |
//! | --- | --- |
//! | `endpoint` | Endpoints of a copy: the box that a program describes, its owning context, and the synchronisation mode |
//! | `download` | Device-to-host copy, and the pieces of a copy, by the plan for its size |
//! | `upload` | Host-to-device copy: when the source is read, and how it is sent to the server |
//! | `gpudirect` | Copies to a device that the server's network card reads out of this process's memory, straight into the device's: GPUDirect |
//! | `device_copy` | Copies on one server: dispatch by endpoints, and copies within and between its devices, in order with the work of both |
//! | `peer_copy` | Copies that concern several servers, and the server that carries each out |

mod device_copy;
mod download;
mod endpoint;
mod gpudirect;
mod peer_copy;
mod upload;

use crate::model::stream::StreamState;
use crate::remote::session;
use causeway_api::sys::CUresult;

pub use crate::model::region::{Endpoint, HostRegion};
pub use device_copy::{Contexts, between_contexts};
pub use endpoint::{CopyBox, Mode, endpoints, owner_of};
pub use peer_copy::by_proxy_stream;

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
        // SAFETY: the caller keeps the endpoints' host memory valid until the copy is done.
        if let Some(outcome) = unsafe { peer_copy::route(destination, source, stream, mode) } {
            return outcome;
        }
    }
    // SAFETY: the caller keeps the endpoints' host memory valid until the copy is done.
    unsafe { device_copy::copy(destination, source, stream, mode) }
}

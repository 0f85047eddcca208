//! Copies between the program's memory and a device, and within devices.
//!
//! *To the device*: the source is read before the call returns, with one exception. An asynchronous copy from
//! pinned memory is read when its stream reaches it, and what lies ahead there may still change the memory: a
//! host function, a wait-value that another thread ends, a copy from a device. Then the stream tells us when
//! it gets there, and the bytes are read and sent at that moment. With nothing of that kind ahead, pinned
//! memory is put in line for the link's threads, which read it while the program goes on: CUDA forbids the
//! program to change it before the copy is done, and the copy is not done before the bytes have come. Some
//! synchronous copies return before the device has the bytes, too: they are *published*.
//!
//! *From the device*: into pinned memory the bytes come when they come, and whoever says that the stream is
//! done waits for them; into pageable memory, and for synchronous copies, the call waits.
//!
//! | Module        | Question it answers                                                              |
//! |---------------|----------------------------------------------------------------------------------|
//! | `region`      | Where does the program's memory begin and end, and how is it packed?               |
//! | `sides`       | Where does the box lie that a program describes?                                    |
//! | `pieces`      | Which pieces has a copy, by the plan for its size?                                 |
//! | `to_device`   | When is the source read, and how does it get to the server?                        |
//! | `early_return` | Which synchronous copies need not be waited for until the device has the bytes?   |
//! | `lent`        | What does the server's network card read by itself?                                |
//! | `from_device` | Where do the bytes go, and who waits for them?                                    |
//! | `cross_server`      | Which server carries a copy out, where devices of several are concerned?          |
//! | `client_relay`      | What happens where their servers do not reach each other?                         |
//! | `within`      | Which command carries a copy between places of one server, and in which order?    |

mod client_relay;
mod cross_server;
mod early_return;
mod from_device;
mod lent;
mod pieces;
mod sides;
mod to_device;
mod within;

use crate::model::context;
use crate::model::stream::StreamState;
use crate::remote::session;
use crate::remote::visible;
use crate::statistics::copies::{self, By};
use crate::submit::callbacks::{self, Task};
use crate::submit::capture;
use causeway_api::sys::CUresult;
use causeway_api::types::DevicePlace;
use causeway_pipeline::Direction;
use from_device::from_device;
use to_device::to_device;
use within::within_device;

pub use crate::model::region::{HostRegion, Place};
pub use cross_server::{by_courier, home_of};
pub use sides::{Side, places};
pub use within::{Contexts, between_contexts};

/// The longest copy, in bytes, whose source is better read here than by the device where both can: about 1 us
/// of copying.
const SHORT: usize = 4096;

/// When a copying call returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// When CUDA's synchronous copies do.
    Synchronous,
    /// When the copy has been put into its stream.
    Asynchronous,
    /// As [`Asynchronous`](Self::Asynchronous), but the source need not wait for its turn in the stream.
    SourceAtOnce,
    /// As an asynchronous one; memory that is not pinned stays valid and as it is until the stream has passed
    /// the copy, too, since a launch of a graph copies and not the call that made the copy's node.
    InGraph,
}

/// Copies in the order of `stream`.
///
/// # Safety
/// The program's memory must be valid as `cuMemcpy` and its like demand it.
pub unsafe fn copy(
    destination: Place,
    source: Place,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    session::of(stream.context)?.faults().check()?;
    if session::are_several() {
        // SAFETY: as this function demands.
        if let Some(outcome) = unsafe { cross_server::route(destination, source, stream, mode) } {
            return outcome;
        }
    }
    if capture::of(stream) != 0 {
        if mode == Mode::Synchronous {
            return capture::refuse_wait(stream);
        }
        return capture::add_copy(&destination, &source, stream);
    }
    let asked = (destination, source);
    let server = stream.context.server();
    let destination = visible::place(server, destination);
    let source = if mode == Mode::Synchronous && is_short_and_settled(&source, stream) {
        source
    } else {
        visible::place(server, source)
    };
    let uses_source = match (asked.1, source) {
        (Place::Host(host), Place::Device(_)) => {
            copies::count(Direction::ToDevice, By::Common, &host);
            true
        }
        _ => false,
    };
    if let (Place::Host(host), Place::Device(_)) = (asked.0, destination) {
        copies::count(Direction::FromDevice, By::Common, &host);
    }
    if mode == Mode::Synchronous && uses_source && !is_settled(stream) {
        // The driver reads so short a source as soon as its own stream is idle, even if others that it is in
        // order with write to it.
        stream.synchronize()?;
    }
    // SAFETY: as this function demands, for all of these.
    unsafe {
        match (destination, source) {
            (Place::Device(destination), Place::Device(source)) => {
                within_device(destination, source, stream, mode)
            }
            (Place::Device(destination), Place::Host(source)) => to_device(destination, source, stream, mode),
            (Place::Host(destination), Place::Device(source)) => {
                from_device(destination, source, stream, mode)
            }
            (Place::Host(destination), Place::Host(source)) => within_host(destination, source, stream, mode),
        }?;
    }
    // The program reads what was copied, or changes what is being copied, with no call in between.
    let in_use = || match destination {
        Place::Device(DevicePlace::Memory(written)) if visible::reaches(written.address) => true,
        _ => uses_source,
    };
    if mode == Mode::Synchronous && in_use() { stream.synchronize() } else { Ok(()) }
}

/// Whether a synchronous copy may read its source at once, though the device reads the same bytes: it is
/// short, and nothing is under way that could still write to it. Then the call need not wait for the device
/// to read it.
fn is_short_and_settled(source: &Place, stream: &StreamState) -> bool {
    let Place::Host(source) = source else { return false };
    source.bytes() <= SHORT
        && visible::is_in_common(source.address as usize)
        && context::state(stream.context).is_ok_and(|context| context.is_idle())
}

/// A copy within the program's memory. It has its place in the stream like any other, and outside of graphs
/// the call waits for it, as CUDA's does.
///
/// # Safety
/// `destination` must be writable and `source` readable, in a graph until the stream has passed the copy.
unsafe fn within_host(
    destination: HostRegion,
    source: HostRegion,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    let run = Box::new(move || {
        let (destination, source) = (destination, source);
        // SAFETY: the stream has come to the copy and not passed it, or the caller's own stack holds this;
        // the regions may overlap, so the bytes go through a buffer.
        unsafe { destination.unpack(&source.pack(), 1) };
    });
    if mode != Mode::InGraph && is_settled(stream) {
        run();
        return Ok(());
    }
    callbacks::post(stream, Task::Access { run, after: stream.ahead() })?;
    if mode == Mode::InGraph { Ok(()) } else { stream.synchronize() }
}

/// Whether nothing is under way that the next command of a stream could have to come behind, as far as is
/// known.
fn is_settled(stream: &StreamState) -> bool {
    !session::are_several()
        && !stream.ahead().is_unsettled()
        && context::state(stream.context).is_ok_and(|context| context.is_idle())
}

//! Published copies: synchronous host-to-device copies that return before the device has the bytes.
//!
//! A copy can be *published* instead: the server puts all that it gets afterwards behind it, in whichever
//! stream. Its call returns when the source may change, and whoever asks how far the work before it is waits
//! for it, so that the program finds what it would find had the copy been waited for. That holds for what
//! this program can ask for: memory that another process or another server may use is not published. And
//! CUDA's synchronous copies, short ones too, wait for what lies before them in their stream (4 B to 1 MiB
//! behind a kernel of 20 ms, from pinned, registered and pageable memory; H100, driver 580.159.04,
//! 2026-11-24), so that such a one is published only where nothing but published copies is under way.
//!
//! Long copies are published over shared memory alone, where the server has the bytes as soon as they have
//! left the program's memory: there the call of a pageable copy returns in half the time. Elsewhere it has to
//! be told that they have come, and who waits for the device afterwards would wait for a second answer (on an
//! H200 up to 18 us less for the call and up to 25 more for both, 2026-11-23).

use crate::model::context::{self, ContextState};
use crate::model::stream::StreamState;
use crate::model::{array, completion, exchange};
use crate::remote::session;
use crate::remote::session::Session;
use crate::submit::virtual_memory;
use causeway_api::types::DeviceLocation;
use std::sync::Arc;

/// How many commands may be unfinished before a copy that is published. The server holds a copy back, and
/// publishes it later, when its stream has more commands than the driver takes.
const MAX_EARLY_MICROSECONDS: u64 = 400;

/// Whether a synchronous copy to this place may be published. An address that we do not know is judged by the
/// server, and the caller must hear of it.
pub(super) fn is_possible(destination: &DeviceLocation) -> bool {
    let is_known = match destination {
        DeviceLocation::Memory(region) => virtual_memory::is_writable(region.address),
        DeviceLocation::Array(part) => array::element_bytes(part.array).is_some(),
    };
    is_known && !session::are_several() && !exchange::is_used()
}

/// Whether the stream takes a published copy of so many commands.
pub(super) fn has_capacity(stream: &StreamState, commands: u64) -> bool {
    stream.unfinished() + commands <= MAX_EARLY_MICROSECONDS
}

/// A copy that is being published where nothing but such copies is under way.
pub(super) struct Publication {
    context: Arc<ContextState>,
    /// The session's newest sequence number before the copy's.
    before: u64,
}

impl Publication {
    /// A copy in `stream` begins; nothing if anything else is under way in its context.
    pub fn begin(stream: &StreamState) -> Option<Self> {
        let context = context::state(stream.context).ok()?;
        // In this order: whatever is queued from now on has a newer sequence number.
        let before = completion::sequence_numbers(stream.context.server()).newest();
        context.has_only_published().then_some(Self { context, before })
    }

    /// The same for a long copy of so many commands, where it is to be published.
    pub fn of_pieces(
        session: &Session,
        destination: &DeviceLocation,
        stream: &StreamState,
        commands: u64,
    ) -> Option<Self> {
        let is_early = session.shares_memory() && !session.is_synchronous();
        if is_early && is_possible(destination) && has_capacity(stream, commands) {
            Self::begin(stream)
        } else {
            None
        }
    }

    /// The copy's commands have been sent by this thread, the last one as published. Whether that is all that
    /// was queued: what another thread may have put between them has to be waited for.
    pub fn end(self, commands: u64) -> bool {
        let newest = completion::of_thread();
        let is_all = newest == self.before + commands;
        if is_all {
            self.context.publish(newest);
        }
        is_all
    }
}

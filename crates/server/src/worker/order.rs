//! Which command must wait for which other: the order of a session, decided without touching a GPU.
//!
//! Commands are issued in the order in which they came. One that cannot be issued yet (its data is still on the
//! way, its stream holds as much as the driver takes without blocking) is *parked*; what depends on a parked
//! command is parked behind it, everything else goes on. So a stream that waits for something that another
//! thread of the client will post later cannot hold up that post.
//!
//! The dependencies are CUDA's own: commands of one stream are in order; the legacy default stream is in order
//! with every blocking stream; a use of an event comes after its record; and what destroys objects or looks at a
//! whole context comes after everything before it.

use causeway_api::calls::Request;
use causeway_api::handle::{Handle, Stream};
use std::collections::{HashMap, HashSet};

/// `CU_STREAM_NON_BLOCKING`: the stream takes no part in the order of the legacy default stream.
const NON_BLOCKING: u32 = 1;

/// How one command takes part in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Depends on nothing that can be parked.
    Free,
    /// Belongs into a stream; 0 is the legacy default stream.
    InStream {
        /// The stream's handle.
        stream: u64,
        /// An event that the command records or waits for.
        event: Option<u64>,
        /// Whether the command records the event.
        records: bool,
    },
    /// Looks at a stream and changes nothing: parked behind the stream's commands, holds up none.
    Watches {
        /// The stream's handle.
        stream: u64,
    },
    /// Looks at or destroys an event.
    UsesEvent {
        /// The event's handle.
        event: u64,
        /// A second event, of `event_elapsed`.
        other: Option<u64>,
    },
    /// Comes after everything before it, and holds up nothing.
    Barrier,
}

/// Finds the place of a request.
pub fn place(request: &Request<'_>) -> Place {
    match request {
        Request::stream_create(_) | Request::event_create(_) => Place::Free,
        Request::stream_synchronize(_) | Request::stream_query(_) => {
            Place::Watches { stream: legacy(request.stream()) }
        }
        Request::event_record(record) => Place::InStream {
            stream: legacy(Some(record.stream)),
            event: Some(record.event.value()),
            records: true,
        },
        Request::event_elapsed(elapsed) => {
            Place::UsesEvent { event: elapsed.start.value(), other: Some(elapsed.end.value()) }
        }
        Request::context_synchronize(_)
        | Request::context_destroy(_)
        | Request::primary_context_release(_)
        | Request::primary_context_reset(_)
        | Request::memory_free(_)
        | Request::mirror_free(_)
        | Request::cuArrayDestroy(_)
        | Request::cuMipmappedArrayDestroy(_)
        | Request::module_unload(_)
        | Request::library_unload(_)
        | Request::cuGraphDestroy(_)
        | Request::cuGraphExecDestroy(_)
        | Request::cuMemPoolDestroy(_) => Place::Barrier,
        other => match (other.stream(), other.event()) {
            (Some(stream), event) => Place::InStream {
                stream: legacy(Some(stream)),
                event: event.map(|event| event.value()),
                records: false,
            },
            (None, Some(event)) => Place::UsesEvent { event: event.value(), other: None },
            (None, None) => Place::Free,
        },
    }
}

/// `CU_STREAM_LEGACY` (1) and the null stream are one.
fn legacy(stream: Option<Handle<Stream>>) -> u64 {
    stream.map_or(0, |stream| if stream.value() == 1 { 0 } else { stream.value() })
}

/// Which streams of the session are non-blocking; every other takes part in the order of the legacy stream.
#[derive(Default)]
pub struct StreamKinds {
    non_blocking: HashSet<u64>,
}

impl StreamKinds {
    /// Notes a stream when its creation is received.
    pub fn created(&mut self, stream: Handle<Stream>, flags: u32) {
        if flags & NON_BLOCKING != 0 {
            self.non_blocking.insert(stream.value());
        }
    }

    /// Forgets a stream when its destruction has been issued.
    pub fn destroyed(&mut self, stream: Handle<Stream>) {
        self.non_blocking.remove(&stream.value());
    }

    fn is_blocking(&self, stream: u64) -> bool {
        stream != 0 && !self.non_blocking.contains(&stream)
    }
}

/// What the commands parked so far hold up.
#[derive(Default)]
pub struct Blockers {
    any: bool,
    any_blocking_stream: bool,
    streams: HashSet<u64>,
    /// Events that a parked command records (`true`) or waits for.
    events: HashMap<u64, bool>,
}

impl Blockers {
    /// Whether a command at `place` must stay behind a parked one.
    pub fn holds_up(&self, place: Place, kinds: &StreamKinds) -> bool {
        if !self.any {
            return false;
        }
        match place {
            Place::Free => false,
            Place::Barrier => true,
            Place::Watches { stream } => self.holds_up_stream(stream, kinds),
            Place::InStream { stream, event, records } => {
                self.holds_up_stream(stream, kinds)
                    || event.is_some_and(|event| match self.events.get(&event) {
                        // Waiting for an event comes after its record; recording it again also after the waits.
                        Some(recorded) => records || *recorded,
                        None => false,
                    })
            }
            Place::UsesEvent { event, other } => {
                self.events.contains_key(&event)
                    || other.is_some_and(|event| self.events.contains_key(&event))
            }
        }
    }

    fn holds_up_stream(&self, stream: u64, kinds: &StreamKinds) -> bool {
        self.streams.contains(&stream)
            || (stream == 0 && self.any_blocking_stream)
            || (kinds.is_blocking(stream) && self.streams.contains(&0))
    }

    /// Adds a command that is parked.
    pub fn add(&mut self, place: Place, kinds: &StreamKinds) {
        self.any = true;
        if let Place::InStream { stream, event, records } = place {
            self.streams.insert(stream);
            self.any_blocking_stream |= kinds.is_blocking(stream);
            if let Some(event) = event {
                *self.events.entry(event).or_default() |= records;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 6 << 56 | 10;
    const B: u64 = 6 << 56 | 11;
    const E: u64 = 7 << 56 | 1;

    fn work(stream: u64) -> Place {
        Place::InStream { stream, event: None, records: false }
    }

    fn record(stream: u64) -> Place {
        Place::InStream { stream, event: Some(E), records: true }
    }

    fn wait(stream: u64) -> Place {
        Place::InStream { stream, event: Some(E), records: false }
    }

    fn blocked_by(parked: &[Place], kinds: &StreamKinds) -> Blockers {
        let mut blockers = Blockers::default();
        parked.iter().for_each(|place| blockers.add(*place, kinds));
        blockers
    }

    #[test]
    fn only_the_same_stream_is_held_up() {
        let kinds = StreamKinds::default();
        let blockers = blocked_by(&[work(A)], &kinds);
        assert!(blockers.holds_up(work(A), &kinds));
        assert!(blockers.holds_up(Place::Watches { stream: A }, &kinds));
        assert!(!blockers.holds_up(work(B), &kinds));
        assert!(!blockers.holds_up(Place::Free, &kinds));
        assert!(blockers.holds_up(Place::Barrier, &kinds));
        assert!(!Blockers::default().holds_up(Place::Barrier, &kinds));
    }

    #[test]
    fn the_legacy_stream_is_in_order_with_blocking_streams_only() {
        let mut kinds = StreamKinds::default();
        kinds.created(Handle::from_value(B), NON_BLOCKING);
        let blockers = blocked_by(&[work(0)], &kinds);
        assert!(blockers.holds_up(work(A), &kinds));
        assert!(!blockers.holds_up(work(B), &kinds));
        assert!(blocked_by(&[work(A)], &kinds).holds_up(work(0), &kinds));
        assert!(!blocked_by(&[work(B)], &kinds).holds_up(work(0), &kinds));
    }

    #[test]
    fn an_event_is_used_after_its_parked_record() {
        let kinds = StreamKinds::default();
        let blockers = blocked_by(&[record(A)], &kinds);
        assert!(blockers.holds_up(wait(B), &kinds));
        assert!(blockers.holds_up(record(B), &kinds));
        assert!(blockers.holds_up(Place::UsesEvent { event: E, other: None }, &kinds));
        assert!(blockers.holds_up(Place::UsesEvent { event: 1, other: Some(E) }, &kinds));
    }

    #[test]
    fn a_parked_wait_holds_up_a_new_record_but_not_another_wait() {
        let kinds = StreamKinds::default();
        let blockers = blocked_by(&[wait(A)], &kinds);
        assert!(blockers.holds_up(record(B), &kinds));
        assert!(!blockers.holds_up(wait(B), &kinds));
    }

    #[test]
    fn watching_holds_up_nothing() {
        let kinds = StreamKinds::default();
        let blockers = blocked_by(&[Place::Watches { stream: A }, Place::Barrier], &kinds);
        assert!(!blockers.holds_up(work(A), &kinds));
    }
}

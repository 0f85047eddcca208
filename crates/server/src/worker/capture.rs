//! Which streams are being captured, so that the engine puts nothing of its own into them.
//!
//! An event recorded in a captured stream would become a node of the client's graph. A stream joins a capture by
//! waiting for an event that was recorded in a captured stream, and leaves when the capture ends.

use causeway_api::calls::Request;
use std::collections::HashMap;

/// The captures of a session, each named by the stream where it began.
#[derive(Default)]
pub struct Captures {
    streams: HashMap<u64, u64>,
    events: HashMap<u64, u64>,
}

impl Captures {
    /// Whether `stream` is being captured.
    pub fn holds(&self, stream: u64) -> bool {
        !self.streams.is_empty() && self.streams.contains_key(&stream)
    }

    /// Follows a command that has been issued without error.
    pub fn follow(&mut self, request: &Request<'_>) {
        match request {
            Request::capture_begin(begin) => {
                let origin = begin.stream.value();
                self.streams.insert(origin, origin);
            }
            Request::capture_end(end) => self.end(end.stream.value()),
            _ if self.streams.is_empty() => {}
            Request::event_record(record) => match self.streams.get(&record.stream.value()) {
                Some(origin) => {
                    self.events.insert(record.event.value(), *origin);
                }
                None => {
                    self.events.remove(&record.event.value());
                }
            },
            Request::stream_wait_event(wait) => {
                if let Some(origin) = self.events.get(&wait.event.value()) {
                    self.streams.entry(wait.stream.value()).or_insert(*origin);
                }
            }
            Request::stream_destroy(destroy) => {
                self.streams.remove(&destroy.stream.value());
            }
            _ => {}
        }
    }

    /// Ends the capture that began in `origin`, whether it succeeded or not.
    pub fn end(&mut self, origin: u64) {
        self.streams.retain(|_, capture| *capture != origin);
        self.events.retain(|_, capture| *capture != origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::calls::{capture_begin, capture_end, event_record, stream_wait_event};
    use causeway_api::handle::{Event, Handle, Stream};
    use causeway_api::sys::CUstreamCaptureMode;

    #[test]
    fn a_stream_joins_through_an_event_and_leaves_at_the_end() {
        let (a, b) = (Handle::<Stream>::new(1, 0), Handle::<Stream>::new(2, 0));
        let event = Handle::<Event>::new(3, 0);
        let mut captures = Captures::default();
        captures.follow(&Request::capture_begin(capture_begin { stream: a, mode: CUstreamCaptureMode(0) }));
        captures.follow(&Request::event_record(event_record { event, stream: a, flags: 0 }));
        assert!(!captures.holds(b.value()));
        captures.follow(&Request::stream_wait_event(stream_wait_event { stream: b, event, flags: 0 }));
        assert!(captures.holds(a.value()) && captures.holds(b.value()));
        captures.follow(&Request::capture_end(capture_end { stream: a, graph: Handle::new(4, 0) }));
        assert!(!captures.holds(a.value()) && !captures.holds(b.value()));
    }
}

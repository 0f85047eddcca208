//! Host-to-device copies in flight, and release of their memory.

use super::incoming::Buffer;
use super::session::{Head, Session};
use causeway_api::handle::{Context, Handle, Native, Stream};
use causeway_gpu::in_flight::InFlight;
use causeway_gpu::{CuResult, Gpu};
use rustc_hash::FxHashMap;

/// A stream's memory in flight is reclaimed when it is this much or this many pieces, and at every wait that
/// passes by: one completion for many small copies.
const MAX_BYTES: usize = 4 << 20;
const MAX_PIECES: usize = 16;

/// Which stream it is. Each context has a default stream, and all of these have the same handle.
type Key = (Handle<Context>, u64);

fn key(context: Handle<Context>, stream: Native<Stream>) -> Key {
    let context = if stream == Native::NULL { context } else { Handle::NULL };
    (context, stream.value())
}

/// Memory that the GPU may still read, by stream.
#[derive(Default)]
pub struct UploadsInFlight(FxHashMap<Key, InFlight<Vec<Buffer>>>);

impl UploadsInFlight {
    /// Takes out what is in flight in a stream, for a completion that comes after all of it.
    pub fn take(
        &mut self,
        context: Handle<Context>,
        stream: Native<Stream>,
    ) -> Option<InFlight<Vec<Buffer>>> {
        self.0.remove(&key(context, stream))
    }

    /// Keeps `buffer` until `stream` has passed what it holds now. Where memory like it `is_scarce`, all of
    /// the stream's is reclaimed at once.
    pub fn add(
        &mut self,
        gpu: &dyn Gpu,
        context: Handle<Context>,
        stream: Native<Stream>,
        buffer: InFlight<Buffer>,
        is_scarce: bool,
    ) -> CuResult<()> {
        let in_flight = self.0.entry(key(context, stream));
        let in_flight = in_flight.or_insert_with(|| InFlight::in_stream(gpu, Vec::new(), 0, stream));
        in_flight.push(buffer);
        if in_flight.bytes() < MAX_BYTES && in_flight.count() < MAX_PIECES && !is_scarce {
            return Ok(());
        }
        self.reclaim(gpu, context, stream)
    }

    /// Gets a stream's memory back once the stream has passed what it holds now. The stream's context is
    /// current.
    pub fn reclaim(
        &mut self,
        gpu: &dyn Gpu,
        context: Handle<Context>,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        match self.take(context, stream) {
            Some(in_flight) => in_flight.drop_after_a_while(gpu),
            None => Ok(()),
        }
    }

    /// Gets back what is in flight in the default stream of a context that is about to end: nobody could ask
    /// for it afterwards.
    pub fn context_ends(&mut self, session: &Session, head: Head, context: Handle<Context>) -> CuResult<()> {
        let Some(in_flight) = self.take(context, Native::NULL) else { return Ok(()) };
        // What is refused is set aside, and the context can end.
        let _ = session.enter_context(context).and_then(|()| in_flight.drop_after_a_while(session.gpu()));
        session.enter_context(head.context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_streams_of_two_contexts_are_two_streams() {
        let [one, other] = [1, 2].map(|index| Handle::<Context>::new(index, 1));
        let stream = Native::from_value(0x55);
        assert_ne!(key(one, Native::NULL), key(other, Native::NULL));
        // Any other has its own context, whichever the command names.
        assert_eq!(key(one, stream), key(other, stream));
    }
}

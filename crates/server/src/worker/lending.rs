//! When does memory of copies to the device come back?

use super::incoming::Buffer;
use super::session::{Head, Session};
use causeway_api::handle::{Context, Handle, Native, Stream};
use causeway_gpu::busy::Busy;
use causeway_gpu::{CuResult, Gpu};
use rustc_hash::FxHashMap;

/// A stream's lent memory is asked back when it is this much or this many pieces, and at every wait that
/// passes by: one completion for many small copies.
const MOST_LENT_BYTES: usize = 4 << 20;
const MOST_LENT_PIECES: usize = 16;

/// Which stream it is. Each context has a default stream, and all of these have the same handle.
type Key = (Handle<Context>, u64);

fn key(context: Handle<Context>, stream: Native<Stream>) -> Key {
    let context = if stream == Native::NULL { context } else { Handle::NULL };
    (context, stream.value())
}

/// Memory that the GPU may still read, by stream.
#[derive(Default)]
pub struct Lending(FxHashMap<Key, Busy<Vec<Buffer>>>);

impl Lending {
    /// Takes out what is lent to a stream, for a completion that comes after all of it.
    pub fn take(&mut self, context: Handle<Context>, stream: Native<Stream>) -> Option<Busy<Vec<Buffer>>> {
        self.0.remove(&key(context, stream))
    }

    /// Keeps `buffer` until `stream` has passed what it holds now. Where memory like it `is_scarce`, all of
    /// the stream's is asked back at once.
    pub fn lend(
        &mut self,
        gpu: &dyn Gpu,
        context: Handle<Context>,
        stream: Native<Stream>,
        buffer: Busy<Buffer>,
        is_scarce: bool,
    ) -> CuResult<()> {
        let lent = self.0.entry(key(context, stream));
        let lent = lent.or_insert_with(|| Busy::in_stream(gpu, Vec::new(), 0, stream));
        lent.push(buffer);
        if lent.bytes() < MOST_LENT_BYTES && lent.count() < MOST_LENT_PIECES && !is_scarce {
            return Ok(());
        }
        self.ask_back(gpu, context, stream)
    }

    /// Gets a stream's lent memory back once the stream has passed what it holds now. The stream's context is
    /// current.
    pub fn ask_back(
        &mut self,
        gpu: &dyn Gpu,
        context: Handle<Context>,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        match self.take(context, stream) {
            Some(lent) => lent.drop_after_a_while(gpu),
            None => Ok(()),
        }
    }

    /// Gets back what is lent to the default stream of a context that is about to end: nobody could ask for
    /// it afterwards.
    pub fn context_ends(&mut self, session: &Session, head: Head, context: Handle<Context>) -> CuResult<()> {
        let Some(lent) = self.take(context, Native::NULL) else { return Ok(()) };
        // What is refused is set aside, and the context can end.
        let _ = session.enter_context(context).and_then(|()| lent.drop_after_a_while(session.gpu()));
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

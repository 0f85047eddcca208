//! Work of a context: synchronisation with it (`cuCtxSynchronize`), and proxy streams: streams of ours for
//! copies between servers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_api::calls;
use causeway_api::handle::{Context, Handle, Stream};
use causeway_api::sys::{CUresult, CUstream_flags};

use crate::model::context::StreamKey;
use crate::model::context::{self, ContextState};
use crate::model::handles;
use crate::model::stream::StreamState;
use crate::remote::session;
use crate::submit::{send, streams, waits};

/// Waits for published copies, before something changes that does not come behind them by itself.
pub fn finish_published() -> Result<(), CUresult> {
    context::active().try_for_each(|context| context.finish_published())
}

/// Waits for all work of a context; one that has ended has none.
pub fn synchronize(context: Handle<Context>) -> Result<(), CUresult> {
    context::state(context).map_or(Ok(()), |context| context.synchronize())
}

impl ContextState {
    fn finish_published(&self) -> Result<(), CUresult> {
        let published = self.published.load(Ordering::Acquire);
        let is_done = self.watermark.done() >= published || self.legacy_stream.has_done(published);
        if is_done { Ok(()) } else { self.synchronize() }
    }

    /// Waits until everything in it is done and its bytes are in the program's memory.
    pub fn synchronize(&self) -> Result<(), CUresult> {
        let pending = context::pending_writes_of_all(self);
        let newest = handles::sequence(self.handle);
        if self.is_idle() {
            session::of(self.handle)?.faults().take()?;
        } else {
            let (plain, compared) = (calls::context_synchronize {}, calls::context_synchronize_mirrored {});
            waits::wait_for_context(self.handle, &self.watermark, newest, &plain, &compared)?;
        }
        pending.wait()?;
        self.watermark.fetch(self.handle.server(), newest)
    }
}

/// Proxy streams that a context may have before those are looked for whose streams have ended.
const MAX_PROXY_STREAMS: usize = 32;

impl ContextState {
    /// A stream of ours in it, for parts of copies whose own stream, `of`, is another server's. Each such
    /// stream has its own, so that none waits for what another one waits for.
    pub fn proxy(&self, of: &StreamState) -> Result<Arc<StreamState>, CUresult> {
        let mut proxy_streams = self.proxy_streams.lock();
        let proxy_streams = &mut proxy_streams.of_streams;
        if proxy_streams.len() >= MAX_PROXY_STREAMS {
            for (_, (_, proxy)) in proxy_streams.extract_if(|_, (of, _)| !of.exists()) {
                streams::destroy(proxy)?;
            }
        }
        if let Some((_, known)) = proxy_streams.get(&of.id).filter(|(_, proxy)| handles::is_valid(*proxy)) {
            return context::stream(*known);
        }
        let made = self.own_stream()?;
        proxy_streams.insert(of.id, (StreamKey { handle: of.handle, context: of.context }, made));
        context::stream(made)
    }

    /// The stream of ours in which other servers read: it never waits for anything.
    pub fn reader(&self) -> Result<Arc<StreamState>, CUresult> {
        let mut proxy_streams = self.proxy_streams.lock();
        if let Some(known) = proxy_streams.reader.filter(|known| handles::is_valid(*known)) {
            return context::stream(known);
        }
        context::stream(*proxy_streams.reader.insert(self.own_stream()?))
    }

    fn own_stream(&self) -> Result<Handle<Stream>, CUresult> {
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
        streams::create_in(self, flags, 0, |stream, priority| {
            send::post_in(self.handle, &calls::stream_create { stream, flags, priority })
        })
    }
}

//! Proxy streams: streams of ours in a context for copies between servers.

use crate::model::context;
use crate::model::context::ContextState;
use crate::model::context::proxy_streams::StreamKey;
use crate::model::handles;
use crate::model::stream::StreamState;
use crate::submit::send;
use crate::submit::streams;
use causeway_api::calls;
use causeway_api::handle::{Handle, Stream};
use causeway_api::sys::{CUresult, CUstream_flags};
use std::sync::Arc;

/// So many proxy streams may a context have before those are looked for whose streams have ended.
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

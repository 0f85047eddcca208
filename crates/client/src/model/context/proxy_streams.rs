//! Proxy streams: streams of ours in a context for copies between servers.

use crate::model::handles;
use causeway_api::handle::{Context, Handle, Stream};
use std::collections::HashMap;

/// The streams of ours in a context for copies that concern several servers.
#[derive(Default)]
pub struct ProxyStreams {
    /// By the number of the stream whose copies each carries.
    pub of_streams: HashMap<u64, (StreamKey, Handle<Stream>)>,
    /// The one in which other servers read.
    pub reader: Option<Handle<Stream>>,
}

/// A stream of the program, which may be a legacy default stream.
pub struct StreamKey {
    /// Its handle; null for a legacy default stream.
    pub handle: Handle<Stream>,
    /// Its context.
    pub context: Handle<Context>,
}

impl StreamKey {
    /// Whether the proxy stream is still there.
    pub fn exists(&self) -> bool {
        handles::is_valid(self.context) && (self.handle.is_null() || handles::is_valid(self.handle))
    }
}

//! Construction of a link from connected queue pairs.

use std::io;
use std::sync::Arc;

use causeway_connection::channel::Connection;
use causeway_ibverbs::{Access, Buffer, RemoteMemory};
use causeway_transport::Parts;
use causeway_wire::handshake::VerbsEnd;

use super::messages::ended;
use crate::endpoint::{Memory, Prepared};
use crate::error::UpgradeError;
use crate::path::{Path, send_layout};
use crate::state::{LinkResources, State};
use crate::transfers::parts;

/// Queue pairs that carry messages both ways, and the connection beside them.
pub struct Joined {
    pub(super) state: Arc<State>,
    pub(super) setup: Connection,
}

impl core::fmt::Debug for Joined {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Joined").field("queue_pairs", &self.state.paths.len()).finish_non_exhaustive()
    }
}

impl Joined {
    /// What carries the session's link. `command` is the connection over which the session was asked for; it
    /// ends with the session.
    pub fn parts(self, command: &Connection) -> io::Result<Parts> {
        let sockets = [command.socket().try_clone()?, self.setup.socket().try_clone()?];
        self.state.ends_with(sockets);
        parts(self.state, self.setup, command)
    }
}

/// Everything of a link over queue pairs that are joined.
pub(super) fn assemble(prepared: Prepared, peer: &VerbsEnd) -> Result<Arc<State>, UpgradeError> {
    let Prepared { queue_pairs, completions, receives, memory, domain, counts, settings, .. } = prepared;
    let Memory { arena, staging, mut messages, shortage } = memory;
    let bytes = send_layout(counts.queue_pairs as usize, peer.depth as usize);
    if bytes > messages.len() {
        messages = Buffer::new(&domain, bytes, Access::LOCAL_WRITE)?;
    }
    let path = |(index, pair)| {
        Path::new(pair, index, counts.depth, peer.depth, settings.signal_interval, settings.inline)
    };
    let materials = LinkResources {
        paths: queue_pairs.into_iter().enumerate().map(path).collect(),
        completions,
        receives,
        messages,
        arena,
        staging,
        peer_arena: RemoteMemory { address: peer.arena, key: peer.arena_key },
        peer_slots: peer.arena_slots,
        domain,
        prefers: settings.prefers,
        shortage,
        depth: counts.depth,
        poll: settings.poll,
    };
    State::new(materials).map_err(ended)
}

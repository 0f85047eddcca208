//! How do two processes come to be joined by queue pairs?
//!
//! The client opens one more connection to the server, proves there that it owns the session, and says what
//! it would like; the broker hands the connection to the session's worker. Both then tell each other what
//! their queue pairs need and bring them up, or let rdma_cm do that, which iWARP demands; the client greets
//! the worker on each queue pair, the worker answers there, and with that the client decides to go on over
//! verbs and says so. Until then either may give up by ending the connection, and the session stays on TCP.
//!
//! | Module        | Question it answers                                                                   |
//! |---------------|---------------------------------------------------------------------------------------|
//! | `client`      | Could a client use verbs, and what does it do to be joined?                           |
//! | `worker`      | What does the worker do to be joined, and what does the client hear where that fails? |
//! | `description` | What does an end tell the other one, and what follows for the paths between them?     |
//! | `by_manager`  | How does rdma_cm join the queue pairs of both ends?                                   |

mod by_manager;
mod client;
mod description;
mod worker;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_ibverbs::{Access, Buffer, RemoteMemory};
use causeway_wire::codec::{Decode, Decoder};
use causeway_wire::frame::MAX_OPENING;
use causeway_wire::handshake::{Answer, VerbsEnd};

pub use client::{Chance, chance, chance_with};
pub use worker::{offer, offer_with};

use super::JoinError;
use super::ends::{Memory, Prepared};
use super::path::{Path, send_layout};
use super::state::{Materials, State};
use super::transfers::parts;
use causeway_connection::channel::Connection;
use causeway_transport::{LinkError, Parts};

/// How long either end waits for the whole of it. What cannot be is said at once, and the end of a process is
/// noticed, so that this much is waited only for a machine that is busy, with the start of hundreds of
/// sessions for instance, or for packets of rdma_cm that nobody answers.
const PATIENCE: Duration = Duration::from_secs(15);

/// Queue pairs that carry messages both ways, and the connection beside them.
pub struct Joined {
    state: Arc<State>,
    setup: Connection,
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
fn assemble(prepared: Prepared, peer: &VerbsEnd) -> Result<Arc<State>, JoinError> {
    let Prepared { queue_pairs, completions, receives, memory, domain, counts, settings, .. } = prepared;
    let Memory { arena, staging, mut messages, shortage } = memory;
    let bytes = send_layout(counts.queue_pairs as usize, peer.depth as usize);
    if bytes > messages.len() {
        messages = Buffer::new(&domain, bytes, Access::LOCAL_WRITE)?;
    }
    let path = |(index, pair)| {
        Path::new(pair, index, counts.depth, peer.depth, settings.signal_interval, settings.inline)
    };
    let materials = Materials {
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

fn receive<T: for<'a> Decode<'a>>(setup: &mut Connection, deadline: Instant) -> Result<T, JoinError> {
    let body = setup.receive_handshake(MAX_OPENING, deadline);
    let body = body.map_err(|error| JoinError::Connection(error.to_string()))?;
    let mut input = Decoder::new(&body);
    let value = input.value().and_then(|value| input.finish().map(|()| value));
    value.map_err(|_| JoinError::Protocol("a message for setting up verbs makes no sense"))
}

fn expect_ready(setup: &mut Connection, deadline: Instant) -> Result<(), JoinError> {
    match receive::<Answer>(setup, deadline)? {
        Answer::VerbsReady => Ok(()),
        Answer::Refused { text } => Err(JoinError::Refused(text)),
        _ => Err(JoinError::Protocol("it says something else than that it is ready")),
    }
}

fn ended(error: io::Error) -> JoinError {
    JoinError::Connection(error.to_string())
}

fn path_failed(error: LinkError) -> JoinError {
    JoinError::Path(match error {
        LinkError::PeerSilent => "nothing was heard on them in time".to_owned(),
        other => other.to_string(),
    })
}

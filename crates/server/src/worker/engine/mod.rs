//! What does the engine of a session have, and who may issue its client's commands?
//!
//! It issues them in order, parks what cannot be issued yet, and answers. One lock holds the order. The receiving thread
//! holds it while it issues a command; whoever makes a parked command ready (a thread that receives bulk data, a completion
//! of the back end) calls [`Engine::wake`], which issues it at once if the lock is free, and leaves it to the holder
//! otherwise, or to the receiving thread if that looks for such things. No command is issued by two threads at a time, and nobody waits for the GPU while holding the lock.
//!
//! | Module     | Question it answers                                                |
//! |------------|--------------------------------------------------------------------|
//! | `parked`   | When is a command issued, and where is it until then?              |
//! | `progress` | How far is a stream, and does it hold as much as the driver takes? |
//! | `issue`    | In which context, and behind what, is a command carried out?       |
//! | `attention`| Who sees to it that something has become ready?                    |
//! | `answers`  | What is the client told?                                           |
//! | `events`   | What does the engine do with what the link tells it?               |

mod answers;
mod attention;
mod events;
mod issue;
mod parked;
mod progress;
#[cfg(test)]
mod tests;

pub use events::Events;

use super::arena::Arena;
use super::client_memory::ClientMemory;
use super::copies::Lending;
use super::direct::{DeviceBlocks, Direct};
use super::fences::Fences;
use super::gates::Gates;
use super::incoming::Incoming;
use super::kept::KeptImages;
use super::mirrors::Mirrors;
use super::order::{Blockers, StreamKinds};
use super::peers::Peers;
use super::pool::Pool;
use crate::broker::Exchange;
use attention::Attention;
use causeway_api::calls::Opcode;
use causeway_api::handle::{Context, Handle};
use causeway_gpu::Gpu;
use causeway_gpu::objects::Objects;
use causeway_link::{DeviceUse, Link};
use causeway_wire::codec::DecodeError;
use parked::Parked;
use parking_lot::Mutex;
use progress::Progress;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use thiserror::Error;

/// How long a worker whose client has gone may take to write images to the cache.
const MOST_KEEPING: Duration = Duration::from_secs(5);

/// Why a session cannot go on.
#[derive(Debug, Error)]
pub enum ProtocolError {
    /// A message or a command's arguments could not be decoded.
    #[error("the client sent a message that cannot be decoded: {0}")]
    Undecodable(#[from] DecodeError),
    /// A command has a number that the declaration list does not have.
    #[error("the client sent command number {0}, which this server does not know")]
    UnknownCommand(u16),
    /// The client posts without end into streams that do not move.
    #[error("the client has {0} bytes of commands waiting for streams that do not move")]
    TooMuchParked(usize),
}

/// Whom to answer, and in whose context a command runs.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Number of the call, 0 when no reply is expected.
    pub call: u32,
    /// The client's handle of the context, null when the command needs none.
    pub context: Handle<Context>,
    /// The command.
    pub opcode: Opcode,
}

/// What the lock protects.
#[derive(Default)]
pub struct State {
    parked: VecDeque<Parked>,
    parked_bytes: usize,
    pub(super) blockers: Blockers,
    kinds: StreamKinds,
    pub(super) fences: Fences,
    progress: FxHashMap<u64, Progress>,
    pub(super) lending: Lending,
    pub(super) reply: Vec<u8>,
}

/// The engine of one session.
pub struct Engine {
    pub(super) gpu: Arc<dyn Gpu>,
    pub(super) objects: Objects,
    pub(super) link: Link,
    pub(super) exchange: Arc<Exchange>,
    pub(super) incoming: Incoming,
    /// Memory shared with the client, where the link has any.
    pub(super) arena: Option<Arc<Arena>>,
    /// Device memory that network cards reach, or why there is none.
    pub(super) direct: Result<Direct, String>,
    /// Blocks of device memory that cards of any link may come to reach.
    pub(super) blocks: Arc<DeviceBlocks>,
    pub(super) mirrors: Mirrors,
    pub(super) client_memory: ClientMemory,
    pub(super) peers: Peers,
    /// Bytes of copies to the client that are under way.
    pub(super) outgoing: AtomicUsize,
    /// Threads for slow driver calls.
    pub(super) aside: Pool,
    /// The one thread for the linker of device code.
    pub(super) linker: Pool,
    /// Images of earlier sessions, if they are kept.
    pub(super) images: Option<Arc<KeptImages>>,
    /// The thread that hands images over.
    pub(super) keeper: Pool,
    /// Bytes of copies that it has still to write.
    pub(super) keeping: Arc<AtomicUsize>,
    /// Objects whose making aside has ended since the lock was last taken.
    pub(super) made: Mutex<Vec<u64>>,
    pub(super) gates: Mutex<Gates>,
    state: Mutex<State>,
    /// Whether something that a parked command waits for has come since the lock was last taken.
    attention: Attention,
}

impl Engine {
    /// An engine that executes on `gpu`, answers over `link`, leaves images with `images`, and shares with other sessions
    /// by `exchange`.
    pub fn new(
        gpu: Arc<dyn Gpu>,
        link: Link,
        images: Option<KeptImages>,
        exchange: Arc<Exchange>,
    ) -> Arc<Self> {
        let arena = link.regions().map(Arena::new);
        let blocks = Arc::default();
        let direct = Direct::new(&link, &*gpu, &blocks, DeviceUse::Own);
        Arc::new(Self {
            gpu,
            direct,
            blocks,
            objects: Objects::default(),
            arena,
            link,
            exchange,
            incoming: Incoming::default(),
            mirrors: Mirrors::default(),
            client_memory: ClientMemory::default(),
            peers: Peers::default(),
            outgoing: AtomicUsize::new(0),
            aside: Pool::new("causeway-aside", 4),
            linker: Pool::new("causeway-link", 1),
            images: images.map(Arc::new),
            keeper: Pool::new("causeway-keep", 1),
            keeping: Arc::default(),
            made: Mutex::default(),
            gates: Mutex::default(),
            state: Mutex::default(),
            attention: Attention::default(),
        })
    }

    /// Lets go of every stream that waits for the client, and finishes what is for later sessions.
    pub fn close(&self) {
        self.gates.lock().open_all();
        self.peers.close();
        self.keeper.finish(MOST_KEEPING);
    }
}

//! State of a session's engine.

use super::fences::Fences;
use super::queue::CommandQueue;
use crate::handover::Exchange;
use crate::worker::arena::Arena;
use crate::worker::downloads::Downloads;
use crate::worker::host_functions::HostFunctions;
use crate::worker::journal::Journal;
use crate::worker::memory::HostMemory;
use crate::worker::memory::mirrors::Mirrors;
use crate::worker::peers::PeerCopies;
use crate::worker::pool::Pool;
use crate::worker::rdma::RdmaCopies;
use crate::worker::session::Session;
use crate::worker::uploads::{CachedImages, Uploads};
use crate::worker::uploads_in_flight::UploadsInFlight;
use causeway_gpu::Gpu;
use causeway_link::Link;
use causeway_sync::Delegated;
use causeway_wire::codec::DecodeError;
use parking_lot::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;
use thiserror::Error;

/// How long a worker whose client has gone may take to write images to the cache.
const MAX_RETENTION: Duration = Duration::from_secs(5);

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

/// What the lock protects: whoever has it issues commands, also those that have become ready meanwhile.
#[derive(Default)]
pub(super) struct State {
    pub queue: CommandQueue,
    pub fences: Fences,
    pub in_flight: UploadsInFlight,
    /// How many commands have been issued.
    pub issued: u64,
    /// Where results of the command are gathered that is being issued.
    pub reply: Vec<u8>,
}

/// The engine of one session: its parts, each of which does one kind of work.
pub struct Engine {
    pub(super) session: Arc<Session>,
    pub(super) uploads: Uploads,
    pub(super) downloads: Downloads,
    pub(super) rdma: RdmaCopies,
    pub(super) peers: PeerCopies,
    pub(super) memory: Arc<HostMemory>,
    pub(super) host_functions: HostFunctions,
    /// The one thread for the linker of device code.
    pub(super) linker: Pool,
    /// The one thread that looks for changes in many mirrors.
    pub(super) searcher: Pool,
    /// Objects whose making in the background has ended since the lock was last taken.
    pub(super) made: Arc<Mutex<Vec<u64>>>,
    /// Whether other processes have memory or events of the session, or it theirs.
    pub(super) is_shared: AtomicBool,
    /// Whether workers of other servers copy from the session, or it from them.
    pub(super) has_peers: AtomicBool,
    /// The end of all work is asked for.
    pub(super) is_waiting_for_idle: AtomicBool,
    /// What made the session's objects, where another worker may have to make them again.
    pub(super) journal: Journal,
    /// What is left to who holds it: to issue deferred commands that have become ready.
    pub(super) state: Delegated<State>,
}

impl Engine {
    /// An engine that executes on `gpu`, answers over `link`, leaves images with `images`, and shares with
    /// other sessions by `exchange`.
    pub fn new(
        gpu: Arc<dyn Gpu>,
        link: Link,
        images: Option<CachedImages>,
        exchange: Arc<Exchange>,
    ) -> Arc<Self> {
        let arena = link.regions().map(Arena::new);
        let journal = if link.is_resumable() { Journal::recording() } else { Journal::default() };
        let session = Session::new(gpu, link, exchange);
        let rdma = RdmaCopies::new(&session);
        let engine = Arc::new(Self {
            uploads: Uploads::new(arena.clone(), images),
            downloads: Downloads::new(arena),
            peers: PeerCopies::new(rdma.blocks()),
            rdma,
            memory: Arc::default(),
            host_functions: HostFunctions::default(),
            linker: Pool::new("causeway-link", 1),
            searcher: Pool::new("causeway-mirror", 1),
            made: Arc::default(),
            is_shared: AtomicBool::new(false),
            has_peers: AtomicBool::new(false),
            is_waiting_for_idle: AtomicBool::new(false),
            journal,
            state: Delegated::default(),
            session,
        });
        let queue: Weak<Self> = Arc::downgrade(&engine);
        engine.session.set_queue(queue);
        engine
    }

    /// What all parts of it work with.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The session's part in copies to the device.
    pub fn uploads(&self) -> &Uploads {
        &self.uploads
    }

    /// What made the session's objects.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Copies of the program's memory that kernels reach.
    pub fn mirrors(&self) -> &Mirrors {
        &self.memory.mirrors
    }

    /// Streams that wait for the client.
    pub fn host_functions(&self) -> &HostFunctions {
        &self.host_functions
    }

    /// Tells the client whether network cards reach the devices' memory.
    pub fn announce_direct(&self) {
        self.rdma.announce(&self.session);
    }

    /// Lets go of every stream that waits for the client, and finishes what is for later sessions.
    pub fn close(&self) {
        self.host_functions.open_all();
        self.peers.close();
        self.uploads.finish(MAX_RETENTION);
    }
}

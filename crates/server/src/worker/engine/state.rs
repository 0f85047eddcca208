//! State of a session's engine: its parts, whether anything is under way or holds device memory, and memory
//! of other servers that is unmapped later.
//!
//! Never while work is under way. The driver waits in cuMemUnmap for all work of the device, with a lock that
//! most of its calls need: a stream that stands still until the client's next command (a value that it waits
//! for, a host function) would then stand still for ever (two servers on an H100, driver 580, 2026-11-26: 3
//! of 4,000 random programs). The client has not asked for the unmapping, and so its program cannot know of
//! it.
//!
//! So this asks for the end of all work in all contexts, and unmaps when it has come and no command has been
//! issued since, with the lock in hand without which none is. Otherwise it asks again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use causeway_api::calls::EngineRequest;
use causeway_api::handle::Context;
use causeway_gpu::Gpu;
use causeway_link::Link;
use causeway_sync::Delegated;
use causeway_wire::codec::DecodeError;
use causeway_wire::handshake::Features;
use thiserror::Error;

use crate::locks::{Mutex, rank};
use crate::worker::arena::Arena;
use crate::worker::downloads::Downloads;
use crate::worker::engine::event_renewal::RenewableEvents;
use crate::worker::engine::fences::Fences;
use crate::worker::engine::queue::CommandQueue;
use crate::worker::host_functions::HostFunctions;
use crate::worker::journal::Journal;
use crate::worker::launches::Launches;
use crate::worker::memory::HostMemory;
use crate::worker::memory::client_memory::ClientMemory;
use crate::worker::memory::mirrors::Mirrors;
use crate::worker::peers::PeerCopies;
use crate::worker::pool::Pool;
use crate::worker::rdma::RdmaCopies;
use crate::worker::release_check::{Busy, Held};
use crate::worker::session::Session;
use crate::worker::uploads::{CachedImages, Uploads};
use crate::worker::uploads_in_flight::UploadsInFlight;
use crate::worker_process::Exchange;

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
    #[error("the client has {0} bytes of commands that wait for streams that make no progress")]
    TooMuchDeferred(usize),
}

/// What the lock protects: whoever has it issues commands, also those that have become ready meanwhile.
#[derive(Default)]
pub(super) struct State {
    pub queue: CommandQueue,
    pub fences: Fences,
    pub events: RenewableEvents,
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
    pub(super) launches: Launches,
    /// The one thread for the linker of device code.
    pub(super) linker: Pool,
    /// The one thread that looks for changes in many mirrors.
    pub(super) searcher: Pool,
    /// Objects whose making in the background has ended since the lock was last taken.
    pub(super) made: Arc<Mutex<rank::Leaf, Vec<u64>>>,
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
        // Only where another worker may have to make the session's objects again.
        let may_fork = exchange
            .identity()
            .is_some_and(|identity| identity.hello.abilities.features.contain(Features::FORKS));
        let journal = if link.is_resumable() || may_fork { Journal::recording() } else { Journal::default() };
        let session = Session::new(gpu, link, exchange);
        let rdma = RdmaCopies::new(&session);
        let engine = Arc::new(Self {
            uploads: Uploads::new(arena.clone(), images),
            downloads: Downloads::new(arena),
            peers: PeerCopies::new(rdma.blocks()),
            rdma,
            memory: Arc::default(),
            host_functions: HostFunctions::default(),
            launches: Launches::new(&session),
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

    /// Memory of the program that this process has, too.
    pub fn client_memory(&self) -> &ClientMemory {
        &self.memory.shared
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

/// After a command came in between: a client that goes on is asked about so often at most.
const IDLE_QUERY_INTERVAL: Duration = Duration::from_millis(5);

/// Waits, by being held, for the work of all contexts.
struct IdleWait {
    engine: Arc<Engine>,
    /// The commands that had been issued before.
    issued: u64,
    is_unknown: AtomicBool,
}

impl Drop for IdleWait {
    fn drop(&mut self) {
        let (engine, issued) = (Arc::clone(&self.engine), self.issued);
        let is_known = !self.is_unknown.load(Ordering::Relaxed);
        self.engine.session().in_background(move || engine.on_idle(is_known.then_some(issued)));
    }
}

impl Engine {
    /// Asks for the end of all work, unless that is asked for already, or nothing is to be unmapped.
    pub(super) fn wait_for_idle(self: &Arc<Self>) {
        if self.session.retired().is_empty() || self.is_waiting_for_idle.swap(true, Ordering::AcqRel) {
            return;
        }
        let state = self.state.lock();
        let issued = state.issued;
        self.state.release(state, |state| self.resume(state));
        let in_flight =
            Arc::new(IdleWait { engine: Arc::clone(self), issued, is_unknown: AtomicBool::new(false) });
        for context in self.session.objects().handles::<Context>() {
            // With a context its work has ended.
            if self.session.enter_context(context).is_err() {
                continue;
            }
            let held = Arc::clone(&in_flight);
            if self.session.gpu().after_context(Box::new(move |_| drop(held))).is_err() {
                in_flight.is_unknown.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The work of all contexts has ended since so many commands had been issued; none where that is unknown.
    fn on_idle(self: &Arc<Self>, issued: Option<u64>) {
        self.is_waiting_for_idle.store(false, Ordering::Release);
        let state = self.state.lock();
        let is_idle = issued == Some(state.issued);
        if is_idle {
            for imported in self.session.retired().drain(..) {
                if let Err(error) = self.session.gpu().unmap_imported(imported) {
                    tracing::warn!(status = error.0, "cannot release memory of another server");
                }
            }
        }
        self.state.release(state, |state| self.resume(state));
        if !is_idle && issued.is_some() {
            std::thread::sleep(IDLE_QUERY_INTERVAL);
            self.wait_for_idle();
        }
    }
}

impl Engine {
    /// What is under way; what streams hold is the back end's to say.
    pub fn busy(self: &Arc<Self>) -> Option<Busy> {
        let activity = self.session.exchange().activity();
        if activity.is_reply_owed() {
            return Some(Busy::Call);
        }
        let state = self.state.lock();
        let is_deferred = state.queue.holds_any();
        self.state.release(state, |state| self.resume(state));
        if is_deferred {
            return Some(Busy::Deferred);
        }
        if self.uploads.incoming().are_any_awaited() || !self.downloads.are_all_sent() {
            return Some(Busy::Transfer);
        }
        let pools = [self.session.background(), &self.linker, &self.searcher];
        let is_slow_work = !pools.iter().all(|pool| pool.is_idle()) || !self.made.lock().is_empty();
        if is_slow_work {
            return Some(Busy::Background);
        }
        // The end of some launches may not be asked for yet.
        self.launches.are_any().then_some(Busy::Stream)
    }

    /// What is under way, apart from bytes that have come and wait for commands of the client, which are held back.
    pub fn busy_but_for_commands(self: &Arc<Self>) -> Option<Busy> {
        if self.session.exchange().activity().is_reply_owed() {
            return Some(Busy::Call);
        }
        let state = self.state.lock();
        let is_deferred = state.queue.holds_any();
        self.state.release(state, |state| self.resume(state));
        if is_deferred {
            return Some(Busy::Deferred);
        }
        if !self.downloads.are_all_sent() {
            return Some(Busy::Transfer);
        }
        let pools = [self.session.background(), &self.linker, &self.searcher];
        let is_slow_work = !pools.iter().all(|pool| pool.is_idle()) || !self.made.lock().is_empty();
        if is_slow_work {
            return Some(Busy::Background);
        }
        (self.launches.are_any() || !self.session.gpu().is_quiet()).then_some(Busy::Stream)
    }

    /// What holds the session's memory on the device for good.
    pub fn held_by(&self) -> Option<Held> {
        if self.is_shared.load(Ordering::Relaxed) {
            Some(Held::Shared)
        } else if self.has_peers.load(Ordering::Relaxed) {
            Some(Held::Peers)
        } else {
            self.rdma.has_registrations().then_some(Held::Rdma)
        }
    }

    /// Takes note of a command that shares memory with other processes.
    pub(super) fn note_sharing(&self, request: &EngineRequest<'_, '_>) {
        let flag = match request {
            EngineRequest::allocation_export(_)
            | EngineRequest::allocation_import(_)
            | EngineRequest::event_export(_)
            | EngineRequest::event_import(_) => &self.is_shared,
            EngineRequest::peer_ticket(_)
            | EngineRequest::peer_connect(_)
            | EngineRequest::peer_export(_)
            | EngineRequest::peer_import(_) => &self.has_peers,
            _ => return,
        };
        flag.store(true, Ordering::Relaxed);
    }

    /// How many contexts the session has.
    pub fn contexts(&self) -> usize {
        self.session.objects().handles::<Context>().len()
    }

    /// Has the device forget memory that is shared with the client, which is registered again when it is used next.
    pub fn forget_shared_memory(&self) {
        self.uploads.forget_registrations();
    }
}

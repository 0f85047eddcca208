//! State of a rank, with the wake-up of the thread that watches copies and the callbacks on disconnected
//! peers.

use core::any::Any;
use core::fmt;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::board::Board;
use crate::bootstrap::{Connection, Stop};
use crate::channels::bar::EagerCopies;
use crate::cuda::CudaError;
use crate::identity::Namespaces;
use crate::job::Job;
use crate::live::Live;
use crate::locks::{Monitor, Mutex, MutexGuard, rank};
use crate::moving::Gate;
use crate::profile::{Profile, ProfileError};
use crate::report::{MessagePath, Report};
use crate::scheduler::Table;
use crate::settings::Settings;
use crate::tracer::Tracers;
use crate::transfer::Fetcher;
use crate::transfer::fetch::PendingFetch;
use crate::transfer::in_flight::InFlight;
use crate::transfer::offers::Offers;
use crate::transfer::state_words::StateWords;

/// How long a peer may say nothing in the middle of a transfer. One that ends is noticed at once.
pub(super) const PEER_TIMEOUT: Duration = Duration::from_secs(60);

/// Threads, with the peer that each serves.
type Threads = Vec<(Option<u32>, JoinHandle<()>)>;

/// A rank's part in its job.
#[derive(Debug)]
pub struct World {
    pub(super) shared: Arc<Shared>,
    /// Who lets other ranks in, and what ends that.
    pub(super) acceptor: Mutex<rank::Leaf, Option<(Stop, JoinHandle<()>)>>,
    /// Threads, and the peer whose each is.
    pub(super) threads: Mutex<rank::Leaf, Threads>,
    pub(super) profile_error: Option<ProfileError>,
    pub(super) user_data: OnceLock<UserData>,
}

/// What a module above keeps as long as the rank has its part.
pub(super) struct UserData(pub(super) Box<dyn Any + Send + Sync>);

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserData")
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) job: Job,
    pub(super) rank: u32,
    pub(super) settings: Settings,
    pub(super) board: Mutex<rank::Leaf, Board>,
    /// Whether messages may start: not while this rank moves.
    pub(super) gate: Gate,
    /// How often it has moved. Counted with the peers locked.
    pub(super) moves: AtomicU64,
    /// Where this process was when it was looked at last.
    pub(super) container_check: Mutex<rank::Leaf, ContainerCheck>,
    pub(super) offers: Offers,
    /// Short messages that the processor copies.
    pub(super) eager: EagerCopies,
    /// Peers that have come to hand messages over.
    pub(super) incoming: Monitor<rank::Incoming, HashMap<u32, Arc<Mutex<rank::Fetcher, Fetcher>>>>,
    /// Those of peers that have moved, or that this rank has moved away from, whose next connection is to
    /// come.
    pub(super) retired: Mutex<rank::Leaf, HashMap<u32, Arc<Mutex<rank::Fetcher, Fetcher>>>>,
    /// Calls of the MPI in which this rank waits, and who knows of that.
    pub(super) waiting: Mutex<rank::WaitingCalls, Waiting>,
    /// Payloads that are being copied.
    pub(super) in_flight: Mutex<rank::CopiesInFlight, InFlight<Copying>>,
    /// Who looks at them.
    pub(super) completion: Completion,
    /// Peers to which this rank hands messages over.
    pub(super) outgoing: Monitor<rank::Leaf, HashMap<u32, Outgoing>>,
    /// Who hears of peers that go.
    pub(super) disconnect_listeners: Arc<DisconnectListeners>,
    /// Buffers of this rank that peers have open, as far as it knows.
    pub(super) open_at: Mutex<rank::Leaf, HashSet<(u32, u64)>>,
    /// What is counted of the traffic with peers.
    pub(super) tracers: Tracers,
    /// The user's, by which channels are chosen.
    pub(super) table: Option<Arc<Table>>,
    /// The rank has ended its part.
    pub(super) has_left: AtomicBool,
    pub(super) report: Mutex<rank::Leaf, Report>,
    /// What others see of the rank while it runs.
    pub(super) live: Arc<Live>,
    /// What was known of channels when this rank joined, and what it has found out since.
    pub(super) profile: Mutex<rank::Leaf, Profile>,
}

impl Shared {
    /// Counts a message to or from a peer.
    pub(super) fn count(&self, peer: u32, path: MessagePath, bytes: u64) {
        self.report.lock().count(peer, path, bytes);
        self.live.count(path, bytes);
    }
}

/// Calls of the MPI in which threads of this rank wait, and the state of the peers that know of it.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) calls: u32,
    pub(super) announced: Vec<Arc<StateWords>>,
}

/// A payload that is being copied, and what has begun that.
#[derive(Debug)]
pub(super) struct Copying {
    pub(super) fetcher: Arc<Mutex<rank::Fetcher, Fetcher>>,
    pub(super) pending_fetch: Box<PendingFetch>,
}

impl Copying {
    pub(super) fn is_done(&self) -> Result<bool, CudaError> {
        self.pending_fetch.is_done()
    }

    pub(super) fn notify_sender(&self, is_well: bool) {
        self.pending_fetch.notify_sender(is_well);
    }
}

/// The container in which a process was found.
#[derive(Debug)]
pub(super) struct ContainerCheck {
    pub(super) namespaces: Namespaces,
    pub(super) checked_at: Instant,
}

#[derive(Debug)]
pub(super) enum Outgoing {
    Connected(Arc<Connection>),
    /// It is looked for, and calls wait for it until then; not where it is looked for at other hosts, which
    /// may take long to answer.
    LookedFor {
        until: Option<Instant>,
        /// It was reached before one of both moved, and is not gone.
        has_moved: bool,
    },
    /// It could not be reached, and is looked for again then. One that `is_silent` took long to give no
    /// answer: no call waits for it any more.
    Missing {
        again: Instant,
        pause: Duration,
        is_silent: bool,
    },
}

/// What the thread and those who begin copies know of each other.
#[derive(Debug, Default)]
pub(super) struct Completion {
    /// Whether the thread could be started, when that has been tried.
    pub(super) is_started: OnceLock<bool>,
    state: Monitor<rank::Leaf, CompletionState>,
}

#[derive(Debug, Default)]
struct CompletionState {
    /// A copy was begun since the thread last went to sleep.
    has_new_copy: bool,
    /// The rank leaves its job.
    is_over: bool,
}

impl Completion {
    /// A copy is under way from now on.
    pub(super) fn copy_started(&self) {
        self.state.change(|state| state.has_new_copy = true);
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.state.change(|state| state.is_over = true);
    }

    /// Sleeps until a copy is begun. Says whether there is one: not when the rank leaves.
    pub(super) fn sleep(&self) -> bool {
        self.state.wait(|state| match state {
            CompletionState { is_over: true, .. } => Some(false),
            CompletionState { has_new_copy, .. } => core::mem::take(has_new_copy).then_some(true),
        })
    }

    /// Sleeps for so long. Says whether there may be something to be seen: not when the rank leaves.
    pub(super) fn pause(&self, interval: Duration) -> bool {
        self.state.wait_for(interval, |state| state.is_over.then_some(())).is_none()
    }
}

type DisconnectCallback = Box<dyn Fn(u32) + Send + Sync>;

/// Those that hear of it.
#[derive(Default)]
pub(super) struct DisconnectListeners(Mutex<rank::DisconnectListeners, Listeners>);

#[derive(Default)]
struct Listeners {
    next: u64,
    listeners: Vec<(u64, DisconnectCallback)>,
}

impl fmt::Debug for DisconnectListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Departures")
    }
}

impl DisconnectListeners {
    fn lock(&self) -> MutexGuard<'_, rank::DisconnectListeners, Listeners> {
        self.0.lock()
    }

    /// A peer has gone. Returns when all that hear of it have done what they do then.
    pub(super) fn notify(&self, peer: u32) {
        for (_, callback) in &self.lock().listeners {
            callback(peer);
        }
    }

    /// Has something called with each peer that goes from now on.
    pub(super) fn listen(self: &Arc<Self>, callback: DisconnectCallback) -> Listener {
        let mut listeners = self.lock();
        let number = listeners.next;
        listeners.next += 1;
        listeners.listeners.push((number, callback));
        drop(listeners);
        Listener { disconnect_listeners: Arc::clone(self), number }
    }
}

/// Hears of peers that have gone, until it is dropped.
#[derive(Debug)]
pub struct Listener {
    disconnect_listeners: Arc<DisconnectListeners>,
    number: u64,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.disconnect_listeners.lock().listeners.retain(|(number, _)| *number != self.number);
    }
}

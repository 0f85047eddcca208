//! Joining and leaving of a job.

use core::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use causeway_config::ValueError;
use causeway_sync::threads;
use thiserror::Error;

use super::state::{Completion, ContainerCheck, DisconnectListeners, Outgoing, Shared, UserData, World};
use crate::board::{Board, BoardError, BoardLocations};
use crate::bootstrap::{BootstrapListener, Stop};
use crate::channels::Channel;
use crate::channels::bar::EagerCopies;
use crate::identity::Identity;
use crate::job::{Job, JobError};
use crate::live::Live;
use crate::locks::{Monitor, Mutex};
use crate::moving::Gate;
use crate::profile::{Profile, ProfileError};
use crate::report::{Algorithm, Inline, MessagePath};
use crate::settings::Settings;
use crate::tracer::Tracers;
use crate::transfer::offers::Offers;

/// Why a process has no part in a job.
#[derive(Debug, Error)]
pub enum WorldError {
    /// No such job or rank.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A setting.
    #[error(transparent)]
    Settings(#[from] ValueError),
    /// No board.
    #[error(transparent)]
    Board(#[from] BoardError),
    /// Something else of the system.
    #[error("cannot open the socket for other ranks: {0}")]
    System(#[from] std::io::Error),
}

impl World {
    /// Joins a job.
    ///
    /// # Errors
    /// When the job has no such rank, or its ranks cannot meet this one.
    pub fn join(nonce: [u8; 16], rank: u32, ranks: u32, settings: Settings) -> Result<Self, WorldError> {
        let job = Job::new(nonce, ranks)?;
        let identity = Identity::of_this_process(settings.placement.as_ref())?;
        let container_check = ContainerCheck { namespaces: identity.namespaces, checked_at: Instant::now() };
        let board = Board::join(&job, rank, 0, identity, &BoardLocations::defaults(settings.folder.clone()))?;
        let profile = settings.profile.as_deref().map_or(Ok(Profile::default()), Profile::load);
        let (profile, profile_error) = match profile {
            Ok(profile) => (profile, None),
            Err(error) => (Profile::default(), Some(error)),
        };
        let live = Arc::new(Live::new(&job, rank, &settings.channels));
        let tracers = Tracers::new(settings.trace_operations);
        let table = settings.table.clone().map(Arc::new);
        let shared = Arc::new(Shared {
            job,
            rank,
            settings,
            board: Mutex::new(board),
            gate: Gate::default(),
            moves: AtomicU64::new(0),
            container_check: Mutex::new(container_check),
            offers: Offers::default(),
            eager: EagerCopies::default(),
            incoming: Monitor::default(),
            retired: Mutex::default(),
            waiting: Mutex::default(),
            in_flight: Mutex::default(),
            completion: Completion::default(),
            outgoing: Monitor::default(),
            disconnect_listeners: Arc::new(DisconnectListeners::default()),
            open_at: Mutex::default(),
            tracers,
            table,
            has_left: AtomicBool::new(false),
            report: Mutex::default(),
            live,
            profile: Mutex::new(profile),
        });
        let acceptor = Mutex::new(Some(accept(&shared)?));
        Ok(Self { shared, acceptor, threads: Mutex::default(), profile_error, user_data: OnceLock::new() })
    }

    /// This process's rank in the job.
    pub fn rank(&self) -> u32 {
        self.shared.rank
    }

    /// The job.
    pub fn job(&self) -> &Job {
        &self.shared.job
    }

    /// Collective calls of so many bytes and more go from GPU to GPU.
    pub fn direct_bytes(&self) -> u64 {
        self.shared.settings.direct_bytes
    }

    /// Whether ranks tell each other of collective calls before they make them.
    pub fn checks(&self) -> bool {
        self.shared.settings.check
    }

    /// Counts a message of a GPU's memory that travels with the MPI.
    pub fn count_inline(&self, peer: u32, bytes: u64, why: Inline) {
        self.shared.count(peer, MessagePath::Inline(why), bytes);
    }

    /// Whether ranks of other hosts may be reached over a network.
    pub fn uses_network(&self) -> bool {
        self.shared.settings.uses_network()
    }

    /// Whether the report is asked for.
    pub fn explains(&self) -> bool {
        self.shared.settings.explain
    }

    /// Counts a collective call of this name, and the bytes that this rank sends and receives in it.
    pub fn count_call(&self, name: &str, algorithm: Algorithm, bytes: u64) {
        self.shared.report.lock().count_call(name, algorithm, bytes);
    }

    /// Why the profile of earlier jobs is not used, if there is one and it is not.
    pub fn profile_error(&self) -> Option<&ProfileError> {
        self.profile_error.as_ref()
    }

    /// Keeps for later jobs what channels have cost, if they are to know it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep_profile(&self) -> Result<(), ProfileError> {
        let Some(path) = self.shared.settings.profile.as_deref() else { return Ok(()) };
        let mut profile = self.shared.profile.lock().clone();
        let before = profile.clone();
        for fetcher in self.shared.incoming.lock().values() {
            fetcher.lock().learn_into(&mut profile);
        }
        if profile == before { Ok(()) } else { profile.save(path) }
    }

    /// What a module above keeps for this rank until it leaves: one value, made when it is first asked for.
    pub fn user_data<T: Any + Send + Sync + Default>(&self) -> Option<&T> {
        self.user_data.get_or_init(|| UserData(Box::<T>::default())).0.downcast_ref()
    }

    /// How many messages were received by a channel so far, or sent with the MPI where there is none.
    pub fn messages(&self, channel: Option<Channel>) -> u64 {
        self.shared.report.lock().messages(channel)
    }

    /// Leaves nothing behind in the folders of the boards. To be called when all ranks have joined.
    pub fn forget_names(&self) {
        // What cannot be removed is another rank's to remove.
        let _ = self.shared.board.lock().forget_names();
    }

    /// What there is to tell at the end, if the user wants to hear it.
    pub fn report(&self) -> Option<Vec<String>> {
        let rank = self.shared.rank;
        let pairs = || {
            let incoming = self.shared.incoming.lock();
            let mut peers: Vec<_> =
                incoming.iter().map(|(peer, fetcher)| (*peer, fetcher.lock().between())).collect();
            peers.sort_unstable();
            peers
                .into_iter()
                .map(|(peer, between)| format!("rank {rank} and {peer}: the peer is {between}"))
                .collect()
        };
        let lines = |pairs: Vec<String>| [pairs, self.shared.report.lock().lines(rank)].concat();
        self.shared.settings.explain.then(|| lines(pairs()))
    }
}

/// Lets other ranks in at the sockets of the boards on which this one is, in a thread.
pub(super) fn accept(shared: &Arc<Shared>) -> std::io::Result<(Stop, JoinHandle<()>)> {
    let mut listener = BootstrapListener::open(&shared.job, &shared.board.lock())?;
    if shared.settings.uses_network() {
        listener.open_to_hosts();
    }
    let (stop, accepting) = (listener.stopper(), Arc::clone(shared));
    let thread = threads::spawn("comm", move || {
        while let Some(arrival) = listener.arrival() {
            // Who cannot prove to be a rank of this job is nobody.
            if let Ok(connection) = arrival {
                accepting.keep_incoming(connection);
            }
        }
    })?;
    Ok((stop, thread))
}

impl Drop for World {
    fn drop(&mut self) {
        // It may watch the peers.
        drop(self.user_data.take());
        let acceptor = self.acceptor.lock().take();
        if let Some((stop, _)) = &acceptor {
            stop.stop();
        }
        self.shared.completion.stop();
        self.shared.has_left.store(true, Ordering::Release);
        let mut looked_for = Vec::new();
        for (peer, state) in self.shared.outgoing.lock().iter() {
            match state {
                Outgoing::Connected(connection) => connection.shut(),
                Outgoing::LookedFor { .. } => looked_for.push(*peer),
                Outgoing::Missing { .. } => {}
            }
        }
        if let Some((_, thread)) = acceptor {
            let _ = thread.join();
        }
        for (peer, thread) in core::mem::take(&mut *self.threads.lock()) {
            // One that waits for a peer's answer ends by itself, when it sees that the rank has left.
            if thread.is_finished() || peer.is_none_or(|peer| !looked_for.contains(&peer)) {
                // One that has panicked has said so.
                let _ = thread.join();
            }
        }
    }
}

//! What is this process's part in a job? Its place on the boards, its socket, what it offers, and what it has
//! of each peer.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_config::ValueError;
use thiserror::Error;

use crate::board::{Board, BoardError, Places};
use crate::channels::Channel;
use crate::cuda::{self, DeviceMemory, Driver};
use crate::identity::Identity;
use crate::job::{Job, JobError};
use crate::matching::{Descriptor, Source};
use crate::meeting::{self, Connection, Meeting, Stop};
use crate::pair::{Met, Pair};
use crate::profile::{Profile, ProfileError};
use crate::report::{Inline, Report, Way};
use crate::settings::Settings;
use crate::tracer::Operation;
use crate::transfer::TransferError;
use crate::transfer::choosing::BUILT;
use crate::transfer::fetch::{Fetcher, Order};
use crate::transfer::message::Message;
use crate::transfer::offers::{Offer, OfferState, Offers};
use crate::transfer::serve::serve;
use crate::transfer::words::Words;

/// How long a peer may say nothing in the middle of a transfer. One that ends is noticed at once.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a receiver waits for the connection of a peer that has sent word of a message.
const ARRIVAL: Duration = Duration::from_secs(10);

/// Times after which a peer is looked for again that was not there: it may join later.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(2);

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
    #[error("the socket by which other ranks reach this one cannot be opened: {0}")]
    System(#[from] std::io::Error),
}

/// A rank's part in its job.
#[derive(Debug)]
pub struct World {
    shared: Arc<Shared>,
    stop: Stop,
    threads: Mutex<Vec<JoinHandle<()>>>,
    profile_trouble: Option<ProfileError>,
}

#[derive(Debug)]
struct Shared {
    job: Job,
    rank: u32,
    settings: Settings,
    board: Mutex<Board>,
    offers: Offers,
    /// Peers that have come to hand messages over.
    incoming: Mutex<HashMap<u32, Arc<Mutex<Fetcher>>>>,
    has_come: Condvar,
    /// Peers to which this rank hands messages over.
    outgoing: Mutex<HashMap<u32, Outgoing>>,
    report: Mutex<Report>,
    /// What was known of channels when this rank joined, and what it has found out since.
    profile: Mutex<Profile>,
}

#[derive(Debug)]
enum Outgoing {
    Connected(Arc<Connection>),
    /// It could not be reached, and is looked for again then.
    Missing {
        again: Instant,
        pause: Duration,
    },
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// Joins a job.
    ///
    /// # Errors
    /// When the job has no such rank, or its ranks cannot meet this one.
    pub fn join(nonce: [u8; 16], rank: u32, ranks: u32, settings: Settings) -> Result<Self, WorldError> {
        let job = Job::new(nonce, ranks)?;
        let identity = Identity::of_this_process(settings.place.as_ref())?;
        let board = Board::join(&job, rank, 0, identity, &Places::usual(settings.folder.clone()))?;
        let mut meeting = Meeting::open(&job, &board)?;
        let stop = meeting.stopper();
        let profile = settings.profile.as_deref().map_or(Ok(Profile::default()), Profile::load);
        let (profile, profile_trouble) = match profile {
            Ok(profile) => (profile, None),
            Err(error) => (Profile::default(), Some(error)),
        };
        let shared = Arc::new(Shared {
            job,
            rank,
            settings,
            board: Mutex::new(board),
            offers: Offers::default(),
            incoming: Mutex::default(),
            has_come: Condvar::new(),
            outgoing: Mutex::default(),
            report: Mutex::default(),
            profile: Mutex::new(profile),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = std::thread::Builder::new().name("causeway-comm".to_owned()).spawn(move || {
            while let Some(arrival) = meeting.arrival() {
                // Who cannot prove to be a rank of this job is nobody.
                if let Ok(connection) = arrival {
                    accepting.keep_incoming(connection);
                }
            }
        })?;
        Ok(Self { shared, stop, threads: Mutex::new(vec![acceptor]), profile_trouble })
    }

    /// This process's rank in the job.
    pub fn rank(&self) -> u32 {
        self.shared.rank
    }

    /// The job.
    pub fn job(&self) -> &Job {
        &self.shared.job
    }

    /// Payloads of so many bytes and more are worth being fetched.
    pub fn fetch_bytes(&self) -> u64 {
        self.shared.settings.fetch_bytes
    }

    /// Whether a peer knows what a descriptor is and fetches what is offered: its socket has answered.
    pub fn reaches(&self, peer: u32) -> bool {
        if peer == self.shared.rank {
            return true;
        }
        let mut outgoing = lock(&self.shared.outgoing);
        let pause = match outgoing.get(&peer) {
            Some(Outgoing::Connected(_)) => return true,
            Some(Outgoing::Missing { again, .. }) if *again > Instant::now() => return false,
            Some(Outgoing::Missing { pause, .. }) => (*pause * 2).min(LAST_RETRY),
            None => FIRST_RETRY,
        };
        let connected = self.connect(peer);
        let reached = connected.is_some();
        let missing = || Outgoing::Missing { again: Instant::now() + pause, pause };
        outgoing.insert(peer, connected.map_or_else(missing, Outgoing::Connected));
        reached
    }

    fn connect(&self, peer: u32) -> Option<Arc<Connection>> {
        let connection = {
            let board = lock(&self.shared.board);
            let scan = board.scan();
            meeting::reach(&self.shared.job, board.slot(), scan.get(peer)?).ok()?
        };
        connection.set_patience(Some(PATIENCE)).ok()?;
        let words = Words::new().ok();
        let descriptor = words.as_ref().map(Words::descriptor);
        connection.say_with(Message::Words, descriptor).ok()?;
        if let Some(words) = words {
            self.shared.offers.open(peer, Arc::new(words));
        }
        let connection = Arc::new(connection);
        let (serving, shared) = (Arc::clone(&connection), Arc::clone(&self.shared));
        let thread = std::thread::Builder::new().name(format!("causeway-comm-{peer}")).spawn(move || {
            serve(&serving, &shared.offers);
            lock(&shared.outgoing).remove(&serving.peer);
        });
        lock(&self.threads).push(thread.ok()?);
        Some(connection)
    }

    /// Offers memory on a GPU to a peer, which must be reached. Gives the offer's number and what is sent to
    /// tell of it; none where the memory is not on a GPU, or no channel is allowed that takes its kind.
    pub fn offer(&self, peer: u32, address: u64, bytes: u64) -> Option<(u64, Descriptor)> {
        let driver = Driver::loaded()?;
        let memory = DeviceMemory::at(driver, address)?;
        let source = Source {
            ipc: memory.ipc,
            export: memory.exportable || memory.device_exports,
            direct: memory.exportable,
            gpu: cuda::gpu_number(driver, memory.device)?,
            buffer: memory.buffer,
            offset: address - memory.start,
        };
        let fits = |channel: &Channel| match channel {
            Channel::Ipc => source.ipc,
            Channel::Vmm => source.export,
            other => BUILT.contains(other),
        };
        if !self.shared.settings.channels.iter().any(fits) {
            return None;
        }
        let (operation, word) = self.shared.offers.add(Offer { peer, address, bytes, copy: None });
        lock(&self.shared.report).count(peer, Way::Offered, bytes);
        let from = self.shared.rank;
        Some((operation, Descriptor { from, to: peer, operation, bytes, memory: source, word }))
    }

    /// What has become of an offer. One that has come to its end is forgotten with the answer.
    pub fn offer_state(&self, operation: u64) -> OfferState {
        self.shared.offers.state(operation)
    }

    /// Gives the program back what it has offered, before the peer has begun to fetch it, and keeps a copy
    /// for the peer. Says whether it has. A program that waits for its send may be what the receiver waits
    /// for.
    pub fn detach(&self, operation: u64) -> bool {
        if !self.shared.settings.channels.contains(&Channel::Staged) {
            return false;
        }
        self.shared.offers.detach(operation, |offer| {
            let length = usize::try_from(offer.bytes).ok()?;
            let mut copy: Vec<u8> = Vec::new();
            copy.try_reserve_exact(length).ok()?;
            // SAFETY: the vector has room for so many bytes, all of which the copy writes.
            unsafe {
                cuda::copy(copy.as_mut_ptr() as u64, offer.address, length).ok()?;
                copy.set_len(length);
            }
            Some(copy)
        })
    }

    /// Waits until all peers have fetched what they were offered, but not for ever. Says whether they have.
    pub fn drain(&self) -> bool {
        let until = Instant::now() + PATIENCE;
        while self.shared.offers.are_under_way() {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        true
    }

    /// Fetches what a descriptor tells of, and waits until it is there. Where it is longer than the room for
    /// it, nothing is fetched, and the sender hears that it is done.
    ///
    /// # Safety
    /// `to` is valid for `room` bytes, on the host or on a GPU, and nobody else uses it.
    ///
    /// # Errors
    /// When the sender has gone, or no channel brings it.
    pub unsafe fn fetch(
        &self,
        descriptor: &Descriptor,
        to: u64,
        to_gpu: bool,
        room: u64,
        by: Operation,
    ) -> Result<(), TransferError> {
        let Descriptor { from, operation, bytes, memory, word, .. } = *descriptor;
        if from == self.shared.rank {
            // SAFETY: as promised by the caller.
            return unsafe { self.fetch_from_self(operation, to, room.min(bytes)) };
        }
        let fetcher = self.fetcher(from)?;
        let mut fetcher = lock(&fetcher);
        if bytes > room {
            return fetcher.decline(operation);
        }
        let order = Order { operation, bytes, source: memory, word, to, to_gpu, by };
        let fetched = fetcher.fetch(&order)?;
        lock(&self.shared.report).count(from, Way::Fetched(fetched.channel, fetched.reason), bytes);
        Ok(())
    }

    /// # Safety
    /// As [`fetch`](Self::fetch).
    unsafe fn fetch_from_self(&self, operation: u64, to: u64, bytes: u64) -> Result<(), TransferError> {
        let rank = self.shared.rank;
        let offer = self.shared.offers.begin(operation, rank).ok_or(TransferError::NoConnection(rank))?;
        let copied = match &offer.copy {
            _ if bytes < offer.bytes => Ok(()),
            Some(copy) if !Driver::loaded().is_some_and(|driver| DeviceMemory::is_at(driver, to)) => {
                // SAFETY: as promised by the caller.
                unsafe { core::ptr::copy_nonoverlapping(copy.as_ptr(), to as *mut u8, copy.len()) };
                Ok(())
            }
            copy => {
                let from = copy.as_ref().map_or(offer.address, |copy| copy.as_ptr() as u64);
                // SAFETY: as promised by the caller; the offer's memory stays as it is until the offer ends.
                unsafe { cuda::copy(to, from, bytes as usize) }
            }
        };
        let state = if copied.is_ok() { OfferState::Done } else { OfferState::Failed };
        self.shared.offers.end(operation, rank, state);
        Ok(copied?)
    }

    /// What this rank has of a peer that has sent word of a message: its connection may come in a moment.
    fn fetcher(&self, peer: u32) -> Result<Arc<Mutex<Fetcher>>, TransferError> {
        let until = Instant::now() + ARRIVAL;
        let mut incoming = lock(&self.shared.incoming);
        loop {
            if let Some(fetcher) = incoming.get(&peer) {
                return Ok(Arc::clone(fetcher));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TransferError::NoConnection(peer));
            }
            let waited = self.shared.has_come.wait_timeout(incoming, left);
            incoming = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Counts a message of a GPU's memory that travels with the MPI.
    pub fn count_inline(&self, peer: u32, bytes: u64, why: Inline) {
        lock(&self.shared.report).count(peer, Way::Inline(why), bytes);
    }

    /// Why the profile of earlier jobs is not used, if there is one and it is not.
    pub fn profile_trouble(&self) -> Option<&ProfileError> {
        self.profile_trouble.as_ref()
    }

    /// Keeps for later jobs what channels have cost, if they are to know it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep_profile(&self) -> Result<(), ProfileError> {
        let Some(path) = self.shared.settings.profile.as_deref() else { return Ok(()) };
        let mut profile = lock(&self.shared.profile).clone();
        let before = profile.clone();
        for fetcher in lock(&self.shared.incoming).values() {
            lock(fetcher).tell(&mut profile);
        }
        if profile == before { Ok(()) } else { profile.save(path) }
    }

    /// How many messages were received by a channel so far, or sent with the MPI where there is none.
    pub fn messages(&self, channel: Option<Channel>) -> u64 {
        lock(&self.shared.report).messages(channel)
    }

    /// Leaves nothing behind in the folders of the boards. To be called when all ranks have joined.
    pub fn forget_names(&self) {
        // What cannot be removed is another rank's to remove.
        let _ = lock(&self.shared.board).forget_names();
    }

    /// What there is to tell at the end, if the user wants to hear it.
    pub fn report(&self) -> Option<Vec<String>> {
        self.shared.settings.explain.then(|| lock(&self.shared.report).lines(self.shared.rank))
    }
}

impl Shared {
    fn keep_incoming(&self, connection: Connection) {
        let peer = connection.peer;
        if connection.set_patience(Some(PATIENCE)).is_err() {
            return;
        }
        let board = lock(&self.board);
        let pair = Pair::of(board.slot(), board.scan().get(peer), Ok(Met::by(&connection)));
        drop(board);
        let allowed: Vec<Channel> = self.settings.channels.clone();
        let profile = lock(&self.profile).clone();
        let fetcher = Fetcher::new(connection, pair, allowed, self.settings.trace_operations, profile);
        lock(&self.incoming).insert(peer, Arc::new(Mutex::new(fetcher)));
        self.has_come.notify_all();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.stop();
        for peer in lock(&self.shared.outgoing).values() {
            if let Outgoing::Connected(connection) = peer {
                connection.shut();
            }
        }
        for thread in core::mem::take(&mut *lock(&self.threads)) {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

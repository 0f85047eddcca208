//! Listener: the sockets of a rank, the peers that connect there, and refusal of connections when descriptors
//! run out.
//!
//! A listener has someone waiting then whom it cannot accept, and a thread that polled it would find it ready
//! again and again. So one descriptor is kept in reserve. It is given up for a moment to accept whoever has
//! come and to send them away, so that they hear at once that they are to come back later; and the listeners
//! are left alone for a while.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_sync::descriptors::{EventFd, above_stdio};
use causeway_sync::fork::CloseOnFork;
use rustix::event::{PollFd, PollFlags, poll};

use crate::board::{Board, MediumKind, Slot};
use crate::bootstrap::address::{SocketAddress, socket_name};
use crate::bootstrap::hello::{self, CHALLENGE_BYTES, HELLO_BYTES, Hello, HelloError, Role};
use crate::bootstrap::network;
use crate::bootstrap::socket::{self, Connection, Credentials, read_some};
use crate::bootstrap::stream::Stream;
use crate::job::Job;

/// How many may be here that have not said yet who they are: so many of this host, and as many who came over a
/// network. Where more come, the one of these that has been here longest goes.
const MAX_UNAUTHENTICATED: usize = 32;

/// How long one may be here without saying it.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);

/// The sockets at which a rank is reached.
#[derive(Debug)]
pub struct BootstrapListener {
    job: Job,
    slot: Slot,
    /// In front of the sockets, so that they go first.
    _close_on_fork: Vec<CloseOnFork>,
    sockets: Vec<(SocketAddress, Listener)>,
    refused: Vec<(SocketAddress, io::Error)>,
    pending_peers: VecDeque<PendingPeer>,
    stop: Arc<EventFd>,
    shortage: Shortage,
}

/// Someone who has connected and not said yet who it is.
#[derive(Debug)]
struct PendingPeer {
    stream: Stream,
    address: SocketAddress,
    credentials: Credentials,
    challenge: [u8; CHALLENGE_BYTES],
    received: Vec<u8>,
    since: Instant,
}

/// Where others come to.
#[derive(Debug)]
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener) => Ok(Stream::Unix(above_stdio(listener.accept()?.0)?)),
            Self::Tcp(listener) => Stream::over_network(above_stdio(listener.accept()?.0)?),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// Ends a wait in [`BootstrapListener::arrival`] from another thread.
#[derive(Debug, Clone)]
pub struct Stop(Arc<EventFd>);

impl Stop {
    /// Ends it, and all that follow.
    pub fn stop(&self) {
        self.0.signal();
    }
}

impl BootstrapListener {
    /// Listens in each folder that has the rank's board, and at an abstract name; and for other hosts, if any
    /// are to come.
    ///
    /// # Errors
    /// When the system gives no descriptor. That a socket cannot be had is a fact, see
    /// [`refused`](Self::refused).
    pub fn open(job: &Job, board: &Board) -> io::Result<Self> {
        let slot = board.slot().clone();
        let name = socket_name(job, slot.epoch, slot.rank);
        let folders = board.media().filter_map(|medium| match medium {
            MediumKind::Folder(folder) => Some(SocketAddress::Folder(folder)),
            MediumKind::SystemV => None,
        });
        let (mut sockets, mut refused) = (Vec::new(), Vec::new());
        for address in folders.chain([SocketAddress::Abstract]) {
            match socket::listen(&address, &name) {
                Ok(listener) => sockets.push((address, Listener::Unix(listener))),
                Err(error) => refused.push((address, error)),
            }
        }
        let stop = Arc::new(EventFd::new()?);
        let own = sockets.iter().map(|(_, listener)| CloseOnFork::new(listener)).collect();
        let pending_peers = VecDeque::new();
        let shortage = Shortage::new(&stop);
        Ok(Self {
            job: job.clone(),
            slot,
            _close_on_fork: own,
            sockets,
            refused,
            pending_peers,
            stop,
            shortage,
        })
    }

    /// Listens for ranks of other hosts, too. All of its ports may be taken: then [`refused`](Self::refused) says so.
    pub fn open_to_hosts(&mut self) {
        match network::listen(&self.job, self.slot.rank) {
            Ok((address, listener)) => {
                self._close_on_fork.push(CloseOnFork::new(&listener));
                self.sockets.push((address, Listener::Tcp(listener)));
            }
            Err(error) => {
                let address = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), self.job.port(self.slot.rank, 0));
                self.refused.push((SocketAddress::Network(address), error));
            }
        }
    }

    /// Where nobody can come, and why.
    pub fn refused(&self) -> &[(SocketAddress, io::Error)] {
        &self.refused
    }

    /// What ends [`arrival`](Self::arrival).
    pub fn stopper(&self) -> Stop {
        Stop(Arc::clone(&self.stop))
    }

    /// The next rank that has come and proved who it is, or who came instead; `None` when the wait was ended.
    pub fn arrival(&mut self) -> Option<Result<Connection, HelloError>> {
        loop {
            let first_ready = self.wait()?;
            if let Some(at) = first_ready {
                let outcome = self.read_hello(at);
                if let Some(outcome) = outcome {
                    return Some(outcome);
                }
            }
            if let Some(refusal) = self.admit() {
                return Some(Err(refusal));
            }
            self.pending_peers.retain(|pending| pending.since.elapsed() < ACCEPT_TIMEOUT);
        }
    }

    /// Waits until something happens. Says which stranger has said something; `None` outside when the wait
    /// was ended.
    fn wait(&self) -> Option<Option<usize>> {
        let pending_peers = self.pending_peers.iter().map(|pending| pending.stream.as_fd());
        let is_open = self.shortage.pause().is_zero();
        let listeners = self.sockets.iter().filter(|_| is_open).map(|(_, listener)| listener.as_fd());
        let all = core::iter::once(self.stop.as_fd()).chain(pending_peers).chain(listeners);
        let mut polled: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let oldest =
            self.pending_peers.front().map(|pending| ACCEPT_TIMEOUT.saturating_sub(pending.since.elapsed()));
        let reopening = Some(self.shortage.pause()).filter(|pause| !pause.is_zero());
        let first = oldest.into_iter().chain(reopening).min();
        let timeout = first.and_then(|left| (left + Duration::from_millis(1)).try_into().ok());
        if poll(&mut polled, timeout.as_ref()).is_err() {
            // It was interrupted.
            return Some(None);
        }
        let ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
        if ready(&polled[0]) {
            return None;
        }
        Some(polled[1..=self.pending_peers.len()].iter().position(ready))
    }

    /// Lets those in who have come.
    fn admit(&mut self) -> Option<HelloError> {
        if !self.shortage.pause().is_zero() {
            return None;
        }
        for (address, listener) in &self.sockets {
            let stream = match listener.accept() {
                Ok(stream) => stream,
                Err(error) if is_meant(&error) => {
                    self.shortage.refuse(&self.stop, || listener.accept().map(drop));
                    continue;
                }
                Err(_) => continue,
            };
            self.shortage.is_over(&self.stop);
            match greet(stream, address) {
                Ok(pending) => admit_pending(&mut self.pending_peers, pending),
                // It has gone again.
                Err(HelloError::Io(_)) => {}
                Err(error) => return Some(error),
            }
        }
        None
    }

    /// Hears what a stranger has said, and answers when that is all.
    fn read_hello(&mut self, at: usize) -> Option<Result<Connection, HelloError>> {
        let pending = self.pending_peers.get_mut(at)?;
        let mut bytes = [0; HELLO_BYTES];
        let missing = HELLO_BYTES - pending.received.len();
        match read_some(&pending.stream, &mut bytes[..missing]) {
            Ok(None) => return None,
            Ok(Some(count)) if count > 0 => {
                pending.received.extend_from_slice(&bytes[..count]);
                if pending.received.len() < HELLO_BYTES {
                    return None;
                }
            }
            // It has gone again, as one does that only looks whether somebody listens.
            Ok(Some(_)) | Err(_) => {
                self.pending_peers.remove(at);
                return None;
            }
        }
        let pending = self.pending_peers.remove(at)?;
        match self.respond(pending) {
            Err(HelloError::Io(_)) => None,
            outcome => Some(outcome),
        }
    }

    fn respond(&self, pending: PendingPeer) -> Result<Connection, HelloError> {
        let PendingPeer { stream, address, credentials, challenge, received, .. } = pending;
        let bytes = core::array::from_fn(|at| received[at]);
        let Hello { from, to, epoch, sees, process, fresh } =
            Hello::decode(&bytes, &self.job, Role::Caller, &challenge)?;
        let own = &self.slot;
        if (to, epoch) != (own.rank, own.epoch) || self.job.check(from).is_err() {
            return Err(HelloError::Rank { from, to, epoch });
        }
        let seen = credentials.process;
        let respond = Hello {
            from: own.rank,
            to: from,
            epoch,
            sees: seen.unwrap_or(0),
            process: own.identity.process,
            fresh,
        };
        stream.set_nonblocking(false)?;
        // It fits into the socket's buffer, which is empty.
        (&stream).write_all(&respond.encode(&self.job, Role::Listener, &challenge))?;
        let sees = Some(sees).filter(|pid| *pid != 0);
        Ok(Connection {
            _close_on_fork: CloseOnFork::new(&stream),
            stream,
            address,
            peer: from,
            process,
            seen,
            sees,
        })
    }
}

/// Gives a stranger a place. A flood over the network takes none from those of this host.
fn admit_pending(pending_peers: &mut VecDeque<PendingPeer>, pending: PendingPeer) {
    let is_alike = |other: &PendingPeer| other.stream.is_network() == pending.stream.is_network();
    let alike = pending_peers.iter().filter(|other| is_alike(other)).count();
    if alike == MAX_UNAUTHENTICATED
        && let Some(oldest) = pending_peers.iter().position(is_alike)
    {
        pending_peers.remove(oldest);
    }
    pending_peers.push_back(pending);
}

/// Lets a process of this user in, and tells it what to prove.
fn greet(stream: Stream, address: &SocketAddress) -> Result<PendingPeer, HelloError> {
    let credentials = Credentials::of(&stream)?.of_this_user().map_err(HelloError::User)?;
    stream.set_nonblocking(true)?;
    let challenge = hello::challenge()?;
    (&stream).write_all(&challenge)?;
    let since = Instant::now();
    Ok(PendingPeer {
        stream,
        address: address.clone(),
        credentials,
        challenge,
        received: Vec::with_capacity(HELLO_BYTES),
        since,
    })
}

impl Drop for BootstrapListener {
    fn drop(&mut self) {
        let name = socket_name(&self.job, self.slot.epoch, self.slot.rank);
        for (address, _) in &self.sockets {
            socket::forget(address, &name);
        }
    }
}

/// For how long listeners are left alone: at first, and at most.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The most that are sent away at once.
const MAX_TURNED_AWAY: usize = 64;

/// A lack of descriptors, and what is kept for it.
#[derive(Debug)]
pub(super) struct Shortage {
    reserve: Option<Reserve>,
    pause: Duration,
    until: Option<Instant>,
}

#[derive(Debug)]
struct Reserve {
    /// In front of the descriptor, so that it goes first.
    _close_on_fork: CloseOnFork,
    _descriptor: OwnedFd,
}

impl Reserve {
    fn of(descriptor: &impl AsFd) -> Option<Self> {
        let descriptor = descriptor.as_fd().try_clone_to_owned().ok()?;
        Some(Self { _close_on_fork: CloseOnFork::new(&descriptor), _descriptor: descriptor })
    }
}

impl Shortage {
    /// None so far. A copy of a descriptor is kept in reserve.
    pub(super) fn new(descriptor: &impl AsFd) -> Self {
        Self { reserve: Reserve::of(descriptor), pause: MIN_PAUSE, until: None }
    }

    /// For how long listeners are to be left alone from now on.
    pub(super) fn pause(&self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Sends those away who are waiting at a listener, one by each call of `accept`.
    pub(super) fn refuse(&mut self, descriptor: &impl AsFd, accept: impl Fn() -> io::Result<()>) {
        drop(self.reserve.take());
        for _ in 0..MAX_TURNED_AWAY {
            if accept().is_err() {
                break;
            }
        }
        self.reserve = Reserve::of(descriptor);
        self.until = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(MAX_PAUSE);
    }

    /// Somebody could be let in. Another thread may have taken the descriptor that was in reserve.
    pub(super) fn is_over(&mut self, descriptor: &impl AsFd) {
        if self.reserve.is_none() {
            self.reserve = Reserve::of(descriptor);
        }
        (self.pause, self.until) = (MIN_PAUSE, None);
    }
}

/// Whether an error says that the process or the system has nothing left for a connection.
pub(super) fn is_meant(error: &io::Error) -> bool {
    let short = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| short.contains(&code))
}

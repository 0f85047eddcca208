//! The sockets of a rank, and those who come there.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_sync::descriptors::{EventFd, above_stdio};
use rustix::event::{PollFd, PollFlags, poll};

use super::hello::{self, CHALLENGE_BYTES, HELLO_BYTES, Hello, HelloError, Speaker};
use super::network;
use super::place::{SocketPlace, socket_name};
use super::shortage::{self, Shortage};
use super::socket::{self, Connection, Credentials, read_some};
use super::stream::Stream;
use crate::board::{Board, MediumKind, Slot};
use crate::fork::Own;
use crate::job::Job;

/// How many may be here that have not said yet who they are: so many of this host, and as many who came over a
/// network. Where more come, the one of these that has been here longest goes.
const MAX_UNAUTHENTICATED: usize = 32;

/// How long one may be here without saying it.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);

/// The sockets at which a rank is reached.
#[derive(Debug)]
pub struct Meeting {
    job: Job,
    slot: Slot,
    /// In front of the sockets, so that they go first.
    _own: Vec<Own>,
    sockets: Vec<(SocketPlace, Listener)>,
    refused: Vec<(SocketPlace, io::Error)>,
    strangers: VecDeque<Stranger>,
    stop: Arc<EventFd>,
    shortage: Shortage,
}

/// Someone who has connected and not said yet who it is.
#[derive(Debug)]
struct Stranger {
    stream: Stream,
    place: SocketPlace,
    credentials: Credentials,
    challenge: [u8; CHALLENGE_BYTES],
    said: Vec<u8>,
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

/// Ends a wait in [`Meeting::arrival`] from another thread.
#[derive(Debug, Clone)]
pub struct Stop(Arc<EventFd>);

impl Stop {
    /// Ends it, and all that follow.
    pub fn stop(&self) {
        self.0.signal();
    }
}

impl Meeting {
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
            MediumKind::Folder(folder) => Some(SocketPlace::Folder(folder)),
            MediumKind::SystemV => None,
        });
        let (mut sockets, mut refused) = (Vec::new(), Vec::new());
        for place in folders.chain([SocketPlace::Abstract]) {
            match socket::listen(&place, &name) {
                Ok(listener) => sockets.push((place, Listener::Unix(listener))),
                Err(error) => refused.push((place, error)),
            }
        }
        let stop = Arc::new(EventFd::new()?);
        let own = sockets.iter().map(|(_, listener)| Own::new(listener)).collect();
        let strangers = VecDeque::new();
        let shortage = Shortage::new(&stop);
        Ok(Self { job: job.clone(), slot, _own: own, sockets, refused, strangers, stop, shortage })
    }

    /// Listens for ranks of other hosts, too. All of its ports may be taken: then [`refused`](Self::refused) says so.
    pub fn open_to_hosts(&mut self) {
        match network::listen(&self.job, self.slot.rank) {
            Ok((place, listener)) => {
                self._own.push(Own::new(&listener));
                self.sockets.push((place, Listener::Tcp(listener)));
            }
            Err(error) => {
                let address = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), self.job.port(self.slot.rank, 0));
                self.refused.push((SocketPlace::Network(address), error));
            }
        }
    }

    /// Where nobody can come, and why.
    pub fn refused(&self) -> &[(SocketPlace, io::Error)] {
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
                let outcome = self.hear(at);
                if let Some(outcome) = outcome {
                    return Some(outcome);
                }
            }
            if let Some(refusal) = self.admit() {
                return Some(Err(refusal));
            }
            self.strangers.retain(|stranger| stranger.since.elapsed() < ACCEPT_TIMEOUT);
        }
    }

    /// Waits until something happens. Says which stranger has said something; `None` outside when the wait
    /// was ended.
    fn wait(&self) -> Option<Option<usize>> {
        let strangers = self.strangers.iter().map(|stranger| stranger.stream.as_fd());
        let is_open = self.shortage.pause().is_zero();
        let listeners = self.sockets.iter().filter(|_| is_open).map(|(_, listener)| listener.as_fd());
        let all = core::iter::once(self.stop.as_fd()).chain(strangers).chain(listeners);
        let mut polled: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let oldest =
            self.strangers.front().map(|stranger| ACCEPT_TIMEOUT.saturating_sub(stranger.since.elapsed()));
        let reopening = Some(self.shortage.pause()).filter(|pause| !pause.is_zero());
        let first = oldest.into_iter().chain(reopening).min();
        let patience = first.and_then(|left| (left + Duration::from_millis(1)).try_into().ok());
        if poll(&mut polled, patience.as_ref()).is_err() {
            // It was interrupted.
            return Some(None);
        }
        let ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
        if ready(&polled[0]) {
            return None;
        }
        Some(polled[1..=self.strangers.len()].iter().position(ready))
    }

    /// Lets those in who have come.
    fn admit(&mut self) -> Option<HelloError> {
        if !self.shortage.pause().is_zero() {
            return None;
        }
        for (place, listener) in &self.sockets {
            let stream = match listener.accept() {
                Ok(stream) => stream,
                Err(error) if shortage::is_meant(&error) => {
                    self.shortage.turn_away(&self.stop, || listener.accept().map(drop));
                    continue;
                }
                Err(_) => continue,
            };
            self.shortage.is_over(&self.stop);
            match greet(stream, place) {
                Ok(stranger) => let_in(&mut self.strangers, stranger),
                // It has gone again.
                Err(HelloError::Io(_)) => {}
                Err(error) => return Some(error),
            }
        }
        None
    }

    /// Hears what a stranger has said, and answers when that is all.
    fn hear(&mut self, at: usize) -> Option<Result<Connection, HelloError>> {
        let stranger = self.strangers.get_mut(at)?;
        let mut bytes = [0; HELLO_BYTES];
        let missing = HELLO_BYTES - stranger.said.len();
        match read_some(&stranger.stream, &mut bytes[..missing]) {
            Ok(None) => return None,
            Ok(Some(count)) if count > 0 => {
                stranger.said.extend_from_slice(&bytes[..count]);
                if stranger.said.len() < HELLO_BYTES {
                    return None;
                }
            }
            // It has gone again, as one does that only looks whether somebody listens.
            Ok(Some(_)) | Err(_) => {
                self.strangers.remove(at);
                return None;
            }
        }
        let stranger = self.strangers.remove(at)?;
        match self.answer(stranger) {
            Err(HelloError::Io(_)) => None,
            outcome => Some(outcome),
        }
    }

    fn answer(&self, stranger: Stranger) -> Result<Connection, HelloError> {
        let Stranger { stream, place, credentials, challenge, said, .. } = stranger;
        let bytes = core::array::from_fn(|at| said[at]);
        let Hello { from, to, epoch, sees, process, fresh } =
            Hello::decode(&bytes, &self.job, Speaker::Caller, &challenge)?;
        let own = &self.slot;
        if (to, epoch) != (own.rank, own.epoch) || self.job.check(from).is_err() {
            return Err(HelloError::Rank { from, to, epoch });
        }
        let seen = credentials.process;
        let answer = Hello {
            from: own.rank,
            to: from,
            epoch,
            sees: seen.unwrap_or(0),
            process: own.identity.process,
            fresh,
        };
        stream.set_nonblocking(false)?;
        // It fits into the socket's buffer, which is empty.
        (&stream).write_all(&answer.encode(&self.job, Speaker::Listener, &challenge))?;
        let sees = Some(sees).filter(|pid| *pid != 0);
        Ok(Connection { _own: Own::new(&stream), stream, place, peer: from, process, seen, sees })
    }
}

/// Gives a stranger a place. A flood over the network takes none from those of this host.
fn let_in(strangers: &mut VecDeque<Stranger>, stranger: Stranger) {
    let is_alike = |other: &Stranger| other.stream.is_network() == stranger.stream.is_network();
    let alike = strangers.iter().filter(|other| is_alike(other)).count();
    if alike == MAX_UNAUTHENTICATED
        && let Some(oldest) = strangers.iter().position(is_alike)
    {
        strangers.remove(oldest);
    }
    strangers.push_back(stranger);
}

/// Lets a process of this user in, and tells it what to prove.
fn greet(stream: Stream, place: &SocketPlace) -> Result<Stranger, HelloError> {
    let credentials = Credentials::of(&stream)?.of_this_user().map_err(HelloError::User)?;
    stream.set_nonblocking(true)?;
    let challenge = hello::challenge()?;
    (&stream).write_all(&challenge)?;
    let since = Instant::now();
    Ok(Stranger {
        stream,
        place: place.clone(),
        credentials,
        challenge,
        said: Vec::with_capacity(HELLO_BYTES),
        since,
    })
}

impl Drop for Meeting {
    fn drop(&mut self) {
        let name = socket_name(&self.job, self.slot.epoch, self.slot.rank);
        for (place, _) in &self.sockets {
            socket::forget(place, &name);
        }
    }
}

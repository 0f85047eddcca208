//! The connection for commands, and how another one takes its place when it is lost.
//!
//! A link that is resumable keeps its frames until the peer has dealt with them ([`replay`]). When the connection is
//! lost, the end that has connected dials again and the other one waits, both for as long as was agreed. On the new
//! connection each end says how many bytes of frames it has received, and is sent what it lacks: a frame may end on
//! another connection than the one that it began on, and nothing is received twice.
//!
//! What both ends send again may be more than the network holds while nobody reads. So a thread of its own sends it,
//! and the receiver goes on at once.

mod replay;

use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_connection::channel::{Connection, Incoming, Outgoing, Socket, shut_down};
use causeway_sync::Monitor;
use causeway_transport::{LinkError, Shared, TransportError, spawn_or_lose};
use causeway_wire::chunk::{CHUNK_HEADER_SIZE, LaneRecord};
use causeway_wire::handshake::LaneHello;
use causeway_wire::relocation::LinkState;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

use replay::{Replay, ReplayError};

/// How long is waited between two attempts to connect.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// How long the peer may take to answer on a new connection. One that is busy for longer finds the next one.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often whoever waits for a connection looks whether the link has been closed.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Whoever has waited so long for the peer to deal with frames sends all the same: it may be the one that has to
/// receive the acknowledgement.
const CAPACITY_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens the bulk lanes of a link.
pub trait DialLanes: Send + Sync {
    /// How many there are to open.
    fn lanes(&self) -> u32;

    /// For how long the peer is dialled in place of what was agreed, where it is known to be away.
    fn time_left(&self) -> Option<Duration> {
        None
    }

    /// Opens one lane, authenticated; or the connection that takes the place of the one for commands
    /// ([`LaneHello::COMMANDS`](causeway_wire::handshake::LaneHello::COMMANDS)).
    fn open(&self, lane: u32) -> Result<Connection, NotOpened>;
}

/// Why a connection was not opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotOpened {
    /// The peer does not want it, and will not later.
    #[error("{0}")]
    Refused(String),
    /// Something else went wrong.
    #[error("{0}")]
    Failed(String),
}

/// The connection for commands.
pub(crate) struct CommandConnection {
    /// The socket in use.
    socket: Mutex<Socket>,
    /// What is kept so that the link can be resumed, if it is to be.
    resume: Option<Resume>,
}

struct Resume {
    /// For how long the link may be without a connection.
    window: Duration,
    /// Dials, at the end that has connected.
    dialer: Option<Arc<dyn DialLanes>>,
    output: Mutex<Output>,
    replay: Monitor<ReplayState>,
    /// The connection that the peer has dialled.
    offered: Monitor<Option<Offered>>,
    is_suspended: AtomicBool,
    /// For how long the first connection may be awaited, of a link that another process has begun.
    first_window: Mutex<Option<Duration>>,
    /// Bytes of frames that the peer had received when the connection was last replaced.
    peer_received: AtomicU64,
}

/// The direction to the peer.
struct Output {
    outgoing: Outgoing,
    /// Up to which offset the bytes of frames have been given to the connection.
    sent: u64,
    /// Counts the connections.
    number: u64,
    works: bool,
    /// What a forked child closes.
    descriptors: Vec<RawFd>,
}

#[derive(Default)]
struct ReplayState {
    replay: Replay,
    is_over: bool,
}

/// A connection that is to take the place of the one that is lost.
pub(crate) struct Offered {
    pub outgoing: Outgoing,
    pub incoming: Incoming,
    /// Bytes of frames that the peer has received.
    pub received: u64,
    /// What it holds open.
    pub descriptors: Vec<RawFd>,
}

/// Why there is no new connection yet.
enum NotConnected {
    /// It may come later.
    Retry(String),
    /// It never will.
    Final(String),
}

impl CommandConnection {
    /// A connection that the link ends with.
    pub fn fixed(socket: Socket) -> Self {
        Self { socket: Mutex::new(socket), resume: None }
    }

    /// One that is replaced if another one comes within `window`. The end that has a `dialer` connects.
    pub fn resumable(outgoing: Outgoing, window: Duration, dialer: Option<Arc<dyn DialLanes>>) -> Self {
        let socket = Arc::clone(outgoing.socket());
        let descriptors = vec![socket.as_raw_fd()];
        let output = Output { outgoing, sent: 0, number: 0, works: true, descriptors };
        let resume = Resume {
            window,
            dialer,
            output: Mutex::new(output),
            replay: Monitor::default(),
            offered: Monitor::default(),
            is_suspended: AtomicBool::new(false),
            first_window: Mutex::default(),
            peer_received: AtomicU64::new(0),
        };
        Self { socket: Mutex::new(socket), resume: Some(resume) }
    }

    /// A connection that has failed, of a link that another process has left in this state. The peer's first one is
    /// awaited for `first_window`.
    pub fn taken_up(outgoing: Outgoing, window: Duration, first_window: Duration, state: &LinkState) -> Self {
        let commands = Self::resumable(outgoing, window, None);
        if let Some(resume) = &commands.resume {
            let replay = Replay::resumed(state.frames_before, state.frames_start, &state.frames);
            resume.output.lock().works = false;
            resume.replay.change(|state| state.replay = replay);
            *resume.first_window.lock() = Some(first_window);
        }
        commands
    }

    /// The frames that the peer may not have: how many came before them, how many bytes those were, and themselves.
    pub fn unacknowledged(&self) -> Option<(u64, u64, Vec<Vec<u8>>)> {
        self.resume.as_ref().map(|resume| resume.replay.lock().replay.unacknowledged())
    }

    /// Sleeps until the connection is lost, of which nothing is read any more.
    pub fn wait_for_loss(&self, link: &Shared) -> Result<(), LinkError> {
        let is_lost = || {
            let socket = self.socket();
            let mut polled = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::RDHUP)];
            let timeout = Timespec { tv_sec: 0, tv_nsec: CHECK_INTERVAL.subsec_nanos().into() };
            // An interrupted wait is only a reason to look again.
            let _ = poll(&mut polled, Some(&timeout));
            !polled[0].revents().is_empty()
        };
        while !is_lost() {
            link.check()?;
        }
        Ok(())
    }

    /// Bytes of frames that the peer had received when the connection was last replaced.
    pub fn peer_received(&self) -> u64 {
        self.resume.as_ref().map_or(0, |resume| resume.peer_received.load(Ordering::SeqCst))
    }

    pub fn socket(&self) -> Socket {
        Arc::clone(&self.socket.lock())
    }

    pub fn is_resumable(&self) -> bool {
        self.resume.is_some()
    }

    /// Whether the link was another process's before.
    pub fn is_taken_up(&self) -> bool {
        self.resume.as_ref().is_some_and(|resume| resume.first_window.lock().is_some())
    }

    /// Whether the link has no connection at the moment.
    pub fn is_suspended(&self) -> bool {
        self.resume.as_ref().is_some_and(|resume| resume.is_suspended.load(Ordering::SeqCst))
    }

    /// Ends the connection. A resumable link goes on with another one.
    pub fn break_off(&self) {
        shut_down(&self.socket());
    }

    /// The link has ended.
    pub fn end(&self) {
        self.break_off();
        if let Some(resume) = &self.resume {
            resume.replay.change(|state| state.is_over = true);
            let offered = resume.offered.change(Option::take);
            offered.iter().for_each(|offered| shut_down(offered.outgoing.socket()));
        }
    }

    /// Sleeps until the peer has dealt with enough of the frames that are kept for it.
    pub fn wait_for_capacity(&self) {
        if let Some(resume) = &self.resume {
            let has_capacity =
                |state: &mut ReplayState| (state.is_over || state.replay.has_capacity()).then_some(());
            resume.replay.wait_for(CAPACITY_TIMEOUT, has_capacity);
            while self.is_suspended() && resume.replay.wait_for(CHECK_INTERVAL, has_capacity).is_none() {}
        }
    }

    /// Sleeps until the link has a connection again, at most for so long.
    pub fn wait_for_connection(&self, timeout: Duration) {
        if let Some(resume) = &self.resume {
            let is_connected =
                |state: &mut ReplayState| (state.is_over || !self.is_suspended()).then_some(());
            resume.replay.wait_for(timeout, is_connected);
        }
    }

    /// Sleeps until the link has ended, at most for so long.
    pub fn wait_for_end(&self, timeout: Duration) {
        if let Some(resume) = &self.resume {
            resume.replay.wait_for(timeout, |state| state.is_over.then_some(()));
        }
    }

    /// The peer has dealt with the frames up to this one.
    pub fn acknowledged(&self, frame: u64) {
        if let Some(resume) = &self.resume {
            // Most frames bring nothing new, and nobody waits for most of those that do.
            let is_news = resume.replay.lock().replay.acknowledge(frame);
            if is_news {
                resume.replay.change(|_| ());
            }
        }
    }

    /// Sends a frame, or keeps it for the connection that is to come.
    pub fn send(&self, frame: &[u8]) -> Result<(), LinkError> {
        let Some(resume) = &self.resume else { return Err(LinkError::Closed) };
        let mut output = resume.output.lock();
        let start = {
            let mut state = resume.replay.lock();
            if state.is_over {
                return Err(LinkError::Closed);
            }
            state.replay.push(frame).map_err(TransportError::violation)?;
            state.replay.end() - frame.len() as u64
        };
        // Otherwise the thread that sends again what the peer lacks comes to this frame, too.
        if output.works && output.sent == start {
            output.send(frame);
        }
        Ok(())
    }

    /// The peer has dialled a connection that is to take the place of this one.
    pub fn offer(&self, offered: Offered) {
        let Some(resume) = &self.resume else { return shut_down(offered.outgoing.socket()) };
        if resume.dialer.is_some() || resume.replay.lock().is_over {
            return shut_down(offered.outgoing.socket());
        }
        let earlier = resume.offered.change(|slot| slot.replace(offered));
        earlier.iter().for_each(|earlier| shut_down(earlier.outgoing.socket()));
        // The receiver may not have noticed that this one is lost.
        self.break_off();
    }

    /// Waits until there is another connection, on which `received` bytes of frames count as received. An error, for
    /// the link's end, when there is none within the time agreed.
    pub fn resume(
        self: &Arc<Self>,
        link: &Arc<Shared>,
        cause: LinkError,
        received: u64,
    ) -> Result<Incoming, LinkError> {
        let Some(resume) = &self.resume else { return Err(cause) };
        self.break_off();
        resume.is_suspended.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        let first_window = resume.first_window.lock().take();
        let announced = resume.dialer.as_ref().and_then(|dialer| dialer.time_left());
        let window = first_window.or(announced).unwrap_or(resume.window);
        let seconds = window.as_secs();
        tracing::warn!("connection lost; trying for {seconds} s to resume it: {cause}");
        let not_resumed = |after: Option<Duration>, why| LinkError::NotResumed {
            seconds: after.map(|after| after.as_secs()),
            cause: cause.to_string(),
            why,
        };
        let mut why = "nobody has connected".to_owned();
        loop {
            link.check()?;
            let Some(left) = window.checked_sub(begun.elapsed()) else {
                return Err(not_resumed(Some(window), why));
            };
            let offered = match resume.connect(received, left) {
                Ok(offered) => offered,
                Err(NotConnected::Final(why)) => return Err(not_resumed(None, why)),
                Err(NotConnected::Retry(text)) => {
                    why = text;
                    continue;
                }
            };
            let incoming = self.install(link, offered).map_err(TransportError::violation)?;
            resume.replay.change(|_| resume.is_suspended.store(false, Ordering::SeqCst));
            tracing::warn!("resumed after {:.1} s", begun.elapsed().as_secs_f64());
            return Ok(incoming);
        }
    }

    /// Goes on with another connection.
    fn install(self: &Arc<Self>, link: &Arc<Shared>, offered: Offered) -> Result<Incoming, ReplayError> {
        let Offered { outgoing, incoming, received, descriptors } = offered;
        let Some(resume) = &self.resume else { return Ok(incoming) };
        resume.replay.lock().replay.check(received)?;
        resume.peer_received.store(received, Ordering::SeqCst);
        let socket = Arc::clone(outgoing.socket());
        let number = {
            let mut output = resume.output.lock();
            output.descriptors.iter().for_each(|descriptor| link.forget_descriptor(*descriptor));
            descriptors.iter().for_each(|descriptor| link.note_descriptor(*descriptor));
            let number = output.number + 1;
            *output = Output { outgoing, sent: received, number, works: true, descriptors };
            number
        };
        *self.socket.lock() = Arc::clone(&socket);
        if link.check().is_err() {
            // Whoever has ended the link may have ended the connection before this one.
            shut_down(&socket);
        }
        let own = Arc::clone(self);
        spawn_or_lose(link, "resend", move |_| {
            if let Some(resume) = &own.resume {
                resume.send_again(number);
            }
        });
        Ok(incoming)
    }
}

impl Resume {
    /// The next connection, if there is one soon.
    fn connect(&self, received: u64, left: Duration) -> Result<Offered, NotConnected> {
        match &self.dialer {
            Some(dialer) => dial(&**dialer, received, left),
            None => self.accept(received, left),
        }
    }

    /// The connection that the peer has dialled. It is answered here, where it is known what has been received.
    fn accept(&self, received: u64, left: Duration) -> Result<Offered, NotConnected> {
        let offered = self.offered.wait_for(left.min(CHECK_INTERVAL), Option::take);
        let not_connected = || NotConnected::Retry("the program has not connected again".to_owned());
        let mut offered = offered.ok_or_else(not_connected)?;
        let response = LaneRecord::Commands { received }.to_bytes();
        offered.outgoing.send(&response).map_err(|error| NotConnected::Retry(error.to_string()))?;
        Ok(offered)
    }

    /// Sends what the peer lacks on the connection of this number, until it has caught up with the others who send.
    fn send_again(&self, number: u64) {
        loop {
            let mut output = self.output.lock();
            if output.number != number || !output.works {
                return;
            }
            let next = self.replay.lock().replay.frame_at(output.sent);
            let Some((frame, from)) = next else { return };
            output.send(&frame[from..]);
        }
    }
}

impl Output {
    /// Sends bytes of frames. Where that fails the receiver notices, and they are sent again.
    fn send(&mut self, bytes: &[u8]) {
        if self.outgoing.send(bytes).is_ok() {
            self.sent += bytes.len() as u64;
        } else {
            self.works = false;
            shut_down(self.outgoing.socket());
        }
    }
}

/// Connects to the peer, and tells it how many bytes of frames have been received here.
fn dial(dialer: &dyn DialLanes, received: u64, left: Duration) -> Result<Offered, NotConnected> {
    let retry = |text| {
        std::thread::sleep(RETRY_INTERVAL.min(left));
        NotConnected::Retry(text)
    };
    let connection = dialer.open(LaneHello::COMMANDS).map_err(|error| match error {
        NotOpened::Refused(text) => NotConnected::Final(text),
        NotOpened::Failed(text) => retry(text),
    })?;
    let (mut outgoing, mut incoming) = connection.into_directions();
    let mut response = [0; CHUNK_HEADER_SIZE];
    let exchanged = outgoing
        .send(&LaneRecord::Commands { received }.to_bytes())
        .and_then(|()| incoming.receive_exact(&mut response, Instant::now() + left.min(EXCHANGE_TIMEOUT)));
    exchanged.map_err(|error| retry(error.to_string()))?;
    match LaneRecord::parse(&response) {
        Ok(LaneRecord::Commands { received }) => {
            let descriptors = vec![outgoing.socket().as_raw_fd()];
            Ok(Offered { outgoing, incoming, received, descriptors })
        }
        Ok(_) => Err(NotConnected::Final("the server answered with something else".to_owned())),
        Err(error) => Err(NotConnected::Final(error.to_string())),
    }
}

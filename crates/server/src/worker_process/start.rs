//! Admission of a waiting client.

use std::fs::File;
use std::net::TcpStream;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_api::calls::COMMANDS;
use causeway_connection::channel::{Connection, Socket, end_after_goodbye};
use causeway_link::transports::NotJoined;
use causeway_link::{Link, LinkError, Pacer, Receiver, Upgrade};
use causeway_sync::threads;
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::{Abilities, ClientHello, Features, LaneToken, Response, Welcome};
use causeway_wire::relocation::LinkState;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::confined::Confined;
use super::error::WorkerError;
use super::exchange::Exchange;
use super::serve::serve;
use crate::activity::Activity;
use crate::back_end::GpuChoice;
use crate::protocol::control::Control;
use crate::protocol::messages::{self, SessionStart, ToBroker, ToWorker};
use crate::state_file::StateHeader;

/// How long the program of a fork may take to go on, once it has a session.
const FORK_TIMEOUT: Duration = Duration::from_secs(15);

/// A worker's task: a client that waits for an answer.
#[derive(Debug)]
pub struct WorkerStart {
    /// What the broker says of it; of the client's environment this process has got what the driver may know.
    start: SessionStart,
    control: Control,
    connection: Connection,
    /// The state of a session that is taken up, which has no connection yet.
    state: Option<File>,
    confined: Confined,
}

impl WorkerStart {
    /// A client that waits on `connection` since `start` came over `control`.
    pub(super) fn new(
        mut start: SessionStart,
        control: Control,
        connection: OwnedFd,
        state: Option<OwnedFd>,
        confined: Confined,
    ) -> Self {
        let connection = Connection::new(TcpStream::from(connection), start.keys.take());
        Self { start, control, connection, state: state.map(File::from), confined }
    }

    /// What the client says of itself.
    pub fn hello(&self) -> &ClientHello {
        &self.start.hello
    }

    /// Which GPU to work with.
    pub fn gpu(&self) -> GpuChoice {
        self.start.gpu
    }

    /// Whether the broker keeps images for later sessions.
    pub fn keeps_images(&self) -> bool {
        self.start.keeps_images
    }

    /// The state of the session, if it is one that is taken up.
    pub fn take_state(&mut self) -> Option<File> {
        self.state.take()
    }

    /// What of the session does not change.
    fn identity(&self, resume: Duration) -> StateHeader {
        let seconds = u32::try_from(resume.as_secs()).unwrap_or(u32::MAX);
        StateHeader {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            version: self.start.version,
            session: self.start.session,
            token: self.start.token,
            ticket: LaneToken([0; 32]),
            lanes: self.start.lanes,
            seconds,
            resume: seconds,
            // One that goes on elsewhere has a state of its own.
            hello: ClientHello { fork: None, ..self.start.hello.clone() },
        }
    }

    /// Takes up a session that another worker has had, whose link it left in this state, and gives up what a session
    /// does not need of this process's rights. The client is awaited for `first_window`.
    pub fn take_up(
        mut self,
        state: LinkState,
        first_window: Duration,
    ) -> Result<(Link, Receiver, Arc<Exchange>), WorkerError> {
        let (activity, page) = Activity::shared();
        self.confine()?;
        if page.is_some() {
            messages::send(&self.control, &ToBroker::Counts, page.as_ref())?;
        }
        messages::send(&self.control, &ToBroker::Answering, None)?;
        let abilities = Abilities::ours(&COMMANDS).resuming(self.start.keepalive.resume);
        let resume = abilities.common_resume(&self.start.hello.abilities);
        let identity = self.identity(resume);
        let socket = Arc::clone(self.connection.socket());
        let (link, receiver) = Link::taken_up(self.connection, state, resume, first_window)?;
        let peer_does = self.start.hello.abilities.features.contain(Features::KEEPALIVE);
        link.keep_alive(self.start.keepalive.of_client(), peer_does);
        let exchange = listen(self.control, &self.start, activity, &link, &socket, identity)?;
        Ok((link, receiver, exchange))
    }

    /// Says that the session cannot be taken up. Returns what the worker's process ends with.
    pub fn refuse_state(self, text: &str) -> ExitCode {
        tracing::error!(session = %self.start.session, "cannot restore the session: {text}");
        // The broker may be gone already; the worker ends either way.
        let _ = messages::send(
            &self.control,
            &ToBroker::Restored { refused: Some(text.to_owned().into()) },
            None,
        );
        ExitCode::FAILURE
    }

    /// Gives up what a session does not need of this process's rights. [`welcome`](Self::welcome) does it,
    /// too.
    pub fn confine(&mut self) -> Result<(), WorkerError> {
        Ok(self.confined.close()?)
    }

    /// Grants the session, and gives up what a session does not need of this process's rights: the client
    /// gets `snapshot`, and shows by what it does next whether the session goes on over another transport or on
    /// this connection, where its bulk lanes will join the link as they come. What sessions export to each
    /// other is reached by the last of the results.
    pub fn welcome(mut self, snapshot: Vec<u8>) -> Result<(Link, Receiver, Arc<Exchange>), WorkerError> {
        let (activity, page) = Activity::shared();
        self.confine()?;
        if page.is_some() {
            messages::send(&self.control, &ToBroker::Counts, page.as_ref())?;
        }
        messages::send(&self.control, &ToBroker::Answering, None)?;
        let abilities = Abilities::ours(&COMMANDS).resuming(self.start.keepalive.resume);
        let resume = abilities.common_resume(&self.start.hello.abilities);
        let features = abilities.features.with(Features::FORKS);
        let abilities = Abilities { features, ..abilities };
        let response = Response::Welcome(Welcome {
            version: self.start.version,
            session: self.start.session,
            token: self.start.token,
            lanes: self.start.lanes,
            release: env!("CARGO_PKG_VERSION").into(),
            locality: self.start.locality.clone(),
            abilities,
            snapshot,
        });
        let (socket, timeouts) = (Arc::clone(self.connection.socket()), self.start.keepalive.of_client());
        socket.set_write_timeout(Some(timeouts.link))?;
        self.connection.send_handshake(|out| response.encode(out))?;
        socket.set_write_timeout(None)?;
        let peer_does = self.start.hello.abilities.features.contain(Features::KEEPALIVE);
        // Other clients may say nothing for as long as they like.
        let idle_timeout = match self.start.hello.fork {
            // Its parent waits until the state has been taken, too.
            Some(_) => FORK_TIMEOUT,
            None if peer_does => timeouts.link,
            None => Duration::MAX,
        };
        let identity = self.identity(resume);
        let may_fork = self.start.hello.abilities.features.contain(Features::FORKS);
        let (link, receiver) = establish(&self.control, self.connection, idle_timeout, resume, may_fork)?;
        link.keep_alive(timeouts, peer_does);
        tracing::info!(session = %self.start.session, via = %link.kind(), "the client is served");
        let exchange = listen(self.control, &self.start, activity, &link, &socket, identity)?;
        Ok((link, receiver, exchange))
    }

    /// Slots the client away, for the GPU cannot be started; `text` is a sentence for its user. Returns what the worker's process ends with.
    pub fn refuse(mut self, text: &str) -> ExitCode {
        tracing::error!(session = %self.start.session, "the client is refused: {text}");
        let response = Response::Refused { text: text.into() };
        // Broker and client may be gone already; the worker ends either way.
        let _ = messages::send(&self.control, &ToBroker::NoGpu { text: text.to_owned() }, None);
        let _ = messages::send(&self.control, &ToBroker::Answering, None);
        let _ = self.connection.send_handshake(|out| response.encode(out));
        end_after_goodbye(self.connection.socket());
        ExitCode::FAILURE
    }
}

/// The access to the broker, which is listened to from now on.
fn listen(
    control: Control,
    start: &SessionStart,
    activity: Activity,
    link: &Link,
    socket: &Socket,
    identity: StateHeader,
) -> Result<Arc<Exchange>, WorkerError> {
    let SessionStart { session, keepalive, release, is_paced, is_time_shared, .. } = *start;
    let (control, lanes, socket) = (Arc::new(control), link.clone(), Arc::clone(socket));
    activity.set_transport(link.kind());
    let exchange = Exchange::new(
        Arc::clone(&control),
        session,
        activity,
        keepalive.of_peer(),
        release,
        (is_paced, is_time_shared),
    );
    if is_paced {
        link.set_pacer(Arc::clone(&exchange) as Arc<dyn Pacer>);
    }
    exchange.set_identity(identity);
    let asker = Arc::clone(&exchange);
    threads::spawn("control", move || serve(&control, &socket, &lanes, &asker))?;
    Ok(exchange)
}

/// Waits until the client shows where the session goes on: it asks for another transport, or sends its first frame on
/// this connection; at most for `timeout`. One that stays on it may be without a connection for as long as `resume` says.
fn establish(
    control: &Control,
    connection: Connection,
    timeout: Duration,
    resume: Duration,
    may_fork: bool,
) -> Result<(Link, Receiver), WorkerError> {
    let (mut lanes, started_at) = (Vec::new(), Instant::now());
    while lanes.is_empty() {
        let Some(left) = timeout.checked_sub(started_at.elapsed()) else {
            return Err(LinkError::KeepaliveTimeout { seconds: timeout.as_secs() }.into());
        };
        // What does not fit is for ever.
        let left = Timespec::try_from(left).ok();
        let mut waiting_for = [
            PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
            PollFd::new(connection.socket(), PollFlags::IN),
        ];
        // An interrupted wait is only a reason to look again.
        let _ = poll(&mut waiting_for, left.as_ref());
        if waiting_for[0].revents().is_empty() {
            if waiting_for[1].revents().is_empty() {
                continue;
            }
            break;
        }
        let mut upgrade = None;
        match messages::receive(control)? {
            (ToWorker::Upgrade { hello, is_peer: false, keys }, Some(socket)) => {
                upgrade = Some(Upgrade::new(hello, Connection::new(TcpStream::from(socket), keys)));
            }
            (ToWorker::Lane { keys }, Some(socket)) => lanes.push((socket, keys)),
            // No command has come.
            (ToWorker::Ping { number }, _) => {
                messages::send(control, &ToBroker::Pong { number, progress: 0 }, None)?
            }
            _ => tracing::warn!("unexpected message from the broker to a worker without commands"),
        }
        match upgrade.map(|upgrade| upgrade.accept(&connection)) {
            Some(Ok(link)) => return Ok(link),
            Some(Err(NotJoined::System(error))) => return Err(error.into()),
            Some(Err(NotJoined::Unusable(why))) => tracing::warn!("the session keeps its transport: {why}"),
            None => {}
        }
    }
    let (link, receiver) = Link::accepted_resumable(connection, resume, may_fork)?;
    for (socket, keys) in lanes {
        link.attach_lane(Connection::new(TcpStream::from(socket), keys));
    }
    Ok((link, receiver))
}

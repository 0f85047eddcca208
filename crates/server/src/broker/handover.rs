//! How does a worker process get its client?

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::sync::Arc;

use causeway_connection::channel::{Connection, Socket, end_after_last_words};
use causeway_link::transports::NotJoined;
use causeway_link::{Link, LinkError, Receiver, Upgrade};
use causeway_sandbox::ConfinementError;
use causeway_sync::threads;
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::{Answer, ClientHello, LaneToken, Locality, SessionId, Welcome};
use rustix::event::{PollFd, PollFlags, poll};
use thiserror::Error;

use super::confined::Confined;
use super::control::Control;
use super::exchange::{Exchange, PeerCaller};
use super::heartbeat::Beat;
use super::messages::{self, ControlError, SessionStart, ToBroker, ToWorker};
use crate::back_end::GpuChoice;
use crate::worker::{Arrival, Prepared};

/// Why a worker cannot begin its work.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// The broker is gone or says nothing sensible.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The client has gone.
    #[error("the client went away before it was answered: {0}")]
    Client(#[from] io::Error),
    /// The first message must be the session's start.
    #[error("the broker said something else before the session's start")]
    NoStart,
    /// It would have more rights than it should.
    #[error(transparent)]
    Confinement(#[from] ConfinementError),
    /// The link ended at once.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// A worker's task: a client that waits for an answer.
#[derive(Debug)]
pub struct WorkerStart {
    /// What the client says of itself; of its environment this process has got what the driver may know.
    pub hello: ClientHello,
    /// Which GPU to work with.
    pub gpu: GpuChoice,
    /// Whether the broker keeps images for later sessions.
    pub keeps_images: bool,
    /// Names the session, for logs.
    pub session: SessionId,
    token: LaneToken,
    version: u16,
    lanes: u32,
    locality: Locality,
    control: Control,
    connection: Connection,
    confined: Confined,
}

/// The whole life of a worker process: gets its task from the broker and carries it out.
pub fn worker_main() -> ExitCode {
    match Task::receive() {
        Ok(Task::Session { start, prepared }) => crate::worker::run(*start, prepared),
        Ok(Task::Monitor { gpu, control }) => crate::monitor::run(gpu, control),
        Ok(Task::Diagnosis(connection)) => crate::diagnosis::run(*connection),
        Err(error) => {
            tracing::error!(
                "this worker cannot begin: {error}. Workers are started by `causeway serve` only"
            );
            ExitCode::FAILURE
        }
    }
}

/// What a process that the broker has started is for.
enum Task {
    /// To serve one client, with the GPU that has been started for it already, if that is so.
    Session { start: Box<WorkerStart>, prepared: Option<Prepared> },
    /// To answer all monitoring sessions.
    Monitor { gpu: GpuChoice, control: Control },
    /// To say what this machine is like.
    Diagnosis(Box<Connection>),
}

impl Task {
    /// Gets the task that the broker left at standard input, which is closed for everybody else from then on.
    fn receive() -> Result<Self, WorkerError> {
        let input = io::stdin();
        let control = Control::from_descriptor(input.as_fd().try_clone_to_owned()?);
        let nothing = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing).map_err(io::Error::from)?;
        let mut confined = Confined::receive(&control)?;
        let mut prepared = None;
        let (message, socket) = loop {
            match messages::receive(&control)? {
                (ToWorker::Prepare { gpu }, _) => {
                    let ready = crate::worker::prepare(gpu);
                    if let Err(why) = &ready {
                        tracing::warn!("whoever comes now is turned away: {why}");
                    }
                    prepared = Some(ready);
                    confined.close()?;
                }
                other => break other,
            }
        };
        let start = match message {
            ToWorker::Start(start) => *start,
            ToWorker::Monitor { gpu } => {
                confined.close()?;
                return Ok(Self::Monitor { gpu, control });
            }
            ToWorker::Diagnose { keys } => {
                confined.close()?;
                let socket = socket.ok_or(ControlError::NoDescriptor)?;
                return Ok(Self::Diagnosis(Box::new(Connection::new(TcpStream::from(socket), keys))));
            }
            ToWorker::Confine(_)
            | ToWorker::Prepare { .. }
            | ToWorker::Lane { .. }
            | ToWorker::Join
            | ToWorker::Verbs { .. }
            | ToWorker::Peer { .. }
            | ToWorker::PeerJoin { .. }
            | ToWorker::PeerVerbs { .. }
            | ToWorker::Ping { .. }
            | ToWorker::Answer { .. } => {
                return Err(WorkerError::NoStart);
            }
        };
        let SessionStart { hello, version, session, token, lanes, gpu, keeps_images, locality, keys } = start;
        let socket = socket.ok_or(ControlError::NoDescriptor)?;
        let connection = Connection::new(TcpStream::from(socket), keys);
        let start = WorkerStart {
            hello,
            gpu,
            keeps_images,
            session,
            token,
            version,
            lanes,
            locality,
            control,
            connection,
            confined,
        };
        Ok(Self::Session { start: Box::new(start), prepared })
    }
}

impl WorkerStart {
    /// Gets the client that this process is to serve.
    pub fn receive() -> Result<Self, WorkerError> {
        match Task::receive()? {
            Task::Session { start, .. } => Ok(*start),
            Task::Monitor { .. } | Task::Diagnosis(_) => Err(WorkerError::NoStart),
        }
    }

    /// Gives up what a session does not need of this process's rights. [`welcome`](Self::welcome) does it, too.
    pub fn confine(&mut self) -> Result<(), WorkerError> {
        Ok(self.confined.close()?)
    }

    /// Grants the session, and gives up what a session does not need of this process's rights: the client gets `snapshot`, and shows by what it does next whether the session goes on in shared
    /// memory, over verbs or over TCP, where its bulk lanes will join the link as they come. What sessions leave for each other is reached by the last of the results.
    pub fn welcome(mut self, snapshot: Vec<u8>) -> Result<(Link, Receiver, Arc<Exchange>), WorkerError> {
        self.confine()?;
        messages::send(&self.control, &ToBroker::Answering, None)?;
        let answer = Answer::Welcome(Welcome {
            version: self.version,
            session: self.session,
            token: self.token,
            lanes: self.lanes,
            release: env!("CARGO_PKG_VERSION").into(),
            locality: self.locality,
            snapshot,
        });
        self.connection.send_handshake(|out| answer.encode(out))?;
        let socket = Arc::clone(self.connection.socket());
        let (link, receiver) = establish(&self.control, self.connection)?;
        tracing::info!(session = %self.session, via = %link.kind(), "the client is served");
        let (control, lanes) = (Arc::new(self.control), link.clone());
        let exchange = Exchange::new(Arc::clone(&control), self.session);
        let asker = Arc::clone(&exchange);
        threads::spawn("control", move || attend(&control, &socket, &lanes, &asker))?;
        Ok((link, receiver, exchange))
    }

    /// Turns the client away; `text` is a sentence for its user. Returns what the worker's process ends with.
    pub fn refuse(mut self, text: &str) -> ExitCode {
        tracing::error!(session = %self.session, "the client is turned away: {text}");
        let answer = Answer::Refused { text: text.into() };
        // Broker and client may be gone already; the worker ends either way.
        let _ = messages::send(&self.control, &ToBroker::Answering, None);
        let _ = self.connection.send_handshake(|out| answer.encode(out));
        end_after_last_words(self.connection.socket());
        ExitCode::FAILURE
    }
}

/// Waits until the client shows where the session goes on: it joins in shared memory or over verbs, or sends its first command
/// over TCP.
fn establish(control: &Control, connection: Connection) -> Result<(Link, Receiver), WorkerError> {
    let mut lanes = Vec::new();
    while lanes.is_empty() {
        let mut waiting_for = [
            PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
            PollFd::new(connection.socket(), PollFlags::IN),
        ];
        // An interrupted wait is only a reason to look again.
        let _ = poll(&mut waiting_for, None);
        if waiting_for[0].revents().is_empty() {
            if waiting_for[1].revents().is_empty() {
                continue;
            }
            break;
        }
        let mut upgrade = None;
        match messages::receive(control)? {
            (ToWorker::Join, Some(socket)) => upgrade = Some(Upgrade::Memory(socket)),
            (ToWorker::Verbs { hello, keys }, Some(socket)) => {
                let setup = Connection::new(TcpStream::from(socket), keys);
                upgrade = Some(Upgrade::QueuePairs(hello, Box::new(setup)));
            }
            (ToWorker::Lane { keys }, Some(socket)) => lanes.push((socket, keys)),
            // No command has come.
            (ToWorker::Ping { number }, _) => {
                messages::send(control, &ToBroker::Pong { number, beat: 0 }, None)?
            }
            _ => tracing::warn!("the broker sent something that a worker without commands cannot use"),
        }
        match upgrade.map(|upgrade| upgrade.accept(&connection)) {
            Some(Ok(link)) => return Ok(link),
            Some(Err(NotJoined::System(error))) => return Err(error.into()),
            Some(Err(NotJoined::Unusable(why))) => tracing::warn!("the session stays on TCP: {why}"),
            None => {}
        }
    }
    let (link, receiver) = Link::accepted(connection)?;
    for (socket, keys) in lanes {
        link.attach_lane(Connection::new(TcpStream::from(socket), keys));
    }
    Ok((link, receiver))
}

/// Takes in lanes from the broker, answers it, and tells the broker when the client has gone, so that it sees to it
/// that this process ends even when it hangs.
fn attend(control: &Control, client: &Socket, link: &Link, exchange: &Exchange) {
    let mut client_there = true;
    loop {
        let mut waiting_for = [
            PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(
                client.as_fd(),
                if client_there { PollFlags::RDHUP } else { PollFlags::empty() },
            ),
        ];
        // An interrupted wait is only a reason to look again.
        let _ = poll(&mut waiting_for[..if client_there { 2 } else { 1 }], None);
        if client_there && !waiting_for[1].revents().is_empty() {
            client_there = false;
            // Without a broker there is nobody to tell.
            let _ = messages::send(control, &ToBroker::ClientGone, None);
        }
        if waiting_for[0].revents().is_empty() {
            continue;
        }
        match messages::receive(control) {
            Ok((ToWorker::Lane { keys }, Some(socket))) => {
                link.attach_lane(Connection::new(TcpStream::from(socket), keys));
            }
            Ok((ToWorker::Peer { ticket, connection, keys }, Some(socket))) => {
                let socket = Connection::new(TcpStream::from(socket), keys);
                let arrival = if connection == 0 { Arrival::First(socket) } else { Arrival::Lane(socket) };
                exchange.peer_came(PeerCaller { ticket, arrival });
            }
            Ok((ToWorker::PeerJoin { ticket }, Some(socket))) => {
                exchange.peer_came(PeerCaller { ticket, arrival: Arrival::Joins(Upgrade::Memory(socket)) });
            }
            Ok((ToWorker::PeerVerbs { hello, keys }, Some(socket))) => {
                let setup = Box::new(Connection::new(TcpStream::from(socket), keys));
                let arrival = Arrival::Joins(Upgrade::QueuePairs(hello, setup));
                exchange.peer_came(PeerCaller { ticket: hello.token, arrival });
            }
            Ok((ToWorker::Ping { number }, _)) => {
                let Beat(beat) = exchange.pulse().beat();
                // Without a broker there is nobody to tell.
                let _ = messages::send(control, &ToBroker::Pong { number, beat }, None);
            }
            Ok((ToWorker::Answer { number, bytes }, descriptor)) => {
                exchange.answered(number, bytes, descriptor);
            }
            Ok(_) => tracing::warn!("the broker sent something that a working worker cannot use"),
            Err(ControlError::Damaged(error)) => {
                tracing::warn!("a message of the broker is damaged: {error}")
            }
            Err(_) => return,
        }
    }
}

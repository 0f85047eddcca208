//! Monitor process: supervisor, and hand-over of monitoring clients.
//!
//! One process for all of them, started with the first one and again when it has ended: NVIDIA's management
//! library is not loaded into the broker, which must neither wait for it nor end with it. All that is said to
//! that process goes through one thread here, so that no other thread waits for it either.

use core::convert::Infallible;
use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_connection::channel::Connection;
use causeway_connection::exchange::Exchange;
use causeway_sandbox::Purpose;
use causeway_sync::threads;
use causeway_wire::codec::Decoder;
use causeway_wire::frame::MAX_OPENING;
use causeway_wire::handshake::{ClientHello, Response};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use super::authorization::Authorization;
use super::refusal::refuse;
use super::spawn::{Spawner, describe};
use crate::activity::ActivityPage;
use crate::admission::{HandshakeSlot, Origin, Source};
use crate::back_end::GpuChoice;
use crate::broker::spawn::Started;
use crate::locks::{Mutex, rank};
use crate::protocol::control::Control;
use crate::protocol::messages::{self, ControlError, ToMonitor, ToWorker, WorkerOf};

/// How long a session waits until the monitor has been notified of it: one that stands still holds up no session
/// for longer.
const REPLY_TIMEOUT: Duration = Duration::from_millis(100);

/// How long the broker waits for the monitor when it asks itself; NVIDIA's library may have to be started.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which the keys of those who ask are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Messages to the thread.
enum Event {
    Client(Box<NewClient>),
    /// The broker itself asks, over the other end of this.
    Own(UnixStream),
    /// The sender is dropped when the process has been told.
    SessionStarted(WorkerOf, Source, Sender<Infallible>),
    Counts {
        worker: u32,
        page: Arc<ActivityPage>,
    },
    Ended {
        worker: u32,
    },
}

/// Who asks how the GPUs are, and what it may see.
pub struct MonitoredPeer {
    /// From where.
    pub origin: Origin,
    /// What it has proved.
    pub authorization: Authorization,
    /// Whether that still counts.
    pub check: Box<dyn Fn() -> Result<(), String> + Send>,
    /// The device memory that it may have.
    pub device_memory: Option<u64>,
}

/// A client that is to be answered.
struct NewClient {
    peer: MonitoredPeer,
    hello: ClientHello,
    connection: Connection,
    /// Kept until the process has the connection: however long that takes, no more wait for it than there are
    /// slots.
    slot: HandshakeSlot,
}

/// The way to the monitor's process.
pub struct Monitor {
    events: Mutex<rank::Leaf, Option<Sender<Event>>>,
}

impl Monitor {
    /// Starts the thread; the process comes with the first client.
    pub fn start(gpu: GpuChoice, spawner: Arc<Spawner>) -> io::Result<(Self, JoinHandle<()>)> {
        let (events, queue) = unbounded();
        let thread = threads::spawn("monitor", move || {
            MonitorSupervisor {
                gpu,
                spawner,
                running: None,
                workers: HashMap::new(),
                credentials: Vec::new(),
                newest: 0,
            }
            .run(&queue);
        })?;
        Ok((Self { events: Mutex::new(Some(events)) }, thread))
    }

    /// Gives the process one more client.
    pub fn add_client(
        &self,
        peer: MonitoredPeer,
        hello: ClientHello,
        connection: Connection,
        slot: HandshakeSlot,
    ) {
        self.send(Event::Client(Box::new(NewClient { peer, hello, connection, slot })));
    }

    /// Asks for the broker itself. The process is started where there is none.
    pub fn connect(&self) -> io::Result<Exchange> {
        let (own, its) = UnixStream::pair()?;
        self.send(Event::Own(its));
        // The standard library's type for TCP serves for any stream socket.
        let mut connection = Connection::new(TcpStream::from(OwnedFd::from(own)), None);
        let response = connection.receive_handshake(MAX_OPENING, Instant::now() + START_TIMEOUT);
        let response = response.map_err(io::Error::other)?;
        match Decoder::new(&response).value::<Response>().map_err(io::Error::other)? {
            Response::MonitorReady => Ok(Exchange::new(connection)),
            Response::Refused { text } => Err(io::Error::other(text.to_string())),
            _ => Err(io::Error::other("unexpected response from the monitor")),
        }
    }

    /// A session with a worker begins: its process is one of its client's. Returns when the monitor has been
    /// told, so that a client that is served and then asks finds itself.
    pub fn session_started(&self, worker: WorkerOf, source: Source) {
        let (sender, receiver) = bounded(1);
        self.send(Event::SessionStarted(worker, source, sender));
        // Ends with an error either way: nothing is sent.
        let _ = receiver.recv_timeout(REPLY_TIMEOUT);
    }

    /// What the session of a worker does is counted here.
    pub fn session_counts(&self, worker: u32, page: Arc<ActivityPage>) {
        self.send(Event::Counts { worker, page });
    }

    /// The session of a worker has ended.
    pub fn session_ended(&self, worker: u32) {
        self.send(Event::Ended { worker });
    }

    /// Ends the thread, and with it the process.
    pub fn end(&self) {
        *self.events.lock() = None;
    }

    fn send(&self, event: Event) {
        if let Some(events) = &*self.events.lock() {
            // The thread ends only when it is told to, and then the broker does, too.
            let _ = events.send(event);
        }
    }
}

/// Keeps the monitor's process running, and what it must know.
struct MonitorSupervisor {
    gpu: GpuChoice,
    spawner: Arc<Spawner>,
    /// The control connection of the process, while there is one.
    running: Option<Control>,
    workers: HashMap<u32, Session>,
    /// What clients of the process have proved that may cease to count.
    credentials: Vec<Credential>,
    newest: u32,
}

/// What clients of the process have proved.
struct Credential {
    number: u32,
    authorization: Authorization,
    check: Box<dyn Fn() -> Result<(), String> + Send>,
}

/// A session, as the process is to know it.
struct Session {
    worker: WorkerOf,
    source: Source,
    page: Option<Arc<ActivityPage>>,
}

impl MonitorSupervisor {
    fn run(mut self, queue: &Receiver<Event>) {
        let mut next_check = Instant::now();
        loop {
            if next_check <= Instant::now() {
                self.end_revoked();
                next_check = Instant::now() + CHECK_INTERVAL;
            }
            let event = match queue.recv_deadline(next_check) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) if self.credentials.is_empty() => match queue.recv() {
                    Ok(event) => event,
                    Err(_) => return,
                },
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            match event {
                Event::Client(client) => self.hand_over(*client),
                Event::Own(socket) => {
                    let source = Source::User(rustix::process::geteuid().as_raw());
                    let message = ToMonitor::Client {
                        source,
                        host: None,
                        keys: None,
                        device_memory: None,
                        credential: 0,
                    };
                    // Without a monitor the socket closes, which the asker reports.
                    let _ = self.send_or_restart(&message, &OwnedFd::from(socket));
                }
                Event::SessionStarted(worker, source, sender) => {
                    self.inform(&ToMonitor::SessionStarted(worker.clone(), source), None);
                    self.workers.insert(worker.worker, Session { worker, source, page: None });
                    drop(sender);
                }
                Event::Counts { worker, page } => {
                    self.inform(&ToMonitor::Counts { worker }, Some(page.memory()));
                    if let Some(session) = self.workers.get_mut(&worker) {
                        session.page = Some(page);
                    }
                }
                Event::Ended { worker } => {
                    self.inform(&ToMonitor::Ended { worker }, None);
                    self.workers.remove(&worker);
                }
            }
        }
    }

    /// Ends the connections of those whose key does not count any more.
    fn end_revoked(&mut self) {
        let mut revoked = Vec::new();
        self.credentials.retain(|credential| match (credential.check)() {
            Ok(()) => true,
            Err(why) => {
                revoked.push((credential.number, why));
                false
            }
        });
        for (credential, why) in revoked {
            tracing::info!("monitoring connections end: {why}");
            self.inform(&ToMonitor::Revoked { credential }, None);
        }
    }

    /// The number of what a peer has proved, which is checked from now on; 0 where that always counts.
    fn credential_of(
        &mut self,
        authorization: Authorization,
        check: Box<dyn Fn() -> Result<(), String> + Send>,
    ) -> u32 {
        if authorization == Authorization::Host {
            return 0;
        }
        if let Some(known) = self.credentials.iter().find(|known| known.authorization == authorization) {
            return known.number;
        }
        self.newest += 1;
        self.credentials.push(Credential { number: self.newest, authorization, check });
        self.newest
    }

    /// Tells the process something, if there is one.
    fn inform(&mut self, message: &ToMonitor, descriptor: Option<&OwnedFd>) {
        if let Some(control) = &self.running
            && messages::send(control, message, descriptor).is_err()
        {
            self.running = None;
        }
    }

    fn hand_over(&mut self, client: NewClient) {
        let NewClient { peer, hello, connection, slot } = client;
        let MonitoredPeer { origin: peer, authorization, check, device_memory } = peer;
        if !slot.finish() {
            return;
        }
        let client = format!("{} (process {} on {})", hello.program, hello.pid, hello.host);
        let (socket, keys) = match messages::take_apart(connection) {
            Ok(parts) => parts,
            Err(error) => return tracing::warn!(%peer, "{client} was refused: {error}"),
        };
        let message = ToMonitor::Client {
            source: Source::of(peer),
            host: Some(hello.host.clone()),
            keys: keys.clone(),
            device_memory,
            credential: self.credential_of(authorization, check),
        };
        match self.send_or_restart(&message, &socket) {
            Ok(()) => tracing::debug!(%peer, "{client} requests the state of the GPUs"),
            Err(error) => {
                tracing::error!(%peer, "cannot monitor the GPUs for {client}: {error}");
                let mut connection = Connection::new(TcpStream::from(socket), keys);
                refuse(&mut connection, &format!("the server cannot start its monitor: {error}"));
            }
        }
    }

    /// Gives the process a client. It may have ended since it was last heard of; a new one is tried once.
    fn send_or_restart(&mut self, message: &ToMonitor, socket: &OwnedFd) -> Result<(), ControlError> {
        self.send(message, socket).or_else(|error| match self.running.take() {
            Some(_) => self.send(message, socket),
            None => Err(error),
        })
    }

    fn send(&mut self, message: &ToMonitor, socket: &OwnedFd) -> Result<(), ControlError> {
        let control = match &self.running {
            Some(control) => control,
            None => {
                let control = self.launch()?;
                self.running.insert(control)
            }
        };
        messages::send(control, message, Some(socket))
    }

    /// Starts the process and tells it what it must know.
    fn launch(&self) -> Result<Control, ControlError> {
        let Started { child, control, jail, .. } = self.spawner.spawn(Purpose::Clients, Vec::new())?;
        tracing::debug!(process = child.id(), "the monitor starts");
        threads::spawn("monitor-end", move || {
            await_end(child);
            drop(jail);
        })?;
        messages::send(&control, &ToWorker::Monitor { gpu: self.gpu }, None)?;
        for Session { worker, source, page } in self.workers.values() {
            messages::send(&control, &ToMonitor::SessionStarted(worker.clone(), *source), None)?;
            if let Some(page) = page {
                let message = ToMonitor::Counts { worker: worker.worker };
                messages::send(&control, &message, Some(page.memory()))?;
            }
        }
        Ok(control)
    }
}

/// Waits for the end of the process, which says something only if it is not one that was wanted.
fn await_end(mut child: Child) {
    let status = child.wait();
    // Ctrl-C at a terminal reaches this process as well as the server, which ends by it.
    let is_expected = |status: &ExitStatus| status.success() || status.signal() == Some(libc::SIGINT);
    if !status.as_ref().is_ok_and(is_expected) {
        tracing::warn!("the monitor {}; the next request starts a new one", describe(&status));
    }
}

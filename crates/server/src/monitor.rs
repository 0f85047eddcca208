//! The monitor: the process that answers all monitoring sessions.
//!
//! A client has one thread here, which waits for its questions and lets the back end answer them one at a
//! time. Nothing that a client asks changes a GPU: calls that would are not in the list.

use std::collections::HashMap;
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use causeway_connection::channel::{Connection, Socket, end_after_goodbye, shut_down};
use causeway_connection::exchange::Exchange;
use causeway_gpu::monitor::{Monitor, OwnProcess, answer, limit_memory};
use causeway_sync::threads;
use causeway_wire::codec::{Decoder, Encode as _};
use causeway_wire::handshake::Response;
use causeway_wire::text::Printable;

use crate::activity::ActivityPage;
use crate::admission::{Full, SessionSlots, Source};
use crate::back_end::{self, GpuChoice};
use crate::locks::{self, Mutex, rank};
use crate::protocol::control::Control;
use crate::protocol::messages::{self, ControlError, ToMonitor, WorkerOf};

/// Clients that may ask at the same time; more are refused.
const MAX_CLIENTS: usize = 512;

/// Those of one peer.
const MAX_CLIENTS_PER_PEER: usize = 256;

/// How long a question waits for what the broker has said to be taken in, which takes some microseconds.
const REPLY_TIMEOUT: Duration = Duration::from_millis(100);

/// What all clients share.
struct Shared {
    gpu: GpuChoice,
    /// What the broker says.
    control: Control,
    /// What answers, once it has been opened.
    monitor: Mutex<rank::Leaf, Option<Arc<dyn Monitor>>>,
    /// Whose the workers are, by their processes. What the broker says is received under this lock: whoever
    /// has it and finds no message waiting knows all that has been said.
    workers: locks::Monitor<rank::MonitoredWorkers, HashMap<u32, MonitoredSession>>,
    clients: Mutex<rank::Leaf, SessionSlots>,
    connections: Mutex<rank::Leaf, Connections>,
}

/// The connections of clients whose proof may cease to count.
#[derive(Default)]
struct Connections {
    newest: u64,
    /// By what they have proved, and which they are.
    open: HashMap<(u32, u64), Socket>,
}

/// A session of the server.
struct MonitoredSession {
    worker: WorkerOf,
    source: Source,
    /// What it does, once that is counted.
    page: Option<ActivityPage>,
}

/// A client that asks.
struct Asker {
    source: Source,
    /// Its host, or nothing for one that sees all.
    host: Option<Printable>,
    /// The device memory that its source may have, if that is limited.
    device_memory: Option<u64>,
}

/// Answers clients until the broker ends.
pub fn run(gpu: GpuChoice, control: Control) -> ExitCode {
    let shared = Arc::new(Shared {
        gpu,
        control,
        monitor: Mutex::new(None),
        workers: locks::Monitor::default(),
        clients: Mutex::new(SessionSlots::new(MAX_CLIENTS, MAX_CLIENTS_PER_PEER)),
        connections: Mutex::default(),
    });
    while take_in(&shared) {}
    ExitCode::SUCCESS
}

/// Waits for a message of the broker and takes it in; false when there will be no more.
fn take_in(shared: &Arc<Shared>) -> bool {
    shared.control.has_message(true);
    shared.workers.change(|workers| {
        match messages::receive(&shared.control) {
            Ok((ToMonitor::Client { source, host, keys, device_memory, credential }, Some(socket))) => {
                let asker = Asker { source, host, device_memory };
                add_client(shared, asker, credential, Connection::new(TcpStream::from(socket), keys));
            }
            Ok((ToMonitor::Client { .. }, None)) => tracing::warn!("a client arrived without its connection"),
            Ok((ToMonitor::Revoked { credential }, _)) => shared.connections.lock().end(credential),
            Ok((ToMonitor::SessionStarted(worker, source), _)) => {
                workers.insert(worker.worker, MonitoredSession { worker, source, page: None });
            }
            Ok((ToMonitor::Counts { worker }, page)) => {
                if let Some(session) = workers.get_mut(&worker) {
                    session.page = page.map(ActivityPage::new);
                }
            }
            Ok((ToMonitor::Ended { worker }, _)) => {
                workers.remove(&worker);
            }
            Err(ControlError::Damaged(error)) => {
                tracing::warn!("malformed message from the broker: {error}");
            }
            Err(_) => return false,
        }
        true
    })
}

impl Connections {
    /// Notes one that its credential's end is to end; under which number.
    fn add(&mut self, credential: u32, socket: &Socket) -> (u32, u64) {
        self.newest += 1;
        let number = (credential, self.newest);
        self.open.insert(number, Arc::clone(socket));
        number
    }

    /// Ends those of a credential, whose threads notice.
    fn end(&mut self, credential: u32) {
        for (_, socket) in self.open.extract_if(|(of, _), _| *of == credential) {
            shut_down(&socket);
        }
    }
}

fn add_client(shared: &Arc<Shared>, asker: Asker, credential: u32, connection: Connection) {
    let (own, source) = (Arc::clone(shared), asker.source);
    // Before anything else that the broker says: what it ends is known here.
    let number = shared.connections.lock().add(credential, connection.socket());
    // Without a thread the connection ends, which the client reports.
    let started = threads::spawn("monitored", move || {
        let taken = own.clients.lock().take(source);
        match taken {
            Ok(()) => {
                serve(&own, &asker, connection);
                own.clients.lock().release(source);
            }
            Err(Full::InAll) => refuse(connection, "too many programs monitor it already"),
            Err(Full::OfSource | Full::OfGroup) => {
                refuse(connection, "too many programs of this peer monitor it already")
            }
        }
        own.connections.lock().open.remove(&number);
    });
    if let Err(error) = started {
        shared.connections.lock().open.remove(&number);
        tracing::error!("cannot serve a client: starting a thread failed: {error}");
    }
}

/// Answers one client until it goes.
fn serve(shared: &Shared, asker: &Asker, mut connection: Connection) {
    let monitor = match shared.open() {
        Ok(monitor) => monitor,
        Err(text) => {
            tracing::error!("{text}");
            return refuse(connection, &text);
        }
    };
    if connection.send_handshake(|out| Response::MonitorReady.encode(out)).is_err() {
        return;
    }
    let mut exchange = Exchange::new(connection);
    loop {
        let request = match exchange.receive(None) {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error) => return tracing::debug!("a monitoring client has disconnected: {error}"),
        };
        let mut input = Decoder::new(&request);
        let call = match input.value().and_then(|call| input.finish().map(|()| call)) {
            Ok(call) => call,
            Err(error) => return tracing::warn!("malformed request from a client: {error}"),
        };
        let mut outcome = answer(&*monitor, &call, &shared.own_processes(asker));
        if let Some(limit) = asker.device_memory {
            limit_memory(&mut outcome, &call, limit, shared.device_memory_of(asker.source));
        }
        if exchange.send(|out| outcome.encode(out)).is_err() {
            return;
        }
    }
}

fn refuse(mut connection: Connection, text: &str) {
    let refusal = Response::Refused { text: text.into() };
    // The client may be gone already; it is refused either way.
    let _ = connection.send_handshake(|out| refusal.encode(out));
    end_after_goodbye(connection.socket());
}

impl Shared {
    /// What answers. A back end that could not be opened is tried again with the next client.
    fn open(&self) -> Result<Arc<dyn Monitor>, String> {
        let mut monitor = self.monitor.lock();
        match &*monitor {
            Some(monitor) => Ok(Arc::clone(monitor)),
            None => Ok(Arc::clone(monitor.insert(back_end::open_monitor(self.gpu)?))),
        }
    }

    /// The processes that clients on this host, or on all, run on the server's GPUs, as far as the broker had
    /// told of them when this was asked. A client with a key of its own has those of its own sessions.
    fn own_processes(&self, asker: &Asker) -> Vec<OwnProcess> {
        let has_forwarded_all = |_: &mut _| (!self.control.has_message(false)).then_some(());
        self.workers.wait_for(REPLY_TIMEOUT, has_forwarded_all);
        let workers = self.workers.lock();
        let may_see = |of: Source| !matches!(asker.source, Source::Client(_)) || of == asker.source;
        let is_its = |session: &&MonitoredSession| {
            may_see(session.source) && asker.host.as_ref().is_none_or(|host| session.worker.host == *host)
        };
        let own = workers.values().filter(is_its).map(|session| &session.worker);
        own.map(|worker| OwnProcess { worker: worker.worker, client: worker.client }).collect()
    }

    /// Bytes of device memory that the sessions of a source have.
    fn device_memory_of(&self, source: Source) -> u64 {
        let workers = self.workers.lock();
        let pages =
            workers.values().filter(|session| session.source == source).filter_map(|it| it.page.as_ref());
        pages.fold(0, |sum: u64, page| sum.saturating_add(page.read().device_memory))
    }
}

//! Sockets of a process, and the connections that come for each listen call.
//!
//! All listen calls of a process share one port and one thread, which are there while any of them is. Who comes is let
//! in when it has proved to know the secret of one of them; others are dropped, the oldest first where many come.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use causeway_sync::descriptors::{EventFd, above_stdio};
use causeway_sync::fork::CloseOnFork;
use causeway_sync::threads;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::hello::{self, Challenge, HELLO_BYTES, Hello};
use super::names::UnixSockets;
use super::stream::{Arrived, MAX_LANES, Stream, random};
use crate::engine::LaneSocket;
use crate::error::NetError;
use crate::handle::{Handle, MAX_ADDRESSES, Secret};
use crate::interfaces;
use crate::log;
use crate::settings::Settings;

/// How many may be here that have not proved anything yet.
const MAX_UNAUTHENTICATED: usize = 64;

/// How long one may be here without, and a connection without all of its lanes.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long sockets are left alone when the process has no descriptor for who comes.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// A listen call: what comes for it.
pub struct Listener {
    acceptor: Arc<Acceptor>,
    number: u64,
    /// What its peer needs to connect.
    pub handle: Handle,
}

impl Listener {
    /// Listens.
    ///
    /// # Errors
    /// When the system gives no socket or thread.
    pub fn open(settings: &Settings) -> Result<Self, NetError> {
        let acceptor = Acceptor::get(settings)?;
        let secret = random().map_err(NetError::system("drawing a secret"))?;
        let (mut addresses, _) = interfaces::addresses(&settings.interfaces)
            .map_err(NetError::system("listing network interfaces"))?;
        addresses.truncate(MAX_ADDRESSES);
        let number = acceptor.expect(secret);
        let handle =
            Handle { secret, listener: number, process: acceptor.process, port: acceptor.port, addresses };
        Ok(Self { acceptor, number, handle })
    }

    /// The next connection that has come for it, if one has.
    pub fn accept(&self) -> Option<Arrived> {
        self.acceptor.table().get_mut(&self.number)?.arrived.pop_front()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.acceptor.table().remove(&self.number);
    }
}

/// What is there for a listen call.
struct Expected {
    secret: Secret,
    arrived: VecDeque<Arrived>,
    /// Connections that lack lanes.
    incomplete: HashMap<[u8; 16], Incomplete>,
}

struct Incomplete {
    lanes: Vec<Option<LaneSocket>>,
    since: Instant,
}

/// The sockets of a process, which are there as long as this is.
struct Acceptor {
    process: u64,
    port: u16,
    expected: Mutex<HashMap<u64, Expected>>,
    next: Mutex<u64>,
    stop: Arc<EventFd>,
}

impl Acceptor {
    /// The one of this process.
    fn get(settings: &Settings) -> Result<Arc<Self>, NetError> {
        static CURRENT: Mutex<Weak<Acceptor>> = Mutex::new(Weak::new());
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(acceptor) = current.upgrade() {
            return Ok(acceptor);
        }
        let acceptor = Self::start(settings)?;
        *current = Arc::downgrade(&acceptor);
        Ok(acceptor)
    }

    fn start(settings: &Settings) -> Result<Arc<Self>, NetError> {
        let process = u64::from_le_bytes(random().map_err(NetError::system("drawing a name"))?);
        let unix = UnixSockets::listen(&settings.folders, process);
        let tcp = listen_tcp().map_err(NetError::system("listening at a port"))?;
        let port = tcp.local_addr().map_err(NetError::system("listening at a port"))?.port();
        let stop = Arc::new(EventFd::new().map_err(NetError::system("making an event"))?);
        let acceptor = Arc::new(Self {
            process,
            port,
            expected: Mutex::default(),
            next: Mutex::new(1),
            stop: Arc::clone(&stop),
        });
        let mut sockets = vec![Socket::Tcp(tcp)];
        let mut unix = unix;
        sockets.extend(unix.listeners.drain(..).map(Socket::Unix));
        let close_on_fork = sockets.iter().map(|socket| CloseOnFork::new(socket.as_fd())).collect();
        let serving = Serving {
            _close_on_fork: close_on_fork,
            sockets,
            _files: unix,
            acceptor: Arc::downgrade(&acceptor),
            stop,
            pending: VecDeque::new(),
        };
        for socket in &serving.sockets {
            socket.set_nonblocking().map_err(NetError::system("listening"))?;
        }
        threads::spawn("nccl-accept", move || serving.run())
            .map_err(NetError::system("starting a thread"))?;
        Ok(acceptor)
    }

    fn table(&self) -> MutexGuard<'_, HashMap<u64, Expected>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets in who knows this secret; by which number it asks.
    fn expect(&self, secret: Secret) -> u64 {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *next;
        *next += 1;
        let expected = Expected { secret, arrived: VecDeque::new(), incomplete: HashMap::new() };
        self.table().insert(number, expected);
        number
    }

    /// A lane has proved that it belongs to a listen call.
    fn admit(&self, hello: &Hello, stream: Stream) {
        let peer = stream.peer();
        let Ok(socket) = stream.into_lane() else { return };
        let mut table = self.table();
        let Some(expected) = table.get_mut(&hello.listener) else { return };
        let lanes = usize::from(hello.lanes);
        let incomplete = expected.incomplete.entry(hello.connection).or_insert_with(|| Incomplete {
            lanes: (0..lanes).map(|_| None).collect(),
            since: Instant::now(),
        });
        // The peer is of this job, and wrong.
        let Some(lane @ None) = incomplete.lanes.get_mut(usize::from(hello.lane)) else { return };
        *lane = Some(socket);
        if incomplete.lanes.iter().all(Option::is_some)
            && let Some(complete) = expected.incomplete.remove(&hello.connection)
        {
            let sockets = complete.lanes.into_iter().flatten().collect();
            expected.arrived.push_back(Arrived { sockets, peer });
        }
    }

    fn forget_incomplete(&self) {
        for expected in self.table().values_mut() {
            expected.incomplete.retain(|_, incomplete| incomplete.since.elapsed() < ACCEPT_TIMEOUT);
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stop.signal();
    }
}

/// A port of both versions of IP, where the host has both.
fn listen_tcp() -> io::Result<TcpListener> {
    let bind = |address: SocketAddr| TcpListener::bind(address).and_then(above_stdio);
    bind((Ipv6Addr::UNSPECIFIED, 0).into()).or_else(|_| bind((Ipv4Addr::UNSPECIFIED, 0).into()))
}

enum Socket {
    Tcp(TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.set_nonblocking(true),
            Self::Unix(listener) => listener.set_nonblocking(true),
        }
    }

    fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => Ok(Stream::Tcp(above_stdio(listener.accept()?.0)?)),
            Self::Unix(listener) => Ok(Stream::Unix(above_stdio(listener.accept()?.0)?)),
        }
    }
}

/// Someone who has connected and proved nothing yet.
struct Pending {
    stream: Stream,
    challenge: Challenge,
    hello: [u8; HELLO_BYTES],
    filled: usize,
    since: Instant,
}

/// The thread of the sockets.
struct Serving {
    /// In front of the sockets, so that they go first.
    _close_on_fork: Vec<CloseOnFork>,
    sockets: Vec<Socket>,
    _files: UnixSockets,
    acceptor: Weak<Acceptor>,
    stop: Arc<EventFd>,
    pending: VecDeque<Pending>,
}

impl Serving {
    fn run(mut self) {
        let mut shortage: Option<Instant> = None;
        loop {
            shortage = shortage.filter(|until| *until > Instant::now());
            let Some((ready, is_open)) = self.wait(shortage) else { return };
            // From the last on, so that the numbers of the others stay.
            for at in ready.into_iter().rev() {
                self.read_hello(at);
            }
            if is_open && self.let_in().is_err() {
                shortage = Some(Instant::now() + SHORTAGE_PAUSE);
            }
            self.pending.retain(|pending| pending.since.elapsed() < ACCEPT_TIMEOUT);
            match self.acceptor.upgrade() {
                Some(acceptor) => acceptor.forget_incomplete(),
                None => return,
            }
        }
    }

    /// Waits until something happens: who has sent something, and whether a connection may have come. None at the end.
    fn wait(&self, shortage: Option<Instant>) -> Option<(Vec<usize>, bool)> {
        let mut polled = vec![PollFd::from_borrowed_fd(self.stop.readable(), PollFlags::IN)];
        polled.extend(self.pending.iter().map(|pending| PollFd::new(&pending.stream, PollFlags::IN)));
        let pending = self.pending.len();
        if shortage.is_none() {
            let sockets = self.sockets.iter();
            polled.extend(sockets.map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)));
        }
        let timeout = if shortage.is_some() { SHORTAGE_PAUSE } else { Duration::from_secs(1) };
        let timeout = Timespec::try_from(timeout).ok();
        if poll(&mut polled, timeout.as_ref()).is_err() {
            return Some((Vec::new(), false));
        }
        let is_ready = |at: usize| !polled[at].revents().is_empty();
        if is_ready(0) {
            return None;
        }
        let ready = (0..pending).filter(|at| is_ready(at + 1)).collect();
        Some((ready, (pending + 1..polled.len()).any(is_ready)))
    }

    /// Lets those in who have come, and tells them what to prove.
    fn let_in(&mut self) -> io::Result<()> {
        for socket in &self.sockets {
            let stream = match socket.accept() {
                Ok(stream) => stream,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                    log::warn("a connection waits: the process has no file descriptor left (ulimit -n)");
                    return Err(error);
                }
                Err(_) => continue,
            };
            let Ok(challenge) = random() else { continue };
            let greeted =
                stream.set_nonblocking().and_then(|()| (&stream).write_all(&hello::greeting(&challenge)));
            if greeted.is_err() {
                continue;
            }
            if self.pending.len() == MAX_UNAUTHENTICATED {
                self.pending.pop_front();
            }
            let hello = [0; HELLO_BYTES];
            self.pending.push_back(Pending { stream, challenge, hello, filled: 0, since: Instant::now() });
        }
        Ok(())
    }

    /// Reads what one has sent, and responds when that is all.
    fn read_hello(&mut self, at: usize) {
        let Some(pending) = self.pending.get_mut(at) else { return };
        let filled = pending.filled;
        match (&pending.stream).read(&mut pending.hello[filled..]) {
            Ok(count) if count > 0 => {
                pending.filled += count;
                if pending.filled < HELLO_BYTES {
                    return;
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return;
            }
            // It has gone again.
            _ => {
                self.pending.remove(at);
                return;
            }
        }
        if let (Some(pending), Some(acceptor)) = (self.pending.remove(at), self.acceptor.upgrade()) {
            check(&acceptor, pending);
        }
    }
}

/// Lets a lane in that has proved what it is to.
fn check(acceptor: &Acceptor, pending: Pending) {
    let Pending { stream, challenge, hello: bytes, .. } = pending;
    let secret = Hello::listener_of(&bytes)
        .and_then(|listener| acceptor.table().get(&listener).map(|expected| expected.secret));
    let hello = secret.and_then(|secret| Some((Hello::decode(&bytes, &secret, &challenge)?, secret)));
    let Some((hello, secret)) = hello else {
        log::info(&format!(
            "connection of {} refused: it does not know the secret of a connect handle",
            stream.peer()
        ));
        return;
    };
    if hello.lanes == 0 || hello.lanes > MAX_LANES || hello.lane >= hello.lanes {
        return;
    }
    // It fits into the socket's buffer, which is empty.
    if (&stream).write_all(&hello::listener_proof(&bytes, &secret, &challenge)).is_ok() {
        acceptor.admit(&hello, stream);
    }
}

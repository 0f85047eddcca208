//! Listening sockets of a broker, and the threads that accept callers at them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use causeway_access::VsockAddress;
use causeway_connection::vsock::{VsockListener, why_no_listener};
use causeway_sync::threads;

use super::config::BrokerConfig;
use super::error::StartError;
use super::hot_restart::InheritedSockets;
use super::listen::NetworkListener;
use super::shared::Shared;
use super::{listen, metrics};
use crate::locks::{Mutex, rank};
use crate::protocol::messages::ListenerAddress;

/// Sockets for callers from the network, bound and not accepted at yet.
#[derive(Default)]
pub struct NetworkSockets {
    clients: Option<NetworkSocket>,
    vsock: Option<VsockSocket>,
    metrics: Option<NetworkSocket>,
}

/// A socket, and the address that the configuration has for it.
#[derive(Clone)]
struct NetworkSocket {
    address: SocketAddr,
    socket: Arc<TcpListener>,
}

/// A socket for virtual machines or their host, and its address in the configuration.
#[derive(Clone)]
struct VsockSocket {
    address: VsockAddress,
    socket: Arc<VsockListener>,
}

impl NetworkSockets {
    /// Binds those that are not inherited.
    pub fn open(config: &BrokerConfig, inherited: &mut InheritedSockets) -> Result<Self, StartError> {
        let clients = config.listen.map(|address| {
            let socket = inherited.take(&ListenerAddress::Network(address.to_string()));
            let socket = socket.map_or_else(|| TcpListener::bind(address), Ok);
            NetworkSocket::new(address, socket).map_err(|cause| StartError::Listen { address, cause })
        });
        let metrics = config.metrics.map(|address| {
            let socket = inherited.take(&ListenerAddress::Metrics(address.to_string()));
            let socket = socket.map_or_else(|| TcpListener::bind(address), Ok);
            NetworkSocket::new(address, socket).map_err(|cause| StartError::Metrics { address, cause })
        });
        let vsock = config.vsock.map(|address| {
            let socket = inherited.take(&ListenerAddress::Network(address.to_string()));
            let socket = socket.map_or_else(|| VsockListener::bind(address), Ok);
            let socket = socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
            socket
                .map(|socket| VsockSocket { address, socket: Arc::new(socket) })
                .map_err(|cause| StartError::Vsock { address, cause: why_no_listener(address, &cause) })
        });
        Ok(Self { clients: clients.transpose()?, vsock: vsock.transpose()?, metrics: metrics.transpose()? })
    }

    /// Where callers from a network are accepted.
    fn listeners(&self) -> Vec<NetworkListener> {
        let tcp = self.clients.iter().map(|one| NetworkListener::Tcp(Arc::clone(&one.socket)));
        tcp.chain(self.vsock.iter().map(|one| NetworkListener::Vsock(Arc::clone(&one.socket)))).collect()
    }

    /// The socket for callers over TCP, if there is one.
    pub fn clients(&self) -> Option<&TcpListener> {
        self.clients.as_ref().map(|clients| &*clients.socket)
    }
}

impl NetworkSocket {
    fn new(address: SocketAddr, socket: io::Result<TcpListener>) -> io::Result<Self> {
        let socket = socket?;
        socket.set_nonblocking(true)?;
        Ok(Self { address, socket: Arc::new(socket) })
    }
}

/// The sockets of a running broker. Callers are accepted while this is open.
pub struct Listeners {
    shared: Arc<Shared>,
    network: Mutex<rank::Leaf, NetworkSockets>,
    accepting: Mutex<rank::Leaf, Option<Acceptor>>,
    serving_metrics: Mutex<rank::Leaf, Option<Acceptor>>,
}

/// A thread that accepts while this lives.
struct Acceptor {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    fn start(name: &'static str, accept: impl FnOnce(&UnixStream) + Send + 'static) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let thread = threads::spawn(name, move || accept(&stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    fn runs(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        // The thread waits for this end to close.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by its own message.
            let _ = thread.join();
        }
    }
}

impl Listeners {
    /// Those of a broker, where nobody is accepted yet.
    pub fn new(shared: Arc<Shared>, network: NetworkSockets) -> Self {
        Self {
            shared,
            network: Mutex::new(network),
            accepting: Mutex::default(),
            serving_metrics: Mutex::default(),
        }
    }

    /// Accepts callers from now on.
    pub fn open(&self) -> io::Result<()> {
        let (clients, metrics) = {
            let network = self.network.lock();
            (network.listeners(), network.metrics.as_ref().map(|one| Arc::clone(&one.socket)))
        };
        if let Some(socket) = metrics {
            let shared = Arc::clone(&self.shared);
            let respond: Arc<metrics::Respond> = Arc::new(move |path: &str| metrics::respond(path, &shared));
            let serving_metrics =
                Acceptor::start("metrics", move |stopped| metrics::serve(&socket, stopped, &respond))?;
            *self.serving_metrics.lock() = Some(serving_metrics);
        }
        let shared = Arc::clone(&self.shared);
        let accepting = Acceptor::start("accept", move |stopped| {
            listen::accept_until(&clients, stopped, &shared);
        })?;
        *self.accepting.lock() = Some(accepting);
        Ok(())
    }

    /// Accepts nobody any more; who calls waits in the kernel's queue.
    pub fn close(&self) {
        // Taken out first: the threads are waited for without the locks.
        let accepting = self.accepting.lock().take();
        let serving_metrics = self.serving_metrics.lock().take();
        drop((accepting, serving_metrics));
    }

    /// Whether callers are accepted.
    pub fn accepts(&self) -> bool {
        self.accepting.lock().as_ref().is_some_and(Acceptor::runs)
    }

    /// Where metrics are served, if they are.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.network.lock().metrics.as_ref().and_then(|metrics| metrics.socket.local_addr().ok())
    }

    /// A copy of each, for another process.
    pub fn copies(&self) -> io::Result<Vec<(ListenerAddress, OwnedFd)>> {
        let mut copies = Vec::new();
        {
            let network = self.network.lock();
            if let Some(NetworkSocket { address, socket }) = &network.clients {
                copies.push((ListenerAddress::Network(address.to_string()), socket.try_clone()?.into()));
            }
            if let Some(VsockSocket { address, socket }) = &network.vsock {
                copies.push((ListenerAddress::Network(address.to_string()), socket.try_clone()?));
            }
            if let Some(NetworkSocket { address, socket }) = &network.metrics {
                copies.push((ListenerAddress::Metrics(address.to_string()), socket.try_clone()?.into()));
            }
        }
        for local in self.shared.local.listeners() {
            copies.push((local.address.clone(), local.socket.try_clone()?.into()));
        }
        Ok(copies)
    }

    /// Gives the sockets up, which another process has now.
    pub fn give_up(&self) {
        *self.network.lock() = NetworkSockets::default();
        self.shared.local.give_up();
    }
}

//! A relay between a client and a server that can be told to fall silent, or to cut connections.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// One direction of a connection through the relay.
#[derive(Default)]
struct Way {
    silent: AtomicBool,
    /// After so many bytes the connection is cut.
    left: AtomicU64,
}

/// What the relay can be told: for each connection in the order in which they came, to the server and back.
#[derive(Clone, Default)]
pub struct Relay(Arc<State>);

#[derive(Default)]
struct State {
    ways: Mutex<Vec<[Arc<Way>; 2]>>,
    sockets: Mutex<Vec<TcpStream>>,
    is_closed: AtomicBool,
}

impl Relay {
    /// Connections to the returned address go on to the server.
    pub fn start(&self, server: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, relay) = (listener.local_addr().unwrap(), self.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                if relay.0.is_closed.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(server) else { return };
                relay.join(&client, &server);
            }
        });
        address
    }

    fn join(&self, client: &TcpStream, server: &TcpStream) {
        let ways = [0, 1].map(|_| Arc::new(Way { left: AtomicU64::new(u64::MAX), ..Way::default() }));
        self.0.ways.lock().push(ways.clone());
        self.0.sockets.lock().extend([client, server].map(|socket| socket.try_clone().unwrap()));
        let [up, down] = ways;
        for (from, to, way) in [(client, server, up), (server, client, down)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            std::thread::spawn(move || forward(from, to, &way));
        }
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        self.0.ways.lock().len()
    }

    /// Falls silent, in these directions, on the connections whose numbers are in the range.
    pub fn silence(&self, connections: impl std::ops::RangeBounds<usize>, directions: &[usize]) {
        let ways = self.0.ways.lock();
        for (_, ways) in ways.iter().enumerate().filter(|(number, _)| connections.contains(number)) {
            directions.iter().for_each(|direction| ways[*direction].silent.store(true, Ordering::SeqCst));
        }
    }

    /// The connections that there are, the first ones, are cut after so many bytes more.
    pub fn limit_first(&self, budgets: &[[u64; 2]]) {
        for (ways, budget) in self.0.ways.lock().iter().zip(budgets) {
            ways.iter().zip(budget).for_each(|(way, left)| way.left.store(*left, Ordering::SeqCst));
        }
    }

    /// Cuts all connections that there are.
    pub fn cut(&self) {
        for socket in self.0.sockets.lock().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// From now on new connections are ended at once, or go through again.
    pub fn close(&self, is_closed: bool) {
        self.0.is_closed.store(is_closed, Ordering::SeqCst);
    }
}

/// Forwards until told to be silent; from then on it reads on and keeps what comes, as long as the test runs.
fn forward(mut from: TcpStream, mut to: TcpStream, way: &Way) {
    let wait = || {
        while way.silent.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        wait();
        let left = way.left.load(Ordering::SeqCst);
        let count = (count as u64).min(left);
        if left != u64::MAX {
            way.left.store(left - count, Ordering::SeqCst);
        }
        if to.write_all(&bytes[..count as usize]).is_err() || left == count {
            break;
        }
    }
    // The end is forwarded as bytes are.
    wait();
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

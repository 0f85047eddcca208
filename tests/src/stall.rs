//! A relay between clients and a server that keeps its connections open and forwards nothing any more, or cuts them, once
//! it is told to.

use causeway_access::Target;
use causeway_connection::dial_here;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the server may take to accept a connection.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Which connections fall silent, counted in the order in which they come: the first carries commands, the others are
/// lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silent {
    /// None.
    None,
    /// All, also those that come later.
    All,
    /// The one with this number.
    Only(usize),
}

/// In which direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// What clients send.
    ToServer,
    /// What the server sends.
    ToClient,
    /// All.
    Both,
}

/// The relay, on a loopback port. Its threads end with the process.
#[derive(Debug)]
pub struct Stall {
    target: Target,
    state: Arc<(Mutex<(Silent, Direction)>, Condvar)>,
    connections: Arc<AtomicUsize>,
    sockets: Arc<Mutex<Vec<(Instant, TcpStream)>>>,
}

impl Stall {
    /// Starts relaying to `server`.
    ///
    /// # Panics
    /// When no port can be listened on.
    pub fn on(server: &Target) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        let state = Arc::new((Mutex::new((Silent::None, Direction::Both)), Condvar::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let sockets = Arc::new(Mutex::new(Vec::new()));
        let (told, count, behind) = (Arc::clone(&state), Arc::clone(&connections), server.clone());
        let to_cut = Arc::clone(&sockets);
        std::thread::spawn(move || {
            for front in listener.incoming().flatten() {
                let Ok(back) = dial_here(&behind.endpoint, TIMEOUT) else { continue };
                let number = count.fetch_add(1, Ordering::SeqCst);
                if let Ok(socket) = front.try_clone() {
                    to_cut.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), socket));
                }
                let ways = [(&front, &back, Direction::ToServer), (&back, &front, Direction::ToClient)];
                for (from, to, direction) in ways {
                    let told = Arc::clone(&told);
                    if let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) {
                        std::thread::spawn(move || {
                            relay(from, to, || wait_while_silent(&told, number, direction))
                        });
                    }
                }
            }
        });
        Self {
            target: Target::tcp("127.0.0.1", port, server.protection, server.key.clone()),
            state,
            connections,
            sockets,
        }
    }

    /// Cuts all connections that have existed for longer than this.
    pub fn cut(&self, older_than: Duration) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, socket) in sockets.extract_if(.., |(begun, _)| begun.elapsed() > older_than) {
            // An error means that it has ended already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Where clients connect to, with the server's key.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// How many connections have come.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// From here on these connections are silent in this direction, and the others are not.
    pub fn silence(&self, which: Silent, direction: Direction) {
        *self.state.0.lock().unwrap_or_else(PoisonError::into_inner) = (which, direction);
        self.state.1.notify_all();
    }
}

fn wait_while_silent(told: &(Mutex<(Silent, Direction)>, Condvar), number: usize, own: Direction) {
    let is_silent = |(which, direction): &mut (Silent, Direction)| {
        (*which == Silent::All || *which == Silent::Only(number))
            && (*direction == Direction::Both || *direction == own)
    };
    let state = told.0.lock().unwrap_or_else(PoisonError::into_inner);
    drop(told.1.wait_while(state, is_silent));
}

/// What has come is held back while the relay is silent, an end as well.
fn relay(mut from: TcpStream, mut to: TcpStream, wait: impl Fn()) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        wait();
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    wait();
    // An error means that the connection has ended already.
    let _ = to.shutdown(Shutdown::Write);
}

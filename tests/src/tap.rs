//! A relay between clients and a server that keeps a record of what goes through it.

use causeway_access::Target;
use causeway_connection::dial_here;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long the server may take to accept a connection.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A relay on a loopback port. Its threads end with the process.
#[derive(Debug)]
pub struct Tap {
    target: Target,
    record: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    /// Starts relaying to `server`.
    ///
    /// # Panics
    /// When no port can be listened on.
    pub fn on(server: &Target) -> Self {
        Self::for_connections(server, usize::MAX)
    }

    /// Starts relaying so many connections to `server`, and ends those that come after them.
    ///
    /// # Panics
    /// When no port can be listened on.
    pub fn for_connections(server: &Target, most: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        let record = Arc::new(Mutex::new(Vec::new()));
        let (theirs, behind) = (Arc::clone(&record), server.clone());
        std::thread::spawn(move || {
            for front in listener.incoming().take(most).flatten() {
                let Ok(back) = dial_here(&behind.endpoint, TIMEOUT) else { continue };
                for (from, to) in [(&front, &back), (&back, &front)] {
                    let (from, to) = (from.try_clone(), to.try_clone());
                    let record = Arc::clone(&theirs);
                    if let (Ok(from), Ok(to)) = (from, to) {
                        std::thread::spawn(move || relay(from, to, &record));
                    }
                }
            }
        });
        Self { target: Target::tcp("127.0.0.1", port, server.protection, server.key.clone()), record }
    }

    /// Where clients connect to, with the server's key.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// How many bytes went through, in both directions and on all connections.
    pub fn bytes_seen(&self) -> usize {
        self.record.lock().expect("no relay panics").len()
    }

    /// Whether these bytes went through in one piece.
    pub fn has_seen(&self, bytes: &[u8]) -> bool {
        self.record.lock().expect("no relay panics").windows(bytes.len()).any(|window| window == bytes)
    }
}

fn relay(mut from: TcpStream, mut to: TcpStream, record: &Mutex<Vec<u8>>) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        record.lock().expect("no relay panics").extend_from_slice(&piece[..count]);
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    // An error means that the connection has ended already.
    let _ = to.shutdown(Shutdown::Write);
}

//! Who may knock, how many at once, and for how long?

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use causeway_fabric::accept::{AcceptError, Caller, Request, greet};
use causeway_fabric::tcp::channel::{Connection, end_after_last_words};
use causeway_fabric::threads;
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::{Answer, LaneHello, Offer, VERSIONS};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::messages::{self, ToWorker};
use super::{Shared, process};

/// How long accepting pauses when the system has no descriptors or memory left.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// How many callers are between connecting and having said what they want.
#[derive(Default)]
struct Handshakes {
    under_way: Mutex<usize>,
    ended: Condvar,
}

/// A caller's place among the handshakes; given up when dropped.
struct Place(Arc<Handshakes>);

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.under_way.lock() -= 1;
        self.0.ended.notify_one();
    }
}

impl Handshakes {
    /// Waits until fewer than `most` are under way, but no longer than `patience`.
    fn enter(self: &Arc<Self>, most: usize, patience: Duration) -> Option<Place> {
        let mut under_way = self.under_way.lock();
        if *under_way >= most {
            self.ended.wait_for(&mut under_way, patience);
        }
        (*under_way < most).then(|| {
            *under_way += 1;
            Place(Arc::clone(self))
        })
    }
}

/// Accepts callers until the other end of `stopped` is closed.
pub fn accept_until(listener: &TcpListener, stopped: &UnixStream, shared: &Arc<Shared>) {
    let handshakes = Arc::new(Handshakes::default());
    let mut in_trouble = false;
    loop {
        let mut waiting_for = [
            PollFd::new(stopped, PollFlags::IN),
            PollFd::new(listener, if in_trouble { PollFlags::empty() } else { PollFlags::IN }),
        ];
        // An interrupted wait is only a reason to look again.
        let _ = poll(&mut waiting_for, in_trouble.then_some(&PAUSE));
        if !waiting_for[0].revents().is_empty() {
            return;
        }
        // Above the limit callers stay in the kernel's queue; a slow handshake ends by its own timeout.
        let patience = Duration::from_millis(200);
        let Some(place) = handshakes.enter(shared.config.most_handshakes, patience) else {
            continue;
        };
        match listener.accept() {
            Ok((stream, peer)) => {
                in_trouble = false;
                let own = Arc::clone(shared);
                let started = threads::spawn("caller", move || serve(stream, peer, &own, place));
                if let Err(error) = started {
                    tracing::error!(%peer, "turned away, for no thread can be started: {error}");
                }
            }
            Err(error) => in_trouble = is_trouble(&error, in_trouble),
        }
    }
}

/// Whether accepting must pause after `error`, which is logged once while the trouble lasts.
fn is_trouble(error: &io::Error, already: bool) -> bool {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
            if !already {
                tracing::error!("accepting pauses: {error}; existing sessions go on");
            }
            true
        }
        // The others concern one caller that has gone again, or say that there is none.
        _ => false,
    }
}

/// Serves one caller: all of its session when it asks for one.
fn serve(stream: TcpStream, peer: SocketAddr, shared: &Arc<Shared>, place: Place) {
    let config = &shared.config;
    let offer = Offer {
        versions: VERSIONS,
        fingerprint: config.fingerprint,
        release: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let served = stream
        .set_nonblocking(false)
        .map_err(AcceptError::from)
        .and_then(|()| greet(stream, config.key.as_ref(), &offer, config.handshake_timeout));
    let Caller { request, connection } = match served {
        Ok(caller) => caller,
        // A connection without a word is how `causeway run` checks that the server is there.
        Err(AcceptError::Ended) => {
            return tracing::debug!(%peer, "a caller left before it said what it wants");
        }
        Err(error) => return tracing::warn!(%peer, "a caller was turned away: {error}"),
    };
    drop(place);
    match request {
        Request::Session { hello, version } => process::run_session(shared, peer, hello, version, connection),
        Request::Monitor { hello } => shared.monitor.add_client(peer, hello, connection),
        Request::Lane(hello) => {
            if let Err(error) = add_lane(shared, &hello, connection) {
                tracing::warn!(%peer, session = %hello.session, "a bulk lane was turned away: {error}");
            }
        }
    }
}

fn add_lane(
    shared: &Shared,
    hello: &LaneHello,
    mut connection: Connection,
) -> Result<(), messages::ControlError> {
    let Some(control) = shared.sessions.admit_lane(hello) else {
        refuse(&mut connection, "the lane's session has ended, or has this lane already");
        return Err(messages::ControlError::Io(io::Error::other(
            "no such session, a wrong token, or no such lane",
        )));
    };
    connection.send_handshake(|out| Answer::LaneReady.encode(out))?;
    let (socket, keys) = messages::take_apart(connection)?;
    messages::send(&control, &ToWorker::Lane { keys }, Some(&socket))
}

/// Tells a caller why it is turned away, and ends the connection.
pub fn refuse(connection: &mut Connection, text: &str) {
    let refusal = Answer::Refused { text: text.to_owned() };
    // The caller may be gone already; it is turned away either way.
    let _ = connection.send_handshake(|out| refusal.encode(out));
    end_after_last_words(connection.socket());
}

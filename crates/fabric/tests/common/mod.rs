//! A server in a few lines, for tests over real loopback sockets: it accepts sessions and lanes in this
//! process.
#![allow(dead_code, reason = "every test file uses its own part of this")]

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use causeway_fabric::accept::{AcceptError, Request, greet};
use causeway_fabric::exchange::Exchange;
use causeway_fabric::{
    ConnectOptions, Destination, Key, Link, LinkError, LinkEvents, Receiver, Session, Target, connect,
    describe_process,
};
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::{Answer, LaneToken, Offer, SessionId, VERSIONS, Welcome};
use crossbeam_channel::{Receiver as Queue, Sender, bounded, unbounded};

pub const FINGERPRINT: u64 = 0xfeed;
const TOKEN: LaneToken = LaneToken([9; 32]);

pub fn offer() -> Offer {
    Offer { versions: VERSIONS, fingerprint: FINGERPRINT, release: "0.1.0".into() }
}

pub fn target(address: SocketAddr, key: Option<&Key>) -> Target {
    Target { host: address.ip().to_string(), port: address.port(), key: key.cloned() }
}

/// Both ends of a session.
pub struct Pair {
    pub client: Session,
    pub worker: Link,
    pub worker_receiver: Receiver,
}

/// Accepts one session and all its lanes on a thread of its own, for as long as the test runs.
pub fn listen(key: Option<Key>) -> (SocketAddr, Queue<(Link, Receiver)>, Queue<AcceptError>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sessions, new_sessions) = bounded(1);
    let (errors, new_errors) = unbounded();
    std::thread::spawn(move || accept_all(&listener, key.as_ref(), &sessions, &errors));
    (address, new_sessions, new_errors)
}

fn accept_all(
    listener: &TcpListener,
    key: Option<&Key>,
    sessions: &Sender<(Link, Receiver)>,
    errors: &Sender<AcceptError>,
) {
    let mut session: Option<Link> = None;
    for stream in listener.incoming() {
        let caller = match greet(stream.unwrap(), key, &offer(), Duration::from_millis(500)) {
            Ok(caller) => caller,
            Err(error) => {
                errors.send(error).unwrap();
                continue;
            }
        };
        let mut connection = caller.connection;
        match caller.request {
            Request::Session { hello, version } => {
                let welcome = Answer::Welcome(Welcome {
                    version,
                    session: SessionId([1; 16]),
                    token: TOKEN,
                    lanes: hello.lanes,
                    release: "0.1.0".into(),
                    snapshot: hello.program.into_bytes(),
                });
                connection.send_handshake(|out| welcome.encode(out)).unwrap();
                let (link, receiver) = Link::accepted(connection).unwrap();
                session = Some(link.clone());
                sessions.send((link, receiver)).unwrap();
            }
            Request::Lane(hello) => {
                assert_eq!((hello.session, hello.token), (SessionId([1; 16]), TOKEN));
                connection.send_handshake(|out| Answer::LaneReady.encode(out)).unwrap();
                session.as_ref().expect("a lane follows its session").attach_lane(connection);
            }
            Request::Monitor { .. } => {
                connection.send_handshake(|out| Answer::MonitorReady.encode(out)).unwrap();
                let mut exchange = Exchange::new(connection);
                while let Ok(Some(question)) = exchange.receive(None) {
                    exchange.send(|out| out.extend(question.iter().rev())).unwrap();
                }
            }
        }
    }
}

pub fn pair(lanes: u32, encrypted: bool) -> Pair {
    let key = encrypted.then(Key::generate);
    let (address, sessions, _) = listen(key.clone());
    let mut hello = describe_process(FINGERPRINT, vec![("CUDA_VISIBLE_DEVICES".into(), "0".into())]);
    hello.lanes = lanes;
    let options = ConnectOptions { lanes_by_distance: false, ..ConnectOptions::default() };
    let client = connect(&target(address, key.as_ref()), hello, &options).unwrap();
    let (worker, worker_receiver) = sessions.recv().unwrap();
    Pair { client, worker, worker_receiver }
}

/// Reports the loss of a link and puts unexpected transfers into buffers, as a worker does.
pub struct Events {
    pub lost: Sender<LinkError>,
    pub arrived: Sender<(u64, Vec<u8>)>,
    /// Whether transfers that nobody expects are taken.
    pub takes_all: bool,
}

pub struct Reports {
    pub lost: Queue<LinkError>,
    pub arrived: Queue<(u64, Vec<u8>)>,
}

pub fn events(takes_all: bool) -> (Arc<Events>, Reports) {
    let (lost, lost_queue) = unbounded();
    let (arrived, arrived_queue) = unbounded();
    (Arc::new(Events { lost, arrived, takes_all }), Reports { lost: lost_queue, arrived: arrived_queue })
}

impl LinkEvents for Events {
    fn open_transfer(&self, transfer: u64, total: u64) -> Option<Destination> {
        let arrived = self.arrived.clone();
        self.takes_all.then(|| {
            Destination::buffer(vec![0; total as usize], move |buffer| {
                if let Ok(buffer) = buffer {
                    arrived.send((transfer, buffer)).unwrap();
                }
            })
        })
    }

    fn lost(&self, cause: &LinkError) {
        // A test that is over does not listen any more.
        let _ = self.lost.send(cause.clone());
    }
}

/// Bytes that differ from place to place.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

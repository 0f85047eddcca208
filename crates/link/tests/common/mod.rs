//! A server in a few lines, for tests over real loopback sockets: it accepts sessions and lanes in this
//! process.
#![allow(dead_code, reason = "every test file uses its own part of this")]

pub mod relay;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_access::keys::clients::NotAccepted;
use causeway_access::target::socket_proof;
use causeway_access::{Key, Target};
use causeway_connection::exchange::Exchange;
use causeway_link::accept::{
    AcceptError, AcceptPolicy, Caller, HandshakeTimeouts, Request, authenticate, authenticate_local,
};
use causeway_link::{
    ConnectOptions, Destination, Link, LinkError, LinkEvents, Receiver, Session, TransportChoice,
    TransportKind, connect, describe_process,
};
use causeway_link::{DescriptorError, Lease};
use causeway_memory::SealedMemory;
use causeway_transport_shm::layout::Layout;
use causeway_transport_shm::upgrade::offer as offer_memory;
use causeway_transport_verbs::upgrade::offer as offer_verbs;
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::{
    Abilities, CommandTable, LaneToken, Locality, OwnVersion, Protection, Response, SessionId, UpgradeHello,
    Welcome,
};
use crossbeam_channel::{Receiver as Queue, Sender, bounded, unbounded};

/// What joins the two ends of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joint {
    Tcp {
        lanes: u32,
        protection: Protection,
    },
    /// With a staging arena of this many bytes.
    Shm {
        staging: usize,
    },
    /// The first RDMA device of this machine, with itself.
    Verbs,
}

pub const PLAIN: Joint = Joint::Tcp { lanes: 2, protection: Protection::Unprotected };
pub const AUTHENTICATED: Joint = Joint::Tcp { lanes: 2, protection: Protection::Authenticated };
pub const ENCRYPTED: Joint = Joint::Tcp { lanes: 2, protection: Protection::Encrypted };
pub const SHM: Joint = Joint::Shm { staging: 16 << 20 };
/// As little as there can be: eight slots each way.
pub const SCARCE_SHM: Joint = Joint::Shm { staging: 1 << 20 };

pub const ALL: [Joint; 5] = [PLAIN, AUTHENTICATED, ENCRYPTED, SHM, SCARCE_SHM];

/// Whether tests over verbs can run here.
pub fn has_rdma_device() -> bool {
    let found = std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some());
    if !found {
        eprintln!("skipped over verbs: this machine has no RDMA device");
    }
    found
}

pub const COMMANDS: CommandTable = CommandTable::new(&[0xfeed]);
const TOKEN: LaneToken = LaneToken([9; 32]);

pub fn version() -> OwnVersion {
    OwnVersion::new(COMMANDS)
}

/// A server here; one with a key is talked to as `protection` says.
pub fn target(address: SocketAddr, protection: Protection, key: Option<&Key>) -> Target {
    Target::tcp(address.ip().to_string(), address.port(), protection, key.cloned())
}

/// A server that knows no secret but its key.
pub struct NoSecrets;

impl causeway_link::accept::Secrets for NoSecrets {
    fn ticket(&self, _: causeway_wire::handshake::TicketId) -> Option<LaneToken> {
        None
    }

    fn client_key(&self, _: causeway_wire::handshake::KeyId) -> Result<Key, NotAccepted> {
        Err(NotAccepted::Unknown)
    }

    fn invitation(&self, _: causeway_wire::handshake::KeyId) -> Result<Key, NotAccepted> {
        Err(NotAccepted::InvitationUnknown)
    }
}

/// What callers meet at the server of a test, which talks in the clear to whoever wants that.
pub fn door<'a>(key: Option<&'a Key>, own: &'a OwnVersion, patience: Duration) -> AcceptPolicy<'a> {
    AcceptPolicy {
        key,
        clear: true,
        version: own,
        timeouts: HandshakeTimeouts { proof: patience, request: patience },
    }
}

/// Both ends of a session.
pub struct Pair {
    pub client: Session,
    pub worker: Link,
    pub worker_receiver: Receiver,
}

/// Accepts one session and all its lanes on a thread of its own, for as long as the test runs.
pub fn listen(key: Option<Key>) -> (SocketAddr, Queue<(Link, Receiver)>, Queue<AcceptError>) {
    listen_for(key, PLAIN)
}

/// As [`listen`]; the session goes on over what `joint` says.
pub fn listen_for(
    key: Option<Key>,
    joint: Joint,
) -> (SocketAddr, Queue<(Link, Receiver)>, Queue<AcceptError>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sessions, new_sessions) = bounded(1);
    let (errors, new_errors) = unbounded();
    std::thread::spawn(move || accept_all(&listener, key.as_ref(), joint, &sessions, &errors));
    (address, new_sessions, new_errors)
}

fn accept_all(
    listener: &TcpListener,
    key: Option<&Key>,
    joint: Joint,
    sessions: &Sender<(Link, Receiver)>,
    errors: &Sender<AcceptError>,
) {
    let mut session: Option<Link> = None;
    let mut waits_for_verbs = None;
    for stream in listener.incoming() {
        let own = version();
        let door = door(key, &own, Duration::from_millis(500));
        let caller = match authenticate(stream.unwrap(), &door, &NoSecrets) {
            Ok(caller) => caller,
            Err(error) => {
                // A test that does not care has let go of the other end.
                let _ = errors.send(error);
                continue;
            }
        };
        let mut connection = caller.connection;
        match caller.request {
            Request::Session { hello, version } => {
                let staging = match joint {
                    Joint::Shm { staging } => Some(staging),
                    _ => None,
                };
                let local = staging.map(|_| local_socket());
                let sockets = local.iter().map(|(_, name)| format!("@{name}")).collect();
                // The client says how long.
                let abilities = Abilities::ours(&COMMANDS).resuming(u32::MAX);
                let resume = abilities.common_resume(&hello.abilities);
                let welcome = Response::Welcome(Welcome {
                    version,
                    session: SessionId([1; 16]),
                    token: TOKEN,
                    lanes: hello.lanes,
                    release: "0.1.0".into(),
                    locality: Locality { boot_id: String::new(), sockets },
                    abilities,
                    snapshot: hello.program.as_bytes().to_vec(),
                });
                connection.send_handshake(|out| welcome.encode(out)).unwrap();
                if joint == Joint::Verbs {
                    waits_for_verbs = Some(connection);
                    continue;
                }
                let (link, receiver) = match local {
                    None => Link::accepted_resumable(connection, resume, false).unwrap(),
                    Some((listener, _)) => {
                        let (stream, _) = listener.accept().unwrap();
                        let timeouts = HandshakeTimeouts {
                            proof: Duration::from_secs(5),
                            request: Duration::from_secs(5),
                        };
                        let proof = |nonce: &[u8; 32], _| Some(socket_proof(key, nonce));
                        let caller = authenticate_local(stream, false, proof, &own, timeouts).unwrap();
                        let Caller { request: Request::Upgrade(hello), connection: local, .. } = caller
                        else {
                            panic!("a client that has a session wants to share memory")
                        };
                        assert!(matches!(hello, UpgradeHello::Join(_)), "{hello:?}");
                        assert_eq!((hello.session(), hello.token()), (SessionId([1; 16]), TOKEN));
                        let socket = OwnedFd::from(local.socket().try_clone().unwrap());
                        let layout = Layout::halves(staging.unwrap());
                        let joined = offer_memory(socket, Ok(layout)).unwrap();
                        Link::new(joined.parts(&connection).unwrap()).unwrap()
                    }
                };
                session = Some(link.clone());
                sessions.send((link, receiver)).unwrap();
            }
            Request::Lane(hello) => {
                assert_eq!((hello.session, hello.token), (SessionId([1; 16]), TOKEN));
                if connection.send_handshake(|out| Response::LaneReady.encode(out)).is_err() {
                    continue;
                }
                session.as_ref().expect("a lane follows its session").attach_lane(connection);
            }
            Request::Upgrade(UpgradeHello::Verbs(hello)) => {
                assert_eq!((hello.session, hello.token), (SessionId([1; 16]), TOKEN));
                let command = waits_for_verbs.take().expect("verbs follow their session");
                let joined = offer_verbs(connection, &hello).unwrap();
                sessions.send(Link::new(joined.parts(&command).unwrap()).unwrap()).unwrap();
            }
            Request::Diagnosis { .. } | Request::Status { .. } | Request::Enrol { .. } => {
                panic!("no test asks for a diagnosis or a status here, or enrols a key")
            }
            Request::Peer(_) => unreachable!("no test that listens gives tickets"),
            Request::Upgrade(UpgradeHello::Join(_)) => {
                unreachable!("nobody can ask for memory to share over a network")
            }
            Request::Monitor { .. } => {
                connection.send_handshake(|out| Response::MonitorReady.encode(out)).unwrap();
                let mut exchange = Exchange::new(connection);
                while let Ok(Some(question)) = exchange.receive(None) {
                    exchange.send(|out| out.extend(question.iter().rev())).unwrap();
                }
            }
        }
    }
}

/// How long a test waits for what must come.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until something is so, which `what` names.
///
/// # Panics
/// When it takes too long.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within {TIMEOUT:?}");
        std::thread::yield_now();
    }
}

/// A socket of this host with a name that nobody else has.
pub fn local_socket() -> (UnixListener, String) {
    let number = u64::from_le_bytes(causeway_access::target::random_bytes());
    let name = format!("causeway-test-{number}");
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    (UnixListener::bind_addr(&address).unwrap(), name)
}

pub fn pair(joint: Joint) -> Pair {
    // Shown when the test fails.
    println!("{joint:?}");
    let mut hello = describe_process(COMMANDS, vec![("CUDA_VISIBLE_DEVICES".into(), "0".into())]);
    let (protection, via) = match joint {
        Joint::Tcp { lanes, protection } => {
            hello.lanes = lanes;
            (protection, TransportKind::Tcp)
        }
        Joint::Shm { .. } => (Protection::Unprotected, TransportKind::Shm),
        Joint::Verbs => (Protection::Unprotected, TransportKind::Verbs),
    };
    let key = protection.needs_key().then(Key::generate);
    let (address, sessions, _) = listen_for(key.clone(), joint);
    let options = ConnectOptions {
        via: TransportChoice::Only(via),
        lanes_by_distance: false,
        ..ConnectOptions::default()
    };
    let client = connect(&target(address, protection, key.as_ref()), hello, &options).unwrap();
    let (worker, worker_receiver) = sessions.recv().unwrap();
    assert_eq!((client.link.kind(), worker.kind()), (via, via));
    Pair { client, worker, worker_receiver }
}

/// Reports the loss of a link and puts unexpected transfers into buffers, as a worker does.
pub struct Events {
    pub lost: Sender<LinkError>,
    pub arrived: Sender<(u64, Vec<u8>)>,
    /// Whether transfers that nobody expects are taken.
    pub takes_all: bool,
    /// Whether leases are taken in place.
    pub in_place: bool,
    pub leases: Sender<(u64, Lease)>,
    pub descriptors: Sender<(u64, Result<SealedMemory, DescriptorError>)>,
}

pub struct Reports {
    pub lost: Queue<LinkError>,
    pub arrived: Queue<(u64, Vec<u8>)>,
    pub leases: Queue<(u64, Lease)>,
    pub descriptors: Queue<(u64, Result<SealedMemory, DescriptorError>)>,
}

pub fn events(takes_all: bool) -> (Arc<Events>, Reports) {
    events_with(takes_all, false)
}

pub fn events_with(takes_all: bool, in_place: bool) -> (Arc<Events>, Reports) {
    let (lost, lost_queue) = unbounded();
    let (arrived, arrived_queue) = unbounded();
    let (leases, leases_queue) = unbounded();
    let (descriptors, descriptors_queue) = unbounded();
    let events = Events { lost, arrived, takes_all, in_place, leases, descriptors };
    let reports = Reports {
        lost: lost_queue,
        arrived: arrived_queue,
        leases: leases_queue,
        descriptors: descriptors_queue,
    };
    (Arc::new(events), reports)
}

impl LinkEvents for Events {
    fn open_transfer(&self, transfer: u64, total: u64) -> Option<Destination> {
        let arrived = self.arrived.clone();
        let destination = || {
            Destination::buffer(vec![0; total as usize], move |buffer| {
                if let Ok(buffer) = buffer {
                    // A test that does not care has let go of the other end.
                    let _ = arrived.send((transfer, buffer));
                }
            })
        };
        // As of a worker, for its device.
        self.takes_all.then(|| destination().nontemporal())
    }

    fn open_in_place(&self, transfer: u64, lease: Lease) -> Result<(), Lease> {
        if !self.in_place {
            return Err(lease);
        }
        self.leases.send((transfer, lease)).map_err(|refused| refused.into_inner().1)
    }

    fn descriptor(&self, number: u64, memory: Result<SealedMemory, DescriptorError>) {
        let _ = self.descriptors.send((number, memory));
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

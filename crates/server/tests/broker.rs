//! The broker over real loopback sockets, with a worker that echoes.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use causeway_access::keys::clients::{Client, Clients};
use causeway_access::keys::limits::ClientLimits;
use causeway_access::{Endpoint, Key, Target};
use causeway_connection::{Dial, dial_here};
use causeway_link::{
    ConnectError, ConnectOptions, Destination, LinkError, LinkEvents, TransportChoice, TransportKind, connect,
};
use causeway_sandbox::{Mode, SandboxRequest};
use causeway_server::broker::{Access, Broker, BrokerConfig, GpuChoice, RunningBroker, StartError};
use causeway_wire::handshake::{LaneHello, LaneToken, Opening, Preface, Protection, Response, VersionRange};
use support::{assert_echo, config, hello, open, refusal, wait_for_sessions};

/// Where a broker listens over TCP.
fn address_of(broker: &RunningBroker) -> SocketAddr {
    broker.target().to_string().parse().expect("it listens at an address of this host")
}

struct Silent;

impl LinkEvents for Silent {
    fn lost(&self, _cause: &LinkError) {}
}

#[test]
fn a_session_has_a_worker_of_its_own_with_lanes() {
    for key in [None, Some(Key::generate())] {
        let broker = Broker::start(config(key)).unwrap();
        let (mut one, mut other) =
            (open(broker.target(), "echo").unwrap(), open(broker.target(), "echo").unwrap());
        assert_eq!(one.welcome.snapshot, br#"cpu [("CUDA_VISIBLE_DEVICES", "1")]"#);
        assert_ne!(one.welcome.session, other.welcome.session);
        assert_eq!(broker.sessions(), 2);
        assert_echo(&mut one, b"first");
        assert_echo(&mut other, b"second");
        let bytes: Vec<u8> = (0..3_000_000).map(|i| (i / 7) as u8).collect();
        one.link.start(Arc::new(Silent));
        let (done, ended) = std::sync::mpsc::channel();
        let back = Destination::buffer(vec![0; bytes.len()], move |bytes| done.send(bytes).unwrap());
        one.link.expect_transfer(5, back).unwrap();
        one.link.send_transfer(5, &bytes).unwrap();
        assert!(ended.recv().unwrap().unwrap() == bytes);
        one.link.close();
        wait_for_sessions(&broker, 1);
        assert_echo(&mut other, b"third");
        drop(other);
        wait_for_sessions(&broker, 0);
    }
}

#[test]
fn under_mps_workers_get_the_part_of_the_gpu_that_their_share_is() {
    let folder = tempfile::tempdir().unwrap();
    let [clients_file, control] = ["clients.toml", "control"].map(|name| folder.path().join(name));
    let mut clients = Clients::default();
    for (name, share) in [("ada", Some(3)), ("bob", None)] {
        let name = name.parse().unwrap();
        let limits = ClientLimits { share, ..ClientLimits::default() };
        clients.named.insert(name, Client { limits, ..Client::new(name) });
    }
    clients.write(&clients_file).unwrap();
    let broker = |gpu| {
        let config = config(Some(Key::generate()));
        let sandbox =
            SandboxRequest { mode: Mode::Off, mps: Some(folder.path().to_owned()), ..config.sandbox.clone() };
        Broker::start(BrokerConfig { gpu, sandbox, clients: Some(clients_file.clone()), ..config }).unwrap()
    };
    let seen = |broker: &RunningBroker, name: &str| {
        let key = Some(clients.named[&name.parse().unwrap()].key.clone());
        let session = open(&Target { key, ..broker.target().clone() }, "echo").unwrap();
        String::from_utf8(session.welcome.snapshot.clone()).unwrap()
    };
    let driver = broker(GpuChoice::Driver);
    assert!(!seen(&driver, "ada").contains('%'), "no daemon runs");
    std::fs::write(&control, "").unwrap();
    assert!(seen(&driver, "ada").ends_with(" 75%") && seen(&driver, "bob").ends_with(" 25%"));
    let seen_by_others = open(driver.target(), "echo").unwrap().welcome.snapshot.clone();
    assert!(seen_by_others.ends_with(b" 20%"), "{}", String::from_utf8_lossy(&seen_by_others));
    for gpu in [GpuChoice::Cpu, GpuChoice::Auto { allows_software: true }] {
        assert!(!seen(&broker(gpu), "ada").contains('%'), "{gpu:?} may have no multiprocessors");
    }
    std::fs::remove_file(&control).unwrap();
    assert!(!seen(&driver, "ada").contains('%'), "the daemon has ended");
}

#[test]
fn a_worker_that_refuses_or_dies_early_is_reported_to_its_client() {
    let broker = Broker::start(config(Some(Key::generate()))).unwrap();
    let text = |program| refusal(open(broker.target(), program));
    assert!(text("refuse").ends_with("refused the session: no GPU for you"));
    assert!(text("exit").contains("its worker ended with exit code 42 while it started the GPU"));
    assert!(text("crash").contains("its worker was ended by signal 6"));
    wait_for_sessions(&broker, 0);
}

#[test]
fn a_worker_program_that_cannot_be_started_is_reported_to_the_client() {
    let broker =
        Broker::start(BrokerConfig { worker_program: "/nonexistent/worker".into(), ..config(None) }).unwrap();
    let text = refusal(open(broker.target(), "echo"));
    assert!(text.contains("the server cannot start a worker"), "{text}");
}

#[test]
fn keys_must_fit() {
    let open_broker = Broker::start(config(None)).unwrap();
    let closed_broker = Broker::start(config(Some(Key::generate()))).unwrap();
    let with = |broker: &RunningBroker, key: Option<Key>| {
        let protection = if key.is_some() { Protection::Encrypted } else { Protection::Unprotected };
        refusal(open(&Target { key, protection, ..broker.target().clone() }, "echo"))
    };
    let text = with(&closed_broker, Some(Key::generate()));
    assert!(text.contains("the key is not this server's"), "{text}");
    let text = with(&closed_broker, None);
    assert!(text.contains("it requires a key: give its whole connect string"), "{text}");
    let text = with(&open_broker, Some(Key::generate()));
    assert!(text.contains("it has no key, since it was started with --insecure-no-key"), "{text}");
    assert_echo(&mut open(open_broker.target(), "echo").unwrap(), b"still there");
    assert_echo(&mut open(closed_broker.target(), "echo").unwrap(), b"still there");
}

#[test]
fn versions_must_fit() {
    let broker = Broker::start(config(None)).unwrap();
    let mut old = hello("echo");
    old.offer.versions = VersionRange { oldest: 0, newest: 0 };
    old.offer.release = "0.0.9".into();
    let text = refusal(connect(broker.target(), old, &ConnectOptions::default()));
    assert!(
        text.contains("the client is Causeway 0.0.9 (protocol 0)") && text.contains("install the same"),
        "{text}"
    );
    let mut other = hello("echo");
    other.abilities.commands.fingerprint = 1;
    let text = refusal(connect(broker.target(), other, &ConnectOptions::default()));
    assert!(text.contains("contradict each other"), "{text}");
}

#[test]
fn hostile_callers_are_turned_away_and_the_broker_goes_on() {
    for key in [None, Some(Key::generate())] {
        let broker = Broker::start(config(key)).unwrap();
        let mut session = open(broker.target(), "echo").unwrap();
        let address = address_of(&broker);
        let mut state = 1_u32;
        for round in 0..30_usize {
            let mut stream = TcpStream::connect(address).unwrap();
            let mut bytes: Vec<u8> = (0..round * 37)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            if round % 2 == 0 {
                // Past the first check, to the decoder or to the key exchange.
                let preface = Preface::by_key(broker.target().protection).to_bytes();
                bytes.splice(0..0, preface);
            }
            // The broker may have hung up already.
            let _ = stream.write_all(&bytes);
            if round % 3 == 0 {
                let _ = stream.shutdown(std::net::Shutdown::Write);
            }
            if round % 5 == 0 {
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest);
            }
        }
        assert_echo(&mut session, b"unharmed");
        assert_echo(&mut open(broker.target(), "echo").unwrap(), b"served");
    }
}

#[test]
fn slow_callers_do_not_keep_others_out() {
    let broker = Broker::start(config(None)).unwrap();
    let address = address_of(&broker);
    // More than may shake hands at once; each would be silent for ever.
    let mut slow: Vec<TcpStream> = (0..12).map(|_| TcpStream::connect(address).unwrap()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(b"CS").unwrap());
    assert_echo(&mut open(broker.target(), "echo").unwrap(), b"served");
    for mut stream in slow {
        // Every one of them is hung up on.
        assert!(matches!(stream.read(&mut [0; 8]), Ok(0) | Err(_)));
    }
}

#[test]
fn lanes_need_the_token_of_their_session() {
    let broker = Broker::start(config(None)).unwrap();
    let session = open(broker.target(), "echo").unwrap();
    let answer = |token: LaneToken, lane: u32| {
        let mut stream = TcpStream::connect(address_of(&broker)).unwrap();
        let hello = LaneHello { session: session.welcome.session, token, lane };
        let frame = causeway_connection::channel::handshake_frame(|out| Opening::encode_lane(&hello, out));
        stream.write_all(&Preface::by_key(Protection::Unprotected).to_bytes()).unwrap();
        stream.write_all(&frame).unwrap();
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).unwrap();
        let mut connection = causeway_connection::channel::Connection::new(stream, None);
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        let body = connection.receive_handshake(1 << 16, deadline).unwrap();
        // A lane that closes ends its session, so the connection is kept.
        (causeway_wire::codec::Decoder::new(&body).value::<Response>().unwrap(), connection)
    };
    assert!(matches!(answer(LaneToken([0; 32]), 0).0, Response::Refused { .. }));
    // The session asked for two lanes, and gets no third.
    let (first, _first_lane) = answer(session.welcome.token, 1);
    let (second, _second_lane) = answer(session.welcome.token, 0);
    assert_eq!((first, second), (Response::LaneReady, Response::LaneReady));
    for lane in [0, 1, 2, u32::MAX] {
        assert!(matches!(answer(session.welcome.token, lane).0, Response::Refused { .. }));
    }
}

#[test]
fn a_worker_that_outlives_its_client_is_killed() {
    let broker = Broker::start(config(None)).unwrap();
    drop(open(broker.target(), "stay").unwrap());
    wait_for_sessions(&broker, 0);
}

#[test]
fn stopping_ends_the_workers_and_their_clients_hear_of_it() {
    let broker = Broker::start(config(Some(Key::generate()))).unwrap();
    let target = broker.target().clone();
    let mut session = open(&target, "echo").unwrap();
    broker.stop();
    // It may have heard before why.
    let ended = loop {
        if let Err(ended) = session.receiver.recv() {
            break ended;
        }
    };
    assert!(matches!(ended, LinkError::PeerDisconnected), "{ended}");
    assert!(matches!(open(&target, "echo"), Err(ConnectError::Dial(_))));
}

#[test]
fn an_address_that_is_taken_is_told() {
    let broker = Broker::start(config(None)).unwrap();
    let error =
        Broker::start(BrokerConfig { listen: Some(address_of(&broker)), ..config(None) }).unwrap_err();
    assert!(error.to_string().contains("another program listens there already"), "{error}");
    let nowhere = BrokerConfig { listen: None, ..config(None) };
    assert!(matches!(Broker::start(nowhere), Err(StartError::Nowhere)));
}

/// Connects to one place and to no other.
#[derive(Debug)]
struct OnlyOne(Endpoint);

impl Dial for OnlyOne {
    fn dial(&self, endpoint: &Endpoint, timeout: Duration) -> std::io::Result<OwnedFd> {
        if *endpoint == self.0 {
            dial_here(endpoint, timeout).map(OwnedFd::from).map_err(std::io::Error::other)
        } else {
            Err(std::io::ErrorKind::PermissionDenied.into())
        }
    }
}

#[test]
fn a_session_at_a_unix_socket_needs_no_key_and_no_port() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("server.sock").to_str().unwrap().to_owned();
    let broker =
        Broker::start(BrokerConfig { listen: None, socket: Some(socket.clone()), ..config(None) }).unwrap();
    assert_eq!(*broker.target(), Target::unix(socket));
    let mut session = open(broker.target(), "echo").unwrap();
    assert_echo(&mut session, b"by the kernel's word");
    assert_eq!(session.link.kind(), TransportKind::Shm);
    drop(session);
    // What cannot share memory goes on over connections to the same socket.
    let only = OnlyOne(broker.target().endpoint.clone());
    let options = ConnectOptions { dialer: Some(Arc::new(only)), ..ConnectOptions::default() };
    let mut session = connect(broker.target(), hello("echo"), &options).unwrap();
    assert_echo(&mut session, b"over a stream");
    assert_eq!(session.link.kind(), TransportKind::Tcp);
    let options =
        ConnectOptions { via: TransportChoice::Only(TransportKind::Tcp), ..ConnectOptions::default() };
    let error = connect(broker.target(), hello("echo"), &options).unwrap_err();
    assert!(error.to_string().contains("a Unix socket leads to memory"), "{error}");
}

#[test]
fn what_a_client_asks_for_in_the_clear_the_server_must_allow() {
    let key = Key::generate();
    for clear in [false, true] {
        let broker = Broker::start(BrokerConfig { clear, ..config(Some(key.clone())) }).unwrap();
        let mut wanted = broker.target().clone();
        wanted.request_clear();
        let opened = open(&wanted, "echo");
        assert_eq!(opened.is_ok(), clear);
        match opened {
            Ok(mut session) => assert_echo(&mut session, b"in the clear"),
            refused => assert!(refusal(refused).contains("--clear")),
        }
        let encrypted = Target { protection: Protection::Encrypted, ..wanted };
        assert_echo(&mut open(&encrypted, "echo").unwrap(), b"encrypted all the same");
    }
}

#[test]
fn a_key_file_that_is_deleted_lets_nobody_in_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let broker =
        Broker::start(BrokerConfig { access: Access::KeyFile(path.clone()), ..config(None) }).unwrap();
    let old = broker.target().clone();
    let mut session = open(&old, "echo").unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(refusal(open(&old, "echo")).contains("the key is not this server's"));
    assert_echo(&mut session, b"what has begun goes on");
    let new = Target { key: Some(causeway_access::keys::file::load(&path).unwrap()), ..old };
    assert_echo(&mut open(&new, "echo").unwrap(), b"with the new key");
}

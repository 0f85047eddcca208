//! Crowds at the broker's door, and workers that hang.

mod support;

use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_access::keys::clients::{Client, Clients};
use causeway_access::keys::limits::ClientLimits;
use causeway_access::{Key, Target};
use causeway_connection::dial_here;
use causeway_link::{ConnectError, Session, TransportKind};
use causeway_server::broker::{Broker, BrokerConfig, RunningBroker};
use causeway_server::heartbeat::{HeartbeatTimeouts, HungAction, HungWorker};
use causeway_wire::handshake::CommandTable;
use parking_lot::{Mutex, MutexGuard};
use support::{assert_echo, config, open, refusal, wait_for_sessions};

/// How long an honest caller may take to be served, on a machine that does other things besides.
const SOON: Duration = Duration::from_secs(5);

/// How long a caller may take that says nothing: so much longer that it shows when somebody has to wait for
/// that.
const LONG: Duration = Duration::from_secs(30);

/// What is counted belongs to this process, so one test at a time has it.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}

/// A broker with as many places as usual, where a caller that says nothing has a long time.
fn patient(key: Option<Key>) -> RunningBroker {
    let places = BrokerConfig::new(CommandTable::new(&[0])).max_handshakes;
    let long = BrokerConfig { proof_timeout: LONG, handshake_timeout: LONG, ..config(key) };
    Broker::start(BrokerConfig { max_handshakes: places, ..long }).unwrap()
}

fn dial(target: &Target) -> TcpStream {
    dial_here(&target.endpoint, Duration::from_secs(20)).unwrap()
}

/// Says that it is over, also when a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Threads of this process that serve callers or sessions of brokers.
fn serving_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).filter(|name| name.trim_end() == "causeway-caller").count()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A session that is opened soon.
#[track_caller]
fn open_soon(broker: &RunningBroker) -> Session {
    let sessions_started = Instant::now();
    let session = open(broker.target(), "echo").unwrap();
    assert!(sessions_started.elapsed() < SOON, "it took {:?}", sessions_started.elapsed());
    session
}

#[test]
fn a_thousand_callers_that_say_nothing_keep_nobody_out() {
    use std::io::Write as _;
    let _alone = alone();
    let broker = patient(Some(Key::generate()));
    let mut at_work = open(broker.target(), "echo").unwrap();
    let before = descriptors();
    let crowd: Vec<TcpStream> = (0..1000)
        .map(|number| {
            let mut stream = dial(broker.target());
            // Half of them begin to say something.
            if number % 2 == 0 {
                stream.write_all(b"CSWY").unwrap();
            }
            stream
        })
        .collect();
    let wrong = Target { key: Some(Key::generate()), ..broker.target().clone() };
    let (is_over, turned_away) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if matches!(open(&wrong, "echo"), Err(ConnectError::Refused { .. })) {
                    turned_away.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let sessions_started = Instant::now();
        while turned_away.load(Ordering::Relaxed) < 3 {
            assert!(sessions_started.elapsed() < SOON, "callers with a wrong key are not told so");
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut sessions: Vec<Session> = (0..3).map(|_| open_soon(&broker)).collect();
        sessions.iter_mut().for_each(|session| assert_echo(session, b"served"));
        assert_echo(&mut at_work, b"undisturbed");
        // Places for 256 callers and the same again that are on their way out, and a thread for each session.
        let (threads, added) = (serving_threads(), descriptors() - before - crowd.len());
        assert!(threads <= 2 * 256 + 4, "{threads} threads");
        assert!(added <= 3 * 2 * 256 + 100, "{added} descriptors");
        drop(over);
    });
}

#[test]
fn callers_at_sockets_of_the_host_and_from_the_network_do_not_hinder_each_other() {
    let _alone = alone();
    let broker = patient(None);
    let first = open_soon(&broker);
    assert_eq!(first.link.kind(), TransportKind::Shm, "or this test shows nothing");
    let name = first.welcome.locality.sockets.iter().find_map(|name| name.strip_prefix('@')).unwrap();
    let local = SocketAddr::from_abstract_name(name).unwrap();
    let at_the_socket: Vec<_> = (0..300).map(|_| UnixStream::connect_addr(&local).unwrap()).collect();
    let from_the_network: Vec<_> = (0..300).map(|_| dial(broker.target())).collect();
    let mut session = open_soon(&broker);
    assert_eq!(session.link.kind(), TransportKind::Shm, "it has joined at the socket");
    assert_echo(&mut session, b"served");
    let threads = serving_threads();
    assert!(threads <= 2 * (256 + 64) + 2, "{threads} threads");
    drop((at_the_socket, from_the_network));
}

#[test]
fn one_peer_has_so_many_sessions_and_gets_their_places_back() {
    let _alone = alone();
    let broker = Broker::start(BrokerConfig { max_sessions_per_peer: 2, ..config(None) }).unwrap();
    let (mut one, other) = (open(broker.target(), "echo").unwrap(), open(broker.target(), "echo").unwrap());
    let text = refusal(open(broker.target(), "echo"));
    assert!(text.contains("2 sessions of 127.0.0.1") && text.ends_with("--max-sessions-per-peer"), "{text}");
    assert_echo(&mut one, b"undisturbed");
    drop(other);
    wait_for_sessions(&broker, 1);
    let sessions_started = Instant::now();
    // The seat is released a moment after the session has gone from the table.
    while open(broker.target(), "echo").is_err() {
        assert!(sessions_started.elapsed() < SOON, "its place does not come back");
    }
}

#[test]
fn there_are_so_many_sessions_in_all() {
    let _alone = alone();
    let broker = Broker::start(BrokerConfig { max_sessions: Some(1), ..config(None) }).unwrap();
    let mut session = open(broker.target(), "echo").unwrap();
    let text = refusal(open(broker.target(), "echo"));
    assert!(text.contains("1 sessions") && text.contains("--max-sessions"), "{text}");
    assert_echo(&mut session, b"undisturbed");
    let error = Broker::start(BrokerConfig { max_sessions: Some(usize::MAX), ..config(None) }).unwrap_err();
    assert!(error.to_string().contains("give a smaller number"), "{error}");
}

/// A broker with the places and times of every server.
fn start_with(config: BrokerConfig) -> RunningBroker {
    let BrokerConfig { proof_timeout, handshake_timeout, max_handshakes, .. } =
        BrokerConfig::new(CommandTable::new(&[0]));
    Broker::start(BrokerConfig { proof_timeout, handshake_timeout, max_handshakes, ..config }).unwrap()
}

#[test]
fn two_hundred_honest_clients_at_once_are_all_served() {
    let _alone = alone();
    let broker = start_with(config(Some(Key::generate())));
    let all_are_there = std::sync::Barrier::new(200);
    std::thread::scope(|scope| {
        for number in 0..200 {
            let (broker, all_are_there) = (&broker, &all_are_there);
            scope.spawn(move || {
                let session = open(broker.target(), "echo");
                all_are_there.wait();
                let mut session = session.unwrap_or_else(|error| panic!("client {number}: {error}"));
                assert_echo(&mut session, b"served");
            });
        }
    });
    wait_for_sessions(&broker, 0);
}

#[test]
fn a_client_that_comes_again_and_again_at_its_limit_slows_no_other_ones_start() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let clients_file = folder.path().join("clients.toml");
    let mut clients = Clients::default();
    for (name, sessions) in [("ada", Some(1)), ("bob", None)] {
        let name = name.parse().unwrap();
        let limits = ClientLimits { sessions, ..ClientLimits::default() };
        clients.named.insert(name, Client { limits, ..Client::new(name) });
    }
    clients.write(&clients_file).unwrap();
    let key = Some(Key::generate());
    let broker = start_with(BrokerConfig { clients: Some(clients_file), ..config(key) });
    let target = |name: &str| {
        let key = Some(clients.named[&name.parse().unwrap()].key.clone());
        Target { key, ..broker.target().clone() }
    };
    let (ada, bob) = (target("ada"), target("bob"));
    let slowest_start = || {
        let starts = (0..20).map(|_| {
            let started = Instant::now();
            assert_echo(&mut open(&bob, "echo").unwrap(), b"served");
            started.elapsed()
        });
        starts.max().unwrap()
    };
    let _only = open(&ada, "echo").unwrap();
    let undisturbed = slowest_start();
    let (is_over, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        for _ in 0..8 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let text = refusal(open(&ada, "echo"));
                    assert!(text.contains("1 sessions of client ada"), "{text}");
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let slowest = slowest_start();
        assert!(slowest < undisturbed + Duration::from_secs(1), "{slowest:?} instead of {undisturbed:?}");
        assert!(refused.load(Ordering::Relaxed) >= 20, "{refused:?} were refused meanwhile");
    });
}

/// Has the worker do what its client's program stands for, and waits until the client hears that it has
/// ended.
#[track_caller]
fn must_end(mut session: Session) {
    session.link.send(|out| out.extend_from_slice(b"now")).unwrap();
    let (ended, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(session.receiver.recv().is_err()));
    assert_eq!(heard.recv_timeout(2 * SOON), Ok(true));
}

/// A broker that is soon out of patience with workers.
fn impatient(action: HungAction) -> RunningBroker {
    let hung = HungWorker { action, after: Duration::from_millis(600) };
    let heartbeat = HeartbeatTimeouts { silent: Duration::from_millis(600), hung };
    Broker::start(BrokerConfig { heartbeat, ..config(None) }).unwrap()
}

#[test]
fn a_worker_that_is_stopped_is_killed_and_its_client_hears_of_it() {
    let _alone = alone();
    let broker = impatient(HungAction::Warn);
    let mut well = open(broker.target(), "echo").unwrap();
    must_end(open(broker.target(), "stop").unwrap());
    wait_for_sessions(&broker, 1);
    // Those that wait for commands live on, for longer than the others' time.
    std::thread::sleep(Duration::from_secs(1));
    assert_echo(&mut well, b"undisturbed");
}

#[test]
fn a_worker_whose_commands_do_not_go_on_is_killed_only_if_that_is_wanted() {
    let _alone = alone();
    let broker = impatient(HungAction::Kill);
    must_end(open(broker.target(), "hang").unwrap());
    wait_for_sessions(&broker, 0);
    let broker = impatient(HungAction::Warn);
    let hung = open(broker.target(), "hang").unwrap();
    hung.link.send(|out| out.extend_from_slice(b"hang")).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(broker.sessions(), 1);
}

//! A broker with workers that echo, and clients for it.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use causeway_access::{Key, Target};
use causeway_link::{ConnectError, ConnectOptions, Session, connect, describe_process};
use causeway_server::broker::{Access, BrokerConfig, GpuChoice, RunningBroker};
use causeway_wire::handshake::{ClientHello, CommandTable};

const COMMANDS: CommandTable = CommandTable::new(&[0xfeed]);

/// A free loopback port, and places for few callers, which have little time.
pub fn config(key: Option<Key>) -> BrokerConfig {
    // Cargo puts examples beside the folder of the test programs.
    let tests = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let worker_program = tests.parent().unwrap().join("examples").join("echo_worker");
    assert!(worker_program.exists(), "build the example first: cargo build --examples -p causeway-server");
    BrokerConfig {
        listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
        access: key.map_or(Access::NoKey, Access::Key),
        worker_program,
        worker_arguments: Vec::new(),
        gpu: GpuChoice::Cpu,
        handshake_timeout: Duration::from_millis(400),
        max_handshakes: 4,
        disconnect_grace: Duration::from_millis(200),
        ..BrokerConfig::new(COMMANDS)
    }
}

/// What a client says of itself; the worker does what `program` says.
pub fn hello(program: &str) -> ClientHello {
    let hello = describe_process(COMMANDS, vec![("CUDA_VISIBLE_DEVICES".into(), "1".into())]);
    ClientHello { program: program.into(), lanes: 2, ..hello }
}

/// Opens a session.
pub fn open(target: &Target, program: &str) -> Result<Session, ConnectError> {
    connect(target, hello(program), &ConnectOptions::default())
}

/// Why a session is refused.
pub fn refusal(result: Result<Session, ConnectError>) -> String {
    match result {
        Err(error @ ConnectError::Refused { .. }) => error.to_string(),
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("the session was granted"),
    }
}

/// Asserts that the worker sends back what it is sent.
pub fn assert_echo(session: &mut Session, text: &[u8]) {
    session.link.send(|out| out.extend_from_slice(text)).unwrap();
    assert_eq!(session.receiver.recv().unwrap(), text);
}

/// Waits until the broker has `count` sessions.
///
/// # Panics
/// When it does not get there within half a minute.
#[track_caller]
pub fn wait_for_sessions(broker: &RunningBroker, count: usize) {
    let sessions_started = Instant::now();
    while broker.sessions() != count {
        assert!(
            sessions_started.elapsed() < Duration::from_secs(30),
            "it has {} sessions",
            broker.sessions()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

//! Texts of peers, and the other end's terminal and log.

use causeway_api::snapshot::{Device, Snapshot};
use causeway_connection::channel::Connection;
use causeway_connection::exchange::Exchange;
use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::{by_itself, through_run};
use causeway_tests::hostile;
use causeway_tests::process::{Outcome, eventually, run};
use causeway_tests::server::{OPEN, Server, WORKER_TIMEOUT, forget_environment};
use causeway_wire::codec::{Decoder, Encode};
use causeway_wire::frame::MAX_OPENING;
use causeway_wire::handshake::{
    LaneToken, Locality, Opening, PREFACE_SIZE, PrefaceResponse, Response, SessionId, VersionRange, Welcome,
};
use causeway_wire::text::printable;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// Clears the screen, ends the line, forges another, rings, and turns the direction of writing.
const HOSTILE: &str = "evil\u{1b}[2J\nFORGED\r\u{7}\u{9b}1m\u{202e}\u{2028}end";

/// What stands in its place where only printable text can be encoded.
fn stand_in() -> String {
    "#".repeat(HOSTILE.len())
}

/// A message with [`HOSTILE`] in it wherever there is the stand-in.
fn with_hostile_text(message: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    replace(&bytes)
}

fn replace(bytes: &[u8]) -> Vec<u8> {
    let (mut bytes, stand_in) = (bytes.to_vec(), stand_in());
    let places = bytes.windows(stand_in.len()).enumerate().filter(|(_, found)| *found == stand_in.as_bytes());
    let places: Vec<_> = places.map(|(place, _)| place).collect();
    assert!(!places.is_empty(), "there is nothing hostile in this message");
    for place in places {
        bytes[place..place + HOSTILE.len()].copy_from_slice(HOSTILE.as_bytes());
    }
    bytes
}

/// Asserts that there is nothing but lines of printable text, and that none was begun by a peer.
#[track_caller]
fn must_be_plain(text: &str) {
    for line in text.lines() {
        assert_eq!(printable(line, usize::MAX), line, "in\n{text:?}");
        assert!(!line.starts_with("FORGED"), "{text:?}");
    }
    assert!(!text.contains('\r'), "{text:?}");
}

/// Asks for a session, a monitoring session and a diagnosis as a client whose texts are all hostile.
fn ask_for_everything(server: &Server, versions: Option<VersionRange>) {
    let mut hello = hostile::hello();
    hello.host = stand_in().into();
    hello.program = stand_in().into();
    hello.offer.release = stand_in().into();
    hello.offer.versions = versions.unwrap_or(hello.offer.versions);
    for opening in [Opening::encode_session, Opening::encode_monitor, Opening::encode_diagnosis] {
        let mut connection = hostile::authenticated(server.target());
        let mut bytes = Vec::new();
        opening(&hello, &mut bytes);
        let sent = connection.send_handshake(|out| out.extend(replace(&bytes)));
        sent.expect("the server listens");
        // Until it has answered, so that the request is not given up.
        let answered = connection.receive_handshake(causeway_wire::frame::MAX_BODY, Instant::now() + LIMIT);
        let answer = Decoder::new(&answered.expect("the server answers")).value::<Response>();
        let is_refused = matches!(answer, Ok(Response::Refused { .. }));
        assert_eq!(is_refused, versions.is_some(), "{answer:?}");
    }
}

#[test]
fn a_client_cannot_forge_lines_of_the_servers_log() {
    for format in ["text", "json"] {
        let listen = [&OPEN[..], &["--log", format, "--log-level", "debug"]].concat();
        let server = Server::start_with(&listen);
        ask_for_everything(&server, None);
        ask_for_everything(&server, Some(VersionRange { oldest: 900, newest: 901 }));
        eventually("the session has ended", WORKER_TIMEOUT, || {
            let log = server.log();
            log.contains("session of evil")
                && log.contains(" ended")
                && log.contains("requests a diagnosis of this machine")
                && log.contains("requests the state of the GPUs")
                && log.contains("is Causeway evil")
        });
        let log = server.log();
        must_be_plain(&log);
        let begin = if format == "json" { "{" } else { "20" };
        assert!(log.lines().all(|line| line.starts_with(begin)), "{log}");
        server.must_be_well();
    }
}

/// How a hostile server answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reply {
    /// With another protocol.
    AnotherProtocol,
    /// With a refusal in the clear.
    NoInTheClear,
    /// With a refusal of whatever is asked for.
    No,
    /// With a session, devices, a refusal of everything else, and facts of its machine.
    Yes,
}

/// A server whose texts are all hostile.
fn hostile_server(reply: Reply) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
    let address = listener.local_addr().expect("a listener has an address");
    std::thread::spawn(move || {
        for caller in listener.incoming().flatten() {
            std::thread::spawn(move || answer(caller, reply));
        }
    });
    address
}

/// Answers one caller; nothing when it goes.
fn answer(mut caller: TcpStream, reply: Reply) -> Option<()> {
    let mut preface = [0; PREFACE_SIZE];
    caller.read_exact(&mut preface).ok()?;
    match reply {
        Reply::AnotherProtocol => return caller.write_all(HOSTILE.as_bytes()).ok(),
        Reply::NoInTheClear => {
            let refusal = PrefaceResponse::Refused { length: HOSTILE.len() as u16 };
            return caller.write_all(&[&refusal.to_bytes(), HOSTILE.as_bytes()].concat()).ok();
        }
        Reply::No | Reply::Yes => caller.write_all(&PrefaceResponse::Continue.to_bytes()).ok()?,
    }
    let mut connection = Connection::new(caller, None);
    let opening = connection.receive_handshake(MAX_OPENING, Instant::now() + LIMIT).ok()?;
    match (reply, Decoder::new(&opening).value::<Opening<'_>>().ok()?) {
        (Reply::Yes, Opening::Session { .. }) => {
            let welcome = with_hostile_text(&Response::Welcome(welcome()));
            connection.send_handshake(|out| out.extend(welcome)).ok()?;
            // Until the client has seen enough.
            hostile::is_ended_by_peer(&mut connection);
        }
        (Reply::Yes, Opening::Diagnosis { .. }) => {
            connection.send_handshake(|out| Response::DiagnosisReady.encode(out)).ok()?;
            let mut exchange = Exchange::new(connection);
            while let Ok(Some(question)) = exchange.receive(Some(LIMIT)) {
                // An echo is any bytes: the way there is not what matters here.
                let facts = serde_json::json!({
                    "machine": { "host": HOSTILE, "kernel": HOSTILE, "container": HOSTILE },
                    "rdma": { "devices": [{ "name": HOSTILE, "ports": [{ "number": 1, "rate": HOSTILE }] }] },
                    "live": { "release": HOSTILE },
                });
                let is_echo = question.len() > 1;
                let answer = if is_echo { question } else { facts.to_string().into_bytes() };
                exchange.send(|out| out.extend(answer)).ok()?;
            }
        }
        _ => {
            let refusal = with_hostile_text(&Response::Refused { text: stand_in().into() });
            connection.send_handshake(|out| out.extend(refusal)).ok()?;
        }
    }
    Some(())
}

fn welcome() -> Welcome {
    let device = Device { name: stand_in().into(), pci_bus_id: stand_in().into(), ..Device::default() };
    let snapshot = Snapshot { backend: stand_in().into(), devices: vec![device], ..Snapshot::default() };
    let mut encoded = Vec::new();
    snapshot.encode(&mut encoded);
    Welcome {
        version: hostile::hello().offer.versions.newest,
        session: SessionId([1; 16]),
        token: LaneToken([2; 32]),
        lanes: 1,
        release: stand_in().into(),
        locality: Locality {
            boot_id: stand_in(),
            sockets: vec![format!("@causeway-{}", stand_in()), format!("/{}/causeway-1.sock", stand_in())],
        },
        abilities: hostile::hello().abilities,
        snapshot: encoded,
    }
}

/// A command of `causeway` with this server.
fn causeway_on(server: &str, words: &[&str]) -> Outcome {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    run(command.args(words).args(["--on", server]), LIMIT)
}

#[test]
fn a_server_cannot_reach_the_terminal_of_a_client() {
    for reply in [Reply::AnotherProtocol, Reply::NoInTheClear, Reply::No] {
        let server = format!("{}?insecure-no-key", hostile_server(reply));
        let program = cuda_program("vector_add");
        for outcome in [
            causeway_on(&server, &["devices"]),
            causeway_on(&server, &["doctor"]),
            causeway_on(&server, &["doctor", "--json"]),
            run(&mut through_run(Some(&server), &program), LIMIT),
            run(by_itself(&server, &program).env("CAUSEWAY_LOG", "debug"), LIMIT),
        ] {
            assert!(outcome.code().is_some_and(|code| code != 0), "{reply:?}: {outcome}");
            assert!(format!("{outcome}").contains("evil"), "{reply:?}: {outcome}");
            must_be_plain(&outcome.stdout);
            must_be_plain(&outcome.stderr);
        }
    }
}

#[test]
fn names_of_devices_and_facts_of_a_machine_are_only_names() {
    let server = format!("{}?insecure-no-key", hostile_server(Reply::Yes));
    let devices = causeway_on(&server, &["devices", "-v"]).must_succeed();
    assert!(devices.stdout.matches("evil").count() >= 3, "{devices}");
    for outcome in [devices, causeway_on(&server, &["doctor"]), causeway_on(&server, &["doctor", "--json"])] {
        assert!(outcome.stdout.contains("evil") && !outcome.stdout.contains("malformed"), "{outcome}");
        must_be_plain(&outcome.stdout);
        must_be_plain(&outcome.stderr);
    }
}

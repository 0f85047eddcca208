//! Client and server of different releases: what a recorded client of an earlier one said is still served,
//! and what a recorded server answered is still understood.
//!
//! `tests/corpus/protocol_5` has sessions as they went over the network when protocol 5 was new. Each line of
//! a record is a frame, in the order in which they went: `>` from the client, `<` from the server, in
//! hexadecimal.

use causeway_api::calls::{COMMANDS, Opcode, Request};
use causeway_api::snapshot::Snapshot;
use causeway_connection::channel::Connection;
use causeway_connection::dial_here;
use causeway_tests::built;
use causeway_tests::client::by_itself;
use causeway_tests::hostile::{self, TIMEOUT};
use causeway_tests::process::run;
use causeway_tests::server::Server;
use causeway_wire::codec::Decoder;
use causeway_wire::compressed::decompress;
use causeway_wire::frame::{FrameKind, FrameReader, HEADER_SIZE, MAX_BODY};
use causeway_wire::handshake::{ClientHello, Opening, OwnVersion, PREFACE_SIZE, Response};
use causeway_wire::message::{ClientMessage, Messages, WorkerMessage};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// The programs of which sessions are recorded: their images and copies are short enough for the messages.
const RECORDED: [&str; 1] = ["driver_api"];

fn records() -> PathBuf {
    built::source_tree().join("tests/corpus/protocol_5")
}

/// Who sent a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Client,
    Server,
}

/// A frame of a record, header included.
struct Sent {
    from: From,
    bytes: Vec<u8>,
}

impl Sent {
    /// Its messages, decompressed.
    fn body(&self) -> Vec<u8> {
        let body = &self.bytes[HEADER_SIZE..];
        if self.bytes[3] != FrameKind::CompressedMessages as u8 {
            return body.to_vec();
        }
        let mut messages = Vec::new();
        decompress(body, &mut messages).expect("a recorded frame is whole");
        messages
    }

    fn is_handshake(&self) -> bool {
        self.bytes[3] == FrameKind::Handshake as u8
    }
}

fn load(name: &str) -> Vec<Sent> {
    let path = records().join(format!("{name}.frames"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let frame = |line: &str| {
        let (from, digits) = line.split_once(' ').expect("a line has a direction and a frame");
        let from = if from == ">" { From::Client } else { From::Server };
        let bytes = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16));
        Sent { from, bytes: bytes.collect::<Result<_, _>>().expect("frames are hexadecimal") }
    };
    text.lines().filter(|line| !line.starts_with('#')).map(frame).collect()
}

/// Every message of a recorded server and every command of a recorded client is understood by this build, to
/// the last byte.
#[test]
fn what_was_recorded_is_still_understood() {
    let mut seen = BTreeMap::new();
    for name in RECORDED {
        for sent in load(name) {
            let body = sent.body();
            match (sent.from, sent.is_handshake()) {
                (From::Client, true) => {
                    let Ok(Opening::Session { offer, rest }) = Decoder::new(&body).value() else {
                        panic!("the opening is not understood")
                    };
                    let own = OwnVersion::new(COMMANDS);
                    assert_eq!(own.negotiate(&offer).expect("the version is still spoken"), 5);
                    let hello = ClientHello::decode_rest(offer, rest).expect("the hello is understood");
                    let common = own.common_with_client(&hello).expect("the commands are still the same");
                    assert_eq!(common, hello.abilities.commands.count, "no command has gone");
                }
                (From::Server, true) => {
                    let Ok(Response::Welcome(welcome)) = Decoder::new(&body).value() else {
                        panic!("the welcome is not understood")
                    };
                    let own = OwnVersion::new(COMMANDS);
                    own.common_with_server(&welcome).expect("the commands are still the same");
                    let snapshot: Snapshot =
                        Decoder::new(&welcome.snapshot).value().expect("the list of devices is understood");
                    assert_eq!(snapshot.devices.len(), 1);
                }
                (From::Client, false) => {
                    for message in Messages::<ClientMessage<'_>>::new(&body) {
                        let message = message.expect("a message of the client is understood");
                        if let ClientMessage::Command(command) = message {
                            let opcode = Opcode::from_number(command.opcode).expect("the command is known");
                            Request::decode(opcode, command.payload)
                                .unwrap_or_else(|error| panic!("{}: {error}", opcode.name()));
                            *seen.entry(opcode.name()).or_insert(0) += 1;
                        }
                    }
                }
                (From::Server, false) => {
                    for message in Messages::<WorkerMessage<'_>>::new(&body) {
                        message.expect("a message of the server is understood");
                    }
                }
            }
        }
    }
    assert!(seen.len() >= 10, "the records have only these commands: {seen:?}");
}

/// A server of this build does for a recorded client what the recorded server did, and answers as it did.
#[test]
fn a_recorded_client_is_still_served() {
    for name in RECORDED {
        let server = Server::start();
        let replies = replay(&server, &load(name));
        assert!(replies >= 5, "{name} was answered {replies} times");
        server.must_be_well();
    }
}

/// What a client waits for, or answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Reply(u32),
    /// An image that is sent before it is wanted is not kept.
    ImageRequested(u64),
    HostCall(u64),
}

impl Event {
    fn of(message: &WorkerMessage<'_>) -> Option<Self> {
        match message {
            WorkerMessage::Reply { call, .. } => Some(Self::Reply(*call)),
            WorkerMessage::ImageRequested { transfer } => Some(Self::ImageRequested(*transfer)),
            WorkerMessage::HostCall { token } => Some(Self::HostCall(*token)),
            _ => None,
        }
    }
}

/// The status of a reply and the length of its results.
fn outcome(message: &WorkerMessage<'_>) -> Option<(u32, usize)> {
    match message {
        WorkerMessage::Reply { status, payload, .. } => Some((*status, payload.len())),
        _ => None,
    }
}

/// Sends what a recorded client sent, waits where it waited, and compares the outcomes. Returns how many
/// replies there were.
fn replay(server: &Server, record: &[Sent]) -> usize {
    let mut stream = dial_here(&server.target().endpoint, TIMEOUT).expect("the server listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("the limit is not zero");
    let preface = causeway_wire::handshake::Preface::by_key(server.target().protection);
    stream.write_all(&preface.to_bytes()).expect("the server takes it");
    let mut answer = [0; PREFACE_SIZE];
    stream.read_exact(&mut answer).expect("the server answers");
    let mut connection = Connection::new(stream, None);
    let mut reader = FrameReader::new(MAX_BODY);
    let mut found = BTreeMap::new();
    let mut compared = 0;
    for sent in record {
        match (sent.from, sent.is_handshake()) {
            (From::Client, true) => connection.outgoing.send(&sent.bytes).expect("the server takes it"),
            (From::Server, true) => {
                let deadline = Instant::now() + TIMEOUT;
                let body = connection.receive_handshake(MAX_BODY, deadline).expect("the server answers");
                let answer = Decoder::new(&body).value().expect("the answer is understood");
                assert!(matches!(answer, Response::Welcome(_)), "the recorded client is refused: {answer:?}");
            }
            (From::Client, false) => {
                let mut bytes = sent.bytes.clone();
                // This server's frames are not numbered as the recorded one's.
                bytes[16..24].fill(0);
                connection.outgoing.send(&bytes).expect("the server takes it");
            }
            (From::Server, false) => {
                let body = sent.body();
                for message in Messages::<WorkerMessage<'_>>::new(&body) {
                    let message = message.expect("it is understood");
                    let Some(event) = Event::of(&message) else { continue };
                    let now = await_event(&mut connection, &mut reader, &mut found, event);
                    assert_eq!(now, outcome(&message), "{event:?}");
                    compared += usize::from(now.is_some());
                }
            }
        }
    }
    compared
}

/// Waits until the server has said something; gives a reply's outcome.
fn await_event(
    connection: &mut Connection,
    reader: &mut FrameReader,
    found: &mut BTreeMap<Event, Option<(u32, usize)>>,
    event: Event,
) -> Option<(u32, usize)> {
    let deadline = Instant::now() + TIMEOUT;
    // The handshake has taken the limit off, and a server that answers nothing still sends heartbeats.
    connection.socket().set_read_timeout(Some(TIMEOUT)).expect("the limit is not zero");
    loop {
        while let Some(frame) = reader.next_frame().expect("the server sends frames") {
            let body = reader.body(&frame).to_vec();
            let mut messages = Vec::new();
            let body = match frame.header.kind {
                FrameKind::CompressedMessages => {
                    decompress(&body, &mut messages).expect("the frame is whole");
                    &messages
                }
                _ => &body,
            };
            for message in Messages::<WorkerMessage<'_>>::new(body) {
                let message = message.expect("the server's messages are understood");
                if let WorkerMessage::Fatal { text } = message {
                    panic!("the session has ended: {text}");
                }
                found.extend(Event::of(&message).map(|event| (event, outcome(&message))));
            }
        }
        if let Some(outcome) = found.remove(&event) {
            return outcome;
        }
        let count = connection.incoming.receive(reader.space(), true).expect("the server answers");
        assert!(Instant::now() < deadline, "there is no {event:?}");
        assert!(count > 0, "the server has ended the session before {event:?}");
        reader.filled(count);
    }
}

/// A client that knows more commands than the server, or fewer, is served, and one that means others is not.
#[test]
fn what_ends_know_of_commands_may_differ_but_not_contradict() {
    let server = Server::start();
    let count = COMMANDS.known().count;
    let mut newer = hostile::hello();
    newer.abilities.commands.count = count + 7;
    newer.abilities.commands.fingerprint ^= 5;
    newer.abilities.features.0 = u64::MAX;
    newer.offer.fingerprint ^= 5;
    newer.offer.versions.newest += 3;
    let (_connection, answer) = hostile::ask_for_session(server.target(), &newer);
    let Response::Welcome(welcome) = answer else { panic!("a newer client is refused: {answer:?}") };
    assert_eq!((welcome.version, welcome.abilities.commands), (5, COMMANDS.known()));
    let mut other = hostile::hello();
    other.abilities.commands.count = count - 1;
    match hostile::ask_for_session(server.target(), &other).1 {
        Response::Refused { text } => assert!(text.contains("contradict each other"), "{text}"),
        other => panic!("a client with other commands is told {other:?}"),
    }
}

/// Writes the records anew: only ever for a new protocol version, by
/// `cargo test -p causeway-tests --test versions -- --ignored record`.
#[test]
#[ignore = "writes tests/corpus"]
fn record() {
    for name in RECORDED {
        let server = Server::start();
        let (sender, frames) = channel();
        let front = relay(server.target().endpoint.clone(), sender);
        let address = format!("causeway://{front}?insecure-no-key");
        let mut command = by_itself(&address, &built::cuda_program(name));
        command.env("CAUSEWAY_VIA", "tcp").env("CAUSEWAY_LANES", "1");
        run(&mut command, Duration::from_secs(60)).must_succeed();
        drop(server);
        let mut text = format!("# {name}, protocol 5, {}\n", env!("CARGO_PKG_VERSION"));
        for Sent { from, bytes } in frames {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            text += &format!("{} {digits}\n", if from == From::Client { ">" } else { "<" });
        }
        std::fs::create_dir_all(records()).unwrap();
        std::fs::write(records().join(format!("{name}.frames")), text).unwrap();
        std::fs::copy(
            Path::new(&built::source_tree().join("crates/api/list/commands.txt")),
            records().join("commands.txt"),
        )
        .unwrap();
    }
}

/// Relays connections, and reports the frames of the first, which is the session's.
fn relay(server: causeway_access::Endpoint, frames: Sender<Sent>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut frames = Some(frames);
        for front in listener.incoming().flatten() {
            let back = dial_here(&server, TIMEOUT).unwrap();
            let report = frames.take();
            for (from, input, output) in [(From::Client, &front, &back), (From::Server, &back, &front)] {
                let (input, output) = (input.try_clone().unwrap(), output.try_clone().unwrap());
                let report = report.clone();
                std::thread::spawn(move || pass_on(from, input, output, report));
            }
        }
    });
    address
}

fn pass_on(from: From, mut input: TcpStream, mut output: TcpStream, report: Option<Sender<Sent>>) {
    let mut preface = [0; PREFACE_SIZE];
    if input.read_exact(&mut preface).is_err() || output.write_all(&preface).is_err() {
        return;
    }
    let Some(report) = report else {
        let _ = std::io::copy(&mut input, &mut output);
        let _ = output.shutdown(std::net::Shutdown::Write);
        return;
    };
    let mut reader = FrameReader::new(MAX_BODY);
    while let Ok(count @ 1..) = input.read(reader.space()) {
        reader.filled(count);
        while let Ok(Some(frame)) = reader.next_frame() {
            let mut bytes = frame.header.to_bytes().to_vec();
            bytes.extend_from_slice(reader.body(&frame));
            // Reported before the other end can answer it.
            let _ = report.send(Sent { from, bytes: bytes.clone() });
            let _ = output.write_all(&bytes);
        }
    }
    let _ = output.shutdown(std::net::Shutdown::Write);
}

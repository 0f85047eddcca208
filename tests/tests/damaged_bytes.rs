//! Damaged bytes that reach a server.
//!
//! The worker of the connection ends, or there never was one; the server and its other clients go on. Bytes
//! of a kind of their own are kept and replayed: whole connections in `tests/corpus`, and those that the fuzz
//! targets start from in `crates/wire/tests/corpus`.

use causeway_access::Target;
use causeway_api::coverage::FUNCTIONS;
use causeway_tests::built::{self, cuda_program};
use causeway_tests::client::through_run;
use causeway_tests::hostile::{self, Random};
use causeway_tests::process::{Running, eventually};
use causeway_tests::server::{Server, WORKER_TIMEOUT};
use causeway_wire::chunk::{ChunkHeader, MAX_CHUNK};
use causeway_wire::codec::Encode as _;
use causeway_wire::frame::{FrameHeader, FrameKind, HEADER_SIZE, MAX_BODY, MAX_OPENING};
use causeway_wire::handshake::{LaneHello, Opening, Preface, Protection};
use causeway_wire::message::{ClientMessage, Command};
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::time::Duration;

/// A server with a client that works while the test goes on.
struct Busy {
    server: Server,
    client: Running,
    _folder: tempfile::TempDir,
}

impl Busy {
    fn start(with_key: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key_file = folder.path().join("key");
        let server = if with_key { Server::start_with_key(&key_file) } else { Server::start() };
        // It works until it is killed.
        let client =
            Running::start(&mut through_run(Some(&server.connect_string()), &cuda_program("long_run")));
        client.must_print("running", Duration::from_secs(60));
        Self { server, client, _folder: folder }
    }

    fn target(&self) -> &Target {
        self.server.target()
    }

    /// Asserts that only the worker of the working client is left, that this client has met no error, and
    /// that a new client is served.
    #[track_caller]
    fn must_have_gone_on(&mut self) {
        self.server.must_have_workers(1);
        self.server.must_be_well();
        assert!(!self.client.has_exited(), "the other client ended: {}", self.client.finish(Duration::ZERO));
        let mut command = through_run(Some(&self.server.connect_string()), &cuda_program("vector_add"));
        Running::start(&mut command).finish(Duration::from_secs(60)).must_succeed();
    }
}

/// Sends bytes as the first ones of a connection, and waits until the server has ended it.
#[track_caller]
fn send_first(target: &Target, bytes: &[u8]) {
    let mut stream = hostile::dial(target);
    // The server may turn the connection away before it has all the bytes.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            panic!("the server kept a connection that began with {:02x?}", &bytes[..bytes.len().min(40)])
        }
        // Ended, or reset since not all bytes were read.
        _ => {}
    }
}

/// Opens a session, sends bytes on its command connection, and waits until the worker has ended it.
#[track_caller]
fn send_in_session(target: &Target, bytes: &[u8]) {
    let (mut connection, _) = hostile::session(target);
    let _ = connection.outgoing.send(bytes);
    let _ = connection.socket().shutdown(Shutdown::Write);
    assert!(
        hostile::is_ended_by_peer(&mut connection),
        "the worker kept a session that sent {:02x?}",
        &bytes[..bytes.len().min(40)]
    );
}

/// The files of a folder of the source tree.
fn corpus(folder: &str) -> Vec<Vec<u8>> {
    let folder = built::source_tree().join(folder);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// A whole opening of a client, from the first byte on.
fn opening() -> Vec<u8> {
    let mut body = Vec::new();
    Opening::encode_session(&hostile::hello(), &mut body);
    let length = body.len() as u32;
    let header = FrameHeader { kind: FrameKind::Handshake, length, sequence: 0, acknowledgement: 0 };
    [&Preface::by_key(Protection::Unprotected).to_bytes(), &header.to_bytes()[..], &body].concat()
}

#[test]
fn bytes_before_authentication_reach_no_worker() {
    let mut random = Random::new(1);
    for with_key in [false, true] {
        let mut busy = Busy::start(with_key);
        let workers = busy.server.workers();
        let opening = opening();
        for length in (0..opening.len()).step_by(7) {
            send_first(busy.target(), &opening[..length]);
        }
        let preface = Preface::by_key(busy.target().protection).to_bytes();
        let too_long = FrameHeader {
            kind: FrameKind::Handshake,
            length: MAX_OPENING as u32 + 1,
            sequence: 0,
            acknowledgement: 0,
        };
        send_first(busy.target(), &[&preface, &too_long.to_bytes()[..]].concat());
        for _ in 0..60 {
            let count = random.below(3000);
            let noise = random.bytes(count);
            send_first(busy.target(), &noise);
            send_first(busy.target(), &[&preface[..], &noise].concat());
            // Encrypted: into the Noise handshake. In the clear: into the first message.
            let start = preface.len() + HEADER_SIZE;
            let mut damaged = opening.clone();
            damaged[..preface.len()].copy_from_slice(&preface);
            let at = start + random.below(damaged.len() - start);
            // Never into a valid opening of another client, which would rightly get a worker.
            damaged[at] ^= 0x80;
            damaged.truncate(damaged.len() - 1);
            send_first(busy.target(), &damaged);
        }
        for folder in ["tests/corpus/before_session", "crates/wire/tests/corpus/handshake"] {
            for bytes in corpus(folder) {
                send_first(busy.target(), &bytes);
            }
        }
        assert_eq!(busy.server.workers(), workers, "a worker came or went");
        busy.must_have_gone_on();
    }
}

#[test]
fn callers_that_say_nothing_hold_nobody_up() {
    let mut busy = Busy::start(false);
    let silent: Vec<_> = (0..50).map(|_| hostile::dial(busy.target())).collect();
    busy.must_have_gone_on();
    drop(silent);
}

#[test]
fn damaged_frames_end_their_session_only() {
    let mut random = Random::new(2);
    for with_key in [false, true] {
        let mut busy = Busy::start(with_key);
        let header = |length: u32, sequence: u64| {
            let header = FrameHeader { kind: FrameKind::Messages, length, sequence, acknowledgement: 0 };
            header.to_bytes().to_vec()
        };
        let noise = random.bytes(1000);
        let damaged = [
            noise.clone(),
            Vec::new(),
            header(100, 1),
            header(MAX_BODY as u32, 1),
            header(u32::MAX, 1),
            hostile::frame(1, &noise),
            hostile::frame(2, &[]),
            hostile::frame(0, &[]),
            [hostile::frame(1, &[]), hostile::frame(1, &[])].concat(),
            [hostile::frame(1, &[]), hostile::frame(3, &[])].concat(),
        ];
        for bytes in &damaged {
            send_in_session(busy.target(), bytes);
        }
        // Frames that acknowledge what was never sent.
        let ahead =
            FrameHeader { kind: FrameKind::Messages, length: 0, sequence: 1, acknowledgement: u64::MAX };
        send_in_session(busy.target(), &ahead.to_bytes());
        for bytes in [corpus("tests/corpus/in_session"), corpus("crates/wire/tests/corpus/frames")].concat() {
            send_in_session(busy.target(), &bytes);
        }
        for body in corpus("crates/wire/tests/corpus/messages") {
            send_in_session(busy.target(), &hostile::frame(1, &body));
        }
        busy.must_have_gone_on();
    }
}

#[test]
fn well_formed_commands_with_senseless_arguments_crash_no_worker() {
    let mut busy = Busy::start(false);
    let mut random = Random::new(3);
    // Half of the sessions send one command of every opcode each, the others many random ones: a protocol
    // error ends a session, so that what follows it is not looked at.
    let most = FUNCTIONS.len() as u16;
    for opcode in 0..most {
        if opcode % 8 != 0 {
            continue;
        }
        let mut body = Vec::new();
        for opcode in opcode..(opcode + 8).min(most) {
            let count = [0, 8, 40, 200][random.below(4)];
            let payload = if random.below(2) == 0 { vec![0; count] } else { random.bytes(count) };
            let (call, context) = (random.below(2) as u32 * (opcode as u32 + 1), random.below(3) as u64);
            let command = Command { call, thread: 0, context, opcode, payload: &payload };
            ClientMessage::Command(command).encode(&mut body);
        }
        send_in_session(busy.target(), &hostile::frame(1, &body));
    }
    let mut body = Vec::new();
    for token in [0, 1, u64::MAX] {
        ClientMessage::HostDone { token }.encode(&mut body);
    }
    send_in_session(busy.target(), &hostile::frame(1, &body));
    busy.must_have_gone_on();
}

#[test]
fn damaged_chunks_end_their_session_only() {
    let mut busy = Busy::start(false);
    let mut random = Random::new(4);
    let chunk =
        |transfer, offset, total, length| ChunkHeader { transfer, offset, total, length }.to_bytes().to_vec();
    let mut damaged = vec![
        random.bytes(500),
        chunk(1, 0, u64::MAX, 64),
        chunk(1, u64::MAX, 64, 64),
        chunk(1, 0, 64, MAX_CHUNK + 1),
        chunk(1, 0, 64, 0),
        [chunk(1, 0, 8, 4), vec![0; 4], chunk(1, 0, 8, 4), vec![0; 4]].concat(),
        [chunk(1, 0, 8, 4), vec![0; 4], chunk(1, 4, 16, 4), vec![0; 4]].concat(),
        chunk(2, 0, 1 << 30, MAX_CHUNK),
    ];
    damaged.extend(corpus("crates/wire/tests/corpus/chunks"));
    for bytes in damaged {
        let (mut commands, welcome) = hostile::session(busy.target());
        let hello = LaneHello { session: welcome.session, token: welcome.token, lane: 0 };
        let (mut lane, _) = hostile::ask_for_lane(busy.target(), &hello);
        let _ = lane.outgoing.send(&bytes);
        let _ = lane.socket().shutdown(Shutdown::Write);
        assert!(
            hostile::is_ended_by_peer(&mut lane),
            "a lane was kept that sent {:02x?}",
            &bytes[..bytes.len().min(40)]
        );
        // Whether a damaged lane ends the session at once is the worker's choice; without its client it must
        // end.
        let _ = commands.socket().shutdown(Shutdown::Both);
        let _ = hostile::is_ended_by_peer(&mut commands);
    }
    eventually("only the working client has a worker", WORKER_TIMEOUT, || busy.server.workers().len() == 1);
    busy.must_have_gone_on();
}

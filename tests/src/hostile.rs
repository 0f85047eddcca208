//! Talking to a server as no client would.
//!
//! The handshake is made here step by step from the parts of `causeway-wire` and `causeway-connection`, so
//! that a test can leave it at any point and go on with whatever bytes it likes, encrypted where the server
//! demands a key.

use causeway_access::Target;
use causeway_api::calls::COMMANDS;
use causeway_connection::channel::Connection;
use causeway_connection::dial_here;
use causeway_connection::noise::{Handshake, MESSAGE_SIZE};
use causeway_link::describe_process;
use causeway_wire::codec::Decoder;
use causeway_wire::frame::{FrameHeader, FrameKind, MAX_BODY};
use causeway_wire::handshake::{
    ClientHello, Features, LaneHello, Opening, PREFACE_SIZE, Preface, PrefaceResponse, Protection, Response,
    Welcome,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long a server may take to answer, or to end a connection that it does not like.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A bare TCP connection to a server. Reading from it gives up after [`TIMEOUT`].
///
/// # Panics
/// When nothing listens there.
#[track_caller]
pub fn dial(target: &Target) -> TcpStream {
    let stream = dial_here(&target.endpoint, TIMEOUT).expect("the server listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("the limit is not zero");
    stream.set_nodelay(true).expect("the connection is open");
    stream
}

/// A connection that has shown its key, if it has one, and has not said yet what it wants.
///
/// # Panics
/// When the server turns it away.
#[track_caller]
pub fn authenticated(target: &Target) -> Connection {
    let mut stream = dial(target);
    let preface = Preface::by_key(target.protection).to_bytes();
    stream.write_all(&preface).expect("the connection is open");
    let mut handshake = target.key.as_ref().map(|key| Handshake::client(key, &preface));
    if let Some(handshake) = &mut handshake {
        stream.write_all(&handshake.write()).expect("the connection is open");
    }
    let mut answer = [0; PREFACE_SIZE];
    stream.read_exact(&mut answer).expect("the server answers");
    assert_eq!(PrefaceResponse::parse(&answer), Ok(PrefaceResponse::Continue));
    let keys = handshake.map(|mut handshake| {
        let mut message = [0; MESSAGE_SIZE];
        stream.read_exact(&mut message).expect("the server answers");
        handshake.read(&message).expect("the server holds the key");
        handshake.finish(target.protection == Protection::Authenticated)
    });
    Connection::new(stream, keys)
}

/// What a client of this build says of itself, but that it does nothing by itself: it sends no keepalives.
pub fn hello() -> ClientHello {
    let mut hello = describe_process(COMMANDS, Vec::new());
    hello.abilities.features = Features::default();
    hello
}

/// Asks for a session and returns what the server answers.
///
/// # Panics
/// When the server does not answer.
#[track_caller]
pub fn ask_for_session(target: &Target, hello: &ClientHello) -> (Connection, Response) {
    let mut connection = authenticated(target);
    connection.send_handshake(|out| Opening::encode_session(hello, out)).expect("the connection is open");
    answer(connection)
}

/// Asks for a place as a bulk lane and returns what the server answers.
///
/// # Panics
/// When the server does not answer.
#[track_caller]
pub fn ask_for_lane(target: &Target, hello: &LaneHello) -> (Connection, Response) {
    let mut connection = authenticated(target);
    connection.send_handshake(|out| Opening::encode_lane(hello, out)).expect("the connection is open");
    answer(connection)
}

#[track_caller]
fn answer(mut connection: Connection) -> (Connection, Response) {
    let body = connection.receive_handshake(MAX_BODY, Instant::now() + TIMEOUT).expect("the server answers");
    let answer = Decoder::new(&body).value().expect("the server's answer can be decoded");
    (connection, answer)
}

/// A session like that of a client, up to its first command.
///
/// # Panics
/// When the server refuses.
#[track_caller]
pub fn session(target: &Target) -> (Connection, Welcome) {
    match ask_for_session(target, &hello()) {
        (connection, Response::Welcome(welcome)) => (connection, welcome),
        (_, other) => panic!("the server answered {other:?} instead of granting a session"),
    }
}

/// A frame of messages with this number.
pub fn frame(sequence: u64, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("bodies are short");
    let header = FrameHeader { kind: FrameKind::Messages, length, sequence, acknowledgement: 0 };
    [&header.to_bytes(), body].concat()
}

/// Waits until the peer has ended the connection, dropping what it still says; false if it does not within
/// [`TIMEOUT`].
pub fn is_ended_by_peer(connection: &mut Connection) -> bool {
    let deadline = Instant::now() + TIMEOUT;
    let mut dropped = [0; 4096];
    // An error other than a wait that took too long means that the connection has ended, too.
    while Instant::now() < deadline {
        let _ = connection.socket().set_read_timeout(Some(TIMEOUT));
        match connection.incoming.receive(&mut dropped, true) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
    false
}

/// Pseudo-random bytes that are the same in every run (xorshift, Marsaglia 2003).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from a number other than 0.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }

    /// This many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

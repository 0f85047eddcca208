//! How a server finds out who is calling, before it trusts a byte.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use causeway_wire::codec::Encode as _;
use causeway_wire::codec::{DecodeError, Decoder};
use causeway_wire::frame::MAX_OPENING;
use causeway_wire::handshake::{
    Answer, ClientHello, JoinHello, LaneHello, LaneToken, MAX_REFUSAL, NotCauseway, Offer, Opening,
    PREFACE_SIZE, PeerHello, Preface, PrefaceAnswer, VerbsHello, VersionMismatch, negotiate,
};
use thiserror::Error;

use crate::target::Key;
use crate::tcp::channel::{Connection, HandshakeReadError};
use crate::tcp::noise::{Handshake, MESSAGE_SIZE, WrongKey};
use crate::tcp::socket::tune;

/// What an authenticated caller wants.
#[derive(Debug)]
pub enum Request {
    /// A session.
    Session {
        /// What the client says of itself.
        hello: ClientHello,
        /// The protocol version to talk.
        version: u16,
    },
    /// To add a bulk lane to a session; its token has not been checked yet.
    Lane(LaneHello),
    /// To set up verbs for a session, or for a way that a ticket leads to; its token has not been checked yet.
    Verbs(VerbsHello),
    /// A connection of another server's worker, which is checked against the sessions' tickets.
    Peer(PeerHello),
    /// A monitoring session.
    Monitor {
        /// What the client says of itself.
        hello: ClientHello,
    },
    /// To know what the server's machine is like.
    Diagnosis {
        /// What the client says of itself.
        hello: ClientHello,
    },
}

/// A caller that holds the key (where there is one) and speaks our version.
#[derive(Debug)]
pub struct Caller {
    /// What it wants.
    pub request: Request,
    /// Where it is answered.
    pub connection: Connection,
}

/// Why a caller was turned away. Where the caller can understand it, it has been told.
#[derive(Debug, Error)]
pub enum AcceptError {
    /// The connection failed or ended.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The caller took too long.
    #[error("it did not finish the handshake in time")]
    TooSlow,
    /// The caller ended the connection.
    #[error("it ended the connection during the handshake")]
    Ended,
    /// The caller speaks something else.
    #[error(transparent)]
    NotCauseway(#[from] NotCauseway),
    /// The caller has no key, and the server demands one.
    #[error("it came without a key")]
    NoKey,
    /// The caller has a key, and the server has none.
    #[error("it came with a key, and this server has none")]
    NeedlessKey,
    /// The caller has another key.
    #[error("it holds another key")]
    WrongKey(#[from] WrongKey),
    /// Who comes with a ticket may use that and nothing else.
    #[error("it came with a ticket of a session and wants something else than the ticket is for")]
    NotForTickets,
    /// The caller speaks another version.
    #[error(transparent)]
    Version(#[from] VersionMismatch),
    /// The caller's message makes no sense.
    #[error("its first message is damaged: {0}")]
    Damaged(String),
}

impl From<HandshakeReadError> for AcceptError {
    fn from(error: HandshakeReadError) -> Self {
        match error {
            HandshakeReadError::Io(error) => match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::TooSlow,
                io::ErrorKind::UnexpectedEof => Self::Ended,
                _ => Self::Io(error),
            },
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<DecodeError> for AcceptError {
    fn from(error: DecodeError) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// Authenticates a caller and reads its request, all within `timeout`, and not a byte beyond the request.
///
/// With a key every caller must prove that it holds it; without one the connection is in the clear, which
/// is for loopback only. `offer` is what the server can talk.
pub fn greet(
    stream: TcpStream,
    key: Option<&Key>,
    tickets: impl FnOnce() -> Vec<LaneToken>,
    offer: &Offer,
    timeout: Duration,
) -> Result<Caller, AcceptError> {
    let deadline = Instant::now() + timeout;
    tune(&stream)?;
    stream.set_write_timeout(Some(timeout))?;
    let mut clear = Connection::new(stream, None);
    let mut preface = [0; PREFACE_SIZE];
    receive(&mut clear, &mut preface, deadline)?;
    let (mut connection, by) = match (Preface::parse(&preface)?.encrypted, key) {
        (false, None) => {
            write(&clear, &PrefaceAnswer::GoOn.to_bytes())?;
            (clear, Proof::Key)
        }
        (true, Some(key)) => encrypt(clear, key, tickets, &preface, deadline)?,
        (false, Some(_)) => {
            refuse(
                &clear,
                "it demands a key; use the whole connect string that it printed, causeway://KEY@HOST:PORT",
            );
            return Err(AcceptError::NoKey);
        }
        (true, None) => {
            refuse(&clear, "it has no key; leave the key out of its address");
            return Err(AcceptError::NeedlessKey);
        }
    };
    let body = connection.receive_handshake(MAX_OPENING, deadline)?;
    let mut input = Decoder::new(&body);
    let request = match input.value::<Opening<'_>>()? {
        Opening::Peer(hello) => {
            input.finish()?;
            Request::Peer(hello)
        }
        // Its token must be that of a session, which no ticket tells, or a ticket.
        Opening::Verbs(hello) => {
            input.finish()?;
            Request::Verbs(hello)
        }
        _ if by == Proof::Ticket => return Err(AcceptError::NotForTickets),
        Opening::Lane(hello) => {
            input.finish()?;
            Request::Lane(hello)
        }
        // Whoever is not at a socket of this host cannot share memory.
        Opening::Join(_) => {
            return Err(AcceptError::Damaged("it wants to share memory over a network".to_owned()));
        }
        Opening::Session { offer: client, rest } => {
            let version = agree(&mut connection, offer, &client)?;
            Request::Session { hello: ClientHello::decode_rest(client, rest)?, version }
        }
        Opening::Monitor { offer: client, rest } => {
            agree(&mut connection, offer, &client)?;
            Request::Monitor { hello: ClientHello::decode_rest(client, rest)? }
        }
        Opening::Diagnosis { offer: client, rest } => {
            agree(&mut connection, offer, &client)?;
            Request::Diagnosis { hello: ClientHello::decode_rest(client, rest)? }
        }
    };
    connection.socket().set_write_timeout(None)?;
    Ok(Caller { request, connection })
}

/// Reads what a caller wants at a socket of this host, within `timeout`: only to share memory with a session that it
/// owns, which the session's token will prove.
pub fn greet_local(stream: UnixStream, timeout: Duration) -> Result<(JoinHello, Connection), AcceptError> {
    let deadline = Instant::now() + timeout;
    stream.set_write_timeout(Some(timeout))?;
    // The standard library's type for TCP serves for any stream socket.
    let mut connection = Connection::new(TcpStream::from(OwnedFd::from(stream)), None);
    let mut preface = [0; PREFACE_SIZE];
    receive(&mut connection, &mut preface, deadline)?;
    if Preface::parse(&preface)?.encrypted {
        return Err(AcceptError::NeedlessKey);
    }
    write(&connection, &PrefaceAnswer::GoOn.to_bytes())?;
    let body = connection.receive_handshake(MAX_OPENING, deadline)?;
    let mut input = Decoder::new(&body);
    let Opening::Join(hello) = input.value::<Opening<'_>>()? else {
        return Err(AcceptError::Damaged("it wants something that this socket is not for".to_owned()));
    };
    input.finish()?;
    connection.socket().set_write_timeout(None)?;
    Ok((hello, connection))
}

/// The protocol version to talk, or a refusal that the caller has been told.
fn agree(connection: &mut Connection, offer: &Offer, client: &Offer) -> Result<u16, AcceptError> {
    negotiate(offer, client).map_err(|mismatch| {
        let refusal = Answer::Refused { text: mismatch.to_string() };
        // The caller may be gone already; the reason is reported either way.
        let _ = connection.send_handshake(|out| refusal.encode(out));
        mismatch.into()
    })
}

/// What a caller has proved to hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// The server's key, where it has one.
    Key,
    /// A ticket of one of its sessions.
    Ticket,
}

/// The server's end of the encrypted handshake. The caller's first message shows which of our secrets it holds.
fn encrypt(
    mut clear: Connection,
    key: &Key,
    tickets: impl FnOnce() -> Vec<LaneToken>,
    preface: &[u8],
    deadline: Instant,
) -> Result<(Connection, Proof), AcceptError> {
    let mut message = [0; MESSAGE_SIZE];
    receive(&mut clear, &mut message, deadline)?;
    let begin = |key: &Key| {
        let mut handshake = Handshake::server(key, preface);
        handshake.read(&message).map(|()| handshake)
    };
    let begun = begin(key).map(|handshake| (handshake, Proof::Key)).or_else(|wrong| {
        let by_ticket = |ticket: LaneToken| begin(&Key::of_ticket(&ticket)).ok();
        tickets().into_iter().find_map(by_ticket).map(|handshake| (handshake, Proof::Ticket)).ok_or(wrong)
    });
    let (mut handshake, by) = begun.inspect_err(|_| {
        refuse(&clear, "the key is not this server's; use the connect string that it printed at its start");
    })?;
    let mut answer = PrefaceAnswer::GoOn.to_bytes().to_vec();
    answer.extend(handshake.write());
    write(&clear, &answer)?;
    Ok((Connection::new(clear.socket().try_clone()?, Some(handshake.finish())), by))
}

fn receive(connection: &mut Connection, into: &mut [u8], deadline: Instant) -> Result<(), AcceptError> {
    connection.incoming.receive_exact(into, deadline).map_err(|error| HandshakeReadError::Io(error).into())
}

fn write(connection: &Connection, bytes: &[u8]) -> io::Result<()> {
    (&**connection.socket()).write_all(bytes)
}

/// Tells a caller in the clear why it is turned away.
fn refuse(connection: &Connection, text: &str) {
    debug_assert!(text.len() <= MAX_REFUSAL);
    let mut bytes = PrefaceAnswer::Refused { length: text.len() as u16 }.to_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    // The caller may be gone already; it is turned away either way.
    let _ = write(connection, &bytes);
    crate::tcp::channel::end_after_last_words(connection.socket());
}

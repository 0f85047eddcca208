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
    ClientHello, FOR_A_CLIENT, FOR_A_NAMED_CLIENT, KeyId, LaneHello, LaneToken, MAX_REFUSAL, NewKey,
    NotCauseway, Opening, OwnVersion, PREFACE_SIZE, PROOF_SIZE, PeerHello, Preface, PrefaceResponse,
    Protection, Response, Secret, TicketId, UpgradeHello, VersionMismatch,
};
use thiserror::Error;

use crate::refusal::WRONG_KEY;
use crate::transports::upgrade_kind;
use causeway_access::keys::clients::NotAccepted;
use causeway_access::target::{ClientName, Key};
use causeway_connection::channel::{Connection, HandshakeReadError};
use causeway_connection::noise::{Handshake, MESSAGE_SIZE, WrongKey};
use causeway_connection::socket::tune;

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
    /// To change a session, or a link that a ticket leads to, over to another transport; its token has not been
    /// checked yet.
    Upgrade(UpgradeHello),
    /// A connection of another server's worker, which is checked against the sessions' tickets.
    Peer(PeerHello),
    /// A monitoring session.
    Monitor {
        /// What the client says of itself.
        hello: ClientHello,
    },
    /// To know how the server is.
    Status {
        /// What the client says of itself.
        hello: ClientHello,
    },
    /// To know what the server's machine is like.
    Diagnosis {
        /// What the client says of itself.
        hello: ClientHello,
    },
    /// To enrol a key, by an invitation.
    Enrol {
        /// What the client says of itself.
        hello: ClientHello,
        /// The key.
        key: NewKey,
    },
}

impl Request {
    /// Whether the request carries its own proof, a session's token or a ticket, so that whoever knows that
    /// may ask.
    fn has_proof(&self) -> bool {
        matches!(self, Self::Lane(_) | Self::Upgrade(_) | Self::Peer(_))
    }
}

/// A caller that has proved who it is, as far as the server asks for that, and speaks our version.
#[derive(Debug)]
pub struct Caller {
    /// What it wants.
    pub request: Request,
    /// Where it is answered.
    pub connection: Connection,
    /// The client that it is, if it has come with a key of its own, and which of its keys that was.
    pub client: Option<(ClientName, KeyId)>,
    /// The invitation that it has come with; it wants to enrol a key then, and nothing else.
    pub invitation: Option<KeyId>,
}

/// Why a caller was refused. Where the caller can understand it, it has been told.
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
    /// The caller wants to talk in the clear, and the server does not.
    #[error(
        "it requests an unencrypted connection, which this server accepts only if it is started with \
        --clear"
    )]
    Clear,
    /// The caller is another user of this host.
    #[error("its user may not use this server")]
    NotAllowed,
    /// The caller has a key, and the server has none.
    #[error("it came with a key, and this server has none")]
    NeedlessKey,
    /// The caller has another key.
    #[error("it has a different key")]
    WrongKey(#[from] WrongKey),
    /// The caller comes with a ticket of no session that is here, as the client of one that has moved on or
    /// ended does.
    #[error("it requests a session that is not here")]
    NoSession,
    /// The caller has a key of its own that does not count, or not any more.
    #[error("it came with a client's own key or invitation, and {0}")]
    ClientNotAccepted(#[from] NotAccepted),
    /// An invitation is there to enrol a key, and that takes one.
    #[error("it came with an invitation and does not enrol a key, or enrols a key without an invitation")]
    NotForInvitations,
    /// Who comes with a ticket may use that and nothing else.
    #[error("it came with a session's ticket and requests something that the ticket does not allow")]
    NotForTickets,
    /// The caller speaks another version.
    #[error(transparent)]
    Version(#[from] VersionMismatch),
    /// The caller's message makes no sense.
    #[error("its first message is malformed: {0}")]
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

/// What callers over a network meet.
#[derive(Debug, Clone, Copy)]
pub struct AcceptPolicy<'a> {
    /// The key that a caller must prove to hold; without one everybody is let in.
    pub key: Option<&'a Key>,
    /// Whether a caller with the key may ask for a link in the clear.
    pub clear: bool,
    /// What the server can talk.
    pub version: &'a OwnVersion,
    /// How long a caller may take.
    pub timeouts: HandshakeTimeouts,
}

/// How long a caller may take, from its connection on.
#[derive(Debug, Clone, Copy)]
pub struct HandshakeTimeouts {
    /// To prove who it is.
    pub proof: Duration,
    /// To say what it wants.
    pub request: Duration,
}

impl HandshakeTimeouts {
    /// The ends of both times for a caller that has just come.
    fn deadlines(self) -> (Instant, Instant) {
        let now = Instant::now();
        (now + self.proof, now + self.request)
    }
}

/// Finds the secrets that callers may come with beside the server's key.
pub trait Secrets {
    /// The ticket of one of the server's sessions.
    fn ticket(&self, id: TicketId) -> Option<LaneToken>;

    /// The key of a client that has one of its own.
    ///
    /// # Errors
    /// Why its holder is not let in.
    fn client_key(&self, id: KeyId) -> Result<Key, NotAccepted>;

    /// The secret of an invitation.
    ///
    /// # Errors
    /// Why no key can be enrolled with it.
    fn invitation(&self, id: KeyId) -> Result<Key, NotAccepted>;
}

/// Authenticates a caller over a network and reads its request, and not a byte beyond that.
pub fn authenticate(
    stream: TcpStream,
    door: &AcceptPolicy<'_>,
    secrets: &impl Secrets,
) -> Result<Caller, AcceptError> {
    let (proof_deadline, deadline) = door.timeouts.deadlines();
    tune(&stream)?;
    stream.set_write_timeout(Some(door.timeouts.request))?;
    let mut clear = Connection::new(stream, None);
    let mut bytes = [0; PREFACE_SIZE];
    receive(&mut clear, &mut bytes, proof_deadline)?;
    let preface = Preface::parse(&bytes)?;
    let (connection, proved) = match (preface.protection, door.key) {
        (Protection::Unprotected, None) => {
            write(&clear, &PrefaceResponse::Continue.to_bytes())?;
            (clear, None)
        }
        (Protection::Unprotected, Some(_)) => {
            refuse(
                &clear,
                "it requires a key: give its whole connect string, causeway://KEY@HOST:PORT, or a file with \
                 the key (--key-file, CAUSEWAY_KEY_FILE)",
            );
            return Err(AcceptError::NoKey);
        }
        (_, None) => {
            refuse(
                &clear,
                "it has no key, since it was started with --insecure-no-key: its address is \
                 causeway://HOST:PORT?insecure-no-key",
            );
            return Err(AcceptError::NeedlessKey);
        }
        (Protection::Authenticated, Some(_)) if !door.clear => {
            refuse(
                &clear,
                "it accepts unencrypted connections only if it is started with --clear; omit `--clear` (or \
                 `clear = true`, `?clear`)",
            );
            return Err(AcceptError::Clear);
        }
        (_, Some(key)) => prove_key(clear, &preface, &bytes, key, secrets, proof_deadline)?,
    };
    let by_invitation = preface.secret == Secret::Invitation;
    let client = proved.filter(|_| !by_invitation);
    let invitation = proved.filter(|_| by_invitation).map(|(_, id)| id);
    let caller = Caller { client, invitation, ..receive_opening(connection, door.version, deadline)? };
    if matches!(caller.request, Request::Enrol { .. }) != invitation.is_some() {
        return Err(AcceptError::NotForInvitations);
    }
    // The token of a request for another transport must be that of a session, which no ticket tells, or a ticket.
    // So must that of a lane, which a ticket leads to a session that has moved here.
    let is_for_tickets = matches!(caller.request, Request::Peer(_) | Request::Upgrade(_) | Request::Lane(_));
    if preface.secret == Secret::Ticket && !is_for_tickets {
        return Err(AcceptError::NotForTickets);
    }
    // Whoever is not at a socket of this host cannot share memory.
    if let Request::Upgrade(hello) = &caller.request
        && upgrade_kind(hello).is_within_host()
    {
        return Err(AcceptError::Damaged("it requests shared memory over a network".to_owned()));
    }
    Ok(caller)
}

/// Reads what a caller wants at a Unix socket of this host, where nothing is encrypted. Unless it is
/// `trusted`, by what the kernel says of it, it gets only what it can prove by a session's token or a ticket.
/// So does whoever comes by another server, which has made the connection as its own user, or with a client's own
/// key; `proof` shows it by a nonce that this server holds its key, or that client's, if that can be read.
pub fn authenticate_local(
    stream: UnixStream,
    mut trusted: bool,
    proof: impl FnOnce(&[u8; PROOF_SIZE], Option<KeyId>) -> Option<[u8; PROOF_SIZE]>,
    version: &OwnVersion,
    timeouts: HandshakeTimeouts,
) -> Result<Caller, AcceptError> {
    let (_, deadline) = timeouts.deadlines();
    stream.set_write_timeout(Some(timeouts.request))?;
    // The standard library's type for TCP serves for any stream socket.
    let mut connection = Connection::new(TcpStream::from(OwnedFd::from(stream)), None);
    let mut preface = [0; PREFACE_SIZE];
    receive(&mut connection, &mut preface, deadline)?;
    if preface == FOR_A_CLIENT || preface == FOR_A_NAMED_CLIENT {
        trusted = false;
        let mut nonce = [0; PROOF_SIZE];
        receive(&mut connection, &mut nonce, deadline)?;
        let mut id = None;
        if preface == FOR_A_NAMED_CLIENT {
            receive(&mut connection, &mut id.insert(KeyId([0; 8])).0, deadline)?;
        }
        let Some(proof) = proof(&nonce, id) else {
            refuse(&connection, "it does not have the key that it is to prove, or cannot read it");
            return Err(AcceptError::Io(io::Error::other("the key for a proof is not there")));
        };
        write(&connection, &[PrefaceResponse::Continue.to_bytes().as_slice(), &proof].concat())?;
        receive(&mut connection, &mut preface, deadline)?;
    }
    if Preface::parse(&preface)?.protection != Protection::Unprotected {
        return Err(AcceptError::NeedlessKey);
    }
    write(&connection, &PrefaceResponse::Continue.to_bytes())?;
    let mut caller = receive_opening(connection, version, deadline)?;
    if let Request::Enrol { .. } = caller.request {
        return Err(AcceptError::NotForInvitations);
    }
    if !trusted && !caller.request.has_proof() {
        let text = "it serves its own user here and the users that `causeway serve --allow-user` and \
                    --allow-group name, and this program's user is not among them";
        let refusal = Response::Refused { text: text.into() };
        // The caller may be gone already; the reason is reported either way.
        let _ = caller.connection.send_handshake(|out| refusal.encode(out));
        causeway_connection::channel::end_after_goodbye(caller.connection.socket());
        return Err(AcceptError::NotAllowed);
    }
    Ok(caller)
}

/// Reads what a caller wants.
fn receive_opening(
    mut connection: Connection,
    own: &OwnVersion,
    deadline: Instant,
) -> Result<Caller, AcceptError> {
    let body = connection.receive_handshake(MAX_OPENING, deadline)?;
    let mut input = Decoder::new(&body);
    let opening = input.value::<Opening<'_>>().inspect_err(|error| {
        if let DecodeError::UnknownTag { .. } = error {
            // A later release may ask for what this one does not know. It may be gone already.
            let text = format!("it is Causeway {}, which does not support the request", own.offer.release);
            let refusal = Response::Refused { text: text.into() };
            let _ = connection.send_handshake(|out| refusal.encode(out));
        }
    });
    let request = match opening? {
        Opening::Session { offer: client, rest } => {
            let version = agree(&mut connection, own.negotiate(&client))?;
            let hello = ClientHello::decode_rest(client, rest)?;
            agree(&mut connection, own.common_with_client(&hello))?;
            Request::Session { hello, version }
        }
        Opening::Monitor { offer: client, rest } => {
            agree(&mut connection, own.negotiate(&client))?;
            Request::Monitor { hello: ClientHello::decode_rest(client, rest)? }
        }
        Opening::Diagnosis { offer: client, rest } => {
            agree(&mut connection, own.negotiate(&client))?;
            Request::Diagnosis { hello: ClientHello::decode_rest(client, rest)? }
        }
        Opening::Status { offer: client, rest } => {
            agree(&mut connection, own.negotiate(&client))?;
            Request::Status { hello: ClientHello::decode_rest(client, rest)? }
        }
        Opening::Enrol { key, offer: client, rest } => {
            agree(&mut connection, own.negotiate(&client))?;
            Request::Enrol { hello: ClientHello::decode_rest(client, rest)?, key }
        }
        Opening::Peer(hello) => Request::Peer(hello),
        Opening::Lane(hello) => Request::Lane(hello),
        Opening::Upgrade(hello) => Request::Upgrade(hello),
    };
    input.finish()?;
    connection.socket().set_write_timeout(None)?;
    Ok(Caller { request, connection, client: None, invitation: None })
}

/// What both ends agree on, or a refusal that the caller has been told.
fn agree(connection: &mut Connection, agreed: Result<u16, VersionMismatch>) -> Result<u16, AcceptError> {
    agreed.map_err(|mismatch| {
        let refusal = Response::Refused { text: mismatch.to_string().into() };
        // The caller may be gone already; the reason is reported either way.
        let _ = connection.send_handshake(|out| refusal.encode(out));
        mismatch.into()
    })
}

/// The server's end of the proofs. The caller's first message shows that it holds the secret that it comes
/// with. Returns whose that is, if it is a client's own key or invitation.
fn prove_key(
    mut clear: Connection,
    preface: &Preface,
    bytes: &[u8],
    key: &Key,
    secrets: &impl Secrets,
    deadline: Instant,
) -> Result<(Connection, Option<(ClientName, KeyId)>), AcceptError> {
    let mut id = [0; 8];
    if preface.secret != Secret::Key {
        receive(&mut clear, &mut id, deadline)?;
    }
    let secret = match preface.secret {
        Secret::Key => Ok(key.clone()),
        Secret::Ticket => {
            let ticket = secrets.ticket(TicketId(id));
            ticket.map(|ticket| Key::of_ticket(&ticket)).ok_or(AcceptError::NoSession)
        }
        Secret::ClientKey => secrets.client_key(KeyId(id)).map_err(AcceptError::from),
        Secret::Invitation => secrets.invitation(KeyId(id)).map_err(AcceptError::from),
    };
    let mut message = [0; MESSAGE_SIZE];
    receive(&mut clear, &mut message, deadline)?;
    let begun = secret.and_then(|secret| {
        let mut handshake = Handshake::server(&secret, bytes);
        handshake.read(&message)?;
        Ok((handshake, secret.client()))
    });
    let (mut handshake, client) = begun.inspect_err(|error| match (error, preface.secret) {
        (AcceptError::ClientNotAccepted(cause), _) => refuse(&clear, &cause.to_string()),
        (_, Secret::Ticket) => refuse(&clear, "the ticket is not from this server, or its session has ended"),
        (_, Secret::Invitation) => refuse(&clear, "the invitation is not this server's"),
        (_, Secret::Key | Secret::ClientKey) => {
            refuse(&clear, &format!("{WRONG_KEY}: `causeway key show` prints its connect string there"));
        }
    })?;
    let mut response = PrefaceResponse::Continue.to_bytes().to_vec();
    response.extend(handshake.write());
    write(&clear, &response)?;
    let keys = handshake.finish(preface.protection == Protection::Authenticated);
    let connection = Connection::new(clear.socket().try_clone()?, Some(keys));
    Ok((connection, client.map(|client| (client, KeyId(id)))))
}

fn receive(connection: &mut Connection, into: &mut [u8], deadline: Instant) -> Result<(), AcceptError> {
    connection.incoming.receive_exact(into, deadline).map_err(|error| HandshakeReadError::Io(error).into())
}

fn write(connection: &Connection, bytes: &[u8]) -> io::Result<()> {
    (&**connection.socket()).write_all(bytes)
}

/// Tells a caller in the clear why it is refused.
fn refuse(connection: &Connection, text: &str) {
    debug_assert!(text.len() <= MAX_REFUSAL);
    let mut bytes = PrefaceResponse::Refused { length: text.len() as u16 }.to_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    // The caller may be gone already; it is refused either way.
    let _ = write(connection, &bytes);
    causeway_connection::channel::end_after_goodbye(connection.socket());
}

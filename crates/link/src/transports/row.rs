//! Row of the transport table.

use core::fmt;
use std::io;
use std::time::Duration;

use causeway_access::Target;
use causeway_connection::channel::Connection;
use causeway_pipeline::TransportKind;
use causeway_transport::Parts;
use causeway_wire::handshake::{LaneToken, SessionId, UpgradeHello};

use super::facts::Facts;
use crate::handshake::lanes::Purpose;
use crate::handshake::options::ConnectOptions;

/// What a transport can be expected to cost: nanoseconds for a message there and one back. Orders of
/// magnitude count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(pub u32);

/// Joins the other end; the connection is the one over which its session was asked for.
pub type Accept = fn(Upgrade, &Connection) -> Result<Parts, NotJoined>;

/// A row of the table: how one transport is judged, and how it joins two ends.
pub struct Transport {
    /// Which it is.
    pub kind: TransportKind,
    /// What it costs where all is well. While a cheaper one works nobody looks for facts about this one.
    pub at_best: Cost,
    /// What it costs here; or why it cannot be used, as a sentence without its full stop. Pure.
    pub probe: fn(&Facts<'_>) -> Result<Cost, String>,
    /// Joins this end of a granted session to the other one.
    pub dial: fn(&mut Dialling<'_>) -> Result<Parts, NotJoined>,
    /// Joins the other end, which asks for that on a connection of its own. A transport that is asked for in
    /// another way has none.
    pub accept: Option<Accept>,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A session, or a way between two workers, that has been granted and now gets its transport.
#[derive(Debug)]
pub struct Dialling<'a> {
    /// What is known of both ends.
    pub facts: Facts<'a>,
    pub(crate) target: &'a Target,
    pub(crate) options: &'a ConnectOptions,
    pub(crate) purpose: Purpose,
    pub(crate) lanes: u32,
    pub(crate) connection: Option<Connection>,
    /// For how long the link may be without a connection, where the transport can go on with another one.
    pub(crate) resume: Duration,
}

impl Dialling<'_> {
    /// Names the session.
    pub fn session(&self) -> SessionId {
        self.purpose.session()
    }

    /// What proves that a further connection belongs to it.
    pub fn token(&self) -> LaneToken {
        self.purpose.token()
    }

    /// The connection over which it was granted. It ends with the session.
    ///
    /// # Panics
    /// When it has been [taken](Self::take_connection).
    pub fn connection(&self) -> &Connection {
        self.connection
            .as_ref()
            .expect("a transport that has taken the connection is the last one that is tried")
    }

    /// The same for a transport that goes on on it. Whoever has taken it must carry the session or fail it.
    ///
    /// # Panics
    /// When it has been taken before.
    pub fn take_connection(&mut self) -> Connection {
        self.connection
            .take()
            .expect("a transport that has taken the connection is the last one that is tried")
    }
}

/// Why a transport does not join two ends.
#[derive(Debug)]
pub enum NotJoined {
    /// It cannot be used, for this reason; another one is tried, or the session goes on as it was.
    Unusable(String),
    /// This machine has nothing left to give; no other is tried.
    System(io::Error),
}

impl From<io::Error> for NotJoined {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// What the other end asks for on a connection of its own, to go on over another transport: what it would like, and that
/// connection.
#[derive(Debug)]
pub struct Upgrade {
    pub(super) hello: UpgradeHello,
    pub(super) connection: Box<Connection>,
}

impl Upgrade {
    /// What came on `connection`.
    pub fn new(hello: UpgradeHello, connection: Connection) -> Self {
        Self { hello, connection: Box::new(connection) }
    }
}

/// The transport that is asked for.
pub fn upgrade_kind(hello: &UpgradeHello) -> TransportKind {
    match hello {
        UpgradeHello::Join(_) => TransportKind::Shm,
        UpgradeHello::Verbs(_) => TransportKind::Verbs,
    }
}

/// A transport between hosts is asked for at a socket of this one.
pub(super) const ONLY_WITHIN_A_HOST: &str =
    "a Unix socket leads to memory that program and server share (shm), and to nothing else";

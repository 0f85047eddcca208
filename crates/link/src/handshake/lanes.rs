//! Opening of a session's bulk lanes over TCP.

use std::time::Duration;

use causeway_access::Target;
use causeway_connection::channel::Connection;
use causeway_transport_tcp::{DialLanes, NotOpened};
use causeway_wire::frame::MAX_OPENING;
use causeway_wire::handshake::{LaneHello, LaneToken, Opening, PeerHello, Response, SessionId};

use super::error::{ConnectError, misunderstood};
use super::hello::{Proof, open};
use super::options::ConnectOptions;
use super::relocations::Location;

/// Opens the bulk lanes of a session.
#[derive(Debug)]
pub(crate) struct LaneDialer {
    pub(crate) target: Target,
    pub(crate) options: ConnectOptions,
    pub(crate) purpose: Purpose,
    pub(crate) lanes: u32,
}

/// What the connections of a link belong to, and how that is proved.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    /// A client's session.
    Session { session: SessionId, token: LaneToken },
    /// The way from another server's worker to that of this session.
    Peer { session: SessionId, ticket: LaneToken },
}

impl Purpose {
    /// Names the session.
    pub(crate) fn session(&self) -> SessionId {
        match self {
            Self::Session { session, .. } | Self::Peer { session, .. } => *session,
        }
    }

    /// The session's token, or the ticket of the way.
    pub(crate) fn token(&self) -> LaneToken {
        match self {
            Self::Session { token, .. } => *token,
            Self::Peer { ticket, .. } => *ticket,
        }
    }

    /// What a caller proves itself with on a further connection.
    pub(crate) fn proof(&self) -> Proof {
        match self {
            Self::Session { .. } => Proof::Key,
            Self::Peer { ticket, .. } => Proof::Ticket(*ticket),
        }
    }
}

impl DialLanes for LaneDialer {
    fn lanes(&self) -> u32 {
        self.lanes
    }

    fn time_left(&self) -> Option<Duration> {
        self.options.relocations.time_left()
    }

    fn open(&self, lane: u32) -> Result<Connection, NotOpened> {
        let relocations = &self.options.relocations;
        if lane != LaneHello::COMMANDS {
            let location = relocations.current(&self.target);
            return self.open_at(&location, lane);
        }
        let mut failure = NotOpened::Failed("there is nowhere to connect to".to_owned());
        for location in relocations.candidates(&self.target) {
            match self.open_at(&location, lane) {
                Ok(connection) => {
                    relocations.opened(location);
                    return Ok(connection);
                }
                Err(error) => failure = error,
            }
        }
        // While it is on its way it may be nowhere.
        match (failure, relocations.time_left()) {
            (NotOpened::Refused(text), Some(_)) => Err(NotOpened::Failed(text)),
            (failure, _) => Err(failure),
        }
    }
}

impl LaneDialer {
    fn open_at(&self, location: &Location, lane: u32) -> Result<Connection, NotOpened> {
        let encode = |out: &mut Vec<u8>| match self.purpose {
            Purpose::Session { session, token } => {
                Opening::encode_lane(&LaneHello { session, token, lane }, out);
            }
            Purpose::Peer { session, ticket } => {
                Opening::encode_peer(&PeerHello { session, ticket, connection: lane + 1 }, out);
            }
        };
        let proof = location.ticket.map_or_else(|| self.purpose.proof(), Proof::Ticket);
        let opened = open_lane(&location.target, proof, &self.options, "a bulk lane", encode);
        opened.map_err(|error| match error {
            ConnectError::Refused { .. } => NotOpened::Refused(error.to_string()),
            other => NotOpened::Failed(other.to_string()),
        })
    }
}

/// Opens a connection that is answered with no more than that it is taken.
pub(crate) fn open_lane(
    target: &Target,
    proof: Proof,
    options: &ConnectOptions,
    request: &str,
    encode: impl FnOnce(&mut Vec<u8>),
) -> Result<Connection, ConnectError> {
    // Nothing has to be started for it: who does not answer is dead, as one is that falls silent later.
    let response_timeout =
        options.response_timeout.min(options.keepalive.connection.max(options.preface_timeout));
    let options = ConnectOptions { response_timeout, ..options.clone() };
    let (connection, response) = open(target, proof, &options, MAX_OPENING, encode)?;
    match response {
        Response::LaneReady => Ok(connection),
        Response::Refused { text } => Err(ConnectError::Refused { target: target.to_string(), text }),
        other => Err(misunderstood(target, request, &other)),
    }
}

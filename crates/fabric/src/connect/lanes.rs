//! How are the bulk lanes of a session over TCP opened?

use causeway_access::Target;
use causeway_connection::channel::Connection;
use causeway_pipeline::MOST_LANES;
use causeway_wire::frame::MAX_OPENING;
use causeway_wire::handshake::{Answer, LaneHello, LaneToken, Opening, PeerHello, SessionId};

use super::error::misunderstood;
use super::first_words::{Proof, open};
use super::{ConnectError, ConnectOptions};

/// What `CAUSEWAY_LANES` says, if that is a number of lanes that a session may have.
pub(super) fn lanes_asked_for() -> Option<u32> {
    let lanes = std::env::var("CAUSEWAY_LANES").ok()?.parse().ok()?;
    (1..=MOST_LANES).contains(&lanes).then_some(lanes)
}

/// Opens the bulk lanes of a session.
#[derive(Debug)]
pub(crate) struct LaneDialer {
    pub(super) target: Target,
    pub(super) options: ConnectOptions,
    pub(super) purpose: Purpose,
    pub(super) lanes: u32,
}

/// What the lanes of a link belong to, and how that is proved.
#[derive(Debug)]
pub(super) enum Purpose {
    /// A client's session.
    Session { session: SessionId, token: LaneToken },
    /// The way from another server's worker to that of this session.
    Peer { session: SessionId, ticket: LaneToken },
}

impl LaneDialer {
    /// How many lanes there are to open.
    pub(crate) fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Opens one lane.
    pub(crate) fn open(&self, lane: u32) -> Result<Connection, ConnectError> {
        let proof = match self.purpose {
            Purpose::Session { .. } => Proof::Key,
            Purpose::Peer { ticket, .. } => Proof::Ticket(ticket),
        };
        let encode = |out: &mut Vec<u8>| match self.purpose {
            Purpose::Session { session, token } => {
                Opening::encode_lane(&LaneHello { session, token, lane }, out);
            }
            Purpose::Peer { session, ticket } => {
                Opening::encode_peer(&PeerHello { session, ticket, connection: lane + 1 }, out);
            }
        };
        open_lane(&self.target, proof, &self.options, "a bulk lane", encode)
    }
}

/// Opens a connection that is answered with no more than that it is taken.
pub(super) fn open_lane(
    target: &Target,
    proof: Proof,
    options: &ConnectOptions,
    asked: &str,
    encode: impl FnOnce(&mut Vec<u8>),
) -> Result<Connection, ConnectError> {
    let (connection, answer) = open(target, proof, options, MAX_OPENING, encode)?;
    match answer {
        Answer::LaneReady => Ok(connection),
        Answer::Refused { text } => Err(ConnectError::Refused { target: target.to_string(), text }),
        other => Err(misunderstood(target, asked, &other)),
    }
}

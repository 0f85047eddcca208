//! The bulk lanes of a session over TCP: how many, and how one is opened.

use std::time::Duration;

use causeway_wire::frame::MAX_OPENING;
use causeway_wire::handshake::{Answer, LaneHello, LaneToken, Opening, PeerHello, SessionId};

use super::error::misunderstood;
use super::first_words::{Proof, open};
use super::{ConnectError, ConnectOptions};
use crate::target::Target;
use crate::tcp::channel::Connection;

/// Bulk lanes that a client opens at least unless `CAUSEWAY_LANES` says otherwise. Measured over TCP on a machine
/// with an H200, 1 / 2 / 4 / 8 lanes carry 6.9 / 12.9 / 24.6 / 39.0 GB/s; a lane costs a thread at each end.
pub const DEFAULT_LANES: u32 = 4;

/// The same where there are cores for that many threads.
const LANES_OF_MANY_CORES: u32 = 8;

/// How many lanes a client with so many cores opens at least.
fn least_lanes(cores: usize) -> u32 {
    if cores >= LANES_OF_MANY_CORES as usize { LANES_OF_MANY_CORES } else { DEFAULT_LANES }
}

/// The most lanes a session may have.
pub const MOST_LANES: u32 = 32;

/// The most lanes that a session opens because its network is long.
pub(super) const MOST_FOR_DISTANCE: u32 = 16;

/// The round trip that one more lane is opened for. The kernel keeps up to 4 MiB under way on a connection (the
/// third number of `net.ipv4.tcp_wmem`), and fills two thirds of it with data, so that a lane carries 2.7 MiB in each
/// round trip: 2.2 GB/s at this one, and with [`DEFAULT_LANES`] 10 Gbit/s up to 8 ms.
const A_LANE_EACH: Duration = Duration::from_micros(1250);

/// How many lanes keep a network full whose round trip is this long: what is under way must grow with it.
pub(crate) fn lanes_by_distance(round_trip: Duration) -> u32 {
    let wanted = round_trip.as_micros().div_ceil(A_LANE_EACH.as_micros());
    wanted.min(MOST_FOR_DISTANCE.into()) as u32
}

/// Whether the length of a network asks for more lanes than every session has.
pub(crate) fn is_long(round_trip: Duration) -> bool {
    lanes_by_distance(round_trip) > DEFAULT_LANES
}

/// How many lanes a session opens over a network whose round trip is this long.
pub(super) fn lanes_for(round_trip: Duration, cores: usize) -> u32 {
    lanes_by_distance(round_trip).max(least_lanes(cores))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_follow_the_length_of_the_network() {
        let lanes = |microseconds| lanes_for(Duration::from_micros(microseconds), 2);
        assert_eq!([0, 50, 5_000].map(lanes), [DEFAULT_LANES; 3]);
        assert_eq!([5_001, 10_000, 20_000, 300_000].map(lanes), [5, 8, 16, 16]);
        assert_eq!(
            [0, 5_000, 5_001].map(|length| is_long(Duration::from_micros(length))),
            [false, false, true]
        );
        assert_eq!(lanes_for(Duration::ZERO, 16), 8);
    }
}

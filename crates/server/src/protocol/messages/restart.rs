//! Hot restart messages: what a running broker and the one that takes its place say to each other.
//!
//! The two may be of different releases: [`PROTOCOL`] says whether they understand each other, and its message never
//! changes.

use causeway_connection::record::ConnectionKeys;
use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};
use causeway_wire::handshake::{LaneHello, LaneToken, PeerHello, TicketId, UpgradeHello};
use causeway_wire::record;
use causeway_wire::status::SessionStatus;

use super::to_broker::Token;
use super::to_monitor::WorkerOf;
use crate::admission::Source;

/// The version of these messages. It goes up with every change of one of them.
pub const PROTOCOL: u32 = 1;

/// What the two brokers say. The parent is the one that runs, the child the one that it has started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestartMessage {
    /// The child is ready to take over, and speaks this version.
    TakeOver { protocol: u32 },
    /// The parent gives a listening socket, which comes along.
    Listener(ListenerAddress),
    /// The parent's processes have these users.
    Users(Vec<u32>),
    /// A session that stays with the parent.
    Session(RemainingSession),
    /// The child has all and may accept callers.
    HandedOver,
    /// The child cannot take over, for this reason.
    Refused { text: String },
    /// The child accepts callers.
    Listening,
    /// The child was called by somebody who wants to get to a session that it does not have. The connection comes along.
    Caller { request: SessionRequest, keys: Option<ConnectionKeys> },
    /// A session that stayed with the parent has ended.
    Ended { worker: u32 },
    /// The child stops, and the parent is to end its sessions.
    Stop,
    /// Either asks the other.
    Query { number: u32, query: RestartQuery },
    /// The reply to the query with this number; a descriptor may come along.
    Reply { number: u32, reply: RestartReply },
}

/// Which listening socket it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenerAddress {
    /// That for callers from the network, by the address in the configuration.
    Network(String),
    /// That for metrics, by the address in the configuration.
    Metrics(String),
    /// A Unix socket with a name from the configuration.
    Named(String),
    /// A Unix socket that is announced to clients.
    Announced(String),
}

/// A session that stays with the broker that started its worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemainingSession {
    /// Whose part of all sessions it is.
    pub source: Source,
    /// Its worker.
    pub worker: WorkerOf,
}

record!(RemainingSession { source, worker });

/// What leads to a session that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionRequest {
    /// A bulk lane.
    Lane(LaneHello),
    /// A change over to another transport.
    Upgrade(UpgradeHello),
    /// Another server's worker.
    Peer(PeerHello),
}

/// What a broker asks the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartQuery {
    /// The ticket with this id.
    Ticket(TicketId),
    /// The open sessions but the first `skipped` ones.
    Sessions { skipped: u32 },
    /// What is exported under this token.
    Export(Token),
}

/// The reply to a [`RestartQuery`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestartReply {
    /// The ticket, if it is there.
    Ticket(Option<LaneToken>),
    /// The next sessions; none where there are no more.
    Sessions(Vec<SessionStatus>),
    /// The exported bytes, if there are any.
    Export(Option<Vec<u8>>),
}

/// Implements `Encode` and `Decode` for an enum: a number for each variant, and its fields in their order.
macro_rules! tagged {
    ($type:ident, $what:literal { $($number:literal: $variant:ident $(($value:ident))? $({ $($field:ident),* })?;)* }) => {
        impl Encode for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $(($value))? $({ $($field),* })? => {
                        $number.encode(out);
                        $($value.encode(out);)?
                        $($($field.encode(out);)*)?
                    })*
                }
            }
        }

        impl<'a> Decode<'a> for $type {
            fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
                match input.value::<u8>()? {
                    $($number => Ok(Self::$variant $(({ let $value = input.value()?; $value }))? $({ $($field: input.value()?),* })?),)*
                    other => Err(DecodeError::UnknownTag { what: $what, value: u64::from(other) }),
                }
            }
        }
    };
}

tagged!(RestartMessage, "message between brokers" {
    1_u8: TakeOver { protocol };
    2_u8: Listener(address);
    3_u8: Users(users);
    4_u8: Session(session);
    5_u8: HandedOver;
    6_u8: Refused { text };
    7_u8: Listening;
    8_u8: Caller { request, keys };
    9_u8: Ended { worker };
    10_u8: Stop;
    11_u8: Query { number, query };
    12_u8: Reply { number, reply };
});

tagged!(ListenerAddress, "listening socket" {
    1_u8: Network(address);
    2_u8: Metrics(address);
    3_u8: Named(name);
    4_u8: Announced(name);
});

const LANE: u8 = 1;
const PEER: u8 = 4;

impl Encode for SessionRequest {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Lane(hello) => {
                LANE.encode(out);
                hello.encode(out);
            }
            Self::Peer(hello) => {
                PEER.encode(out);
                hello.encode(out);
            }
            // Its own number is none of those above.
            Self::Upgrade(hello) => hello.encode(out),
        }
    }
}

impl<'a> Decode<'a> for SessionRequest {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            LANE => Ok(Self::Lane(input.value()?)),
            PEER => Ok(Self::Peer(input.value()?)),
            number => UpgradeHello::decode_numbered(number, input).map(Self::Upgrade),
        }
    }
}

tagged!(RestartQuery, "query between brokers" {
    1_u8: Ticket(id);
    2_u8: Sessions { skipped };
    3_u8: Export(token);
});

tagged!(RestartReply, "reply between brokers" {
    1_u8: Ticket(ticket);
    2_u8: Sessions(sessions);
    3_u8: Export(bytes);
});

#[cfg(test)]
mod tests {
    use causeway_wire::handshake::{JoinHello, SessionId};

    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent_and_others_are_refused() {
        let worker = WorkerOf { worker: 7, client: 8, host: "host".into() };
        let (session, token) = (SessionId([1; 16]), LaneToken([2; 32]));
        let lane = LaneHello { session, token, lane: 3 };
        let upgrade = UpgradeHello::Join(JoinHello { session, token });
        for message in [
            RestartMessage::TakeOver { protocol: PROTOCOL },
            RestartMessage::Listener(ListenerAddress::Named("@name".to_owned())),
            RestartMessage::Users(vec![1, 2]),
            RestartMessage::Session(RemainingSession { source: Source::User(4), worker }),
            RestartMessage::HandedOver,
            RestartMessage::Caller { request: SessionRequest::Lane(lane), keys: None },
            RestartMessage::Caller { request: SessionRequest::Upgrade(upgrade), keys: None },
            RestartMessage::Query { number: 5, query: RestartQuery::Ticket(TicketId([6; 8])) },
            RestartMessage::Reply { number: 5, reply: RestartReply::Export(Some(vec![9])) },
        ] {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let mut input = Decoder::new(&bytes);
            assert_eq!(input.value::<RestartMessage>().unwrap(), message);
            input.finish().unwrap();
            assert!(
                Decoder::new(&bytes[..bytes.len() - 1]).value::<RestartMessage>().is_err()
                    || bytes.len() == 1
            );
        }
        assert!(matches!(Decoder::new(&[99]).value::<RestartMessage>(), Err(DecodeError::UnknownTag { .. })));
        // Whatever else changes, this one does not: by it two releases learn that they do not understand each other.
        let mut bytes = Vec::new();
        RestartMessage::TakeOver { protocol: 0x0403_0201 }.encode(&mut bytes);
        assert_eq!(bytes, [1, 1, 2, 3, 4]);
    }
}

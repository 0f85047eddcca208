//! Moves of sessions: what a caller that moves one, or puts one aside, asks the servers.
//!
//! The questions come over a status session, one session for each move. When that ends before the server has been told to
//! proceed, or the client has come, everything is as it was.

use std::time::Duration;

use crate::codec::{Decode, DecodeError, Decoder, Encode};
use crate::handshake::{LaneToken, SessionId};
use crate::relocation::Relocation;
use crate::text::Printable;

/// The most bytes of a session's state in one message.
pub const MAX_STATE_PIECE: usize = 4 << 20;

/// How long a worker waits for a quiet point of its session, in all. Whoever waits for that worker waits longer, so that
/// its error arrives.
pub const QUIET_TIMEOUT: Duration = Duration::from_secs(30);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveRequest {
    /// Hold a session, and write its state. Granted to the server's own user and to root, at a socket of its host.
    Hold {
        /// The session.
        session: SessionId,
        /// Where its client is to go.
        relocation: Relocation,
        /// Whether its worker ends once the client has heard of it.
        stops: bool,
    },
    /// Hold the caller's own session at a quiet point, until the state has gone to the session of a fork.
    /// Granted to whoever knows the session's token.
    HoldForFork {
        /// The session.
        session: SessionId,
        /// Its token.
        token: LaneToken,
        /// By what the fork asks for its session.
        ticket: LaneToken,
    },
    /// No process forks after all: the session that is held goes on.
    Stay,
    /// Has the session been held?
    IsHeld,
    /// Bytes of the state, from here on, also while it is being written.
    Read {
        /// How many come before them.
        offset: u64,
    },
    /// The state is elsewhere: the client may go.
    Proceed,
    /// Where is the client of the session that was held?
    Where,
    /// The session is elsewhere: its worker ends.
    Leave,
    /// Take up a session. Granted to callers that may have one.
    TakeUp,
    /// The next bytes of its state. Several may be under way before the first is answered.
    Write {
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// That was all.
    Restore,
    /// Has the session been taken up, and has its client come?
    IsRestored,
    /// End the session that was taken up, if its client has not come.
    Abandon,
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveReply {
    /// It is being done.
    Pending,
    /// It is done.
    Done,
    /// The session is held, and its state has so many bytes.
    Held {
        /// The bytes.
        bytes: u64,
    },
    /// Bytes of the state.
    State {
        /// The bytes; none where no more will come.
        bytes: Vec<u8>,
    },
    /// The client has come back, and the session goes on there.
    Returned {
        /// Why, for people.
        text: Printable,
    },
    /// The session has ended.
    Ended,
    /// The client has come.
    Arrived {
        /// The session.
        session: SessionId,
    },
    /// It is not done.
    Refused {
        /// Why, as a sentence for the user.
        text: Printable,
    },
}

mod tag {
    pub const HOLD: u8 = 1;
    pub const IS_HELD: u8 = 2;
    pub const READ: u8 = 3;
    pub const PROCEED: u8 = 4;
    pub const WHERE: u8 = 5;
    pub const LEAVE: u8 = 6;
    pub const TAKE_UP: u8 = 12;
    pub const WRITE: u8 = 8;
    pub const RESTORE: u8 = 9;
    pub const IS_RESTORED: u8 = 10;
    pub const ABANDON: u8 = 11;
    pub const HOLD_FOR_FORK: u8 = 13;
    pub const STAY: u8 = 14;
    pub const PENDING: u8 = 1;
    pub const DONE: u8 = 2;
    pub const HELD: u8 = 3;
    pub const STATE: u8 = 4;
    pub const RETURNED: u8 = 5;
    pub const ENDED: u8 = 6;
    pub const ARRIVED: u8 = 7;
    pub const REFUSED: u8 = 8;
}

impl Encode for MoveRequest {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hold { session, relocation, stops } => {
                tag::HOLD.encode(out);
                session.encode(out);
                relocation.encode(out);
                stops.encode(out);
            }
            Self::HoldForFork { session, token, ticket } => {
                tag::HOLD_FOR_FORK.encode(out);
                (*session, *token, *ticket).encode(out);
            }
            Self::Stay => tag::STAY.encode(out),
            Self::IsHeld => tag::IS_HELD.encode(out),
            Self::Read { offset } => {
                tag::READ.encode(out);
                offset.encode(out);
            }
            Self::Proceed => tag::PROCEED.encode(out),
            Self::Where => tag::WHERE.encode(out),
            Self::Leave => tag::LEAVE.encode(out),
            Self::TakeUp => tag::TAKE_UP.encode(out),
            Self::Write { bytes } => {
                tag::WRITE.encode(out);
                bytes.as_slice().encode(out);
            }
            Self::Restore => tag::RESTORE.encode(out),
            Self::IsRestored => tag::IS_RESTORED.encode(out),
            Self::Abandon => tag::ABANDON.encode(out),
        }
    }
}

impl<'a> Decode<'a> for MoveRequest {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            tag::HOLD => {
                Ok(Self::Hold { session: input.value()?, relocation: input.value()?, stops: input.value()? })
            }
            tag::HOLD_FOR_FORK => Ok(Self::HoldForFork {
                session: input.value()?,
                token: input.value()?,
                ticket: input.value()?,
            }),
            tag::STAY => Ok(Self::Stay),
            tag::IS_HELD => Ok(Self::IsHeld),
            tag::READ => Ok(Self::Read { offset: input.value()? }),
            tag::PROCEED => Ok(Self::Proceed),
            tag::WHERE => Ok(Self::Where),
            tag::LEAVE => Ok(Self::Leave),
            tag::TAKE_UP => Ok(Self::TakeUp),
            tag::WRITE => Ok(Self::Write { bytes: input.value::<&[u8]>()?.to_vec() }),
            tag::RESTORE => Ok(Self::Restore),
            tag::IS_RESTORED => Ok(Self::IsRestored),
            tag::ABANDON => Ok(Self::Abandon),
            other => Err(DecodeError::UnknownTag { what: "question about a move", value: u64::from(other) }),
        }
    }
}

impl Encode for MoveReply {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Pending => tag::PENDING.encode(out),
            Self::Done => tag::DONE.encode(out),
            Self::Held { bytes } => {
                tag::HELD.encode(out);
                bytes.encode(out);
            }
            Self::State { bytes } => {
                tag::STATE.encode(out);
                bytes.as_slice().encode(out);
            }
            Self::Returned { text } => {
                tag::RETURNED.encode(out);
                text.encode(out);
            }
            Self::Ended => tag::ENDED.encode(out),
            Self::Arrived { session } => {
                tag::ARRIVED.encode(out);
                session.encode(out);
            }
            Self::Refused { text } => {
                tag::REFUSED.encode(out);
                text.encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for MoveReply {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            tag::PENDING => Ok(Self::Pending),
            tag::DONE => Ok(Self::Done),
            tag::HELD => Ok(Self::Held { bytes: input.value()? }),
            tag::STATE => Ok(Self::State { bytes: input.value::<&[u8]>()?.to_vec() }),
            tag::RETURNED => Ok(Self::Returned { text: input.value()? }),
            tag::ENDED => Ok(Self::Ended),
            tag::ARRIVED => Ok(Self::Arrived { session: input.value()? }),
            tag::REFUSED => Ok(Self::Refused { text: input.value()? }),
            other => Err(DecodeError::UnknownTag { what: "answer about a move", value: u64::from(other) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::Protection;

    #[test]
    fn requests_and_replies_survive_the_wire() {
        let session = SessionId([7; 16]);
        let relocation = Relocation {
            address: "10.0.0.1:7000".to_owned(),
            protection: Protection::Encrypted,
            ticket: LaneToken([9; 32]),
            seconds: 60,
        };
        let requests = [
            MoveRequest::Hold { session, relocation, stops: true },
            MoveRequest::HoldForFork { session, token: LaneToken([1; 32]), ticket: LaneToken([2; 32]) },
            MoveRequest::Stay,
            MoveRequest::IsHeld,
            MoveRequest::Read { offset: 7 },
            MoveRequest::Proceed,
            MoveRequest::Where,
            MoveRequest::Leave,
            MoveRequest::TakeUp,
            MoveRequest::Write { bytes: vec![1, 2, 3] },
            MoveRequest::Restore,
            MoveRequest::IsRestored,
            MoveRequest::Abandon,
        ];
        for request in requests {
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            assert_eq!(Decoder::new(&bytes).value::<MoveRequest>().unwrap(), request);
        }
        let text = Printable::from("why");
        let replies = [
            MoveReply::Pending,
            MoveReply::Done,
            MoveReply::Held { bytes: 7 },
            MoveReply::State { bytes: vec![4, 5] },
            MoveReply::Returned { text: text.clone() },
            MoveReply::Ended,
            MoveReply::Arrived { session },
            MoveReply::Refused { text },
        ];
        for reply in replies {
            let mut bytes = Vec::new();
            reply.encode(&mut bytes);
            assert_eq!(Decoder::new(&bytes).value::<MoveReply>().unwrap(), reply);
        }
    }
}

//! Relocation of a session: where its client finds it from now on, and the state of the link that it takes up there.

use crate::codec::{Decode, DecodeError, Decoder, Encode};
use crate::handshake::{LaneToken, Protection};
use crate::record;

/// Where a session goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relocation {
    /// The server's address without a key; empty for the server that has had it.
    pub address: String,
    /// How connections to that server are protected.
    pub protection: Protection,
    /// The secret by which both ends know each other there, where connections are protected.
    pub ticket: LaneToken,
    /// For how many seconds the client tries to find it.
    pub seconds: u32,
}

record!(Relocation { address, protection, ticket, seconds });

impl Encode for Protection {
    fn encode(&self, out: &mut Vec<u8>) {
        let tag: u8 = match self {
            Self::Unprotected => 0,
            Self::Encrypted => 1,
            Self::Authenticated => 2,
        };
        tag.encode(out);
    }
}

impl<'a> Decode<'a> for Protection {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value::<u8>()? {
            0 => Ok(Self::Unprotected),
            1 => Ok(Self::Encrypted),
            2 => Ok(Self::Authenticated),
            other => Err(DecodeError::UnknownTag { what: "protection", value: u64::from(other) }),
        }
    }
}

/// The worker's end of a link that is between two frames: what another worker needs to go on with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkState {
    /// Frames that the worker has sent.
    pub sent: u64,
    /// Frames of the client that it has dealt with.
    pub received: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// Frames that the client has dealt with.
    pub acknowledged: u64,
    /// Bytes of frames before the first one in [`frames`](Self::frames).
    pub frames_start: u64,
    /// How many frames these were.
    pub frames_before: u64,
    /// Frames that the client may not have.
    pub frames: Vec<Vec<u8>>,
}

record!(LinkState { sent, received, received_bytes, acknowledged, frames_start, frames_before, frames });

impl LinkState {
    /// Whether the numbers fit each other: they come from another process.
    pub fn is_consistent(&self) -> bool {
        let count = self.frames.len() as u64;
        self.frames_before.checked_add(count) == Some(self.sent)
            && self.acknowledged <= self.sent
            && self.frames_before <= self.sent
            && self
                .frames_start
                .checked_add(self.frames.iter().map(|frame| frame.len() as u64).sum())
                .is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_do_not_fit_each_other_are_found() {
        let state = LinkState {
            sent: 7,
            received: 3,
            received_bytes: 100,
            acknowledged: 5,
            frames_start: 40,
            frames_before: 5,
            frames: vec![vec![1], vec![2, 3]],
        };
        assert!(state.is_consistent());
        assert!(!LinkState { sent: 8, ..state.clone() }.is_consistent());
        assert!(!LinkState { acknowledged: 8, ..state.clone() }.is_consistent());
        assert!(!LinkState { frames_before: u64::MAX, ..state.clone() }.is_consistent());
        assert!(!LinkState { frames_start: u64::MAX, ..state.clone() }.is_consistent());
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        assert_eq!(Decoder::new(&bytes).value::<LinkState>().unwrap(), state);
    }
}

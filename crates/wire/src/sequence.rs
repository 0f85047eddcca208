//! Sequence numbers and acknowledgements of one end of a command connection.
//!
//! Frames are numbered from 1 in each direction. Every frame also says which frame of the other direction its
//! sender has dealt with completely, so that either end knows what would have to be sent again after a lost
//! connection. Nothing is kept for that yet; the numbers are checked all the same, since a gap or a repeat
//! means that commands would be lost or run twice.

use thiserror::Error;

use crate::frame::{FrameHeader, FrameKind};

/// Why the numbers of a received frame do not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SequenceError {
    /// One or more frames before this one never came.
    #[error("received frame {found} instead of frame {expected}: frames were lost")]
    Gap {
        /// The number that was due.
        expected: u64,
        /// The number that came.
        found: u64,
    },
    /// The frame has been received before.
    #[error("received frame {found} again instead of frame {expected}")]
    Repeat {
        /// The number that was due.
        expected: u64,
        /// The number that came.
        found: u64,
    },
    /// The peer claims to have dealt with a frame that was never sent.
    #[error("the peer acknowledged frame {found}, but only {sent} were sent")]
    AcknowledgesUnsent {
        /// Number of the last frame sent.
        sent: u64,
        /// The acknowledgement that came.
        found: u64,
    },
    /// The peer takes back an acknowledgement.
    #[error("the peer acknowledged frame {found} after frame {before}")]
    AcknowledgementWentBack {
        /// The highest acknowledgement so far.
        before: u64,
        /// The acknowledgement that came.
        found: u64,
    },
    /// A handshake frame came in the middle of a session.
    #[error("received a handshake frame after the handshake")]
    HandshakeAgain,
}

/// Gives out and checks the numbers of one end of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sequencer {
    sent: u64,
    received: u64,
    processed: u64,
    acknowledged: u64,
}

impl Sequencer {
    /// The numbers at the start of a session.
    pub fn new() -> Self {
        Self::default()
    }

    /// The numbers of an end that takes up a link where another process has left it, between two frames.
    pub fn resumed(sent: u64, received: u64, acknowledged: u64) -> Self {
        Self { sent, received, processed: received, acknowledged }
    }

    /// How far the peer has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Numbers the next frame to send, whose body has `length` bytes.
    pub fn number(&mut self, length: u32) -> FrameHeader {
        self.sent += 1;
        FrameHeader {
            kind: FrameKind::Messages,
            length,
            sequence: self.sent,
            acknowledgement: self.processed,
        }
    }

    /// Checks the numbers of a received frame and takes note of them.
    pub fn accept(&mut self, header: &FrameHeader) -> Result<(), SequenceError> {
        if header.kind == FrameKind::Handshake {
            return Err(SequenceError::HandshakeAgain);
        }
        let (expected, found) = (self.received + 1, header.sequence);
        if found > expected {
            return Err(SequenceError::Gap { expected, found });
        }
        if found < expected {
            return Err(SequenceError::Repeat { expected, found });
        }
        let found = header.acknowledgement;
        if found > self.sent {
            return Err(SequenceError::AcknowledgesUnsent { sent: self.sent, found });
        }
        if found < self.acknowledged {
            return Err(SequenceError::AcknowledgementWentBack { before: self.acknowledged, found });
        }
        self.received = expected;
        self.acknowledged = found;
        Ok(())
    }

    /// Says that every frame received so far has been dealt with; the next frame sent tells the peer.
    pub fn processed_all(&mut self) {
        self.processed = self.received;
    }

    /// Number of the last frame sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Number of the last frame received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Frames sent that the peer has not acknowledged; after a lost connection these would be sent again.
    pub fn unacknowledged(&self) -> core::ops::RangeInclusive<u64> {
        self.acknowledged + 1..=self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ends_agree_on_what_was_dealt_with() {
        let (mut client, mut worker) = (Sequencer::new(), Sequencer::new());
        for _ in 0..3 {
            worker.accept(&client.number(10)).unwrap();
        }
        assert_eq!(client.unacknowledged(), 1..=3);
        worker.processed_all();
        worker.accept(&client.number(0)).unwrap();
        client.accept(&worker.number(5)).unwrap();
        assert_eq!(client.unacknowledged(), 4..=4);
        assert_eq!((worker.received(), worker.sent(), client.sent()), (4, 1, 4));
    }

    #[test]
    fn gaps_repeats_and_impossible_acknowledgements_are_errors() {
        let mut sender = Sequencer::new();
        let (first, second, third) = (sender.number(0), sender.number(0), sender.number(0));
        let mut end = Sequencer::new();
        assert_eq!(end.accept(&second), Err(SequenceError::Gap { expected: 1, found: 2 }));
        end.accept(&first).unwrap();
        assert_eq!(end.accept(&first), Err(SequenceError::Repeat { expected: 2, found: 1 }));
        let unsent = FrameHeader { acknowledgement: 1, ..second };
        assert_eq!(end.accept(&unsent), Err(SequenceError::AcknowledgesUnsent { sent: 0, found: 1 }));
        end.number(0);
        end.accept(&unsent).unwrap();
        assert_eq!(end.accept(&third), Err(SequenceError::AcknowledgementWentBack { before: 1, found: 0 }));
        let handshake = FrameHeader { kind: FrameKind::Handshake, ..third };
        assert_eq!(end.accept(&handshake), Err(SequenceError::HandshakeAgain));
    }
}

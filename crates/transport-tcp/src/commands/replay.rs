//! Frames that are kept until the peer has dealt with them, to be sent again on another connection.
//!
//! Pure: the caller says what is sent, what the peer has, and how far a connection is.

use std::collections::VecDeque;
use std::sync::Arc;

use thiserror::Error;

/// With more bytes kept than this whoever sends waits until the peer has dealt with some of them.
const MAX_HELD_BYTES: usize = 16 << 20;

/// With more than this the peer does not do its part: it acknowledges every mebibyte.
const MAX_UNACKNOWLEDGED: usize = 256 << 20;

/// Why frames cannot be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReplayError {
    /// The peer lacks what it has acknowledged, or has what was never sent.
    #[error(
        "the other end says that it has received {found} bytes; {sent} were sent, and it has acknowledged {acknowledged} of \
         them"
    )]
    Impossible {
        /// What it says.
        found: u64,
        /// What was sent.
        sent: u64,
        /// What it has acknowledged.
        acknowledged: u64,
    },
    /// The peer acknowledges nothing.
    #[error("the other end has not acknowledged the last {0} bytes of messages")]
    Unacknowledged(usize),
}

/// The frames that the peer may not have. Offsets count the bytes of all frames since the session began.
#[derive(Debug, Default)]
pub struct Replay {
    /// Each with its offset.
    frames: VecDeque<(u64, Arc<[u8]>)>,
    /// How many frames came before the first of these.
    acknowledged: u64,
    /// Where the first of these begins.
    start: u64,
    bytes_held: usize,
}

impl Replay {
    /// What another process has kept: frames from the byte `start` on, before which there were `acknowledged` others.
    pub fn resumed(acknowledged: u64, start: u64, frames: &[Vec<u8>]) -> Self {
        let mut replay = Self { acknowledged, start, ..Self::default() };
        for frame in frames {
            replay.frames.push_back((replay.end(), frame.as_slice().into()));
            replay.bytes_held += frame.len();
        }
        replay
    }

    /// How many frames are not kept any more, how many bytes those were, and the others.
    pub fn unacknowledged(&self) -> (u64, u64, Vec<Vec<u8>>) {
        (self.acknowledged, self.start, self.frames.iter().map(|(_, frame)| frame.to_vec()).collect())
    }

    /// Whether another frame may be sent without waiting.
    pub fn has_capacity(&self) -> bool {
        self.bytes_held < MAX_HELD_BYTES
    }

    /// Where the next frame begins.
    pub fn end(&self) -> u64 {
        self.start + self.bytes_held as u64
    }

    /// Keeps a frame, which is about to be sent.
    pub fn push(&mut self, frame: &[u8]) -> Result<(), ReplayError> {
        if self.bytes_held > MAX_UNACKNOWLEDGED {
            return Err(ReplayError::Unacknowledged(self.bytes_held));
        }
        self.frames.push_back((self.end(), frame.into()));
        self.bytes_held += frame.len();
        Ok(())
    }

    /// The peer has dealt with all frames up to the one of this number, counted from 1. Whether that is news.
    pub fn acknowledge(&mut self, frame: u64) -> bool {
        let before = self.acknowledged;
        while self.acknowledged < frame
            && let Some((_, first)) = self.frames.pop_front()
        {
            self.acknowledged += 1;
            self.start += first.len() as u64;
            self.bytes_held -= first.len();
        }
        self.acknowledged > before
    }

    /// An error if the peer cannot have received so many bytes.
    pub fn check(&self, received: u64) -> Result<(), ReplayError> {
        if (self.start..=self.end()).contains(&received) {
            return Ok(());
        }
        Err(ReplayError::Impossible { found: received, sent: self.end(), acknowledged: self.start })
    }

    /// The frame in which the byte at this offset lies, and where in it; nothing when no such byte has been sent.
    pub fn frame_at(&self, offset: u64) -> Option<(Arc<[u8]>, usize)> {
        let at = self.frames.partition_point(|(start, _)| *start <= offset).checked_sub(1)?;
        let (start, frame) = &self.frames[at];
        let from = (offset - start) as usize;
        (from < frame.len()).then(|| (Arc::clone(frame), from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_the_peer_cannot_have_is_an_error() {
        let mut replay = Replay::default();
        for frame in [&b"one"[..], b"two", b"three"] {
            replay.push(frame).unwrap();
        }
        assert!(replay.acknowledge(1) && !replay.acknowledge(1) && !replay.acknowledge(0));
        assert!((3..=11).all(|received| replay.check(received).is_ok()));
        let sent = |found| Err(ReplayError::Impossible { found, sent: 11, acknowledged: 3 });
        assert_eq!((replay.check(2), replay.check(12)), (sent(2), sent(12)));
        assert!(replay.acknowledge(9), "all that there are");
        assert_eq!((replay.end(), replay.frame_at(11)), (11, None));
    }

    #[test]
    fn a_peer_that_acknowledges_nothing_does_not_use_up_memory() {
        let mut replay = Replay::default();
        let frame = vec![0; MAX_UNACKNOWLEDGED / 8];
        let bytes_held = (0..100).take_while(|_| replay.push(&frame).is_ok()).count();
        assert_eq!((bytes_held, replay.has_capacity()), (9, false));
    }

    proptest! {
        #[test]
        fn what_the_peer_lacks_is_sent_again_byte_by_byte(
            lengths in proptest::collection::vec(1_usize..40, 1..30),
            acknowledged in 0_usize..30,
            lost in 0_u64..600,
        ) {
            let mut all = Vec::new();
            let mut replay = Replay::default();
            for (number, length) in lengths.iter().enumerate() {
                let frame: Vec<u8> = (0..*length).map(|at| (number * 41 + at) as u8).collect();
                replay.push(&frame).unwrap();
                all.extend(frame);
            }
            let acknowledged = acknowledged.min(lengths.len());
            replay.acknowledge(acknowledged as u64);
            let first: usize = lengths[..acknowledged].iter().sum();
            let received = (all.len() as u64).saturating_sub(lost).max(first as u64);
            replay.check(received).unwrap();
            let (mut at, mut again) = (received, Vec::<u8>::new());
            while let Some((frame, from)) = replay.frame_at(at) {
                again.extend(&frame[from..]);
                at += (frame.len() - from) as u64;
            }
            prop_assert_eq!(&again[..], &all[received as usize..]);
            prop_assert_eq!(at, replay.end());
        }
    }
}

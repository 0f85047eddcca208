//! Short messages that are offered. Where the receiver has the sender's buffer open, one copy by its GPU
//! brings the bytes, where two are needed through the host. But to open a buffer takes longer than many
//! short messages, and a sender of short messages expects to go on before they are received.
//!
//! So a buffer is offered from the ninth short message on. Where the receiver does not come to copy from it,
//! and takes no other channel that is quick for short messages either, they go with the MPI for a while. The
//! receiver measures its channels first, so that one message which went otherwise says nothing. A sender
//! whose offer is not taken soon takes it back; then short messages to that peer go with the MPI for a while,
//! each time for longer.

use std::collections::HashMap;

/// Short messages from a buffer before it is offered for the first time.
const MESSAGES_BEFORE_OFFER: u8 = 8;

/// Buffers that are known of each peer.
const MAX_BUFFERS: usize = 64;

/// Short messages from a buffer that the receiver may fetch with this rank's help alone: as many as it needs
/// to measure all channels, for several classes of sizes.
const MAX_HELPED_MESSAGES: u8 = 100;

/// Messages that go with the MPI after an offer that was taken back, or from a buffer that is not opened: at
/// first, and at most.
const MIN_PAUSE: u32 = 64;
const MAX_PAUSE: u32 = 1 << 16;

/// What is known of a buffer and a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// So many short messages have gone with the MPI.
    Counted(u8),
    /// So many were fetched with this rank's help alone. The pause that follows where none is fetched
    /// otherwise.
    Helped(u8, u32),
    /// The peer copies from it, or fetches from it by a channel that is quick.
    Open,
    /// The peer does not seem to be able to: so many more go with the MPI, and the pause after that.
    Closed(u32, u32),
}

#[derive(Debug, Default)]
struct Peer {
    /// The one that was used last stands at the end.
    buffers: Vec<(u64, State)>,
    /// So many messages go with the MPI from now on.
    left: u32,
    pause: u32,
}

impl Peer {
    /// What is known of a buffer, which is then the one that was used last.
    fn state(&mut self, buffer: u64) -> &mut State {
        let entry = match self.buffers.iter().position(|(known, _)| *known == buffer) {
            Some(at) => self.buffers.remove(at),
            None => {
                if self.buffers.len() == MAX_BUFFERS {
                    self.buffers.remove(0);
                }
                (buffer, State::Counted(0))
            }
        };
        self.buffers.push(entry);
        // It was pushed just now.
        let last = self.buffers.len() - 1;
        &mut self.buffers[last].1
    }
}

/// Decides about the short messages of a rank.
#[derive(Debug, Default)]
pub(crate) struct ShortMessages {
    peers: HashMap<u32, Peer>,
}

impl ShortMessages {
    /// Whether a short message from a buffer is offered to a peer.
    pub(crate) fn is_offered(&mut self, peer: u32, buffer: u64) -> bool {
        let peer = self.peers.entry(peer).or_default();
        if peer.left > 0 {
            peer.left -= 1;
            return false;
        }
        match peer.state(buffer) {
            State::Open | State::Helped(..) => true,
            State::Closed(left, _) if *left > 0 => {
                *left -= 1;
                false
            }
            State::Closed(_, pause) => {
                let pause = *pause;
                *peer.state(buffer) = State::Helped(0, pause);
                true
            }
            State::Counted(count) if *count < MESSAGES_BEFORE_OFFER => {
                *count += 1;
                false
            }
            State::Counted(_) => true,
        }
    }

    /// A peer has fetched something from a buffer: in a way that pays for short messages (by itself, or by a
    /// channel that is quick), or in another, which says of one that is open nothing new.
    pub(crate) fn fetched(&mut self, peer: u32, buffer: u64, pays: bool) {
        let state = self.peers.entry(peer).or_default().state(buffer);
        *state = match *state {
            _ if pays => State::Open,
            State::Counted(count) if count >= MESSAGES_BEFORE_OFFER => State::Helped(1, MIN_PAUSE),
            State::Helped(count, pause) if count + 1 >= MAX_HELPED_MESSAGES => {
                State::Closed(pause, (pause * 2).min(MAX_PAUSE))
            }
            State::Helped(count, pause) => State::Helped(count + 1, pause),
            state => state,
        };
    }

    /// A short message was not fetched soon.
    pub(crate) fn detached(&mut self, peer: u32) {
        let peer = self.peers.entry(peer).or_default();
        peer.pause = (peer.pause * 2).clamp(MIN_PAUSE, MAX_PAUSE);
        peer.left = peer.pause;
    }

    /// A short message was.
    pub(crate) fn succeeded(&mut self, peer: u32) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.pause = 0;
        }
    }

    /// Nothing is known of a peer that has gone.
    pub(crate) fn forget(&mut self, peer: u32) {
        self.peers.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(messages: &mut ShortMessages, peer: u32, buffer: u64, count: usize) -> usize {
        (0..count).filter(|_| messages.is_offered(peer, buffer)).count()
    }

    #[test]
    fn a_buffer_is_offered_when_it_pays_and_stays_so_where_it_is_opened() {
        let mut messages = ShortMessages::default();
        assert_eq!(offered(&mut messages, 1, 7, 8), 0);
        assert!(messages.is_offered(1, 7) && !messages.is_offered(2, 7) && !messages.is_offered(1, 8));
        messages.fetched(1, 7, true);
        // Measuring another channel says nothing of the buffer.
        messages.fetched(1, 7, false);
        assert_eq!(offered(&mut messages, 1, 7, 5), 5);
        // A long message has opened it.
        messages.fetched(2, 9, true);
        assert!(messages.is_offered(2, 9));
        messages.forget(2);
        assert!(!messages.is_offered(2, 9));
    }

    #[test]
    fn a_channel_that_needs_the_sender_closes_no_buffer() {
        let mut messages = ShortMessages::default();
        // A long message that went otherwise says nothing yet.
        messages.fetched(1, 7, false);
        assert_eq!(offered(&mut messages, 1, 7, 9), 1);
        // The receiver measures.
        for _ in 0..MAX_HELPED_MESSAGES - 1 {
            messages.fetched(1, 7, false);
            assert!(messages.is_offered(1, 7));
        }
        messages.fetched(1, 7, true);
        assert_eq!(offered(&mut messages, 1, 7, 1000), 1000);
    }

    #[test]
    fn one_that_is_never_opened_is_offered_less_and_less_and_not_given_up() {
        let mut messages = ShortMessages::default();
        assert_eq!(offered(&mut messages, 1, 7, 9), 1);
        let mut pauses = Vec::new();
        for _ in 0..3 {
            for _ in 0..MAX_HELPED_MESSAGES {
                messages.fetched(1, 7, false);
            }
            pauses.push((0..).take_while(|_| !messages.is_offered(1, 7)).count());
        }
        assert_eq!(pauses, [64, 128, 256]);
    }

    #[test]
    fn offers_that_are_taken_back_are_made_less_and_less() {
        let mut messages = ShortMessages::default();
        messages.fetched(1, 7, true);
        let mut gone = Vec::new();
        for _ in 0..3 {
            messages.detached(1);
            gone.push((0..).take_while(|_| !messages.is_offered(1, 7)).count());
        }
        assert_eq!(gone, [64, 128, 256]);
        messages.succeeded(1);
        messages.detached(1);
        assert_eq!((0..).take_while(|_| !messages.is_offered(1, 7)).count(), 64);
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut messages = ShortMessages::default();
        for buffer in 0..1000 {
            messages.fetched(1, buffer, true);
        }
        assert_eq!(messages.peers[&1].buffers.len(), MAX_BUFFERS);
        assert!(messages.is_offered(1, 999) && !messages.is_offered(1, 1));
    }
}

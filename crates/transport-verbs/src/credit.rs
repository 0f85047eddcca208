//! Credit flow control: receives that are posted at the peer.
//!
//! A message that finds none makes the peer's card retry (RNR), again and again, and ends the connection
//! at last. So each side counts: for each queue pair and each *class* of messages it has as many credits as
//! the peer has receives posted, spends one with each message, and gets them back as the peer posts its
//! receives again. Credits travel with whatever is sent. Where nothing is, a message of its own carries them;
//! for these the peer has a few receives more, of which account is kept apart, so that a message about
//! credits is never owed for.
//!
//! *Frames* wait until the link's owner reads them, which may take as long as a command does. *Control*
//! messages are handled by the thread that polls, so what they say (memory is released, memory was written) gets
//! through whatever the frames do.
//!
//! Pure: no device and no clock.

use crate::error::Violation;

/// Receives for messages that only carry credits. At most four of them can be on their way (each returns at
/// least a quarter of a class's credits) before something comes back that acknowledges them; one more for
/// each class.
pub const CREDIT_UPDATE_RECEIVES: u32 = 10;

/// Messages with frames that may be under way where so many may be of the other class: they are long, and
/// batches of many commands.
pub const fn frames_of(depth: u32) -> u32 {
    depth.div_ceil(4)
}

/// What a message is counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Bytes of the link's frames.
    Frame,
    /// What the module says to its other end.
    Control,
}

/// What every message says besides its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Returned {
    /// Receives for frames that have been posted again.
    pub frames: u16,
    /// Receives for control messages.
    pub control: u16,
    /// Messages that only carried credits and have come.
    pub credit_updates: u8,
}

#[derive(Debug, Clone, Copy)]
struct Pool {
    /// Messages that may be sent now.
    free: u32,
    /// Messages sent so far.
    sent: u64,
    /// Receives posted again that the peer has not been notified of.
    owed: u32,
}

/// The credits of one queue pair, both directions.
#[derive(Debug, Clone)]
pub struct Credits {
    depth: u32,
    /// Receives of the peer for control messages.
    peer_depth: u32,
    frames: Pool,
    control: Pool,
    /// Messages with nothing but credits that the peer has not acknowledged.
    updates_in_flight: u32,
    /// Such messages of the peer that have not been acknowledged.
    updates_owed: u8,
}

impl Credits {
    /// At the start, when this side has receives posted for `depth` control messages and [so many](frames_of)
    /// with frames, and the peer for `peer_depth`.
    pub fn new(depth: u32, peer_depth: u32) -> Self {
        let pool = |free| Pool { free, sent: 0, owed: 0 };
        let (frames, control) = (pool(frames_of(peer_depth)), pool(peer_depth));
        Self { depth, peer_depth, frames, control, updates_in_flight: 0, updates_owed: 0 }
    }

    fn pool(&mut self, class: Class) -> &mut Pool {
        match class {
            Class::Frame => &mut self.frames,
            Class::Control => &mut self.control,
        }
    }

    /// Spends a credit; the message's number among those of its class. A number that is smaller by the peer's
    /// receives for the class belongs to a message that the peer has received, so what held its bytes is free
    /// again.
    pub fn spend(&mut self, class: Class) -> Option<u64> {
        let pool = self.pool(class);
        pool.free = pool.free.checked_sub(1)?;
        let number = pool.sent;
        pool.sent += 1;
        Some(number)
    }

    /// Whether there is a credit to spend.
    pub fn has(&self, class: Class) -> bool {
        let pool = match class {
            Class::Frame => &self.frames,
            Class::Control => &self.control,
        };
        pool.free > 0
    }

    /// A receive in which a message of the class was has been posted again.
    pub fn posted_again(&mut self, class: Class) {
        self.pool(class).owed += 1;
    }

    /// A message that only carried credits has come, and its receive has been posted again.
    pub fn credit_update_received(&mut self) {
        self.updates_owed = self.updates_owed.saturating_add(1);
    }

    /// Whether so many credits are owed that they are worth a message of their own, and one can be sent.
    /// Those for frames may wait longer: who gets a long message answers as a rule, and the answer takes them
    /// along.
    pub fn is_credit_update_due(&self) -> bool {
        let is_due = self.frames.owed >= frames_of(self.depth).div_ceil(2)
            || self.control.owed >= self.depth.div_ceil(4);
        is_due && self.updates_in_flight < CREDIT_UPDATE_RECEIVES
    }

    /// Takes note that a message with nothing but credits is sent.
    pub fn send_credit_update(&mut self) {
        self.updates_in_flight += 1;
    }

    /// What the next message returns.
    pub fn take_returned(&mut self) -> Returned {
        let take = |pool: &mut Pool| {
            let some = pool.owed.min(u32::from(u16::MAX));
            pool.owed -= some;
            some as u16
        };
        Returned {
            frames: take(&mut self.frames),
            control: take(&mut self.control),
            credit_updates: core::mem::take(&mut self.updates_owed),
        }
    }

    /// Takes in what a message of the peer returns.
    pub fn accept(&mut self, returned: Returned) -> Result<(), Violation> {
        let peer_depth = self.peer_depth;
        let add = |pool: &mut Pool, amount: u16, max: u32| {
            pool.free += u32::from(amount);
            if pool.free > max { Err(Violation::Credits) } else { Ok(()) }
        };
        add(&mut self.frames, returned.frames, frames_of(peer_depth))?;
        add(&mut self.control, returned.control, peer_depth)?;
        let acknowledged = self.updates_in_flight.checked_sub(returned.credit_updates.into());
        self.updates_in_flight = acknowledged.ok_or(Violation::Credits)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Clone, Copy)]
    enum Sent {
        Message(Class, Returned),
        Update(Returned),
    }

    /// Two sides, and the messages on their way from each.
    struct Pair {
        sides: [Credits; 2],
        wires: [VecDeque<Sent>; 2],
        /// Frames that have come and have not been read.
        unread: [u32; 2],
        depths: [u32; 2],
        received: [u32; 2],
    }

    impl Pair {
        fn new(depths: [u32; 2]) -> Self {
            let sides = [Credits::new(depths[0], depths[1]), Credits::new(depths[1], depths[0])];
            Self { sides, wires: Default::default(), unread: [0; 2], depths, received: [0; 2] }
        }

        fn send(&mut self, side: usize, class: Class) -> bool {
            if self.sides[side].spend(class).is_none() {
                return false;
            }
            let returned = self.sides[side].take_returned();
            self.wires[side].push_back(Sent::Message(class, returned));
            self.check(side);
            true
        }

        /// Never more under way than the other side has receives posted.
        fn check(&self, side: usize) {
            let other = 1 - side;
            let taken = self.wires[side].len() as u32 + self.unread[other];
            assert!(
                taken <= self.depths[other] + frames_of(self.depths[other]) + CREDIT_UPDATE_RECEIVES,
                "a message without a receive"
            );
        }

        fn receive(&mut self, side: usize) -> bool {
            let Some(sent) = self.wires[1 - side].pop_front() else { return false };
            match sent {
                Sent::Message(class, returned) => {
                    self.sides[side].accept(returned).unwrap();
                    self.received[side] += 1;
                    match class {
                        Class::Frame => self.unread[side] += 1,
                        Class::Control => self.sides[side].posted_again(class),
                    }
                }
                Sent::Update(returned) => {
                    self.sides[side].accept(returned).unwrap();
                    self.sides[side].credit_update_received();
                }
            }
            self.return_if_due(side);
            true
        }

        fn read(&mut self, side: usize) -> bool {
            if self.unread[side] == 0 {
                return false;
            }
            self.unread[side] -= 1;
            self.sides[side].posted_again(Class::Frame);
            self.return_if_due(side);
            true
        }

        fn return_if_due(&mut self, side: usize) {
            if self.sides[side].is_credit_update_due() {
                self.sides[side].send_credit_update();
                let returned = self.sides[side].take_returned();
                self.wires[side].push_back(Sent::Update(returned));
                self.check(side);
            }
        }
    }

    proptest! {
        #[test]
        fn every_message_finds_a_receive_and_none_is_stuck(
            depths in [1_u32..20, 1_u32..20],
            steps in prop::collection::vec((0_usize..2, 0_u8..4), 0..600),
        ) {
            let mut pair = Pair::new(depths);
            for (side, step) in steps {
                match step {
                    0 => { pair.send(side, Class::Frame); }
                    1 => { pair.send(side, Class::Control); }
                    2 => { pair.receive(side); }
                    _ => { pair.read(side); }
                }
            }
            // Once everything is received and read, both sides can send again, for ever.
            for _ in 0..50 {
                for side in 0..2 {
                    while pair.receive(side) || pair.read(side) {}
                }
            }
            for _ in 0..100 {
                for side in 0..2 {
                    prop_assert!(pair.send(side, Class::Frame) && pair.send(side, Class::Control));
                    for side in [1 - side, side, 1 - side, side] {
                        while pair.receive(side) || pair.read(side) {}
                    }
                }
            }
        }
    }

    #[test]
    fn a_peer_that_never_reads_is_sent_no_more_than_it_has_receives_for() {
        let mut credits = Credits::new(8, 12);
        assert_eq!((0..10).filter_map(|_| credits.spend(Class::Frame)).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(credits.spend(Class::Frame).is_none() && credits.spend(Class::Control).is_some());
    }

    #[test]
    fn credits_that_were_never_spent_are_a_violation() {
        let returned = |frames, control, credit_updates| Returned { frames, control, credit_updates };
        for wrong in [returned(1, 0, 0), returned(0, 1, 0), returned(0, 0, 1)] {
            assert_eq!(Credits::new(4, 4).accept(wrong), Err(Violation::Credits));
        }
    }
}

//! Coalescing of short transfers into one message.
//!
//! A message costs both ends nearly the same whether it brings 64 bytes or thousands. As long as few messages
//! with short transfers are under way, each transfer goes at once; when there are more, those that follow
//! wait until some of them are known to have come, and go together. That is Nagle's rule (RFC 896), and like
//! there a full message need not wait for that. Pure.

/// Messages that may be under way when another one goes that is not full, where somebody polls for their
/// completions all the time.
const FEW: u32 = 4;

/// The same for full messages, and where completions are looked for now and then: each has a place in memory
/// of its own.
pub const SLOTS: u32 = 8;

/// One message in so many has a completion: at least one of the [`FEW`], and one more so that the wire is not
/// idle until it is noticed.
const INTERVAL: u64 = 2;

/// The messages of a queue pair that bring transfers.
#[derive(Debug, Clone, Default)]
pub struct Coalescer {
    sent: u64,
    in_flight: u32,
}

/// A message that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Its place in memory, of [`SLOTS`].
    pub slot: u32,
    /// Whether the message asks for a completion even if it brings one transfer from where that lies, so that
    /// its place is not used.
    pub is_signalled: bool,
}

impl Coalescer {
    /// Whether a message may go now, and need not wait for more transfers. `attends`: somebody polls for
    /// completions.
    pub fn may_send(&self, is_full: bool, attends: bool) -> bool {
        self.in_flight < if is_full || !attends { SLOTS } else { FEW }
    }

    /// A message is sent.
    pub fn send(&mut self) -> Sent {
        let slot = (self.sent % u64::from(SLOTS)) as u32;
        self.sent += 1;
        self.in_flight += 1;
        Sent { slot, is_signalled: self.sent.is_multiple_of(INTERVAL) }
    }

    /// The oldest message that is under way is with the peer.
    pub fn done(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_messages_go_at_once_and_then_only_full_ones() {
        let mut bundles = Coalescer::default();
        for _ in 0..FEW {
            assert!(bundles.may_send(false, true));
            bundles.send();
        }
        assert!(!bundles.may_send(false, true) && bundles.may_send(false, false));
        while bundles.may_send(true, true) {
            bundles.send();
        }
        assert_eq!(bundles.in_flight, SLOTS);
        (FEW..SLOTS + 1).for_each(|_| bundles.done());
        assert!(bundles.may_send(false, true));
    }

    #[test]
    fn whoever_waits_has_a_completion_to_come_and_no_place_is_used_twice_at_a_time() {
        for before in 0..4 {
            let mut bundles = Coalescer::default();
            (0..before).for_each(|_| {
                bundles.send();
                bundles.done();
            });
            let mut in_flight = Vec::new();
            while bundles.may_send(false, true) {
                in_flight.push(bundles.send());
            }
            assert!(in_flight.iter().any(|sent| sent.is_signalled));
            while bundles.may_send(true, true) {
                in_flight.push(bundles.send());
            }
            let mut places: Vec<_> = in_flight.iter().map(|sent| sent.slot).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..SLOTS));
        }
    }
}

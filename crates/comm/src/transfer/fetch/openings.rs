//! Time of a fetch, with and without opening memory. Not where memory was opened for it that stays open.
//!
//! The first message from a buffer has to open it, which takes milliseconds where memory of another GPU is mapped;
//! the next ones find it open. One such time would keep a channel from being taken for long.

use crate::channels::Channel;

/// What fetches have opened.
#[derive(Debug, Default)]
pub(super) struct Openings {
    /// The one that is being made.
    now: bool,
    /// Channels whose last fetch has.
    before: Vec<Channel>,
}

impl Openings {
    /// A fetch begins.
    pub(super) fn begin(&mut self) {
        self.now = false;
    }

    /// It opens memory.
    pub(super) fn open(&mut self) {
        self.now = true;
    }

    /// A fetch by this channel has opened nothing.
    pub(super) fn found_open(&mut self, channel: Channel) {
        self.before.retain(|other| *other != channel);
    }

    /// It has ended. Says whether its time is what the channel costs: nothing was opened, or something is each time,
    /// as for a program that sends from new memory.
    pub(super) fn end(&mut self, channel: Channel) -> bool {
        let had = self.before.contains(&channel);
        match (self.now, had) {
            (true, false) => self.before.push(channel),
            (true, true) => {}
            (false, _) => self.found_open(channel),
        }
        !self.now || had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(openings: &mut Openings, channel: Channel, opens: bool) -> bool {
        openings.begin();
        if opens {
            openings.open();
        }
        openings.end(channel)
    }

    #[test]
    fn the_first_opening_does_not_count_and_many_do() {
        let mut openings = Openings::default();
        assert!(!counts(&mut openings, Channel::Vmm, true));
        assert!(!counts(&mut openings, Channel::Ipc, true), "each channel opens memory of its own");
        assert!(counts(&mut openings, Channel::Vmm, false));
        assert!(!counts(&mut openings, Channel::Vmm, true), "it was open in between");
        assert!(counts(&mut openings, Channel::Vmm, true));
        assert!(counts(&mut openings, Channel::Vmm, true));
    }

    #[test]
    fn memory_that_was_open_before_counts_without_a_word_to_the_sender() {
        let mut openings = Openings::default();
        assert!(!counts(&mut openings, Channel::Ipc, true));
        openings.found_open(Channel::Ipc);
        assert!(!counts(&mut openings, Channel::Ipc, true), "the next buffer is opened once, too");
    }
}

//! Is the time of a fetch what its channel costs? Not where memory was opened for it that stays open.
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

    /// It has ended. Says whether its time is what the channel costs: nothing was opened, or something is each time,
    /// as for a program that sends from new memory.
    pub(super) fn end(&mut self, channel: Channel) -> bool {
        let had = self.before.contains(&channel);
        self.before.retain(|other| *other != channel);
        if self.now {
            self.before.push(channel);
        }
        !self.now || had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_opening_does_not_count_and_many_do() {
        let mut openings = Openings::default();
        let mut fetch = |channel, opens: bool| {
            openings.begin();
            if opens {
                openings.open();
            }
            openings.end(channel)
        };
        assert!(!fetch(Channel::Vmm, true));
        assert!(!fetch(Channel::Ipc, true), "each channel opens memory of its own");
        assert!(fetch(Channel::Vmm, false));
        assert!(!fetch(Channel::Vmm, true), "it was open in between");
        assert!(fetch(Channel::Vmm, true));
        assert!(fetch(Channel::Vmm, true));
    }
}

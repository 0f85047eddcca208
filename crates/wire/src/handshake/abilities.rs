//! Capabilities that two ends of the same protocol version negotiate.
//!
//! A command keeps its number and its arguments for as long as the protocol's version is spoken, and new ones
//! are appended. So what an end knows of them is a count, and a fingerprint of that many shows that both ends
//! mean the same ones.

use core::time::Duration;

use crate::codec::{Decode, DecodeError, Decoder, Encode};

/// The commands that this end knows: those whose numbers are below a count.
#[derive(Debug, Clone, Copy)]
pub struct CommandTable {
    /// The fingerprint of the first `n` commands is at `n`.
    fingerprints: &'static [u64],
}

/// The commands that some end knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownCommands {
    /// How many, from number 0 on.
    pub count: u16,
    /// The fingerprint of that many.
    pub fingerprint: u64,
}

/// Two ends give the same number to different commands, which happens between builds of development only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherCommands;

impl CommandTable {
    /// A table of `fingerprints.len() - 1` commands; the fingerprint of the first `n` is at `n`.
    ///
    /// # Panics
    /// When there is no fingerprint, or there are more commands than numbers.
    pub const fn new(fingerprints: &'static [u64]) -> Self {
        assert!(!fingerprints.is_empty() && fingerprints.len() <= u16::MAX as usize);
        Self { fingerprints }
    }

    /// What is sent to the other end.
    pub fn known(&self) -> KnownCommands {
        let count = self.fingerprints.len() - 1;
        KnownCommands { count: count as u16, fingerprint: self.fingerprints[count] }
    }

    /// How many commands both ends know.
    ///
    /// # Errors
    /// When the ends mean different commands by one number, as far as that can be known here: whoever knows
    /// more commands can tell.
    pub fn common(&self, peer: KnownCommands) -> Result<u16, OtherCommands> {
        match self.fingerprints.get(usize::from(peer.count)) {
            Some(fingerprint) if *fingerprint == peer.fingerprint => Ok(peer.count),
            Some(_) => Err(OtherCommands),
            None => Ok(self.known().count),
        }
    }
}

/// What an end can do beside commands that not every end of its protocol version can, one bit each. Bits that
/// an end does not know mean nothing to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features(pub u64);

crate::record!(Features { 0 });

impl Features {
    /// It sends something every second on each connection of a link over TCP on which it sends nothing else: a frame
    /// without messages, or how many chunks have come over a lane. Every end understands these; with this one a link
    /// on which nothing comes is dead.
    pub const KEEPALIVE: Self = Self(1);

    /// A client goes over to another server, or waits for its own one to come back, when its worker says so
    /// ([`WorkerMessage::Moving`](crate::message::WorkerMessage::Moving)).
    pub const MOVES: Self = Self(2);

    /// A client may fork together with its session
    /// ([`MoveRequest::HoldForFork`](crate::moves::MoveRequest::HoldForFork)): its worker keeps by what
    /// commands another one could make what it has. Of a server: it can do that.
    pub const FORKS: Self = Self(4);

    /// Those that this build always has.
    pub const OURS: Self = Self(Self::KEEPALIVE.0 | Self::MOVES.0);

    /// These and `others`.
    #[must_use]
    pub fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// What both ends can do.
    #[must_use]
    pub fn common(self, peer: Self) -> Self {
        Self(self.0 & peer.0)
    }

    /// Whether all of `requested` are among them.
    pub fn contain(self, requested: Self) -> bool {
        self.0 & requested.0 == requested.0
    }
}

/// Description of an end, sent once the versions agree. It travels behind its length, so that a later release
/// can append to it and an earlier one reads what it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// The commands that it knows.
    pub commands: KnownCommands,
    /// What it can do besides.
    pub features: Features,
    /// For how many seconds a session over TCP may go without a connection and is resumed on another one; 0 says that
    /// it ends with its connection. The client says what it wants, the server what it grants.
    pub resume_seconds: u32,
}

impl Abilities {
    /// Those of this build, with the commands of `table`.
    pub fn ours(table: &CommandTable) -> Self {
        Self { commands: table.known(), features: Features::OURS, resume_seconds: 0 }
    }

    /// The same, of an end that resumes a session for so many seconds.
    #[must_use]
    pub fn resuming(self, resume_seconds: u32) -> Self {
        Self { resume_seconds, ..self }
    }

    /// For how long both ends resume a session; zero if one of them does not.
    pub fn common_resume(&self, peer: &Self) -> Duration {
        Duration::from_secs(self.resume_seconds.min(peer.resume_seconds).into())
    }
}

impl Abilities {
    /// Encodes it with what else an end says of itself behind it, as `more` appends that.
    pub(super) fn encode_with(&self, out: &mut Vec<u8>, more: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::with_capacity(64);
        self.commands.count.encode(&mut bytes);
        self.commands.fingerprint.encode(&mut bytes);
        self.features.encode(&mut bytes);
        self.resume_seconds.encode(&mut bytes);
        more(&mut bytes);
        bytes.as_slice().encode(out);
    }

    /// Decodes it, and returns what is behind it.
    pub(super) fn decode_with<'a>(input: &mut Decoder<'a>) -> Result<(Self, Decoder<'a>), DecodeError> {
        let mut input = Decoder::new(input.value()?);
        let commands = KnownCommands { count: input.value()?, fingerprint: input.value()? };
        let features = input.value()?;
        // Earlier releases say nothing of it.
        let resume_seconds = if input.remaining() == 0 { 0 } else { input.value()? };
        Ok((Self { commands, features, resume_seconds }, input))
    }
}

impl Encode for Abilities {
    fn encode(&self, out: &mut Vec<u8>) {
        self.encode_with(out, |_| ());
    }
}

impl<'a> Decode<'a> for Abilities {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        // What is left over is a later release's.
        Ok(Self::decode_with(input)?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static OLD: CommandTable = CommandTable::new(&[1, 20, 300]);
    static NEW: CommandTable = CommandTable::new(&[1, 20, 300, 4000]);
    static OTHER: CommandTable = CommandTable::new(&[1, 20, 301, 4001]);

    #[test]
    fn ends_of_different_age_have_the_older_ones_commands_in_common() {
        assert_eq!(OLD.common(NEW.known()), Ok(2));
        assert_eq!(NEW.common(OLD.known()), Ok(2));
        assert_eq!(NEW.common(NEW.known()), Ok(3));
    }

    #[test]
    fn whoever_knows_more_notices_that_a_number_means_something_else() {
        assert_eq!(OTHER.common(OLD.known()), Err(OtherCommands));
        assert_eq!(NEW.common(OTHER.known()), Err(OtherCommands));
        assert_eq!(OLD.common(OTHER.known()), Ok(2), "the other end is the one that can tell");
    }

    #[test]
    fn what_a_later_release_appends_is_passed_over() {
        let ours = Abilities { commands: NEW.known(), features: Features(5), resume_seconds: 60 };
        let mut bytes = Vec::new();
        ours.encode(&mut bytes);
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        bytes[..8].copy_from_slice(&(length + 3).to_le_bytes());
        bytes.extend([7, 8, 9, 42]);
        let mut input = Decoder::new(&bytes);
        assert_eq!(input.value::<Abilities>(), Ok(ours));
        assert_eq!(input.value::<u8>(), Ok(42), "what follows is found behind what was appended");
        let mut short = Vec::new();
        [1_u8; 9].as_slice().encode(&mut short);
        assert!(matches!(Decoder::new(&short).value::<Abilities>(), Err(DecodeError::Truncated { .. })));
    }

    #[test]
    fn an_earlier_release_that_says_nothing_of_resuming_does_not_resume() {
        let ours = Abilities { commands: NEW.known(), features: Features(5), resume_seconds: 60 };
        let mut bytes = Vec::new();
        ours.encode(&mut bytes);
        bytes.truncate(bytes.len() - 4);
        bytes[..8].copy_from_slice(&18_u64.to_le_bytes());
        let theirs: Abilities = Decoder::new(&bytes).value().unwrap();
        assert_eq!(theirs, Abilities { resume_seconds: 0, ..ours });
        assert_eq!(ours.common_resume(&theirs), Duration::ZERO);
        assert_eq!(ours.common_resume(&ours.resuming(7)), Duration::from_secs(7));
    }

    #[test]
    fn features_are_used_that_both_ends_have() {
        let common = Features(0b110).common(Features(0b011 | 1 << 63));
        assert_eq!(common, Features(0b010));
        assert!(common.contain(Features(0b010)) && !common.contain(Features(0b110)));
    }
}

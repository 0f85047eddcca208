//! How do ranks of one host exchange the words of their calls, where the MPI takes longer?
//!
//! By mailboxes in memory that each two of them share: a word takes as long as a cache line from one core to the
//! other, in isolated containers, too, where the MPI goes over the network. All ranks of a communicator have
//! agreed on a mailbox, which no other communicator of theirs has, and on a generation, which it has not had
//! before; so what an earlier communicator has left there is not taken for anything.

use thiserror::Error;

use crate::world::{Mailboxes, Presence, World};

/// Attempts after which a rank that has said nothing is looked for.
const BETWEEN_LOOKS: u32 = 4096;

/// Why words are not exchanged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MailError {
    /// A rank makes another call.
    #[error(
        "rank {rank} of the group gives {theirs} bytes of words, and this rank {ours}: the two make different \
         collective calls"
    )]
    Length {
        /// The other rank.
        rank: usize,
        /// Its bytes.
        theirs: u64,
        /// This rank's.
        ours: usize,
    },
    /// A rank has ended.
    #[error("rank {0} of the group has ended while this rank waited for its words")]
    Gone(usize),
    /// More than a mailbox takes.
    #[error("{0} bytes of words for each rank are more than a mailbox takes")]
    TooLong(usize),
    /// An exchange has failed before: the ranks do not stand at the same one any more.
    #[error("an exchange of words in this group has failed before")]
    Broken,
}

/// The mailboxes of a group.
#[derive(Debug)]
pub struct Mail {
    presence: Presence,
    me: usize,
    mailbox: u16,
    members: Vec<u32>,
    /// By rank; none for this one.
    mailboxes: Vec<Option<Mailboxes>>,
    /// The exchange that is under way, or the last one.
    exchange: u64,
    /// Ranks whose words have not come, while one is under way.
    missing: Vec<usize>,
    attempts: u32,
    is_broken: bool,
}

impl Mail {
    /// For a group of a job's ranks, of which this one is number `me`; none where a rank shares no memory with
    /// this one.
    pub fn open(world: &World, members: &[u32], me: usize, mailbox: u16, generation: u32) -> Option<Self> {
        let of_peer = |(rank, peer): (usize, &u32)| match rank == me {
            true => Some(None),
            false => world.mailboxes(*peer).map(Some),
        };
        let mailboxes = members.iter().enumerate().map(of_peer).collect::<Option<Vec<_>>>()?;
        Some(Self {
            presence: world.presence(),
            me,
            mailbox,
            members: members.to_vec(),
            mailboxes,
            exchange: u64::from(generation) << 32,
            missing: Vec::new(),
            attempts: 0,
            is_broken: false,
        })
    }

    /// How many ranks the group has.
    pub fn ranks(&self) -> usize {
        self.members.len()
    }

    /// Gives so many bytes to each rank, and gets as many from each, in the order of ranks. Says whether all
    /// have come; otherwise it is to be called again with the same, until they have.
    ///
    /// # Errors
    /// When a rank has ended, or makes another call. Then no more words are exchanged.
    pub fn exchange(&mut self, words: &[u8], heard: &mut [u8], bytes: usize) -> Result<bool, MailError> {
        if self.is_broken {
            return Err(MailError::Broken);
        }
        let outcome = self.attempt(words, heard, bytes);
        self.is_broken = outcome.is_err();
        outcome
    }

    fn attempt(&mut self, words: &[u8], heard: &mut [u8], bytes: usize) -> Result<bool, MailError> {
        if bytes > Mailboxes::MAX_BYTES {
            return Err(MailError::TooLong(bytes));
        }
        let place = |rank: usize| rank * bytes..(rank + 1) * bytes;
        if self.missing.is_empty() {
            self.exchange += 1;
            self.attempts = 0;
            for (rank, mailboxes) in self.mailboxes.iter().enumerate() {
                match mailboxes {
                    Some(mailboxes) => mailboxes.post(self.mailbox, self.exchange, &words[place(rank)]),
                    None => heard[place(self.me)].copy_from_slice(&words[place(self.me)]),
                }
            }
            self.missing = (0..self.ranks()).filter(|rank| *rank != self.me).collect();
        }
        let mut wrong = None;
        self.missing.retain(|rank| {
            let Some(mailboxes) = &self.mailboxes[*rank] else { return false };
            match mailboxes.take(self.mailbox, self.exchange, &mut heard[place(*rank)]) {
                Ok(is_here) => !is_here,
                Err(theirs) => {
                    wrong.get_or_insert(MailError::Length { rank: *rank, theirs, ours: bytes });
                    true
                }
            }
        });
        if let Some(error) = wrong {
            return Err(error);
        }
        self.attempts += 1;
        if self.attempts.is_multiple_of(BETWEEN_LOOKS) {
            self.must_all_be_there()?;
        }
        Ok(self.missing.is_empty())
    }

    /// A rank that has ended has not given the words that are missing, unless it has since.
    fn must_all_be_there(&self) -> Result<(), MailError> {
        let gone = self.missing.iter().find(|rank| !self.presence.has(self.members[**rank]));
        let Some(rank) = gone else { return Ok(()) };
        let mailboxes = self.mailboxes[*rank].as_ref();
        let has_come = mailboxes.is_some_and(|mailboxes| mailboxes.has(self.mailbox, self.exchange));
        if has_come { Ok(()) } else { Err(MailError::Gone(*rank)) }
    }
}

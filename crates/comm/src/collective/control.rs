//! Control channel of a group: small messages in shared memory.
//!
//! They go through control slots in memory that each two of them share: a word takes as long as a cache line
//! from one core to the other, in isolated containers, too, where the MPI goes over the network. All ranks of
//! a communicator have agreed on a slot, which no other communicator of theirs has, and on a generation,
//! which it has not had before; so what an earlier communicator has left there is not taken for anything.

use thiserror::Error;

use crate::world::{ControlSlots, Presence, World};

/// Attempts after which a rank that has said nothing is looked for.
const POLLS_BETWEEN_CHECKS: u32 = 4096;

/// Why words are not exchanged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ControlError {
    /// A rank makes another call.
    #[error(
        "rank {rank} of the group sends {theirs} bytes of control data, and this rank {ours}: the two make \
         different collective calls"
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
    #[error("rank {0} of the group ended while this rank waited for its control data")]
    Disconnected(usize),
    /// More than a control slot takes.
    #[error("{0} bytes of control data for each rank exceed the size of a control slot")]
    TooLong(usize),
    /// An exchange has failed before: the ranks do not stand at the same one any more.
    #[error("an earlier exchange of control data in this group has failed")]
    Broken,
}

/// The control slots of a group.
#[derive(Debug)]
pub struct ControlChannel {
    presence: Presence,
    me: usize,
    control_slot: u16,
    members: Vec<u32>,
    /// By rank; none for this one.
    control_slots: Vec<Option<ControlSlots>>,
    /// The exchange that is under way, or the last one.
    exchange: u64,
    /// Ranks whose words have not come, while one is under way.
    missing: Vec<usize>,
    attempts: u32,
    is_broken: bool,
}

impl ControlChannel {
    /// For a group of a job's ranks, of which this one is number `me`; none where a rank shares no memory
    /// with this one.
    pub fn open(
        world: &World,
        members: &[u32],
        me: usize,
        control_slot: u16,
        generation: u32,
    ) -> Option<Self> {
        let of_peer = |(rank, peer): (usize, &u32)| match rank == me {
            true => Some(None),
            false => world.control_slots(*peer).map(Some),
        };
        let control_slots = members.iter().enumerate().map(of_peer).collect::<Option<Vec<_>>>()?;
        Some(Self {
            presence: world.presence(),
            me,
            control_slot,
            members: members.to_vec(),
            control_slots,
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
    pub fn exchange(
        &mut self,
        message: &[u8],
        received: &mut [u8],
        bytes: usize,
    ) -> Result<bool, ControlError> {
        if self.is_broken {
            return Err(ControlError::Broken);
        }
        let outcome = self.attempt(message, received, bytes);
        self.is_broken = outcome.is_err();
        outcome
    }

    fn attempt(&mut self, message: &[u8], received: &mut [u8], bytes: usize) -> Result<bool, ControlError> {
        if bytes > ControlSlots::MAX_BYTES {
            return Err(ControlError::TooLong(bytes));
        }
        let offset_of = |rank: usize| rank * bytes..(rank + 1) * bytes;
        if self.missing.is_empty() {
            self.exchange += 1;
            self.attempts = 0;
            for (rank, control_slots) in self.control_slots.iter().enumerate() {
                match control_slots {
                    Some(control_slots) => {
                        control_slots.post(self.control_slot, self.exchange, &message[offset_of(rank)])
                    }
                    None => received[offset_of(self.me)].copy_from_slice(&message[offset_of(self.me)]),
                }
            }
            self.missing = (0..self.ranks()).filter(|rank| *rank != self.me).collect();
        }
        let mut wrong = None;
        self.missing.retain(|rank| {
            let Some(control_slots) = &self.control_slots[*rank] else { return false };
            match control_slots.take(self.control_slot, self.exchange, &mut received[offset_of(*rank)]) {
                Ok(is_here) => !is_here,
                Err(theirs) => {
                    wrong.get_or_insert(ControlError::Length { rank: *rank, theirs, ours: bytes });
                    true
                }
            }
        });
        if let Some(error) = wrong {
            return Err(error);
        }
        self.attempts += 1;
        if self.attempts.is_multiple_of(POLLS_BETWEEN_CHECKS) {
            self.must_all_be_there()?;
        }
        Ok(self.missing.is_empty())
    }

    /// A rank that has ended has not given the words that are missing, unless it has since.
    fn must_all_be_there(&self) -> Result<(), ControlError> {
        let disconnected = self.missing.iter().find(|rank| !self.presence.has(self.members[**rank]));
        let Some(rank) = disconnected else { return Ok(()) };
        let control_slots = self.control_slots[*rank].as_ref();
        let has_arrived =
            control_slots.is_some_and(|control_slots| control_slots.has(self.control_slot, self.exchange));
        if has_arrived { Ok(()) } else { Err(ControlError::Disconnected(*rank)) }
    }
}

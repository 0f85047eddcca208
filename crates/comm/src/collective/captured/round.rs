//! Exchange of exported memory for a captured call. Each shows each one the range that it gives it, and
//! opens those that it takes; its kernel copies them.

use super::super::error::CollectiveError;
use super::super::exported::ExportedMemory;
use super::super::group::Group;
use super::super::range::Range;
use super::copies::Move;
use super::recording::Step;
use crate::cuda::{DeviceMemory, Driver};
use crate::matching::{DESCRIPTOR_BYTES, Descriptor};
use crate::transfer::MappedMemory;

/// Bytes of what a rank tells another one: a note, and a descriptor.
const WORD_BYTES: usize = 1 + DESCRIPTOR_BYTES;

/// What the first byte says: nothing is given, something is shown, what is given cannot be opened.
const NOTHING: u8 = 0;
const EXPORTED: u8 = 1;
const CLOSED: u8 = 2;

impl Group<'_> {
    /// What [`Group::round`] does, as a part of a graph.
    ///
    /// # Safety
    /// As there, whenever the graph is launched.
    ///
    /// # Errors
    /// What goes wrong at this rank, or has at another one. Nothing has been captured then.
    pub unsafe fn record_round(
        &mut self,
        sends: &[Range],
        receives: &[Range],
    ) -> Result<(), CollectiveError> {
        let mut exported = ExportedMemory::new(self.world);
        let mut message = vec![0; WORD_BYTES * self.ranks()];
        for (rank, (word, range)) in message.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip(sends).enumerate()
        {
            if rank == self.me || range.bytes == 0 {
                word[0] = NOTHING;
                continue;
            }
            let seen = self.memory_in_context(range.address);
            let peer = self.members[rank];
            let descriptor = seen.and_then(|(driver, memory)| exported.export(peer, driver, &memory, *range));
            match descriptor {
                None => word[0] = CLOSED,
                Some(descriptor) => {
                    word[0] = EXPORTED;
                    word[1..].copy_from_slice(&descriptor.encode(self.world.job()));
                }
            }
        }
        let received = self.exchange_control(&message, WORD_BYTES)?;
        let mut open = Vec::new();
        let moves = self.moves(sends, receives, received.as_chunks::<WORD_BYTES>().0, &mut open);
        let outcome = moves.map(|moves| {
            let step = Step::copies(&moves);
            self.recording.iter_mut().for_each(|recording| recording.steps.extend(step.clone()));
        });
        // SAFETY: as promised by the caller; what is another rank's is open.
        unsafe { self.finish_recording(open, outcome) }
    }

    /// The memory at an address, if kernels of the stream's context use it.
    fn memory_in_context(&self, address: u64) -> Option<(&'static Driver, DeviceMemory)> {
        let (driver, recording) = (Driver::loaded()?, self.recording.as_ref()?);
        let memory = DeviceMemory::at(driver, address)?.in_context(recording.context, recording.device)?;
        Some((driver, memory))
    }

    /// What this rank copies, after it has opened what the others have shown. It begins with what the rank
    /// behind it gives, so that not all copy from the first at once.
    fn moves(
        &self,
        sends: &[Range],
        receives: &[Range],
        received: &[[u8; WORD_BYTES]],
        open: &mut Vec<(u32, MappedMemory)>,
    ) -> Result<Vec<Move>, CollectiveError> {
        let mut moves = Vec::new();
        for step in 1..=self.ranks() {
            let rank = (self.me + step) % self.ranks();
            let to = receives[rank];
            if rank == self.me {
                match (sends[rank].bytes, to.bytes) {
                    (_, 0) => {}
                    (sent, taken) if sent == taken => {
                        moves.push(Move { to: to.address, from: sends[rank].address, bytes: taken });
                    }
                    _ => return Err(CollectiveError::Offer(rank)),
                }
                continue;
            }
            let word = &received[rank];
            match (word[0], to.bytes) {
                (NOTHING, 0) => continue,
                (EXPORTED, 1..) => {}
                (CLOSED, _) => return Err(CollectiveError::Closed),
                _ => return Err(CollectiveError::Offer(rank)),
            }
            let (driver, memory) = self.memory_in_context(to.address).ok_or(CollectiveError::Closed)?;
            let descriptor = Descriptor::decode(&word[1..], self.world.job());
            let descriptor = descriptor.filter(|other| {
                (other.from, other.to, other.bytes) == (self.members[rank], self.world.rank(), to.bytes)
            });
            let descriptor = descriptor.ok_or(CollectiveError::Offer(rank))?;
            let mapped =
                self.world.map_peer_memory(&descriptor, driver, memory)?.ok_or(CollectiveError::Closed)?;
            moves.push(Move { to: to.address, from: mapped.address, bytes: to.bytes });
            open.push((self.members[rank], mapped));
        }
        Ok(moves)
    }
}

//! Which memory of all ranks do kernels of this rank use where it lies? Where it can be opened at all ranks,
//! a reduction is one kernel at each of them, and nothing is copied.
//!
//! Three exchanges: the ranks show each other their memory, they say whether they have opened it, and at last
//! that their kernels have ended. Until then all of it stays as it is, since its ranks are in the call.

use super::group::{CollectiveError, Group, TERMS_BYTES, must_be_of_one_call};
use super::kernels::{Kernel, MOST_SOURCES};
use super::launch;
use crate::cuda::{self, CudaError, DeviceMemory, Driver, Scope};
use crate::matching::{DESCRIPTOR_BYTES, Descriptor};
use crate::transfer::fetch::Reached;
use crate::world::World;

/// Bytes of what a rank tells another one of its memory: whether it can, of which call it tells, and
/// descriptors of what is read and of what is written.
const WORD_BYTES: usize = TERMS_BYTES + 2 * DESCRIPTOR_BYTES;

/// This rank's memory in a call.
#[derive(Debug, Clone, Copy)]
pub struct Own {
    /// Elements of all ranks' chunks, which all of them read.
    pub from: u64,
    /// Where results go, if some come to this rank.
    pub to: Option<u64>,
    /// Bytes of all elements; the same at all ranks.
    pub bytes: u64,
}

/// Whose results are written by all ranks, to as much memory as is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// Those of all of them.
    All,
    /// Those of one.
    Of(usize),
    /// Nobody's: each rank writes its own alone.
    Nobody,
}

impl Written {
    fn has(self, rank: usize) -> bool {
        match self {
            Self::All => true,
            Self::Of(root) => rank == root,
            Self::Nobody => false,
        }
    }
}

/// The memory of all ranks, as kernels of this one see it.
#[derive(Debug)]
pub struct Shared {
    driver: &'static Driver,
    /// Memory of the context in which kernels run.
    own: DeviceMemory,
    /// Where each rank's elements begin.
    pub from: Vec<u64>,
    /// Where each rank's results begin; 0 where this rank writes none there.
    pub to: Vec<u64>,
    /// What is open for that, with its ranks.
    open: Vec<(u32, Reached)>,
}

/// What this rank shows, until it hides it.
struct Shown<'a> {
    world: &'a World,
    numbers: Vec<u64>,
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.numbers.iter().for_each(|number| self.world.hide(*number));
    }
}

impl Shown<'_> {
    /// The word for a peer; none where its memory cannot be opened.
    fn word(
        &mut self,
        peer: u32,
        driver: &Driver,
        ranges: [Option<(DeviceMemory, u64)>; 2],
        bytes: u64,
    ) -> Option<[u8; 2 * DESCRIPTOR_BYTES]> {
        let mut word = [0; 2 * DESCRIPTOR_BYTES];
        let mut before: Option<(u64, usize)> = None;
        for (at, (memory, address)) in
            ranges.into_iter().enumerate().filter_map(|(at, range)| Some((at, range?)))
        {
            let place = at * DESCRIPTOR_BYTES..(at + 1) * DESCRIPTOR_BYTES;
            match before {
                // In place.
                Some((same, first)) if same == address => {
                    let first = first * DESCRIPTOR_BYTES;
                    word.copy_within(first..first + DESCRIPTOR_BYTES, place.start);
                }
                _ => {
                    let (number, descriptor) = self.world.show(peer, driver, &memory, address, bytes)?;
                    self.numbers.push(number);
                    word[place].copy_from_slice(&descriptor.encode(self.world.job()));
                    before = Some((address, at));
                }
            }
        }
        Some(word)
    }
}

/// The memory of a rank's call on its GPU, and that in whose context kernels use all of it.
struct Seen {
    driver: &'static Driver,
    from: DeviceMemory,
    to: Option<DeviceMemory>,
    together: DeviceMemory,
}

impl Seen {
    fn of(own: &Own) -> Option<Self> {
        let driver = Driver::loaded()?;
        let from = DeviceMemory::at(driver, own.from)?;
        let to = match own.to {
            None => None,
            Some(same) if same == own.from => Some(from),
            Some(other) => Some(DeviceMemory::at(driver, other)?),
        };
        let together = to.map_or(Some(from), |to| from.together(to))?;
        Some(Self { driver, from, to, together })
    }
}

impl Group<'_> {
    /// Opens the memory of all ranks at all of them. None, at all ranks, where not all can.
    ///
    /// # Errors
    /// When ranks have called with different `bytes`, or the words cannot be exchanged.
    pub fn share(
        &mut self,
        own: &Own,
        written: Written,
        can: bool,
    ) -> Result<Option<Shared>, CollectiveError> {
        let seen = if can && self.ranks() <= MOST_SOURCES { Seen::of(own) } else { None };
        let mut shown = Shown { world: self.world, numbers: Vec::new() };
        let words = seen.as_ref().and_then(|seen| self.show(seen, own, written, &mut shown));
        let can = words.is_some();
        let mut words = words.unwrap_or_else(|| vec![0; WORD_BYTES * self.ranks()]);
        for word in words.as_chunks_mut::<WORD_BYTES>().0 {
            word[0] = u8::from(can);
            word[8..TERMS_BYTES].copy_from_slice(&own.bytes.to_le_bytes());
        }
        let heard = self.tell(&words, WORD_BYTES)?;
        let heard = heard.as_chunks::<WORD_BYTES>().0;
        must_be_of_one_call(heard.iter().filter_map(|word| word.first_chunk()), own.bytes)?;
        let Some(seen) = seen.filter(|_| heard.iter().all(|word| word[0] == 1)) else { return Ok(None) };
        let shared = self.open(&seen, own, written, heard);
        let opened = self.tell(&vec![u8::from(shared.is_some()); self.ranks()], 1)?;
        Ok(shared.filter(|_| opened.iter().all(|opened| *opened == 1)))
    }

    /// The words for all ranks; none where this one cannot show its memory to all others.
    fn show(&self, seen: &Seen, own: &Own, written: Written, shown: &mut Shown<'_>) -> Option<Vec<u8>> {
        cuda::settle(seen.driver, &seen.from);
        if let Some(to) = seen.to.filter(|to| to.start != seen.from.start) {
            cuda::settle(seen.driver, &to);
        }
        let to = seen.to.zip(own.to).filter(|_| written.has(self.me));
        let mut words = vec![0; WORD_BYTES * self.ranks()];
        for (rank, word) in words.as_chunks_mut::<WORD_BYTES>().0.iter_mut().enumerate() {
            if rank == self.me {
                continue;
            }
            let peer = self.members[rank];
            if !self.world.reaches(peer) {
                return None;
            }
            let ranges = [Some((seen.from, own.from)), to];
            word[TERMS_BYTES..].copy_from_slice(&shown.word(peer, seen.driver, ranges, own.bytes)?);
        }
        Some(words)
    }

    /// Opens what the others have shown; none where something cannot be opened, or is not what the call is
    /// about.
    fn open(&self, seen: &Seen, own: &Own, written: Written, heard: &[[u8; WORD_BYTES]]) -> Option<Shared> {
        let mut shared = Shared {
            driver: seen.driver,
            own: seen.together,
            from: vec![own.from; self.ranks()],
            to: vec![own.to.unwrap_or(0); self.ranks()],
            open: Vec::new(),
        };
        for (rank, word) in heard.iter().enumerate().filter(|(rank, _)| *rank != self.me) {
            let (from, to) = word[TERMS_BYTES..].split_at(DESCRIPTOR_BYTES);
            shared.from[rank] = self.open_one(seen, own, rank, from, &mut shared.open)?;
            shared.to[rank] = match written.has(rank) {
                true if from == to => shared.from[rank],
                true => self.open_one(seen, own, rank, to, &mut shared.open)?,
                false => 0,
            };
        }
        Some(shared)
    }

    fn open_one(
        &self,
        seen: &Seen,
        own: &Own,
        rank: usize,
        word: &[u8],
        open: &mut Vec<(u32, Reached)>,
    ) -> Option<u64> {
        let peer = self.members[rank];
        let descriptor = Descriptor::decode(word, self.world.job())
            .filter(|told| told.from == peer && told.to == self.world.rank() && told.bytes == own.bytes)?;
        // What is wrong here is told when the memory is fetched.
        let reached = self.world.reach(&descriptor, seen.driver, seen.together).ok()??;
        let address = reached.address;
        open.push((peer, reached));
        Some(address)
    }
}

impl Shared {
    /// Runs this rank's kernel on its chunk, whose elements begin at each of these addresses.
    ///
    /// # Safety
    /// All addresses are in memory of this call, of the chunk that is this rank's.
    ///
    /// # Errors
    /// What the driver says.
    pub unsafe fn run(
        &self,
        kernel: &Kernel,
        targets: &[u64],
        sources: &[u64],
        count: u64,
    ) -> Result<(), CudaError> {
        if count == 0 {
            return Ok(());
        }
        let scope = Scope::of(self.driver, &self.own)?;
        // SAFETY: as promised by the caller; what is another rank's is open.
        unsafe { launch::put_together(&scope, kernel, targets, sources, count) }
    }
}

impl Group<'_> {
    /// Hears that the kernels of all ranks have ended. `bytes` are those of what this rank's has read or
    /// written of each other one's.
    ///
    /// # Errors
    /// What has gone wrong here, or that something has at another rank.
    pub fn end_sharing(
        &mut self,
        shared: Shared,
        bytes: u64,
        outcome: Result<(), CudaError>,
    ) -> Result<(), CollectiveError> {
        let heard = self.tell(&vec![u8::from(outcome.is_err()); self.ranks()], 1)?;
        outcome?;
        for (peer, reached) in &shared.open {
            self.world.count_reached(*peer, reached.channel, bytes);
        }
        match heard.iter().position(|failed| *failed != 0) {
            Some(rank) => Err(CollectiveError::Peer(rank)),
            None => Ok(()),
        }
    }
}

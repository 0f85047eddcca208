//! Peer memory opened for the kernels of a collective. Where all ranks can open it, a reduction is one kernel
//! at each of them, and nothing is copied.
//!
//! It takes three exchanges: the ranks export their memory to each other, they say whether they have opened
//! it, and at last that their kernels have ended. Until then all of it stays as it is, since its ranks are in
//! the call. The one in the middle is left out where all ranks have had all of it open before.

use super::captured::recording::Step;
use super::group::{CAPTURED_AT, CollectiveError, Group, SIGNATURE_BYTES, must_be_of_one_call};
use super::kernels::{Kernel, MAX_SOURCES};
use super::memory::{CallMemory, ExportedMemory, LocalBuffer, Written};
use crate::collective::kernels;
use crate::cuda::{self, CudaError, DeviceMemory, Driver, Scope};
use crate::matching::{DESCRIPTOR_BYTES, Descriptor};
use crate::transfer::MappedMemory;

/// Bytes of what a rank tells another one of its memory: whether it can, of which call it tells, and
/// descriptors of what is read and of what is written.
const WORD_BYTES: usize = SIGNATURE_BYTES + 2 * DESCRIPTOR_BYTES;

/// The memory of all ranks, as kernels of this one see it.
#[derive(Debug)]
pub struct Opened {
    driver: &'static Driver,
    /// Memory of the context in which kernels run.
    own: DeviceMemory,
    /// Where each rank's elements begin.
    pub from: Vec<u64>,
    /// Where each rank's results begin; 0 where this rank writes none there.
    pub to: Vec<u64>,
    /// What is open for that, with its ranks.
    pub open: Vec<(u32, MappedMemory)>,
}

impl Opened {
    fn with(self, exported: ExportedMemory<'_>) -> Shared<'_> {
        Shared { opened: self, _exported: exported }
    }
}

/// That, while this rank's memory is open to the others.
#[derive(Debug)]
pub struct Shared<'a> {
    /// What this rank has open.
    pub opened: Opened,
    /// A peer may have closed what it had open before, and open it again.
    _exported: ExportedMemory<'a>,
}

/// Whether the ranks have each other's memory.
#[derive(Debug)]
pub enum Sharing<'a> {
    /// All have that of all.
    Made(Shared<'a>),
    /// It is on GPUs, and not all can open it: it is to be fetched.
    OnGpus,
    /// Some of it is not on a GPU, or not where kernels of one context use all of a rank's; or it is not
    /// worth being fetched.
    Elsewhere,
}

impl<'a> Group<'a> {
    /// Opens the memory of all ranks at all of them, where all can, which `can` says of this one. Where that
    /// is not so all ranks hear whether the memory of all of them is on GPUs, which `is_defined` leaves out.
    ///
    /// # Errors
    /// When ranks have called with different `bytes`, the words cannot be exchanged, or memory that was open
    /// before cannot be opened any more.
    pub fn share(
        &mut self,
        own: &LocalBuffer,
        written: Written,
        is_defined: bool,
        can: bool,
    ) -> Result<Sharing<'a>, CollectiveError> {
        let seen = if is_defined { CallMemory::of(own) } else { None };
        let (can, seen) = match (&self.recording, seen) {
            // One rank alone has graphs, too.
            (Some(recording), Some(mut seen)) => {
                let used = seen.common.in_context(recording.context, recording.device);
                seen.common = used.unwrap_or(seen.common);
                (can && used.is_some() && self.ranks() <= MAX_SOURCES, Some(seen))
            }
            (_, seen) => (can && (2..=MAX_SOURCES).contains(&self.ranks()), seen),
        };
        let mut exported = ExportedMemory::new(self.world);
        let message = seen.as_ref().filter(|_| can);
        let message = message.and_then(|seen| self.export(seen, own, written, &mut exported));
        let can = message.is_some();
        let is_open = can && seen.as_ref().is_some_and(|seen| self.is_open_at_all(seen));
        let mut message = message.unwrap_or_else(|| vec![0; WORD_BYTES * self.ranks()]);
        for word in message.as_chunks_mut::<WORD_BYTES>().0 {
            word[..3].copy_from_slice(&[seen.is_some(), can, is_open].map(u8::from));
            word[CAPTURED_AT..8].copy_from_slice(&self.captured().to_le_bytes());
            word[8..SIGNATURE_BYTES].copy_from_slice(&own.bytes.to_le_bytes());
        }
        let received = self.exchange_control(&message, WORD_BYTES)?;
        let received = received.as_chunks::<WORD_BYTES>().0;
        must_be_of_one_call(
            received.iter().filter_map(|word| word.first_chunk()),
            own.bytes,
            self.captured(),
        )?;
        let all = |at: usize| received.iter().all(|word| word[at] == 1);
        let Some(seen) = seen.filter(|_| all(0)) else { return Ok(Sharing::Elsewhere) };
        if !all(1) {
            return self.not_all_open(own.bytes);
        }
        let opened = self.open(&seen, own, written, received);
        if all(2) {
            let Some(opened) = opened else {
                self.world.forget_open();
                // The others wait for the end of this rank's kernel.
                self.exchange_control(&vec![1; self.ranks()], 1)?;
                return Err(CollectiveError::Reopened);
            };
            return Ok(Sharing::Made(opened.with(exported)));
        }
        let opened_at = self.exchange_control(&vec![u8::from(opened.is_some()); self.ranks()], 1)?;
        let Some(opened) = opened.filter(|_| opened_at.iter().all(|opened| *opened == 1)) else {
            return self.not_all_open(own.bytes);
        };
        for peer in self.peers() {
            for memory in seen.all() {
                self.world.note_open(peer, memory.buffer);
            }
        }
        Ok(Sharing::Made(opened.with(exported)))
    }

    /// A call fetches what cannot be opened, unless it is short, and no graph does.
    fn not_all_open(&self, bytes: u64) -> Result<Sharing<'a>, CollectiveError> {
        match &self.recording {
            Some(_) => Err(CollectiveError::Closed),
            None if bytes < self.fetched_from => Ok(Sharing::Elsewhere),
            None => Ok(Sharing::OnGpus),
        }
    }

    /// The other ranks, in the job.
    fn peers(&self) -> impl Iterator<Item = u32> {
        let others = self.members.iter().enumerate().filter(|(rank, _)| *rank != self.me);
        others.map(|(_, peer)| *peer)
    }

    /// Whether all others have opened this rank's memory before.
    fn is_open_at_all(&self, seen: &CallMemory) -> bool {
        self.peers().all(|peer| seen.all().all(|memory| self.world.is_open_at(peer, memory.buffer)))
    }

    /// The words for all ranks; none where this one cannot show its memory to all others.
    fn export(
        &self,
        seen: &CallMemory,
        own: &LocalBuffer,
        written: Written,
        exported: &mut ExportedMemory<'a>,
    ) -> Option<Vec<u8>> {
        cuda::synchronize_both(seen.driver, &seen.from, &seen.to.unwrap_or(seen.from));
        let to = seen.to.zip(own.to).filter(|_| written.has(self.me));
        let mut message = vec![0; WORD_BYTES * self.ranks()];
        for (rank, word) in message.as_chunks_mut::<WORD_BYTES>().0.iter_mut().enumerate() {
            if rank == self.me {
                continue;
            }
            let peer = self.members[rank];
            let ranges = [Some((seen.from, own.from)), to];
            word[SIGNATURE_BYTES..].copy_from_slice(&exported.word(peer, seen.driver, ranges, own.bytes)?);
        }
        Some(message)
    }

    /// Opens what the others have shown; none where something cannot be opened, or is not what the call is
    /// about.
    fn open(
        &self,
        seen: &CallMemory,
        own: &LocalBuffer,
        written: Written,
        received: &[[u8; WORD_BYTES]],
    ) -> Option<Opened> {
        let mut shared = Opened {
            driver: seen.driver,
            own: seen.common,
            from: vec![own.from; self.ranks()],
            to: vec![own.to.unwrap_or(0); self.ranks()],
            open: Vec::new(),
        };
        for (rank, word) in received.iter().enumerate().filter(|(rank, _)| *rank != self.me) {
            let (from, to) = word[SIGNATURE_BYTES..].split_at(DESCRIPTOR_BYTES);
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
        seen: &CallMemory,
        own: &LocalBuffer,
        rank: usize,
        word: &[u8],
        open: &mut Vec<(u32, MappedMemory)>,
    ) -> Option<u64> {
        let peer = self.members[rank];
        let descriptor = Descriptor::decode(word, self.world.job()).filter(|descriptor| {
            descriptor.from == peer && descriptor.to == self.world.rank() && descriptor.bytes == own.bytes
        })?;
        // What is wrong here is told when the memory is fetched.
        let mapped = self.world.map_peer_memory(&descriptor, seen.driver, seen.common).ok()??;
        let address = mapped.address;
        open.push((peer, mapped));
        Some(address)
    }
}

impl Group<'_> {
    /// Runs this rank's kernel on its chunk, whose elements begin at each of these addresses. Of a call that
    /// is captured it becomes a part.
    ///
    /// # Safety
    /// All addresses are in memory of this call, of the chunk that is this rank's.
    ///
    /// # Errors
    /// What the driver says.
    pub unsafe fn run(
        &mut self,
        shared: &Shared<'_>,
        kernel: &Kernel,
        targets: &[u64],
        sources: &[u64],
        count: u64,
    ) -> Result<(), CudaError> {
        if let Some(recording) = &mut self.recording {
            recording.steps.extend(Step::elements(kernel, targets, sources, count));
            return Ok(());
        }
        if count == 0 {
            return Ok(());
        }
        let scope = Scope::of(shared.opened.driver, &shared.opened.own)?;
        // SAFETY: the caller's addresses are in memory of this call, of the chunk that is this rank's; what
        // is another rank's is open.
        unsafe { kernels::run_kernel(&scope, kernel, targets, sources, count) }
    }

    /// Hears that the kernels of all ranks have ended. `bytes` are those of what this rank's has read or
    /// written of each other one's.
    ///
    /// # Errors
    /// What has gone wrong here, or that something has at another rank.
    pub fn end_sharing(
        &mut self,
        shared: Shared<'_>,
        bytes: u64,
        outcome: Result<(), CudaError>,
    ) -> Result<(), CollectiveError> {
        if self.recording.is_some() {
            let open = shared.opened.open;
            // SAFETY: what has been recorded is this call's, whose caller has promised it for each launch.
            return unsafe { self.finish_recording(open, outcome.map_err(CollectiveError::from)) };
        }
        let received = self.exchange_control(&vec![u8::from(outcome.is_err()); self.ranks()], 1)?;
        if received.iter().any(|failed| *failed != 0) {
            self.world.forget_open();
        }
        outcome?;
        for (peer, mapped) in &shared.opened.open {
            self.world.count_mapped(*peer, mapped.channel, bytes);
        }
        match received.iter().position(|failed| *failed != 0) {
            Some(rank) => Err(CollectiveError::Peer(rank)),
            None => Ok(()),
        }
    }
}

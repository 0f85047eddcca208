//! Collective calls in CUDA graphs: exchange of exported memory, agreement of the ranks on a call, and its
//! capture.
//!
//! They are made by kernels alone: what hosts have to tell each other they tell while the graph is captured, and
//! in the graph the ranks' GPUs meet by words in memory that all have mapped.
//!
//! | module | contents |
//! | --- | --- |
//! | `recording` | Recording of a captured call: the kernels that it becomes in a graph, and the text of the one that copies |
//! | `barrier` | Device-side barrier of a collective in a CUDA graph: where its words lie, and its PTX text |
//! | `control` | Control memory of a group's graphs, and notification of their kernels when a rank fails |
//!
//! Nothing becomes a part of any graph before all ranks have opened what they need: where one cannot, all
//! captures stay as they are.

pub mod barrier;
pub mod control;
pub mod recording;

use core::any::Any;
use core::hash::{BuildHasher as _, Hasher as _};
use std::sync::{Arc, Once};

use super::group::{CollectiveError, Group};
use super::memory::{ExportedMemory, LocalBuffer, Range, Written};
use super::shared::Sharing;
use crate::cuda::{self, DeviceMemory, Driver};
use crate::matching::{DESCRIPTOR_BYTES, Descriptor};
use crate::report;
use crate::transfer::MappedMemory;
use barrier::{CELLS_BYTES, Failure};
use control::{Control, Controls, Owner};
use recording::{Kind, Move, Step};

/// Bytes of what a rank tells another one: a note, and a descriptor.
const EXPORT_BYTES: usize = 1 + DESCRIPTOR_BYTES;

/// What the first byte says: nothing is given, something is exported, what is given cannot be.
const NOTHING: u8 = 0;
const EXPORTED: u8 = 1;
const NOT_EXPORTED: u8 = 2;

impl Group<'_> {
    /// What [`Group::round`] does, as a part of a graph. Each exports to each one the range that it gives it,
    /// and opens those that it takes; its kernel copies them.
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
        let mut message = vec![0; EXPORT_BYTES * self.ranks()];
        for (rank, (word, range)) in
            message.as_chunks_mut::<EXPORT_BYTES>().0.iter_mut().zip(sends).enumerate()
        {
            if rank == self.me || range.bytes == 0 {
                word[0] = NOTHING;
                continue;
            }
            let seen = self.memory_in_context(range.address);
            let peer = self.members[rank];
            let descriptor = seen.and_then(|(driver, memory)| exported.export(peer, driver, &memory, *range));
            match descriptor {
                None => word[0] = NOT_EXPORTED,
                Some(descriptor) => {
                    word[0] = EXPORTED;
                    word[1..].copy_from_slice(&descriptor.encode(self.world.job()));
                }
            }
        }
        let received = self.exchange_control(&message, EXPORT_BYTES)?;
        let mut open = Vec::new();
        let moves = self.moves(sends, receives, received.as_chunks::<EXPORT_BYTES>().0, &mut open);
        let outcome = moves.map(|moves| {
            let step = Step::copies(&moves);
            self.recording.iter_mut().for_each(|recording| recording.steps.extend(step.clone()));
        });
        // SAFETY: the caller's ranges stay valid and nobody else's for each launch of the graph; what is
        // another rank's is open.
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
        received: &[[u8; EXPORT_BYTES]],
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
                (NOT_EXPORTED, _) => return Err(CollectiveError::Closed),
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

/// Bytes of what a rank tells all others: the number of what it keeps for the group, a number that a new one
/// may get, and its GPU.
const AGREEMENT_BYTES: usize = 24;

/// What a rank says of what it has done: it is well, it has failed, or memory cannot be opened.
const WELL: u8 = 0;
const FAILED: u8 = 1;
const CLOSED: u8 = 2;

impl Group<'_> {
    /// Captures what has been recorded, between a meeting of all ranks and another one, and keeps what is
    /// open for it.
    ///
    /// # Safety
    /// What is recorded stays within memory of the call, which is there and nobody else's whenever the graph
    /// is launched.
    ///
    /// # Errors
    /// What has gone wrong here, or that something has at another rank.
    pub unsafe fn finish_recording(
        &mut self,
        open: Vec<(u32, MappedMemory)>,
        outcome: Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        self.agree_outcome(outcome)?;
        let control = self.control()?;
        let Some(recording) = self.recording.as_mut() else { return Ok(()) };
        let (steps, last) = (core::mem::take(&mut recording.steps), core::mem::take(&mut recording.last));
        let held = core::mem::take(&mut recording.held);
        let stream = recording.stream;
        let mut kinds =
            core::iter::once(Kind::Barrier).chain(steps.iter().chain(&last).map(|step| step.kind));
        let ready = kinds.try_for_each(|kind| control.prepare(kind).map(drop));
        self.agree_outcome(ready.map_err(CollectiveError::from))?;
        // Whatever becomes of the rest: a part may be in the graph.
        control.keep(open.into_iter().map(|opened| Box::new(opened) as Box<dyn Any + Send + Sync>));
        control.keep(held);
        let barrier = control.barrier();
        let mut all = core::iter::once(&barrier).chain(&steps).chain(core::iter::once(&barrier)).chain(&last);
        // SAFETY: the caller has recorded steps within memory of the call; memory of other ranks is kept
        // open.
        let captured = all.try_for_each(|step| unsafe { control.capture(stream, step) });
        self.agree_outcome(captured.map_err(CollectiveError::from))
    }

    /// Hears how all ranks have fared.
    fn agree_outcome(&mut self, outcome: Result<(), CollectiveError>) -> Result<(), CollectiveError> {
        let own = match &outcome {
            Ok(()) => WELL,
            Err(CollectiveError::Closed) => CLOSED,
            Err(_) => FAILED,
        };
        let received = self.exchange_control(&vec![own; self.ranks()], 1)?;
        outcome?;
        match received.iter().position(|entry| *entry != WELL) {
            None => Ok(()),
            Some(rank) if received[rank] == CLOSED => Err(CollectiveError::Closed),
            Some(rank) => Err(CollectiveError::Peer(rank)),
        }
    }

    /// Whose graphs are captured now.
    fn owner(&self, caller: [u64; 2]) -> Owner {
        Owner { members: self.members.to_vec(), me: self.me, caller }
    }

    /// What all ranks keep for the group's graphs, which they make where one of them has none.
    fn control(&mut self) -> Result<Arc<Control>, CollectiveError> {
        let world = self.world;
        let known = Controls::of(world).zip(self.recording.as_ref()).zip(Driver::loaded());
        let Some(((controls, recording), driver)) = known else { return Err(CollectiveError::Closed) };
        let (context, device) = (recording.context, recording.device);
        let owner = self.owner(recording.caller);
        let found = controls.find(&owner, context);
        let gpu = cuda::gpu_number(driver, device).unwrap_or(0);
        let own = [found.as_ref().map_or(0, |control| control.number), new_number(), gpu];
        let message: Vec<u8> = own.iter().flat_map(|word| word.to_le_bytes()).collect();
        let received = self.exchange_control(&message.repeat(self.ranks()), AGREEMENT_BYTES)?;
        let received: Vec<[u64; 3]> = received.as_chunks::<AGREEMENT_BYTES>().0.iter().map(numbers).collect();
        if let Some(control) = found
            && received.iter().all(|entry| entry[0] == control.number)
        {
            let failure = control.failure().map_err(CollectiveError::from);
            self.agree_outcome(
                failure.and_then(|failure| failure.map_or(Ok(()), |failure| Err(failure.into()))),
            )?;
            return Ok(control);
        }
        let others = received.iter().enumerate().filter(|(rank, entry)| *rank != self.me && entry[2] == gpu);
        let same: Vec<u32> = others.map(|(rank, _)| self.members[rank]).collect();
        if !same.is_empty() && !cuda::is_under_mps(driver, device) {
            warn_of_time_slicing(world.rank(), &same);
        }
        let position = (self.me, self.ranks());
        let made = Control::new(driver, (context, device), received[0][1], position, world.graph_limit());
        let Some((peers, open)) = self.share_cells(made.as_ref().ok())? else {
            return Err(made.err().map_or(CollectiveError::Closed, CollectiveError::from));
        };
        let connected = made.and_then(|mut control| {
            control.connect(world, self.members, &peers)?;
            control.keep([Box::new(open) as Box<dyn Any + Send + Sync>]);
            Ok(control)
        });
        self.agree_outcome(connected.as_ref().map(drop).map_err(|error| CollectiveError::Cuda(*error)))?;
        let control = Arc::new(connected?);
        controls.add(owner, &control);
        Ok(control)
    }

    /// Opens the cells of all ranks at all of them: where they lie, and what is open; none where a rank has
    /// none.
    fn share_cells(&mut self, control: Option<&Control>) -> Result<Option<Cells>, CollectiveError> {
        let own = LocalBuffer { from: control.map_or(0, Control::cells), to: None, bytes: CELLS_BYTES };
        match self.share(&own, Written::NoRank, control.is_some(), true)? {
            Sharing::Made(shared) => Ok(Some((shared.opened.from, shared.opened.open))),
            _ => Ok(None),
        }
    }

    /// How a graph of this group has failed, if one has.
    ///
    /// # Errors
    /// What the driver says.
    pub fn check_graphs(&self, caller: [u64; 2]) -> Result<(), CollectiveError> {
        let controls = Controls::of(self.world);
        let failure = controls.map_or(Ok(None), |controls| controls.failure(&self.owner(caller)))?;
        failure.map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// No graph of this group is launched any more: what is kept for them goes.
    pub fn release_graphs(&self, caller: [u64; 2]) {
        if let Some(controls) = Controls::of(self.world) {
            controls.release(&self.owner(caller));
        }
    }
}

/// Once in a process.
fn warn_of_time_slicing(rank: u32, same: &[u32]) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| report::warn_of_time_slicing(rank, same, "graphs"));
}

/// Where the cells of all ranks lie, and what is open for that.
type Cells = (Vec<u64>, Vec<(u32, MappedMemory)>);

fn numbers(word: &[u8; AGREEMENT_BYTES]) -> [u64; 3] {
    let numbers = word.as_chunks::<8>().0;
    core::array::from_fn(|at| u64::from_le_bytes(numbers[at]))
}

/// A number that nobody has had, and not 0.
fn new_number() -> u64 {
    std::hash::RandomState::new().build_hasher().finish() | 1
}

impl From<Failure> for CollectiveError {
    fn from(failure: Failure) -> Self {
        Self::Graph(match failure {
            Failure::Late(rank) => format!("rank {rank} of the group has not launched its own in time"),
            Failure::Ended(rank) => format!("rank {rank} of the group has ended"),
            Failure::Passed(rank) => format!("one of rank {rank} of the group has failed"),
            Failure::Unknown(word) => {
                format!("its words in the GPU's memory were written over (with {word:#x})")
            }
        })
    }
}

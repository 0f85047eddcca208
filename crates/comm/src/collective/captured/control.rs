//! Control memory of a group's graphs, and notification of their kernels when a rank fails. The
//! memory has the words by which the GPUs meet, what graphs use of other ranks' memory, and the kernels.
//!
//! It belongs to the group, since nobody tells when a graph is launched for the last time, and lives until
//! the caller says that none is launched any more, or this rank leaves its job.

use core::any::Any;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::barrier::{
    self, CELLS_BYTES, COUNT_AT, ENDED_ADDRESS_AT, ENDED_AT, FAILED_AT, Failure, LIMIT_AT, OWN_BYTES,
    PEERS_AT,
};
use super::recording::{Kind, Step};
use crate::cuda::{Bounce, CudaError, Driver, Function, PinnedWord, Scope};
use crate::locks::{Mutex, rank};
use crate::world::{Listener, World};

/// Where the word lies.
#[derive(Debug)]
pub enum Ended {
    /// In memory of the host, which is written without the driver: that may be within a call that waits for
    /// the very kernel, such as one that frees memory, and lets no other in (seen on two H100, 2026-11-27).
    Host(PinnedWord),
    /// In the GPU's own, for one that is elsewhere.
    Device(u64),
}

impl Ended {
    /// In memory of the host where kernels can read that, else at an address of the GPU.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(scope: &Scope<'static>, device: u64) -> Result<Self, CudaError> {
        if Driver::is_remote() { Ok(Self::Device(device)) } else { PinnedWord::new(scope).map(Self::Host) }
    }

    /// Where kernels read it.
    pub fn address(&self) -> u64 {
        match self {
            Self::Host(word) => word.address(),
            Self::Device(address) => *address,
        }
    }
}

/// What kernels are told of whom.
#[derive(Debug)]
struct FailureNotifier {
    members: Vec<u32>,
    driver: &'static Driver,
    context: u64,
    ended: Ended,
    /// What they have been told.
    word: AtomicU64,
}

impl FailureNotifier {
    fn notify(&self, peer: u32) {
        let Some(position) = self.members.iter().position(|member| *member == peer) else { return };
        let word = position as u64 + 1;
        if self.word.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        match &self.ended {
            Ended::Host(flag) => flag.write(word),
            Ended::Device(address) => {
                // Without the context there is no kernel that waits.
                if let Ok(scope) = Scope::of_context(self.driver, self.context) {
                    // SAFETY: the word is there until the watch has ended, and the other is this thread's.
                    let _ = unsafe { scope.copy(*address, (&raw const word) as u64, size_of::<u64>()) };
                }
            }
        }
    }
}

/// Watches ranks until it is dropped. Kernels read a word, which is written as soon as a rank has gone.
#[derive(Debug)]
pub struct Watch {
    // In front of the word, which is there as long as somebody may tell.
    _listener: Listener,
    _notifier: Arc<FailureNotifier>,
}

impl Watch {
    /// Of the first of these ranks of a job that goes, or has gone, it writes the place in this list and 1 to
    /// a word that kernels of a context read.
    pub fn begin(
        world: &World,
        members: Vec<u32>,
        driver: &'static Driver,
        context: u64,
        ended: Ended,
    ) -> Self {
        let notifier = Arc::new(FailureNotifier { members, driver, context, ended, word: AtomicU64::new(0) });
        let callback = Arc::clone(&notifier);
        let listener = world.listen(move |peer| callback.notify(peer));
        let presence = world.presence();
        let disconnected = notifier.members.iter().find(|peer| !presence.has(**peer)).copied();
        disconnected.into_iter().for_each(|peer| notifier.notify(peer));
        Self { _listener: listener, _notifier: notifier }
    }
}

/// What belongs to one group.
pub struct Control {
    /// A number that all ranks have for it.
    pub number: u64,
    /// In front of the words, so that it ends before they go.
    watch: Option<Watch>,
    driver: &'static Driver,
    context: u64,
    /// What other ranks have mapped.
    cells: Bounce,
    /// What they have not.
    own: Bounce,
    me: usize,
    ranks: usize,
    functions: Mutex<rank::Leaf, HashMap<Kind, Function>>,
    held: Mutex<rank::Leaf, Vec<Box<dyn Any + Send + Sync>>>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("number", &self.number).field("me", &self.me).finish_non_exhaustive()
    }
}

impl Control {
    /// Words that say nothing yet, in a context on a device, for a rank of so many.
    ///
    /// # Errors
    /// What the driver says: where there is no memory that others can map.
    pub fn new(
        driver: &'static Driver,
        (context, device): (u64, i32),
        number: u64,
        (me, ranks): (usize, usize),
        limit: Duration,
    ) -> Result<Self, CudaError> {
        let scope = Scope::of_context(driver, context)?;
        let cells = Bounce::new(driver, device, CELLS_BYTES as usize)?;
        let own = Bounce::new(driver, device, OWN_BYTES as usize)?;
        let zeros = [0_u8; CELLS_BYTES as usize];
        let mut header = [0_u64; (OWN_BYTES / 8) as usize];
        header[(LIMIT_AT / 8) as usize] = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: both allocations have so many bytes, and are nobody else's yet.
        unsafe {
            scope.copy(cells.mapping.address, zeros.as_ptr() as u64, zeros.len())?;
            scope.copy(own.mapping.address, header.as_ptr() as u64, size_of_val(&header))?;
        }
        let (functions, held) = (Mutex::default(), Mutex::default());
        Ok(Self { number, watch: None, driver, context, cells, own, me, ranks, functions, held })
    }

    /// Where the cells lie.
    pub fn cells(&self) -> u64 {
        self.cells.mapping.address
    }

    /// Takes note of where the cells of all ranks lie, and has the ranks watched.
    ///
    /// # Errors
    /// What the driver says.
    pub fn connect(&mut self, world: &World, members: &[u32], peers: &[u64]) -> Result<(), CudaError> {
        let scope = Scope::of_context(self.driver, self.context)?;
        let start = self.own.mapping.address;
        let bytes = size_of_val(peers).min((OWN_BYTES - PEERS_AT) as usize);
        // SAFETY: the table has room for so many, and no kernel uses it yet.
        unsafe { scope.copy(start + PEERS_AT, peers.as_ptr() as u64, bytes) }?;
        let ended = Ended::new(&scope, start + ENDED_AT)?;
        let address = ended.address();
        // SAFETY: the table has room for so many, and no kernel uses it yet.
        unsafe { scope.copy(start + ENDED_ADDRESS_AT, (&raw const address) as u64, size_of::<u64>()) }?;
        self.watch = Some(Watch::begin(world, members.to_vec(), self.driver, self.context, ended));
        Ok(())
    }

    /// Keeps something as long as graphs may be launched.
    pub fn keep(&self, what: impl IntoIterator<Item = Box<dyn Any + Send + Sync>>) {
        self.held.lock().extend(what);
    }

    /// How a graph of this group has failed, if one has.
    ///
    /// # Errors
    /// What the driver says.
    pub fn failure(&self) -> Result<Option<Failure>, CudaError> {
        let scope = Scope::of_context(self.driver, self.context)?;
        let mut word = 0_u64;
        // SAFETY: both have room for a word.
        unsafe {
            scope.copy((&raw mut word) as u64, self.own.mapping.address + FAILED_AT, size_of::<u64>())
        }?;
        Ok(Failure::of(word))
    }

    /// The step by which the ranks meet.
    pub fn barrier(&self) -> Step {
        let parameters =
            [self.own.mapping.address + COUNT_AT, self.cells(), self.me as u64, self.ranks as u64];
        Step {
            kind: Kind::Barrier,
            blocks: [1, 1],
            threads: barrier::THREADS,
            parameters: parameters.to_vec(),
        }
    }

    /// Loads the kernel of a step, so that nothing but the launch is left.
    ///
    /// # Errors
    /// What the driver says.
    pub fn prepare(&self, kind: Kind) -> Result<Function, CudaError> {
        if let Some(function) = self.functions.lock().get(&kind) {
            return Ok(*function);
        }
        let scope = Scope::of_context(self.driver, self.context)?;
        let function = scope.load(&kind.text(), super::super::kernels::ENTRY)?;
        self.functions.lock().insert(kind, function);
        Ok(function)
    }

    /// Makes a step a part of what a stream captures.
    ///
    /// # Safety
    /// The step stays within memory that is there whenever the graph is launched, and nobody else's then.
    ///
    /// # Errors
    /// What the driver says.
    pub unsafe fn capture(&self, stream: u64, step: &Step) -> Result<(), CudaError> {
        let function = self.prepare(step.kind)?;
        let scope = Scope::of_context(self.driver, self.context)?;
        let mut parameters = step.parameters.clone();
        if step.kind != Kind::Barrier {
            parameters.push(self.own.mapping.address + FAILED_AT);
        }
        // SAFETY: these are the kernel's parameters, and the caller's step stays within memory that is there
        // and nobody else's whenever the graph is launched.
        unsafe { scope.enqueue(function, stream, step.blocks, step.threads, &parameters) }
    }
}

/// Whose graphs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The job's ranks, and this one's number.
    pub members: Vec<u32>,
    /// That number.
    pub me: usize,
    /// What this rank knows of the caller's group.
    pub caller: [u64; 2],
}

/// What the groups of a rank keep. There are several for a group whose graphs are of several contexts, or
/// whose other ranks have begun anew.
#[derive(Debug, Default)]
pub struct Controls(Mutex<rank::Leaf, Vec<(Owner, Arc<Control>)>>);

impl Controls {
    /// Those of a rank's part in a job.
    pub fn of(world: &World) -> Option<&Self> {
        world.user_data()
    }

    /// The one that graphs of a group use which are captured now, in a context.
    pub fn find(&self, owner: &Owner, context: u64) -> Option<Arc<Control>> {
        let controls = self.0.lock();
        let mut found =
            controls.iter().rev().filter(|(other, control)| other == owner && control.context == context);
        found.next().map(|(_, control)| Arc::clone(control))
    }

    /// One more.
    pub fn add(&self, owner: Owner, control: &Arc<Control>) {
        self.0.lock().push((owner, Arc::clone(control)));
    }

    /// How a graph of a group has failed, if one has.
    ///
    /// # Errors
    /// What the driver says.
    pub fn failure(&self, owner: &Owner) -> Result<Option<Failure>, CudaError> {
        let all: Vec<_> = self.0.lock().iter().filter(|(other, _)| other == owner).cloned().collect();
        for (_, control) in all {
            if let Some(failure) = control.failure()? {
                return Ok(Some(failure));
            }
        }
        Ok(None)
    }

    /// No graph of a group is launched any more.
    pub fn release(&self, owner: &Owner) {
        let mut controls = self.0.lock();
        let (disconnected, left) =
            core::mem::take(&mut *controls).into_iter().partition(|(other, _)| other == owner);
        *controls = left;
        drop(controls);
        // To end takes calls of the driver.
        drop::<Vec<_>>(disconnected);
    }
}

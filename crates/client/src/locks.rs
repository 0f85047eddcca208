//! The locks of this library, in the order in which a thread may take them.
//!
//! A thread that holds a lock takes only locks that stand below it in the list here, so no two threads can
//! wait for each other. Debug builds check it each time a lock is taken and panic at the wrong one; release
//! builds keep nothing of it: a rank is a type without a size. A lock may not be taken while another one of
//! the same rank is held either: of two heaps, say, neither comes first.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::time::Duration;
use parking_lot::{Condvar, RwLockReadGuard, RwLockWriteGuard};

/// What a lock guards, and with it the lock's place in the order.
#[cfg_attr(not(debug_assertions), expect(dead_code, reason = "only debug builds look at the order"))]
pub trait Rank {
    /// The place: a thread takes locks with growing numbers.
    const NUMBER: u32;
    /// The names of all ranks in order.
    const NAMES: &'static [&'static str];
}

/// Declares the ranks from the first taken to the last.
macro_rules! ranks {
    ($($(#[$text:meta])* $name:ident),* $(,)?) => {
        /// The ranks: one type each.
        #[cfg_attr(
            not(feature = "private-tables"),
            allow(dead_code, reason = "what private tables keep has ranks, too")
        )]
        pub mod rank {
            enum Number { $($name),* }

            $(
                $(#[$text])*
                #[derive(Debug)]
                pub enum $name {}

                impl crate::locks::Rank for $name {
                    const NUMBER: u32 = Number::$name as u32;
                    const NAMES: &'static [&'static str] = NAMES;
                }
            )*

            const NAMES: &[&str] = &[$(stringify!($name)),*];
            // A thread has a bit for each.
            const _: () = assert!(NAMES.len() <= 128);
        }
    };
}

ranks! {
    /// Held while sessions are being opened; what was said last.
    ConnectionMessages,
    /// Sessions that were granted before `cuInit`.
    HeldConnections,
    /// How often a primary context is retained.
    PrimaryContexts,
    /// Streams of ours in a context.
    Couriers,
    /// Kernels of a library.
    LibraryKernels,
    /// Modules of a library, by context.
    LibraryModules,
    /// Variables of a library.
    LibraryVariables,
    /// Managed variables of a library.
    LibraryManaged,
    /// Images of a library that the server may still ask for.
    LibraryImages,
    /// Functions of a module.
    ModuleFunctions,
    /// Functions of a kernel, by context.
    KernelFunctions,
    /// Variables of a module.
    ModuleVariables,
    /// Pools of devices.
    PoolsOfDevices,
    /// Default pools of places that are no devices.
    PoolsOfPlaces,
    /// What one server's worker has lent another's.
    Loans,
    /// What of an executable graph changes.
    ExecutableGraph,
    /// An event's last record.
    EventRecord,
    /// Stream captures.
    Captures,
    /// Reserved addresses and mappings.
    VirtualMemory,
    /// How servers reach each other.
    PeerWays,
    /// The heaps of contexts.
    HeapsOfContexts,
    /// Levels of a mipmapped array.
    ArrayLevels,
    /// What other processes exported and this one uses.
    Imported,
    /// What a linker made.
    LinkerResult,
    /// What a linker was given.
    Linker,
    /// Held while pieces of a copy from a device are asked for.
    CopiesFromDevice,
    /// Mappings and handles of an allocation.
    AllocationUses,
    /// Where the pages of an allocation in host memory lie for its mirror.
    AllocationMirror,
    /// Attributes of a function.
    FunctionAttributes,
    /// Texture and surface objects.
    Textures,
    /// What texture and surface references are bound to.
    TextureReferences,
    /// Answers about occupancy.
    OccupancyAnswers,
    /// Launches that are set up with `cuParamSet`.
    PreparedLaunches,
    /// Answers that hold for ever.
    Answers,
    /// Pools that end when their memory is free.
    EndingPools,
    /// Memory of all pools in host memory, by address.
    LiveRanges,
    /// Memory of a pool in host memory.
    Ranges,
    /// All pools in host memory.
    AllRanges,
    /// Imports that are closed when a stream has passed.
    ClosingImports,
    /// What is to be done when streams reach a point.
    Callbacks,
    /// Memory that is registered with network cards.
    RegisteredMemory,
    /// Plans for copies.
    Plans,
    /// The program's loaded files.
    LoadedObjects,
    /// Images that the server may ask for.
    ImageOffers,
    /// Hashes of files.
    FileHashes,
    /// How network cards reach the devices.
    GpuDirectText,
    /// Pages of managed variables.
    ManagedPages,
    /// What was found out about that, for the statistics.
    PeerAddresses,
    /// The program's own references to user objects.
    ProgramReferences,
    /// All user objects.
    UserObjects,
    /// All graphs and their nodes.
    Graphs,
    /// Memory of graphs that is given back when launches are done.
    RetiredGraphMemory,
    /// The making of an event on the server.
    EventMaking,
    /// Memory of which a server has a mirror.
    MirroredRegions,
    /// Memory of allocation nodes.
    GraphAllocations,
    /// Memory that launches of graphs have allocated.
    LiveGraphMemory,
    /// Who needs the memory at the addresses of a graph.
    GraphReservation,
    /// How much memory graphs hold.
    GraphMemoryUsage,
    /// Buffers that wait for their next use.
    BounceBuffers,
    /// Pinned and registered host memory.
    HostMemory,
    /// Memory that is being read for copies.
    Uploads,
    /// What the server reports the end of.
    Watches,
    /// What became of a transfer.
    TransferOutcome,
    /// Writes to the program's memory that are not done.
    PendingWrites,
    /// Device memory by address.
    DeviceMemory,
    /// What was advised for memory.
    MemoryAdvice,
    /// Mappings of host memory at addresses of the program's.
    HostMappings,
    /// Free addresses of a window.
    FreeAddresses,
    /// Which windows there are.
    AddressWindows,
    /// A heap of device memory.
    Heap,
    /// All heaps.
    Heaps,
    /// Copies of a stream whose bytes are not there.
    StreamTransfers,
    /// Limits of a context.
    ContextLimits,
    /// Peers of a context.
    ContextPeers,
    /// Free pages of the host window.
    HostWindow,
    /// Values that the runtime keeps with contexts.
    ContextStorage,
    /// Texts that were compiled.
    CompiledTexts,
    /// Which handles are free.
    FreeHandles,
    /// What is kept of the objects of one kind.
    Registries,
    /// Which slots for replies are free.
    ReplySlots,
    /// The reply that a thread waits for.
    ReplyOutcome,
    /// What calls waited for.
    WaitStatistics,
}

/// A mutex with a rank.
#[derive(Debug)]
pub struct Mutex<R, T> {
    lock: parking_lot::Mutex<T>,
    rank: PhantomData<fn() -> R>,
}

impl<R: Rank, T> Mutex<R, T> {
    /// A mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self { lock: parking_lot::Mutex::new(value), rank: PhantomData }
    }

    /// Takes the lock, waiting for it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, R, T> {
        let held = Held::in_order();
        Guard { guard: self.lock.lock(), _held: held }
    }

    /// Takes the lock if nobody has it. Whoever does not wait holds up nobody, so the order does not matter
    /// here.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, R, T>> {
        let guard = self.lock.try_lock()?;
        Some(Guard { guard, _held: Held::out_of_order() })
    }
}

impl<R: Rank, T: Default> Default for Mutex<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A lock with a rank that several may hold who only read.
#[derive(Debug)]
pub struct RwLock<R, T> {
    lock: parking_lot::RwLock<T>,
    rank: PhantomData<fn() -> R>,
}

impl<R: Rank, T> RwLock<R, T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { lock: parking_lot::RwLock::new(value), rank: PhantomData }
    }

    /// Takes the lock for reading, waiting for it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> Guard<R, RwLockReadGuard<'_, T>> {
        let held = Held::in_order();
        Guard { guard: self.lock.read(), _held: held }
    }

    /// Takes the lock for writing, waiting for it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> Guard<R, RwLockWriteGuard<'_, T>> {
        let held = Held::in_order();
        Guard { guard: self.lock.write(), _held: held }
    }
}

impl<R: Rank, T: Default> Default for RwLock<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A mutex that is held.
pub type MutexGuard<'a, R, T> = Guard<R, parking_lot::MutexGuard<'a, T>>;

/// A lock that is held.
pub struct Guard<R: Rank, G> {
    // The lock is given back before its rank.
    guard: G,
    _held: Held<R>,
}

impl<R: Rank, T> MutexGuard<'_, R, T> {
    /// Gives the lock back until somebody notifies `condition`. The rank stays taken: the thread does nothing
    /// meanwhile.
    pub fn wait(&mut self, condition: &Condvar) {
        condition.wait(&mut self.guard);
    }

    /// As [`wait`](Self::wait), but not for longer than `most`.
    pub fn wait_for(&mut self, condition: &Condvar, most: Duration) {
        condition.wait_for(&mut self.guard, most);
    }
}

impl<R: Rank, G: Deref> Deref for Guard<R, G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<R: Rank, G: DerefMut> DerefMut for Guard<R, G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// That the calling thread holds a lock of the rank. Guards are not sent to other threads, so this is not
/// either.
struct Held<R: Rank>(PhantomData<(R, *const ())>);

#[cfg(not(debug_assertions))]
impl<R: Rank> Held<R> {
    #[inline]
    fn in_order() -> Self {
        Self(PhantomData)
    }

    #[inline]
    fn out_of_order() -> Self {
        Self(PhantomData)
    }
}

#[cfg(debug_assertions)]
mod checked {
    use crate::locks::{Held, Rank};
    use core::cell::Cell;
    use core::marker::PhantomData;

    thread_local! {
        /// A bit for each rank of which the calling thread holds a lock.
        static HELD: Cell<u128> = const { Cell::new(0) };
    }

    impl<R: Rank> Held<R> {
        #[track_caller]
        pub(super) fn in_order() -> Self {
            let held = HELD.get();
            let newest = 128 - held.leading_zeros();
            assert!(
                newest <= R::NUMBER,
                "the lock of {} is asked for by a thread that holds that of {}: see the order in locks.rs",
                R::NAMES[R::NUMBER as usize],
                R::NAMES[newest as usize - 1],
            );
            Self::out_of_order()
        }

        pub(super) fn out_of_order() -> Self {
            HELD.set(HELD.get() | 1 << R::NUMBER);
            Self(PhantomData)
        }
    }

    impl<R: Rank> Drop for Held<R> {
        fn drop(&mut self) {
            HELD.set(HELD.get() & !(1 << R::NUMBER));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    ranks! {
        Outer,
        Inner,
    }

    #[test]
    fn locks_are_taken_downwards_and_again() {
        let (outer, inner) = (Mutex::<rank::Outer, _>::new(1), RwLock::<rank::Inner, _>::new(2));
        for _ in 0..2 {
            let mut one = outer.lock();
            *one += *inner.read();
            *inner.write() += *one;
        }
        assert_eq!((*outer.lock(), *inner.read()), (8, 13));
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "the lock of Outer is asked for by a thread that holds that of Inner")]
    fn a_lock_above_one_that_is_held_is_a_mistake() {
        let (outer, inner) = (Mutex::<rank::Outer, _>::new(()), Mutex::<rank::Inner, _>::new(()));
        let _inner = inner.lock();
        let _outer = outer.lock();
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "the lock of Inner is asked for by a thread that holds that of Inner")]
    fn two_locks_of_one_rank_are_a_mistake() {
        let (one, other) = (Mutex::<rank::Inner, _>::new(()), RwLock::<rank::Inner, _>::new(()));
        let _one = one.lock();
        let _other = other.read();
    }

    #[test]
    fn a_lock_that_is_not_waited_for_may_be_taken_in_any_order() {
        let (outer, inner) = (Mutex::<rank::Outer, _>::new(()), Mutex::<rank::Inner, _>::new(()));
        let inner = inner.lock();
        assert!(outer.try_lock().is_some());
        drop(inner);
        drop(outer.lock());
    }
}

//! The handles that the program holds: made here, checked here.
//!
//! All kinds share one table of slots, as the worker's table does. A slot says which use of it is valid, so a
//! null, foreign or freed handle is refused at once, without asking the server. The program has addresses in
//! their place ([`addresses`]), into which [`RawHandle`] turns them where they leave the library, and back.
//! What the client knows of an object is [kept](Object) under its handle.

mod addresses;

use addresses::refusal;
pub use addresses::{Object, get, insert, remove, select};

use crate::locks::{Mutex, rank};
use causeway_api::handle::{Context, Handle, Kind};
use causeway_api::sys::CUresult;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const SEGMENT: usize = 4096;
const SEGMENTS: usize = (1 << addresses::SLOT_BITS) / SEGMENT;

/// A slot is not used again before this many others have been freed: a command of the worker that still waits
/// for its stream may be the one that frees the old object.
const REST: usize = 4096;

/// One place of the table.
struct Slot {
    /// A whole handle while it is valid, else the generation of the slot's next use.
    handle: AtomicU64,
    /// The whole handle that the slot was last used for, valid or not: what an address means.
    named: AtomicU64,
    /// For streams and contexts: the sequence number of the newest command that put work into it; see
    /// [`crate::model::completion`].
    sequence: AtomicU64,
    /// For contexts: the sequence number of the newest command in their legacy default stream.
    last_legacy_sequence: AtomicU64,
}

impl Slot {
    const fn unused() -> Self {
        Self {
            handle: AtomicU64::new(0),
            named: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            last_legacy_sequence: AtomicU64::new(0),
        }
    }
}

/// All handles.
struct Handles {
    slots: [OnceLock<Box<[Slot; SEGMENT]>>; SEGMENTS],
    free: Mutex<rank::FreeHandles, Free>,
}

static HANDLES: Handles = Handles {
    slots: [const { OnceLock::new() }; SEGMENTS],
    free: Mutex::new(Free { next: 0, resting: VecDeque::new() }),
};

struct Free {
    next: u32,
    resting: VecDeque<u32>,
}

fn slot(index: u32) -> Option<&'static Slot> {
    let index = index as usize;
    HANDLES.slots.get(index / SEGMENT)?.get().map(|segment| &segment[index % SEGMENT])
}

fn slot_or_new(index: u32) -> &'static Slot {
    let index = index as usize;
    let segment =
        HANDLES.slots[index / SEGMENT].get_or_init(|| Box::new([const { Slot::unused() }; SEGMENT]));
    &segment[index % SEGMENT]
}

/// Keeps the slot of a handle for an object that is always called so, and of which the program may know
/// before it exists. Only before any handle is made.
pub fn fix<K: Kind>(handle: Handle<K>) {
    let mut free = HANDLES.free.lock();
    free.next = free.next.max(handle.index() + 1);
    slot_or_new(handle.index()).named.store(handle.value(), Ordering::Release);
}

/// What a handle is to the program.
pub trait RawHandle<K: Kind>: Copy {
    /// The handle as the program has it: an address, or null.
    fn as_raw(self) -> K::Raw;

    /// The handle that a program passed; null for what never was one. Whether it is valid, and of the kind,
    /// is not looked at.
    fn from_raw(raw: K::Raw) -> Self;
}

impl<K: Kind> RawHandle<K> for Handle<K> {
    #[inline]
    fn as_raw(self) -> K::Raw {
        K::raw(if self.is_null() { 0 } else { addresses::address_of(self.index(), self.generation()) })
    }

    #[inline]
    fn from_raw(raw: K::Raw) -> Self {
        meant(raw).map_or(Self::NULL, |(_, handle)| handle)
    }
}

/// The slot that the program's handle means, and the whole handle.
#[inline]
fn meant<K: Kind>(raw: K::Raw) -> Option<(&'static Slot, Handle<K>)> {
    let (index, generation) = addresses::meant_by(K::address(raw))?;
    let slot = slot(index)?;
    let handle = Handle::<K>::from_value(slot.named.load(Ordering::Acquire));
    (!handle.is_null() && addresses::low(handle.generation()) == generation).then_some((slot, handle))
}

/// Makes a handle for a new object.
///
/// # Panics
/// When the program holds four million objects.
pub fn create<K: Kind>() -> Handle<K> {
    create_of(0)
}

/// Makes a handle for a new context of one of the program's servers.
pub fn create_context(server: usize) -> Handle<Context> {
    create_of(server)
}

fn create_of<K: Kind>(server: usize) -> Handle<K> {
    let index = {
        let mut free = HANDLES.free.lock();
        if free.resting.len() > REST
            && let Some(index) = free.resting.pop_front()
        {
            index
        } else {
            let index = free.next;
            free.next += 1;
            index
        }
    };
    let slot = slot_or_new(index);
    let handle = Handle::new(index, slot.handle.load(Ordering::Relaxed) as u32).of(server);
    slot.sequence.store(0, Ordering::Relaxed);
    slot.last_legacy_sequence.store(0, Ordering::Relaxed);
    slot.named.store(handle.value(), Ordering::Release);
    slot.handle.store(handle.value(), Ordering::Release);
    handle
}

/// Makes a handle with a fixed place valid.
pub fn revive<K: Kind>(handle: Handle<K>) {
    slot_or_new(handle.index()).handle.store(handle.value(), Ordering::Release);
}

/// Notes the sequence number of the newest command in a stream or context; null handles have no place for it.
#[inline]
pub fn set_last_sequence<K: Kind>(handle: Handle<K>, sequence: u64) {
    if let Some(slot) = slot(handle.index())
        && !handle.is_null()
    {
        slot.sequence.store(sequence, Ordering::Release);
    }
}

/// The sequence number of the newest command in a stream or context.
#[inline]
pub fn sequence<K: Kind>(handle: Handle<K>) -> u64 {
    slot(handle.index()).map_or(0, |slot| slot.sequence.load(Ordering::Acquire))
}

/// Notes the sequence number of the newest command in the legacy default stream of a context.
#[inline]
pub fn set_last_legacy_sequence(context: Handle<Context>, sequence: u64) {
    if let Some(slot) = slot(context.index()) {
        slot.last_legacy_sequence.store(sequence, Ordering::Release);
    }
}

/// The sequence number of the newest command in the legacy default stream of a context.
#[inline]
pub fn last_legacy_sequence(context: Handle<Context>) -> u64 {
    slot(context.index()).map_or(0, |slot| slot.last_legacy_sequence.load(Ordering::Acquire))
}

/// Whether the handle is valid.
#[inline]
pub fn is_valid<K: Kind>(handle: Handle<K>) -> bool {
    K::accepts(handle.tag())
        && slot(handle.index()).is_some_and(|slot| slot.handle.load(Ordering::Acquire) == handle.value())
}

/// The handle that the program passed, if it is valid.
#[inline]
pub fn resolve<K: Kind>(raw: K::Raw) -> Result<Handle<K>, CUresult> {
    match meant::<K>(raw) {
        Some((slot, handle))
            if K::accepts(handle.tag()) && slot.handle.load(Ordering::Acquire) == handle.value() =>
        {
            Ok(handle)
        }
        _ => Err(refusal::<K>()),
    }
}

/// The handle that the program passed, which is not valid from now on.
pub fn retire<K: Kind>(raw: K::Raw) -> Result<Handle<K>, CUresult> {
    let handle = resolve::<K>(raw)?;
    if drop_handle(handle) { Ok(handle) } else { Err(refusal::<K>()) }
}

/// Makes a handle invalid; false when it was not valid. The slot may be used again.
pub fn drop_handle<K: Kind>(handle: Handle<K>) -> bool {
    let valid = suspend(handle);
    if valid {
        HANDLES.free.lock().resting.push_back(handle.index());
    }
    valid
}

/// Passes on the outcome of the call that was to make an object: where it failed, the object's handle is
/// given up.
pub fn or_drop<K: Kind, T>(handle: Handle<K>, outcome: Result<T, CUresult>) -> Result<T, CUresult> {
    outcome.inspect_err(|_| {
        drop_handle(handle);
    })
}

/// Makes a handle with a fixed place invalid until it is revived; false when it was not valid.
pub fn suspend<K: Kind>(handle: Handle<K>) -> bool {
    let next = u64::from(handle.generation().wrapping_add(1));
    slot(handle.index()).is_some_and(|slot| {
        slot.handle.compare_exchange(handle.value(), next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::handle::{Event, Function, Kernel, MAX_SERVERS, Stream};

    #[test]
    fn dropped_handle_is_invalid_and_its_slot_rests() {
        let handle = create::<Event>();
        assert_eq!(resolve::<Event>(handle.as_raw()), Ok(handle));
        assert_eq!(resolve::<Kernel>(handle.as_raw().cast()), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
        assert_eq!(retire::<Event>(handle.as_raw()), Ok(handle));
        assert_eq!(retire::<Event>(handle.as_raw()), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
        assert!(!is_valid(handle) && create::<Event>().index() != handle.index());
    }

    #[test]
    fn null_and_foreign_handles_are_refused() {
        assert!(resolve::<Event>(core::ptr::null_mut()).is_err());
        assert!(resolve::<Event>(0x7fff_1234_5678_usize as _).is_err());
        assert!(resolve::<Event>(u64::MAX as usize as _).is_err());
        assert_eq!(resolve::<Context>(core::ptr::null_mut()), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
    }

    #[test]
    fn a_kernel_passes_for_a_function() {
        let kernel = create::<Kernel>();
        assert_eq!(resolve::<Function>(kernel.as_raw().cast()).unwrap().value(), kernel.value());
    }

    #[test]
    fn only_issued_handle_addresses_resolve() {
        let handles: Vec<Handle<Stream>> = (0..50).map(|server| create_of(server % MAX_SERVERS)).collect();
        let mut addresses: Vec<u64> = handles.iter().map(|handle| handle.as_raw() as u64).collect();
        for (handle, address) in handles.iter().zip(&addresses) {
            assert!(address.is_multiple_of(16) && address >> 47 == 0, "{handle:?} is {address:#x}");
            assert_eq!(resolve::<Stream>(*address as _), Ok(*handle));
            assert!(
                resolve::<Stream>((*address + 1) as _).is_err()
                    && resolve::<Stream>((*address | 8) as _).is_err()
            );
            assert!(
                resolve::<Stream>(handle.value() as _).is_err(),
                "the wire's form is none of the program's"
            );
        }
        addresses.dedup();
        assert_eq!(addresses.len(), handles.len());
        assert!(
            Handle::<Stream>::NULL.as_raw().is_null() && Handle::<Context>::null_of(3).as_raw().is_null()
        );
    }

    #[test]
    fn reused_slot_invalidates_the_old_address() {
        let old = create::<Event>();
        let raw = old.as_raw();
        assert!(drop_handle(old));
        assert_eq!(resolve::<Event>(raw), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
        let reused = (0..4 * REST).map(|_| create::<Event>()).inspect(|handle| {
            assert!(handle.as_raw() != raw && resolve::<Event>(handle.as_raw()) == Ok(*handle));
            assert!(resolve::<Event>(raw).is_err(), "{old:?} passes for {handle:?}");
            drop_handle(*handle);
        });
        let reused = reused.filter(|handle| handle.index() == old.index()).count();
        assert!(reused > 0, "the slot was not used again");
    }

    #[test]
    fn fixed_handle_keeps_its_address_while_suspended() {
        // Beyond the slots that tests beside this one get.
        let handle = Handle::<Context>::new((SEGMENT * SEGMENTS) as u32 - 1, 0).of(2);
        slot_or_new(handle.index()).named.store(handle.value(), Ordering::Release);
        assert_eq!(Handle::from_raw(handle.as_raw()), handle);
        assert!(resolve::<Context>(handle.as_raw()).is_err());
        revive(handle);
        assert_eq!(resolve::<Context>(handle.as_raw()), Ok(handle));
        assert!(suspend(handle) && resolve::<Context>(handle.as_raw()).is_err());
        assert_eq!(Handle::from_raw(handle.as_raw()), handle);
    }
}

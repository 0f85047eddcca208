//! The addresses by which the program knows its handles.
//!
//! Programs take handles for pointers to objects: PyTorch marks the streams that are not its own in the
//! lowest bit, others keep numbers beside an address in 64 bits. So a handle is given out as an address of
//! user space, a multiple of 16 at which nothing of the program's lies. It tells the slot and the low bits of
//! the slot's generation; the slot has the rest.
//!
//! Objects: the client's state of each, by its handle.

use core::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_api::handle::{Context, Handle, Kind};
use causeway_api::sys::CUresult;

use crate::locks::{RwLock, rank};
use crate::log::{error, info};

/// Log2 of how many slots there can be.
pub const SLOT_BITS: u32 = 22;

/// Bits of a generation that an address has: a stale handle is taken for a new one when its slot has been
/// used again 256 times, or a multiple, and 4096 others in between each time.
const GENERATION_BITS: u32 = 8;

/// Log2 of the distance between two addresses.
const STEP_BITS: u32 = 4;

/// Bytes of the addresses of all handles: 16 GiB.
const SIZE: u64 = 1 << (STEP_BITS + SLOT_BITS + GENERATION_BITS);

/// Where the addresses begin; 0 until the first is wanted. A multiple of the page size.
static BASE: AtomicU64 = AtomicU64::new(0);

/// The address for a slot in one of its generations.
#[inline]
pub fn address_of(index: u32, generation: u32) -> u64 {
    base() + (u64::from(low(generation)) << SLOT_BITS | u64::from(index)) * (1 << STEP_BITS)
}

/// The slot that an address means, and the low bits of the generation; nothing for one that is not an address of a
/// handle.
#[inline]
pub fn meant_by(address: u64) -> Option<(u32, u32)> {
    let offset = address.wrapping_sub(base());
    if offset >= SIZE || !offset.is_multiple_of(1 << STEP_BITS) {
        return None;
    }
    let number = offset >> STEP_BITS;
    Some(((number & ((1 << SLOT_BITS) - 1)) as u32, (number >> SLOT_BITS) as u32))
}

/// The bits of a generation that an address has.
#[inline]
pub fn low(generation: u32) -> u32 {
    generation & ((1 << GENERATION_BITS) - 1)
}

#[inline]
fn base() -> u64 {
    match BASE.load(Ordering::Relaxed) {
        0 => choose(),
        base => base,
    }
}

/// Finds the place, which stays the same from then on, in children as well.
#[cold]
fn choose() -> u64 {
    let limited = has_limit();
    let chosen = if limited { None } else { reserve() };
    let base = chosen.unwrap_or_else(|| {
        let base = unused();
        let cause = if limited { "addresses are limited (ulimit -v)" } else { "the system refuses them" };
        info!("handles have {SIZE} bytes of addresses from {base:#x} on, where nothing lies; not reserved: {cause}");
        base
    });
    match BASE.compare_exchange(0, base, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => base,
        Err(first) => {
            // Another thread was faster.
            if let Some(ours) = chosen {
                // SAFETY: reserved above, and nobody knows it.
                unsafe { libc::munmap(ours as *mut libc::c_void, SIZE as usize) };
            }
            first
        }
    }
}

/// Whether the process may not have as many addresses as it likes. A program then needs what it may have for
/// itself.
fn has_limit() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: there is room for the result.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    known && limit.rlim_cur != libc::RLIM_INFINITY
}

/// Takes addresses at which nothing else can come to lie, without memory.
fn reserve() -> Option<u64> {
    map(0, 0)
}

/// Addresses at which nothing lies. The system gives out addresses from the top, so that nothing comes here
/// unless it is asked for.
fn unused() -> u64 {
    // Between what is mapped for programs at the bottom and the windows of device and host memory.
    const FIRST: u64 = 0x0a00_0000_0000;
    const DISTANCE: u64 = 1 << 36;
    const CANDIDATES: u64 = 64;
    let candidates = (0..CANDIDATES).map(|number| FIRST + number * DISTANCE);
    candidates.clone().find(|candidate| is_unused(*candidate)).unwrap_or_else(|| {
        error!("every candidate address range for handles is in use; using {FIRST:#x} anyway");
        FIRST
    })
}

/// Whether nothing lies in the range that begins here. To be seen even by a process that may not have it: the
/// system looks for what is there before it looks at the limit.
fn is_unused(candidate: u64) -> bool {
    match map(candidate, libc::MAP_FIXED_NOREPLACE) {
        Some(address) => {
            // SAFETY: mapped just now, and nobody knows it.
            unsafe { libc::munmap(address as *mut libc::c_void, SIZE as usize) };
            // Systems before 4.17 take the address for a wish.
            address == candidate
        }
        None => std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM),
    }
}

fn map(hint: u64, flags: libc::c_int) -> Option<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags;
    // SAFETY: replaces nothing: without an address the system chooses one that is free, and with one it
    // refuses what is not.
    let found =
        unsafe { libc::mmap(hint as *mut libc::c_void, SIZE as usize, libc::PROT_NONE, flags, -1, 0) };
    (found != libc::MAP_FAILED).then_some(found as u64)
}

/// What is kept of an object: one type for each kind of handle.
pub trait Object: Any + Send + Sync {
    /// The kind of its handle.
    type Kind: Kind;
}

/// The value of a handle, and what is kept under it.
type Entry = (u64, Arc<dyn Any + Send + Sync>);

/// More than the tags of handles.
const TAGS: usize = 32;

/// All that is kept: by the tag of the kind, then by slot.
static OBJECTS: [RwLock<rank::Objects, Vec<Option<Entry>>>; TAGS] = [const { RwLock::new(Vec::new()) }; TAGS];

fn of_kind<T: Object>() -> &'static RwLock<rank::Objects, Vec<Option<Entry>>> {
    const { assert!((T::Kind::TAG as usize) < TAGS) };
    &OBJECTS[T::Kind::TAG as usize]
}

/// Keeps `object` under `handle`.
pub fn insert<T: Object>(handle: Handle<T::Kind>, object: Arc<T>) {
    let index = handle.index() as usize;
    let mut entries = of_kind::<T>().write();
    if index >= entries.len() {
        entries.resize_with(index + 1, || None);
    }
    entries[index] = Some((handle.value(), object));
}

/// What is kept under `handle`.
#[inline]
pub fn get<T: Object>(handle: Handle<T::Kind>) -> Result<Arc<T>, CUresult> {
    let object = match of_kind::<T>().read().get(handle.index() as usize) {
        Some(Some((value, object))) if *value == handle.value() => object.clone(),
        _ => return Err(refusal::<T::Kind>()),
    };
    object.downcast().map_err(|_| refusal::<T::Kind>())
}

/// Takes out what is kept under `handle`.
pub fn remove<T: Object>(handle: Handle<T::Kind>) -> Option<Arc<T>> {
    let mut entries = of_kind::<T>().write();
    let entry = entries.get_mut(handle.index() as usize)?;
    let (_, object) = entry.take_if(|(value, _)| *value == handle.value())?;
    object.downcast().ok()
}

/// Everything of a sort that `wanted` picks.
pub fn select<T: Object>(predicate: impl Fn(&T) -> bool) -> Vec<(Handle<T::Kind>, Arc<T>)> {
    let entries = of_kind::<T>().read();
    let is_selected = |object: &&Entry| object.1.downcast_ref().is_some_and(&predicate);
    let selected = entries.iter().flatten().filter(is_selected);
    selected
        .filter_map(|(value, object)| Some((Handle::from_value(*value), object.clone().downcast().ok()?)))
        .collect()
}

/// What a program gets that passes something else for a handle of the kind.
pub fn refusal<K: Kind>() -> CUresult {
    if K::TAG == Context::TAG {
        CUresult::CUDA_ERROR_INVALID_CONTEXT
    } else {
        CUresult::CUDA_ERROR_INVALID_HANDLE
    }
}

#[cfg(test)]
mod tests {
    use causeway_api::handle::UserObject;

    use super::*;

    #[test]
    fn address_encodes_slot_and_generation() {
        let max = (1 << SLOT_BITS) - 1;
        for (index, generation) in [(0, 0), (1, 0), (77, 3), (max, 255), (max, 0xf_ff03), (5, 256)] {
            let address = address_of(index, generation);
            assert!(address.is_multiple_of(16) && address != 0 && address >> 47 == 0, "{address:#x}");
            assert_eq!(meant_by(address), Some((index, generation % 256)));
            for mark in [1, 2, 8, 15] {
                assert_eq!(meant_by(address | mark), None);
            }
        }
    }

    #[test]
    fn other_addresses_mean_nothing() {
        let base = base();
        for address in [0, 1, 2, base - 16, base + SIZE, u64::MAX, u64::MAX - 15, 0x0200_0000_0000_0007] {
            assert_eq!(meant_by(address), None, "{address:#x}");
        }
    }

    #[test]
    fn what_is_reserved_cannot_be_reached_and_stays_reserved() {
        let address = address_of(4000, 77);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let holds = |line: &&str| {
            let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            (number(start)..number(end)).contains(&address)
        };
        assert!(
            maps.lines().find(holds).is_some_and(|line| line.contains(" ---p ")),
            "{address:#x} in\n{maps}"
        );
    }

    #[test]
    fn a_place_is_unused_until_something_lies_there() {
        let candidate = unused();
        assert!(is_unused(candidate));
        let page = (candidate + SIZE / 2) as *mut libc::c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: nothing lies there, and what is mapped is unmapped again.
        unsafe {
            assert_eq!(libc::mmap(page, 4096, libc::PROT_NONE, flags, -1, 0), page);
            assert!(!is_unused(candidate) && unused() != candidate);
            libc::munmap(page, 4096);
        }
        assert!(is_unused(candidate));
    }

    /// Of a kind of which nothing else is kept.
    struct Number(u32);

    impl Object for Number {
        type Kind = UserObject;
    }

    #[test]
    fn removed_objects_and_older_handles_are_not_found() {
        let (old, new) = (Handle::new(5, 0), Handle::new(5, 1));
        let number = |handle| get::<Number>(handle).map(|number| number.0);
        insert(old, Arc::new(Number(1)));
        assert_eq!(number(old), Ok(1));
        insert(new, Arc::new(Number(2)));
        assert!(number(old).is_err() && remove::<Number>(old).is_none());
        assert_eq!(select::<Number>(|number| number.0 == 2).len(), 1);
        assert!(select::<Number>(|number| number.0 == 1).is_empty());
        assert_eq!(remove::<Number>(new).map(|number| number.0), Some(2));
        assert_eq!(number(new), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
    }
}

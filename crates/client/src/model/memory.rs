//! Device memory that the program has: which addresses are the device's, and what lies around them.
//!
//! This map is the authority on what an address is: it holds what came from a session's window and what has
//! an address that the server's driver chose. Addresses from windows are unique. Drivers of several servers
//! may choose the same one, so that each server has its own map: an address means first what it is on the
//! current context's server.

use crate::locks::{RwLock, rank};
use crate::log::error;
use crate::model::address::heap::Heap;
use crate::model::{context, device};
use causeway_api::handle::{Context, Handle, MAX_SERVERS};
use causeway_api::sys::{CUdevice, CUdeviceptr, CUresult};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where device memory came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// `cuMemAlloc` and its like.
    Allocation,
    /// `cuMemAllocAsync` and its like.
    Pool,
    /// `cuMemAllocManaged`.
    Managed,
    /// A variable declared `__managed__`; it is freed with its library.
    ManagedVariable,
    /// A variable of a module; it is freed with the module.
    Variable,
    /// `cuMemMap`.
    Mapping,
    /// Another process's memory, by `cuIpcOpenMemHandle`.
    Imported,
    /// Another process's memory, from an imported pool.
    PoolImport,
}

impl Origin {
    /// Whether the memory belongs to a module or library, so that the program cannot free it.
    pub fn is_variable(self) -> bool {
        matches!(self, Self::Variable | Self::ManagedVariable)
    }

    /// Whether host and device use it by one address.
    pub fn is_managed(self) -> bool {
        matches!(self, Self::Managed | Self::ManagedVariable)
    }
}

/// A piece of device memory.
#[derive(Clone)]
pub struct Piece {
    /// Its first address.
    pub base: CUdeviceptr,
    /// Its size in bytes.
    pub size: u64,
    /// The context it was made in.
    pub context: Handle<Context>,
    /// The program's number of its device.
    pub device: CUdevice,
    /// Where it came from.
    pub origin: Origin,
    /// A number that no other piece of the process has or had.
    pub id: u64,
    /// The heap that it came from; nothing where the server allocated it.
    pub heap: Option<Arc<Heap>>,
}

type Pieces = BTreeMap<CUdeviceptr, Piece>;

/// Device memory of the program.
struct Memory {
    /// By server.
    pieces: [RwLock<rank::DeviceMemory, Pieces>; MAX_SERVERS],
    /// The highest number of a server that has memory, so that no map is looked into for nothing.
    highest: AtomicUsize,
}

static MEMORY: Memory =
    Memory { pieces: [const { RwLock::new(BTreeMap::new()) }; MAX_SERVERS], highest: AtomicUsize::new(0) };

/// Looks into the maps one after the other, the current context's server first, until `look` finds something.
fn search<T>(look: impl Fn(&RwLock<rank::DeviceMemory, Pieces>) -> Option<T>) -> Option<T> {
    let here = context::current_or_none().server();
    let others = (0..=MEMORY.highest.load(Ordering::Relaxed)).filter(|server| *server != here);
    look(&MEMORY.pieces[here]).or_else(|| others.into_iter().find_map(|server| look(&MEMORY.pieces[server])))
}

/// The piece in which an address lies.
fn piece_at(pieces: &Pieces, address: CUdeviceptr) -> Option<&Piece> {
    let (_, piece) = pieces.range(..=address).next_back()?;
    // An address right behind an empty variable belongs to nothing.
    (address - piece.base < piece.size).then_some(piece)
}

/// Notes memory that the server gave.
///
/// # Errors
/// `CUDA_ERROR_MAP_FAILED` when the program has other device memory at one of its addresses.
pub fn add(
    base: CUdeviceptr,
    size: u64,
    context: Handle<Context>,
    device: CUdevice,
    origin: Origin,
) -> Result<(), CUresult> {
    insert(Piece { base, size, context, device, origin, id: device::of_memory(), heap: None })
}

/// Notes a piece of memory.
///
/// # Errors
/// As [`add`].
pub fn insert(piece: Piece) -> Result<(), CUresult> {
    let server = piece.context.server();
    MEMORY.highest.fetch_max(server, Ordering::Relaxed);
    let mut pieces = MEMORY.pieces[server].write();
    let end = piece.base.saturating_add(piece.size);
    if let Some((_, other)) = pieces.range(..end.max(1)).next_back()
        && other.base + other.size > piece.base
        // Two modules may name one variable.
        && !(other.origin.is_variable() && piece.origin.is_variable())
    {
        error!(
            "{} bytes of device memory at {:#x} overlap {} that the program has at {:#x}",
            piece.size, piece.base, other.size, other.base
        );
        return Err(CUresult::CUDA_ERROR_MAP_FAILED);
    }
    pieces.insert(piece.base, piece);
    Ok(())
}

/// The piece in which an address lies.
pub fn find(address: CUdeviceptr) -> Option<Piece> {
    search(|pieces| piece_at(&pieces.read(), address).cloned())
}

/// Whether an address lies in known memory.
pub fn is_known(address: CUdeviceptr) -> bool {
    search(|pieces| piece_at(&pieces.read(), address).map(drop)).is_some()
}

/// Takes out memory that the program frees; an address that is not the start of an allocation is refused.
pub fn take(base: CUdeviceptr) -> Result<Piece, CUresult> {
    let is_freed =
        |piece: &Piece| matches!(piece.origin, Origin::Allocation | Origin::Pool | Origin::Managed);
    take_if(base, is_freed).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// Takes out the piece that begins at an address, if it is one of those that are `predicate`.
fn take_if(base: CUdeviceptr, predicate: impl Fn(&Piece) -> bool) -> Option<Piece> {
    search(|pieces| {
        let mut pieces = pieces.write();
        pieces.get(&base).filter(|piece| predicate(piece))?;
        pieces.remove(&base)
    })
}

/// Forgets a variable of a module that is unloaded, on a server.
pub fn forget_variable(server: usize, base: CUdeviceptr) {
    let mut pieces = MEMORY.pieces[server].write();
    if pieces.get(&base).is_some_and(|piece| piece.origin.is_variable()) {
        pieces.remove(&base);
    }
}

/// Whether a piece of this origin begins at an address.
pub fn starts(base: CUdeviceptr, origin: Origin) -> bool {
    search(|pieces| pieces.read().get(&base).filter(|piece| piece.origin == origin).map(drop)).is_some()
}

/// Takes out a piece that is not freed like an allocation.
pub fn remove(base: CUdeviceptr, origin: Origin) -> Option<Piece> {
    take_if(base, |piece| piece.origin == origin)
}

/// Forgets the memory of a context that ends; gives what does not end with it on the server: what is of pools, which
/// belong to the device and live on, what lies in this process, and what other processes have.
pub fn context_ends(context: Handle<Context>) -> Vec<Piece> {
    let ended: Vec<Piece> = {
        let mut pieces = MEMORY.pieces[context.server()].write();
        let is_ended = |piece: &Piece| piece.context == context && piece.origin != Origin::Mapping;
        let bases: Vec<_> = pieces.values().filter(|piece| is_ended(piece)).map(|piece| piece.base).collect();
        bases.iter().filter_map(|base| pieces.remove(base)).collect()
    };
    // Without the lock: the rest may have the last reference to its heap.
    let stays = |piece: &Piece| {
        matches!(piece.origin, Origin::Pool | Origin::Managed | Origin::Imported | Origin::PoolImport)
    };
    ended.into_iter().filter(stays).collect()
}

/// Whether a range lies in known memory; one that begins there and ends outside it is refused.
pub fn contains_range(address: CUdeviceptr, bytes: u64) -> Result<bool, CUresult> {
    if address == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let checked = search(|pieces| {
        let pieces = pieces.read();
        piece_at(&pieces, address).map(|_| check_pieces(&pieces, address, bytes))
    });
    checked.map_or(Ok(false), |checked| checked.map(|()| true))
}

fn check_pieces(pieces: &Pieces, address: CUdeviceptr, bytes: u64) -> Result<(), CUresult> {
    let (mut next, mut left) = (address, bytes);
    while let Some(piece) = piece_at(pieces, next) {
        let remaining = piece.size - (next - piece.base);
        if left <= remaining {
            return Ok(());
        }
        // Neighbouring mappings are one range.
        if piece.origin != Origin::Mapping {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        (next, left) = (next + remaining, left - remaining);
    }
    Err(CUresult::CUDA_ERROR_INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_within_their_piece_and_freed_once() {
        let context = Handle::new(900, 1);
        add(0x7000_0000_1000, 256, context, 0, Origin::Allocation).unwrap();
        add(0x7000_0000_2000, 16, context, 0, Origin::Variable).unwrap();
        assert_eq!(find(0x7000_0000_10ff).map(|piece| piece.base), Some(0x7000_0000_1000));
        assert!(find(0x7000_0000_1100).is_none());
        assert!(find(0x7000_0000_0fff).is_none());
        assert_eq!(contains_range(0x7000_0000_1080, 128), Ok(true));
        assert!(contains_range(0x7000_0000_1080, 129).is_err());
        assert_eq!(contains_range(0x6fff_0000_0000, 1 << 40), Ok(false));
        assert!(contains_range(0, 1).is_err());
        assert!(take(0x7000_0000_1010).is_err() && take(0x7000_0000_2000).is_err());
        assert!(take(0x7000_0000_1000).is_ok() && take(0x7000_0000_1000).is_err());
        context_ends(context);
        assert!(find(0x7000_0000_2000).is_none());
    }

    #[test]
    fn overlapping_memory_is_a_clash() {
        let context = Handle::new(901, 1);
        add(0x7100_0000_1000, 256, context, 0, Origin::Allocation).unwrap();
        for base in [0x7100_0000_0fff, 0x7100_0000_1000, 0x7100_0000_10ff] {
            let clash = add(base, 2, context, 0, Origin::Variable);
            assert_eq!(clash, Err(CUresult::CUDA_ERROR_MAP_FAILED));
        }
        add(0x7100_0000_1100, 16, context, 0, Origin::Variable).unwrap();
        add(0x7100_0000_1100, 16, context, 0, Origin::Variable).unwrap();
        context_ends(context);
    }

    #[test]
    fn neighbouring_mappings_are_one_range() {
        let context = Handle::new(902, 1);
        for base in [0x7200_0000_0000, 0x7200_0000_1000] {
            add(base, 0x1000, context, 0, Origin::Mapping).unwrap();
        }
        assert!(contains_range(0x7200_0000_0000, 0x2000).is_ok());
        assert!(contains_range(0x7200_0000_0001, 0x2000).is_err());
        assert!(take(0x7200_0000_0000).is_err());
        for base in [0x7200_0000_0000, 0x7200_0000_1000] {
            assert!(remove(base, Origin::Mapping).is_some());
        }
    }
}

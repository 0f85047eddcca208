//! Device memory that the program has: which addresses are the device's, and what lies around them.

use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{CUdevice, CUdeviceptr, CUresult};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

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
}

impl Origin {
    /// Whether it belongs to a module or library, so that the program cannot free it.
    pub fn is_variable(self) -> bool {
        matches!(self, Self::Variable | Self::ManagedVariable)
    }

    /// Whether host and device use it by one address.
    pub fn is_managed(self) -> bool {
        matches!(self, Self::Managed | Self::ManagedVariable)
    }
}

/// A piece of device memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
}

static PIECES: RwLock<BTreeMap<CUdeviceptr, Piece>> = RwLock::new(BTreeMap::new());

/// Notes memory that the server gave.
pub fn add(base: CUdeviceptr, size: u64, context: Handle<Context>, device: CUdevice, origin: Origin) {
    PIECES.write().insert(base, Piece { base, size, context, device, origin, id: next_id() });
}

/// A number for a piece of CUDA's memory, the device's or the host's.
pub fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The piece in which an address lies.
pub fn find(address: CUdeviceptr) -> Option<Piece> {
    let pieces = PIECES.read();
    let (_, piece) = pieces.range(..=address).next_back()?;
    // An address right behind an empty variable belongs to nothing.
    (address - piece.base < piece.size).then_some(*piece)
}

/// Takes out memory that the program frees; an address that is not the start of an allocation is refused.
pub fn take(base: CUdeviceptr) -> Result<Piece, CUresult> {
    let mut pieces = PIECES.write();
    match pieces.get(&base) {
        Some(piece) if !piece.origin.is_variable() => {
            pieces.remove(&base).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// Forgets a variable of a module that is unloaded.
pub fn forget_variable(base: CUdeviceptr) {
    let mut pieces = PIECES.write();
    if pieces.get(&base).is_some_and(|piece| piece.origin.is_variable()) {
        pieces.remove(&base);
    }
}

/// Forgets the memory of a context that ends.
pub fn context_ends(context: Handle<Context>) {
    PIECES.write().retain(|_, piece| piece.context != context);
}

/// Refuses a range that begins in known memory and ends outside it. A range that begins elsewhere is for the
/// server to judge: kernels can make memory that we never hear of.
pub fn check_range(address: CUdeviceptr, bytes: u64) -> Result<(), CUresult> {
    if address == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    match find(address) {
        Some(piece) if bytes > piece.size - (address - piece.base) => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_within_their_piece_and_freed_once() {
        let context = Handle::new(900, 1);
        add(0x7000_0000_1000, 256, context, 0, Origin::Allocation);
        add(0x7000_0000_2000, 16, context, 0, Origin::Variable);
        assert_eq!(find(0x7000_0000_10ff).map(|piece| piece.base), Some(0x7000_0000_1000));
        assert_eq!(find(0x7000_0000_1100), None);
        assert_eq!(find(0x7000_0000_0fff), None);
        assert!(check_range(0x7000_0000_1080, 128).is_ok() && check_range(0x7000_0000_1080, 129).is_err());
        assert!(check_range(0x6fff_0000_0000, 1 << 40).is_ok() && check_range(0, 1).is_err());
        assert!(take(0x7000_0000_1010).is_err() && take(0x7000_0000_2000).is_err());
        assert!(take(0x7000_0000_1000).is_ok() && take(0x7000_0000_1000).is_err());
        context_ends(context);
        assert_eq!(find(0x7000_0000_2000), None);
    }
}

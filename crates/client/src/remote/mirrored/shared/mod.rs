//! Memory that the program and the worker of a server on its own host both have: the very same pages. Kernels
//! and copies use them where they are, there is nothing to mirror, and a kernel and the program may follow
//! each other's writes.
//!
//! | module | contents |
//! | --- | --- |
//! | `window` | New memory in the windows that the worker has, too: pinned and managed memory, at one address for both |
//! | `moved` | Private memory of this process made shareable with a worker, and private again |
//! | `registered` | Sharing of registered memory (`cuMemHostRegister`) with the worker |
//! | `fork` | Shared memory in a forked child: pages of its own, which its own worker gets |
//!
//! Shared memory: its address in this process and that for kernels.

pub mod fork;
mod moved;
pub mod registered;
pub mod window;

use crate::locks::{RwLock, rank};
use crate::log::info;
use crate::model::host_window::Reserved;
use crate::model::region::Endpoint;
use crate::remote::session;
use causeway_api::calls;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Memory that this process and a worker have.
#[derive(Debug)]
pub struct Piece {
    /// The context that it belongs to in the worker.
    pub context: Handle<Context>,
    /// Where it begins in this process.
    pub host: usize,
    /// Where it begins for kernels, and in the worker.
    pub device: u64,
    /// Its size in bytes.
    pub size: usize,
    /// Where the pages begin in the worker in which it lies.
    pub pages: u64,
    /// Those addresses, of memory that lies elsewhere in this process.
    pub reserved: Option<Reserved>,
    /// The number under which the worker got it.
    pub number: u64,
    /// What its pages are.
    pub backing: Backing,
}

/// What the pages of shared memory are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// New ones in a window.
    Window,
    /// Those to which private memory was moved.
    Moved,
    /// Those of a file of the program, which others may have mapped, too.
    File,
}

#[derive(Default)]
struct Pieces {
    /// By first address in this process.
    by_host: BTreeMap<usize, Piece>,
    /// From the first address for kernels to that in this process.
    by_device: BTreeMap<u64, usize>,
}

/// Memory that workers of this host have, too.
struct Shared {
    pieces: RwLock<rank::SharedMemory, Pieces>,
    /// Whether there ever was any, so that sessions without pay one load.
    any: AtomicBool,
}

static SHARED: Shared = Shared {
    pieces: RwLock::new(Pieces { by_host: BTreeMap::new(), by_device: BTreeMap::new() }),
    any: AtomicBool::new(false),
};

impl Pieces {
    fn insert(&mut self, piece: Piece) {
        self.by_device.insert(piece.device, piece.host);
        self.by_host.insert(piece.host, piece);
    }

    fn remove(&mut self, host: usize) -> Option<Piece> {
        let piece = self.by_host.remove(&host)?;
        self.by_device.remove(&piece.device);
        Some(piece)
    }

    /// The piece in which an address of this process lies.
    fn at_host(&self, address: usize) -> Option<&Piece> {
        let (_, piece) = self.by_host.range(..=address).next_back()?;
        (address - piece.host < piece.size).then_some(piece)
    }

    /// The piece in which an address for kernels lies.
    fn at_device(&self, address: u64) -> Option<&Piece> {
        let (_, host) = self.by_device.range(..=address).next_back()?;
        let piece = self.by_host.get(host)?;
        (address - piece.device < piece.size as u64).then_some(piece)
    }

    /// The address for kernels of `start`, if all from there to before `end` lies in one piece of `server`.
    /// Both are addresses of this process, or addresses for kernels.
    fn device_span(&self, server: usize, start: usize, end: usize) -> Option<u64> {
        let fits = |piece: &&Piece, offset: u64| {
            piece.context.server() == server && offset + (end - start) as u64 <= piece.size as u64
        };
        let by_host = self.at_host(start).filter(|piece| fits(piece, (start - piece.host) as u64));
        let by_device =
            || self.at_device(start as u64).filter(|piece| fits(piece, start as u64 - piece.device));
        match by_host {
            Some(piece) => Some(piece.device + (start - piece.host) as u64),
            None => by_device().map(|_| start as u64),
        }
    }
}

/// Takes note of memory that a worker has got, and returns where it begins for kernels.
fn note(piece: Piece) -> u64 {
    let device = piece.device;
    SHARED.pieces.write().insert(piece);
    SHARED.any.store(true, Ordering::Relaxed);
    device
}

/// Takes memory back from its worker, once the device is idle.
fn release(piece: Piece) -> Result<(), CUresult> {
    let unmapped = session::call_in(piece.context, &calls::client_memory_unmap { address: piece.pages });
    if piece.reserved.is_some() {
        moved::put_back(piece.host);
    }
    unmapped
}

/// The address for kernels of memory that both have.
#[inline]
pub fn device_address(host: usize) -> Option<u64> {
    if !SHARED.any.load(Ordering::Relaxed) {
        return None;
    }
    let pieces = SHARED.pieces.read();
    pieces.at_host(host).map(|piece| piece.device + (host - piece.host) as u64)
}

/// The address in this process of an address for kernels in memory that both have.
#[inline]
pub fn host_address(device: u64) -> Option<usize> {
    if !SHARED.any.load(Ordering::Relaxed) {
        return None;
    }
    let pieces = SHARED.pieces.read();
    pieces.at_device(device).map(|piece| piece.host + (device - piece.device) as usize)
}

/// The endpoint of a copy by a server: on the device if it lies in memory that this server has.
#[inline]
pub fn resolve_endpoint(server: usize, endpoint: Endpoint) -> Endpoint {
    let Endpoint::Host(host) = endpoint else { return endpoint };
    if !SHARED.any.load(Ordering::Relaxed) {
        return endpoint;
    }
    let (start, end) = host.span();
    match SHARED.pieces.read().device_span(server, start, end) {
        Some(address) => Endpoint::Device(host.on_device(address).into()),
        None => endpoint,
    }
}

/// Takes the memory that begins at `host` back from its worker, once the device is idle; nothing where no
/// worker has it.
pub fn forget(host: usize) -> Option<Result<(), CUresult>> {
    if !SHARED.any.load(Ordering::Relaxed) {
        return None;
    }
    let piece = SHARED.pieces.write().remove(host)?;
    Some(release(piece))
}

/// A context is about to end, and what the worker has of memory in it. The program keeps what it registered.
pub fn context_ends(context: Handle<Context>) {
    if !SHARED.any.load(Ordering::Relaxed) {
        return;
    }
    let mut pieces = SHARED.pieces.write();
    let ending: Vec<usize> =
        pieces.by_host.values().filter(|piece| piece.context == context).map(|piece| piece.host).collect();
    let ended: Vec<Piece> = ending.into_iter().filter_map(|host| pieces.remove(host)).collect();
    drop(pieces);
    for piece in ended.into_iter().filter(|piece| piece.reserved.is_some()) {
        if let Err(status) = release(piece) {
            info!(
                "registered memory of a destroyed context was released, with status {status:?} from the server"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 0x3000;

    fn pieces() -> Pieces {
        let mut pieces = Pieces::default();
        let context = Handle::new(1, 1);
        for (host, device) in [(0x10_000, 0x10_000), (0x20_000, 0x90_000)] {
            let (reserved, backing) = (None, Backing::Window);
            pieces.insert(Piece {
                context,
                host,
                device,
                size: SIZE,
                pages: device,
                reserved,
                number: 1,
                backing,
            });
        }
        pieces
    }

    #[test]
    fn memory_is_found_by_host_and_device_address() {
        let mut pieces = pieces();
        let server = Handle::<Context>::new(1, 1).server();
        assert_eq!(pieces.device_span(server, 0x10_004, 0x13_000), Some(0x10_004));
        assert_eq!(pieces.device_span(server, 0x20_004, 0x23_000), Some(0x90_004));
        assert_eq!(pieces.device_span(server, 0x90_004, 0x93_000), Some(0x90_004));
        for (start, end) in
            [(0x10_000, 0x13_001), (0xffff, 0x10_001), (0x23_000, 0x23_001), (0x93_000, 0x93_001)]
        {
            assert_eq!(pieces.device_span(server, start, end), None, "{start:#x} {end:#x}");
        }
        assert_eq!(pieces.device_span(server + 1, 0x10_004, 0x13_000), None);
        assert_eq!(pieces.at_device(0x92_fff).map(|piece| piece.host), Some(0x20_000));
        assert!(pieces.remove(0x20_001).is_none());
        pieces.remove(0x20_000).unwrap();
        assert!(pieces.at_device(0x90_000).is_none() && pieces.at_host(0x20_000).is_none());
    }
}

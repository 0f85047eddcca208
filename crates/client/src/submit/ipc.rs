//! Memory that processes of the same server share as with `cuIpc*` and pools: pieces of blocks.
//!
//! A handle names the block by the broker's token, and the piece by its place in the block. The importing
//! process maps the whole block, once for all pieces of it.

use crate::locks::{Mutex, MutexGuard, rank};
use crate::log::refuse_use;
use crate::model::address::heap;
use crate::model::exchange::{self, Kind};
use crate::model::memory::{self, Origin, Piece};
use crate::model::stream::StreamState;
use crate::model::{context, device, handles};
use crate::submit::context::work;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Allocation, Context, Handle};
use causeway_api::sys::{CUdeviceptr, CUmemAccess_flags, CUmemLocationType, CUresult};
use causeway_api::types::{AddressAccess, ExportToken};
use core::ffi::c_char;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, LazyLock};

/// A block of another process that is mapped here.
struct Imported {
    /// Where commands about it go: the null context of its server.
    nowhere: Handle<Context>,
    block: Handle<Allocation>,
    base: CUdeviceptr,
    size: u64,
    /// Pieces that are open, by address.
    pieces: HashMap<CUdeviceptr, OpenPiece>,
}

/// A piece of another process's block.
struct OpenPiece {
    size: u64,
    /// How often it has been opened.
    times: usize,
}

impl Imported {
    /// Whether another piece is open that shares bytes with this one. Its owner has freed it, since both
    /// cannot be allocated at once.
    fn is_in_the_way(&self, address: CUdeviceptr, size: u64) -> bool {
        self.pieces.iter().any(|(at, open)| {
            (*at, open.size) != (address, size) && *at < address + size && address < *at + open.size
        })
    }
}

/// Memory of other processes.
struct Imports {
    /// Of two threads that open pieces of a new block the second one waits for the first.
    importing: Mutex<rank::Importing, ()>,
    imported: LazyLock<Mutex<rank::Imported, HashMap<ExportToken, Imported>>>,
    /// Pieces that were freed in a stream and are closed when it has got there.
    closing: Mutex<rank::ClosingImports, Vec<(CUdeviceptr, heap::ReusePoint)>>,
}

static IMPORTS: Imports = Imports {
    importing: Mutex::new(()),
    imported: LazyLock::new(Mutex::default),
    closing: Mutex::new(Vec::new()),
};

/// The handle by which another process can open a piece of memory, which has to be of this origin.
pub fn export(address: CUdeviceptr, origin: Origin) -> Result<[c_char; 64], CUresult> {
    let piece = memory::find(address).filter(|piece| piece.origin == origin);
    let piece = piece.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let Some(heap) = &piece.heap else {
        return Err(refuse_use!(
            "sharing memory that the server's driver allocated: the session has no window"
        ));
    };
    let (token, base) = heap.export(piece.base)?;
    exchange::exported(token);
    let mut content = token.0.to_vec();
    content.extend((piece.base - base).to_le_bytes());
    content.extend(piece.size.to_le_bytes());
    let handle = exchange::handle(Kind::Piece, &content);
    // No copy is published from here on; one that was is not in order with what the other process does.
    work::finish_published()?;
    Ok(handle)
}

/// Opens the piece that a handle names, and gives its address here. `origin` says how it will be closed.
pub fn open(handle: &[c_char; 64], origin: Origin) -> Result<CUdeviceptr, CUresult> {
    sweep();
    let content = exchange::content(handle, Kind::Piece)?;
    let number = |at: usize| u64::from_le_bytes(core::array::from_fn(|index| content[at + index]));
    let token = ExportToken(core::array::from_fn(|index| content[index]));
    let (offset, size) = (number(16), number(24));
    // As the driver says of memory that this process has anyway. An imported pool's may be its own.
    if origin == Origin::Imported && exchange::is_own(&token) {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let context = context::current_state()?;
    let mut imported = loop {
        if let Some(imported) = with_block(&token) {
            break imported;
        }
        let _importing = IMPORTS.importing.lock();
        if with_block(&token).is_none() {
            let block = import(token, context.device)?;
            IMPORTS.imported.lock().insert(token, block);
        }
    };
    let block = imported.get_mut(&token).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let address = if offset.checked_add(size).is_some_and(|end| size > 0 && end <= block.size) {
        block.base + offset
    } else {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    };
    // As the driver says while what was freed is still open.
    if block.is_in_the_way(address, size) {
        return Err(CUresult::CUDA_ERROR_ALREADY_MAPPED);
    }
    match block.pieces.entry(address) {
        Entry::Occupied(mut open) => open.get_mut().times += 1,
        Entry::Vacant(vacant) => {
            memory::insert(Piece {
                base: address,
                size,
                context: context.handle,
                device: context.device,
                origin,
                id: device::of_memory(),
                heap: None,
            })?;
            vacant.insert(OpenPiece { size, times: 1 });
        }
    }
    Ok(address)
}

/// What is imported, if this block is.
fn with_block(
    token: &ExportToken,
) -> Option<MutexGuard<'static, rank::Imported, HashMap<ExportToken, Imported>>> {
    let imported = IMPORTS.imported.lock();
    imported.contains_key(token).then_some(imported)
}

/// Maps a block of another process.
fn import(token: ExportToken, number: i32) -> Result<Imported, CUresult> {
    let nowhere = device::without_context(number)?;
    let window = send::opened(nowhere.server())?;
    let block = handles::create::<Allocation>();
    let request = calls::allocation_import { allocation: block, token };
    let (size, _) = send::call_in(nowhere, &request).inspect_err(|_| {
        handles::drop_handle(block);
    })?;
    let release = || {
        handles::drop_handle(block);
        send::post_in(nowhere, &calls::allocation_release { allocation: block })
    };
    let Some(base) = window.take(size as u64, 0, 0) else {
        release()?;
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    };
    let access = vec![AddressAccess {
        location: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0,
        location_id: device::on_server(number)?,
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE.0,
    }];
    let request = calls::allocation_map { allocation: block, address: base, size, offset: 0 };
    send::post_in(nowhere, &request)?;
    let opened = send::call_in(nowhere, &calls::address_access { address: base, size, access });
    if let Err(error) = opened {
        // What was mapped for nothing goes; the first error is the one that counts.
        let _ = send::call_in(nowhere, &calls::allocation_unmap { address: base, size });
        window.release(base, size as u64);
        release()?;
        return Err(error);
    }
    Ok(Imported { nowhere, block, base, size: size as u64, pieces: HashMap::new() })
}

/// Closes a piece that [`open`] gave, when the work that may use it is done.
pub fn close(address: CUdeviceptr, origin: Origin) -> Result<(), CUresult> {
    let piece = memory::find(address).filter(|piece| piece.base == address && piece.origin == origin);
    let piece = piece.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let waited = context::state(piece.context)?.synchronize();
    drop_piece(address).and(waited)
}

/// Closes a piece when a stream gets here.
pub fn close_in(address: CUdeviceptr, stream: &Arc<StreamState>) {
    IMPORTS.closing.lock().push((address, heap::reuse_point(stream)));
    sweep();
}

/// Closes what streams have passed.
fn sweep() {
    let past: Vec<_> = IMPORTS
        .closing
        .lock()
        .extract_if(.., |(_, reuse_point)| reuse_point.stream.has_done(reuse_point.sequence))
        .collect();
    for (address, _) in past {
        // Its address was checked when it was freed.
        let _ = drop_piece(address);
    }
}

/// Closes a piece of a context that ends, however often it is open.
pub fn context_ends(address: CUdeviceptr) {
    let mut imported = IMPORTS.imported.lock();
    if let Some(open) = imported.values_mut().find_map(|block| block.pieces.get_mut(&address)) {
        open.times = 1;
    }
    drop(imported);
    // An error means that the session is lost, or that it was closed meanwhile.
    let _ = drop_piece(address);
}

fn drop_piece(address: CUdeviceptr) -> Result<(), CUresult> {
    let mut imported = IMPORTS.imported.lock();
    let found = imported.iter_mut().find(|(_, block)| block.pieces.contains_key(&address));
    let (token, block) = found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let token = *token;
    if let Some(open) = block.pieces.get_mut(&address) {
        open.times -= 1;
        if open.times > 0 {
            return Ok(());
        }
    }
    block.pieces.remove(&address);
    let _ = memory::remove(address, Origin::Imported).or_else(|| memory::remove(address, Origin::PoolImport));
    if !block.pieces.is_empty() {
        return Ok(());
    }
    let Some(Imported { nowhere, block, base, size, .. }) = imported.remove(&token) else { return Ok(()) };
    drop(imported);
    send::call_in(nowhere, &calls::allocation_unmap { address: base, size: size as usize })?;
    send::opened(nowhere.server())?.release(base, size);
    handles::drop_handle(block);
    send::post_in(nowhere, &calls::allocation_release { allocation: block })
}

//! Memory of the program that kernels reach, although they run on another machine.
//!
//! The server has a *mirror* of such memory. What the program has written goes there before work is given to
//! the device, and what kernels have written comes back before a call returns that waits for them. So either
//! side sees what the other wrote before such a call; a kernel and the program cannot follow each other's
//! writes while both run, but for single words that the program writes. Memory of which no kernel has the
//! address has no mirror and costs nothing. On the server's own host most memory needs none: it is the
//! worker's, too.
//!
//! | module | contents |
//! | --- | --- |
//! | `regions` | Mirrored regions: memory gets a mirror, is looked for, and loses its mirror; variables declared `__managed__` among it |
//! | `exchange` | Exchange of mirror changes: what the program wrote to the server, what kernels wrote back |
//! | `flags` | Flags: single words that the program writes while kernels run, such as one that is to end them |
//! | `table` | Mirror table: mirrored memory, the ranges to compare, and the ranges being fetched |
//! | `region` | One piece of memory with a mirror: what both ends agree on, and which places are to be compared |
//! | `dirty_pages` | Dirty pages of mirrored memory |
//! | `other_writers` | Writers past the page table: pinned pages, RDMA devices and other ways to write to private memory of this process |
//! | `reachability` | Reachability: which memory with a mirror kernels may use, because a device may have its address |
//! | `long_ranges` | Long stretches of memory with a mirror: read from the server as transfers, and compared and put in place by several threads |
//! | `shared` | Memory that the program and the worker of a server on its own host both have: the very same pages |

mod dirty_pages;
mod exchange;
mod flags;
mod long_ranges;
mod other_writers;
mod reachability;
mod region;
pub mod regions;
pub mod shared;
mod table;

pub use exchange::{after, before, fetch, is_all_here, note_fetched, send, work_of};
pub use reachability::note_unknown;
pub use regions::is_read;
pub use table::is_any;

use crate::model::host_memory::{self, Range};
use crate::model::host_window::{self, Reserved};
use crate::model::region::{Endpoint, HostRegion};
use crate::remote::session;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;

/// Makes the child's pages those of its mirrors, in a forked child without memory that is the worker's, too, and forgets what
/// threads and the kernel did for its parent.
pub fn after_fork() {
    dirty_pages::after_fork();
    flags::forget_thread();
    if is_any() {
        table::with(table::Table::after_fork);
    }
}

/// Goes on with what a thread did for the parent, in a forked child that has its session.
pub fn resume_in_child() {
    if is_any() {
        flags::watch();
    }
}

/// Makes sure that kernels reach pinned memory, and returns its address on the device.
pub fn mirror(range: &Range) -> Result<u64, CUresult> {
    if let Some(address) = shared::device_address(range.base) {
        return Ok(address);
    }
    if range.is_registered
        && regions::device_address(range.base).is_none()
        && let Some(address) = shared::registered::share(range)
    {
        return Ok(address);
    }
    regions::mirror(range)
}

/// Whether devices may use pinned memory: a pool's only if the program has given them access.
pub fn is_open(range: &Range) -> bool {
    !range.is_pooled
        || session::of(range.context).is_ok_and(|session| session.callbacks.is_pool_open(range.base as u64))
}

/// Forgets what the device reached in a context that ends. Gives the host memory that the context owned, and
/// the addresses that it had for memory of the program: both may be used again when it has ended.
pub fn context_ends(context: Handle<Context>) -> (Vec<Range>, Vec<Reserved>) {
    let addresses = regions::context_ends(context);
    shared::context_ends(context);
    (host_memory::context_ends(context), addresses)
}

/// Takes away what a server has of the memory that begins at `host`, if it has anything, once the device is
/// idle.
pub fn forget(host: usize) -> Result<(), CUresult> {
    shared::forget(host).unwrap_or_else(|| regions::forget(host))
}

/// The address on the device of memory that it reaches.
pub fn device_address(host: usize) -> Option<u64> {
    shared::device_address(host)
        .or_else(|| host_memory::find_mapping(host).map(|_| host as u64))
        .or_else(|| regions::device_address(host))
}

/// Whether an address, of this process or of the device, lies in memory that both sides have, without a mirror
/// to ask: what the device writes there is the program's at once.
pub fn is_same_memory(address: usize) -> bool {
    is_in_common(address)
        || shared::host_address(address as u64).is_some()
        || host_memory::find_mapping(address).is_some()
}

/// Whether an address of this process lies in memory that the program and the server have in common.
pub fn is_in_common(address: usize) -> bool {
    shared::device_address(address).is_some()
}

/// The address in this process of an address of the device that lies in memory of the program.
pub fn host_address(device: u64) -> Option<usize> {
    shared::host_address(device)
        .or_else(|| host_memory::find_mapping(device as usize).map(|_| device as usize))
        .or_else(|| regions::host_address(device))
}

/// Whether an address, of this process or of the device, lies in memory that both use.
pub fn contains(address: u64) -> bool {
    host_address(address).is_some() || device_address(address as usize).is_some()
}

/// The endpoint of a copy by a server: on its device if it lies in memory that this reaches: there it is in
/// order with kernels. To the other servers such memory is the program's like any other.
pub fn resolve_endpoint(server: usize, endpoint: Endpoint) -> Endpoint {
    regions::resolve_endpoint(server, shared::resolve_endpoint(server, mapped_endpoint(server, endpoint)))
}

/// The endpoint of a copy by a server: on the device if it lies in memory that the program has mapped for both.
fn mapped_endpoint(server: usize, endpoint: Endpoint) -> Endpoint {
    let Endpoint::Host(host) = endpoint else { return endpoint };
    let (start, end) = host.span();
    if host_memory::is_devices(server, start, end) {
        Endpoint::Device(host.on_device(start as u64).into())
    } else {
        endpoint
    }
}

/// Makes mirrors of the pinned memory that the parameters of a launch lead to. Words that only look like
/// addresses of such memory cost a mirror and do no harm.
#[inline]
pub fn note_parameters(parameters: &[u8]) -> Result<(), CUresult> {
    if !host_window::is_used() {
        return Ok(());
    }
    // Packed structures have addresses at multiples of 4, and an iterator may point right behind its memory.
    for start in (0..parameters.len().saturating_sub(WORD - 1)).step_by(WORD / 2) {
        let word = parameters[start..start + WORD].try_into().expect("as many bytes as a word has");
        let address = u64::from_ne_bytes(word);
        // Behind the memory of one block another one may begin, which is meant then.
        let is_end = host_window::contains(address.wrapping_sub(1) as usize)
            && host_memory::find(address as usize).is_none();
        note_address(address.wrapping_sub(is_end.into()))?;
    }
    Ok(())
}

/// Bytes of an address.
const WORD: usize = size_of::<u64>();

/// Makes mirrors of the pinned memory whose addresses a copy brings to a device: a kernel may find them there
/// and follow them, as with unified addressing natively. NCCL's communicator is such a structure, whose flag
/// for aborting its kernels read when they have waited for a peer for a while. Words that only look like
/// addresses cost a mirror and do no harm.
///
/// # Safety
/// `source` must be readable.
#[inline]
pub unsafe fn note_copied(source: &HostRegion) -> Result<(), CUresult> {
    if !host_window::is_used() && !reachability::has_unreachable() {
        return Ok(());
    }
    if !source.is_contiguous() || source.bytes() > reachability::MAX_SCANNED {
        note_unknown();
        return Ok(());
    }
    // SAFETY: a contiguous region is as many bytes, which the caller has readable. Another thread that writes
    // them meanwhile is the program's fault natively, too.
    let bytes = unsafe { core::slice::from_raw_parts(source.address.cast_const(), source.bytes()) };
    reachability::note_bytes(bytes);
    // Pointers are aligned where they lie in this process, as structures are.
    // SAFETY: any bits are a `u64`.
    let (_, words, _) = unsafe { bytes.align_to::<u64>() };
    host_window::addresses_in(words).try_for_each(|address| note_address(address as u64))
}

/// Makes a mirror of the pinned memory in which an address lies that the device is about to use.
#[inline]
pub fn note_address(address: u64) -> Result<(), CUresult> {
    let address = address as usize;
    if host_window::contains(address)
        && let Some(range) = host_memory::find(address)
        && is_open(&range)
    {
        mirror(&range)?;
        if reachability::has_unreachable() {
            table::with(|table| table.note_address(address as u64));
        }
    }
    Ok(())
}

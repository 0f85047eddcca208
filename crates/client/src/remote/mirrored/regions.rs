//! Mirrored regions: memory gets a mirror, is looked for, and loses its mirror; variables declared
//! `__managed__` among it.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use causeway_api::calls;
use causeway_api::handle::{Allocation, Context, Handle};
use causeway_api::sys::{CUdeviceptr, CUresult};
use causeway_api::types::DeviceLocation;
use causeway_memory::pages::page_size;

use crate::locks::{Monitor, Mutex, rank};
use crate::log::{error, refuse_use};
use crate::model::host_memory::Range;
use crate::model::host_window::{self, Reserved};
use crate::model::region::{Endpoint, HostRegion};
use crate::model::transfers;
use crate::remote::mirrored::region::{Pages, Region};
use crate::remote::mirrored::{dirty_pages, exchange, flags, reachability, table};
use crate::remote::session;

/// Memory whose mirror is being made, so that no other thread makes one, too.
static MAKING: LazyLock<Monitor<rank::MirrorMaking, BTreeSet<usize>>> = LazyLock::new(Monitor::default);

/// The calling thread's turn to make a mirror of the memory that begins at an address.
struct Making(usize);

impl Making {
    fn begin(host: usize) -> Self {
        MAKING.wait(|making| making.insert(host).then_some(()));
        Self(host)
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        MAKING.change(|making| making.remove(&self.0));
    }
}

/// Gives pinned memory a mirror, if it has none yet, and returns its address on the device.
pub fn mirror(range: &Range) -> Result<u64, CUresult> {
    // What a network card writes there without this process is noticed by nobody; copies that begin later go
    // to the mirror.
    transfers::wait_for_writes(range.base, range.base + range.size);
    make(range.base, || {
        let is_own = host_window::contains(range.base);
        let reserved = if is_own { None } else { reserve(range)? };
        let address = match &reserved {
            Some(reserved) => reserved.address,
            None if is_own => range.base,
            None => ANYWHERE,
        };
        let request = calls::mirror_create { address: address as u64, size: range.capacity, managed: 0 };
        let device = session::call_in(range.context, &request)?;
        let pages = if is_own { Pages::Own } else { Pages::OfProgram };
        // Kernels may go from memory that the program has registered to what lies beside it.
        let is_unreachable = is_own && begins_unreachable(range.context, device)?;
        let is_added = table::with(|table| {
            let is_free = table.is_free(device, range.capacity);
            if is_free {
                if is_unreachable {
                    table.add_unreachable(range.context, range.base, range.capacity, device, pages);
                } else {
                    table.add(range.context, range.base, range.capacity, device, pages);
                }
                table.keep_reserved(device, reserved);
            }
            is_free
        });
        if is_added {
            flags::watch();
            return Ok(device);
        }
        error!(
            "the server has chosen the address {device:#x} for registered memory, which another server \
             already uses"
        );
        session::call_in(range.context, &calls::mirror_free { mirror: device })?;
        Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    })
}

/// Tells the server that no kernel can use a new mirror yet, if that is so.
fn begins_unreachable(context: Handle<Context>, device: u64) -> Result<bool, CUresult> {
    let server = context.server();
    if !reachability::may_begin_unreachable(server)? {
        return Ok(false);
    }
    let request = calls::mirror_search { mirrors: vec![device], searched: false };
    session::post_in(Handle::null_of(server), &request)?;
    Ok(true)
}

/// Has a server choose the address.
const ANYWHERE: usize = 0;

/// Addresses of the window for memory of the program, where the server has the window, too. Elsewhere the
/// server chooses, and may choose what another server or this process has already.
fn reserve(range: &Range) -> Result<Option<Reserved>, CUresult> {
    let window = session::of(range.context)?.snapshot.host_window;
    Ok(if host_window::is_open_for(window) { host_window::reserve(range.capacity) } else { None })
}

/// Gives managed memory of this library's own, all zeros, a mirror at the address `device`.
///
/// `is_managed` says that it lies in the memory of the device, at an address of the window for that.
pub fn create(
    context: Handle<Context>,
    host: usize,
    size: usize,
    device: u64,
    is_managed: bool,
) -> Result<u64, CUresult> {
    make(host, || {
        let request = calls::mirror_create { address: device, size, managed: is_managed.into() };
        let device = session::call_in(context, &request)?;
        let is_unreachable = begins_unreachable(context, device)?;
        table::with(|table| match is_unreachable {
            true => table.add_unreachable(context, host, size, device, Pages::Managed),
            false => table.add(context, host, size, device, Pages::Managed),
        });
        Ok(device)
    })
}

/// Has `make` make the mirror of the memory at `host`, unless there is one, and returns its address.
fn make(host: usize, make: impl FnOnce() -> Result<u64, CUresult>) -> Result<u64, CUresult> {
    if let Some(known) = mirror_at(host) {
        return Ok(known);
    }
    let _making = Making::begin(host);
    mirror_at(host).map_or_else(make, Ok)
}

fn mirror_at(host: usize) -> Option<u64> {
    if table::is_any() { table::with(|table| table.mirror_at(host)) } else { None }
}

/// Has a server mirror an allocation of its host, all of whose bytes, zeros as yet, lie at `host` in this
/// process. The program has them at other addresses.
pub fn mirror_allocation(
    nowhere: Handle<Context>,
    allocation: Handle<Allocation>,
    host: usize,
    size: usize,
) -> Result<(), CUresult> {
    let address = host as u64;
    session::call_in(nowhere, &calls::mirror_of_allocation { allocation, address, size })?;
    table::with(|table| table.add(nowhere, host, size, address, Pages::Shared));
    Ok(())
}

/// Takes note of a mirror that the server has made at the address that the memory, all zeros, has here. What
/// the mirror holds comes at once.
pub fn adopt(context: Handle<Context>, host: usize, size: usize) -> Result<(), CUresult> {
    table::with(|table| {
        if table.mirror_at(host).is_none() {
            table.add(context, host, size, host as u64, Pages::OfProgram);
        }
    });
    exchange::fetch_all(context.server())
}

/// Takes the mirror of the memory that begins at `host` away, if it has one, once the device is idle.
pub fn forget(host: usize) -> Result<(), CUresult> {
    match remove(host) {
        // The region, and with it the addresses of the mirror, is kept until the server has been told.
        Some((device, region)) => session::call_in(region.context, &calls::mirror_free { mirror: device }),
        None => Ok(()),
    }
}

/// Forgets the mirrors of a context that ends. Returns the addresses that they had, which others may have when
/// it has ended.
pub fn context_ends(context: Handle<Context>) -> Vec<Reserved> {
    if !table::is_any() {
        return Vec::new();
    }
    let hosts = table::with(|table| table.of_context(context));
    hosts.into_iter().filter_map(|host| remove(host)?.1.reserved.take()).collect()
}

/// Takes memory out of the table once nothing is on its way from or to its mirror. Returns it and the mirror's
/// address.
fn remove(host: usize) -> Option<(u64, Region)> {
    /// What a look at the table gives.
    enum Found {
        Removed(u64, Region),
        Busy(u64),
    }
    loop {
        let server = mirror_at(host).and_then(server_of)?;
        let found = exchange::without_sends(server, || {
            table::with(|table| {
                let device = table.mirror_at(host)?;
                if table.is_busy(server, device) {
                    return Some(Found::Busy(table.progress(server)));
                }
                table.remove(host).map(|(device, region)| Found::Removed(device, region))
            })
        });
        match found? {
            Found::Removed(device, region) => return Some((device, region)),
            Found::Busy(seen) => exchange::wait_for_progress(server, seen),
        }
    }
}

fn server_of(device: u64) -> Option<usize> {
    table::with(|table| table.region(device).map(|(_, region)| region.context.server()))
}

/// The address on the device of memory with a mirror.
pub fn device_address(host: usize) -> Option<u64> {
    if table::is_any() { table::with(|table| table.device_of(host, host)) } else { None }
}

/// The address in this process of an address of the device that lies in a mirror.
pub fn host_address(device: u64) -> Option<usize> {
    if !table::is_any() {
        return None;
    }
    table::with(|table| {
        let (start, region) = table.region(device)?;
        Some(region.host + (device - start) as usize)
    })
}

/// The endpoint of a copy by a server: on the device if it lies in memory with a mirror there: there it is in
/// order with kernels.
pub fn resolve_endpoint(server: usize, endpoint: Endpoint) -> Endpoint {
    let Endpoint::Host(host) = endpoint else { return endpoint };
    if !table::is_any() {
        return endpoint;
    }
    let (start, end) = host.span();
    let on_device = table::with(|table| {
        let contained = table.device_of(start, end.saturating_sub(1));
        let on_device = contained.or_else(|| table.region(start as u64).map(|_| start as u64))?;
        let (_, region) = table.region(on_device)?;
        (region.context.server() == server).then_some(on_device)
    });
    match on_device {
        Some(address) => Endpoint::Device(host.on_device(address).into()),
        None => endpoint,
    }
}

/// A copy whose source is `host` is about to be sent, and reads it in the mirror, at `mirror`: whatever is
/// known of who has written there, the program's own bytes are compared before that command.
pub fn is_read(host: &HostRegion, mirror: &DeviceLocation) {
    let DeviceLocation::Memory(mirror) = mirror else { return };
    if !table::is_any() {
        return;
    }
    table::with(|table| {
        if table.region(mirror.address).is_none_or(|(_, region)| region.is_managed) {
            return;
        }
        for row in rows(host) {
            let at = (row.start - host.address as usize) as u64;
            table.compare_next(mirror.address + at, row.len());
        }
    });
}

/// The addresses of a region: its rows, or all from the first to the last where what lies between is little.
fn rows(host: &HostRegion) -> Vec<core::ops::Range<usize>> {
    /// Gaps of fewer bytes are compared with the rest.
    const GAP: usize = 4096;
    let (start, end) = host.span();
    if host.is_contiguous() || host.row_pitch < host.width + GAP && host.depth <= 1 {
        return vec![start..end];
    }
    let row_start = |slice, row| {
        let first = start + slice * host.slice_pitch + row * host.row_pitch;
        first..first + host.width
    };
    (0..host.depth).flat_map(|slice| (0..host.height).map(move |row| row_start(slice, row))).collect()
}

/// Pages that hold such variables, or did. They stay: another variable may have its place in one of them.
static PAGES: Mutex<rank::ManagedPages, BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Makes the variable, of which a server has a mirror, readable and writable here, with its initial value.
pub fn adopt_variable(server: usize, address: CUdeviceptr, size: usize) -> Result<(), CUresult> {
    let host = address as usize;
    let range = dirty_pages::pages(host..host.checked_add(size).ok_or(CUresult::CUDA_ERROR_UNKNOWN)?);
    {
        let mut pages = PAGES.lock();
        for page in range.step_by(page_size()).filter(|page| *page != 0) {
            if !pages.contains(&page) {
                map(page)?;
                pages.insert(page);
            }
        }
    }
    // SAFETY: the pages are mapped, and nobody has the variable's address yet. What an earlier variable in
    // its place left must not look like something that the program has written.
    unsafe { core::ptr::write_bytes(host as *mut u8, 0, size) };
    adopt(Handle::null_of(server), host, size)
}

/// Maps a page at its address, where nothing may be.
fn map(page: usize) -> Result<(), CUresult> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: with this flag the system refuses rather than replace a mapping.
    let mapped = unsafe { libc::mmap(page as *mut _, page_size(), access, flags, -1, 0) };
    if mapped as usize == page {
        return Ok(());
    }
    if mapped != libc::MAP_FAILED {
        // SAFETY: mapped just now, by a system that does not know the flag.
        unsafe { libc::munmap(mapped, page_size()) };
    }
    Err(refuse_use!("a __managed__ variable at {page:#x}, where this process has another mapping"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_wide_gaps_are_places_of_their_own() {
        let address = 0x1000 as *mut u8;
        assert_eq!(rows(&HostRegion::linear(address, 10)), [0x1000..0x100a]);
        let narrow = HostRegion { row_pitch: 12, height: 3, ..HostRegion::linear(address, 10) };
        assert_eq!(rows(&narrow), [0x1000..0x1022]);
        let wide = HostRegion { row_pitch: 0x10000, height: 2, ..narrow };
        assert_eq!(rows(&wide), [0x1000..0x100a, 0x11000..0x1100a]);
        let deep = HostRegion { slice_pitch: 0x100000, height: 1, depth: 2, ..wide };
        assert_eq!(rows(&deep), [0x1000..0x100a, 0x101000..0x10100a]);
    }
}

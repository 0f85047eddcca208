//! What has a mirror, and how changes travel.

use super::dirty_pages;
use super::long_ranges::{self, Scratch};
use crate::locks::{Mutex, rank};
use crate::model::host_memory::Range;
use crate::model::host_window;
use crate::model::region::Endpoint;
use crate::model::transfers;
use crate::remote::session;
use causeway_api::calls::{self, Opcode};
use causeway_api::handle::{Allocation, Context, Handle};
use causeway_api::sys::CUresult;
use causeway_api::types::MemoryStretch;
use causeway_memory::mirror::{Changes, find_changes, read_changes};
use causeway_memory::pages::{self, Access, page_size};
use core::ops;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Changes leave in commands of about this many bytes: enough to keep a network busy, little enough to be
/// held.
const MOST_CHANGES: usize = 256 << 10;

/// Memory of up to this size is compared before each command; asking the system which of its pages were
/// written to takes longer (16 KiB are compared in about 0.3 us).
const MOST_COMPARED: usize = 16 << 10;

/// Memory with a mirror.
struct Region {
    context: Handle<Context>,
    /// Where it is in this process.
    host: usize,
    /// What both ends last agreed on.
    base: Vec<u8>,
    /// Whether the system notes the pages that are written to.
    is_watched: bool,
    /// The bytes from the first on whose pages have been made for what kernels wrote.
    made: usize,
    /// Where the program has it, if that is not `host`.
    views: Option<Views>,
}

/// Where the program has memory that it maps at addresses of its own choice.
#[derive(Default)]
struct Views {
    ranges: Vec<ops::Range<usize>>,
    /// Whether one was taken away since changes were last looked for: what was written there the system does
    /// not tell any more.
    is_any_gone: bool,
}

#[derive(Default)]
struct Regions {
    /// By the address on the device.
    by_device: BTreeMap<u64, Region>,
    /// From the address in this process to the one on the device.
    by_host: BTreeMap<usize, u64>,
    /// Kept so that a launch allocates nothing.
    changes: Changes,
    scratch: Scratch,
}

/// Memory of which servers have mirrors.
struct Mirrored {
    regions: Mutex<rank::MirroredRegions, Option<Regions>>,
    any: AtomicBool,
}

static MIRRORED: Mirrored = Mirrored { regions: Mutex::new(None), any: AtomicBool::new(false) };

/// Whether any memory has a mirror.
#[inline]
pub fn is_any() -> bool {
    MIRRORED.any.load(Ordering::Relaxed)
}

/// To be called before each command is sent to a server: one that the device may use memory for comes after
/// what the program has written to that memory.
#[inline]
pub fn before(server: usize, opcode: Opcode) -> Result<(), CUresult> {
    if opcode.is_in_stream() { send(server) } else { Ok(()) }
}

/// Sends what the program has written to memory of which the server has a mirror.
#[inline]
pub fn send(server: usize) -> Result<(), CUresult> {
    if is_any() { with(|regions| regions.send_changes(server)) } else { Ok(()) }
}

/// Gets what kernels have written to mirrors of a server.
#[inline]
pub fn fetch(server: usize) -> Result<(), CUresult> {
    if is_any() { with(|regions| regions.fetch_changes(server)) } else { Ok(()) }
}

/// Gives pinned memory a mirror, if it has none yet, and returns its address on the device.
pub fn mirror(range: &Range) -> Result<u64, CUresult> {
    let address = if host_window::contains(range.base) { range.base as u64 } else { 0 };
    // What a network card writes there without this process is noticed by nobody; copies that begin later go
    // to the mirror.
    transfers::wait_for_writes(range.base, range.base + range.size);
    create(range.context, range.base, range.room, address, false)
}

/// Gives memory of this process a mirror at the address `device`, or anywhere for 0.
///
/// `is_managed` says that it lies in the memory of the device, at an address of the window for that.
pub fn create(
    context: Handle<Context>,
    host: usize,
    size: usize,
    device: u64,
    is_managed: bool,
) -> Result<u64, CUresult> {
    with(|regions| {
        if let Some(base) = regions.by_host.get(&host) {
            return Ok(*base);
        }
        let device = session::call_in(
            context,
            &calls::mirror_create { address: device, size, managed: is_managed.into() },
        )?;
        regions.add(context, host, size, device);
        Ok(device)
    })
}

/// Has a server mirror an allocation of its host, all of whose bytes, zeros as yet, lie at `host` in this
/// process. The program has it where [`add_view`] says.
pub fn mirror_allocation(
    nowhere: Handle<Context>,
    allocation: Handle<Allocation>,
    host: usize,
    size: usize,
) -> Result<(), CUresult> {
    with(|regions| {
        let address = host as u64;
        session::call_in(nowhere, &calls::mirror_of_allocation { allocation, address, size })?;
        regions.add(nowhere, host, size, address);
        if let Some(region) = regions.by_device.get_mut(&address) {
            dirty_pages::unwatch(host..host + size);
            region.views = Some(Views::default());
            region.is_watched = true;
        }
        Ok(())
    })
}

/// The program has the memory at `host`, or its first bytes, in this range, too.
pub fn add_view(host: usize, range: ops::Range<usize>) {
    with_views(host, |views, is_watched| {
        *is_watched &= dirty_pages::watch(range.clone());
        views.ranges.push(range);
    });
}

/// The program does not have the memory at `host` at this address any more.
pub fn remove_view(host: usize, start: usize) {
    with_views(host, |views, _| {
        views.ranges.retain(|range| range.start != start);
        views.is_any_gone = true;
    });
}

fn with_views(host: usize, change: impl FnOnce(&mut Views, &mut bool)) {
    let mut regions = MIRRORED.regions.lock();
    let region = regions.as_mut().and_then(|regions| regions.by_device.get_mut(&(host as u64)));
    if let Some(Region { views: Some(views), is_watched, .. }) = region {
        change(views, is_watched);
    }
}

/// Takes note of a mirror that the server has made at the address that the memory, all zeros, has here. What
/// the mirror holds comes at once.
pub fn adopt(context: Handle<Context>, host: usize, size: usize) -> Result<(), CUresult> {
    with(|regions| {
        if !regions.by_host.contains_key(&host) {
            regions.add(context, host, size, host as u64);
        }
        regions.fetch_changes(context.server())
    })
}

/// Takes the mirror of the memory that begins at `host` away, if it has one, once the device is idle.
pub fn forget(host: usize) -> Result<(), CUresult> {
    if !is_any() {
        return Ok(());
    }
    match with(|regions| Ok(regions.remove(host)))? {
        Some((context, device)) => session::call_in(context, &calls::mirror_free { mirror: device }),
        None => Ok(()),
    }
}

/// Forgets the mirrors of a context that ends.
pub fn context_ends(context: Handle<Context>) {
    if !is_any() {
        return;
    }
    // Nothing in the closure fails.
    let _ = with(|regions| {
        let ending: Vec<usize> = regions
            .by_device
            .values()
            .filter(|region| region.context == context)
            .map(|region| region.host)
            .collect();
        for host in ending {
            regions.remove(host);
        }
        Ok(())
    });
}

/// The address on the device of memory with a mirror.
pub fn device_address(host: usize) -> Option<u64> {
    if !is_any() {
        return None;
    }
    MIRRORED.regions.lock().as_ref()?.device_of(host, host).map(|(_, address)| address)
}

/// The address in this process of an address of the device that lies in a mirror.
pub fn host_address(device: u64) -> Option<usize> {
    if !is_any() {
        return None;
    }
    let regions = MIRRORED.regions.lock();
    let (start, region) = regions.as_ref()?.region(device)?;
    Some(region.host + (device - start) as usize)
}

/// The place of a copy by a server, on the device if it lies in memory with a mirror there: there it is in
/// order with kernels.
pub fn place(server: usize, place: Endpoint) -> Endpoint {
    let Endpoint::Host(host) = place else { return place };
    if !is_any() {
        return place;
    }
    let regions = MIRRORED.regions.lock();
    let Some(regions) = regions.as_ref() else { return place };
    let (start, end) = host.span();
    let inside = regions.device_of(start, end.saturating_sub(1)).map(|(_, address)| address);
    let on_device = inside.or_else(|| regions.region(start as u64).map(|_| start as u64));
    let is_here =
        |address: &u64| regions.region(*address).is_some_and(|(_, region)| region.context.server() == server);
    match on_device.filter(is_here) {
        Some(address) => Endpoint::Device(host.on_device(address).into()),
        None => place,
    }
}

fn with<T>(work: impl FnOnce(&mut Regions) -> Result<T, CUresult>) -> Result<T, CUresult> {
    work(MIRRORED.regions.lock().get_or_insert_default())
}

impl Regions {
    /// The region in which an address of the device lies, and where it begins.
    fn region(&self, device: u64) -> Option<(u64, &Region)> {
        let (&start, region) = self.by_device.range(..=device).next_back()?;
        (device - start < region.base.len() as u64).then_some((start, region))
    }

    /// Where the memory from `first` to `last` is on the device, if all of it lies in one region: the start
    /// of the region, and the address of `first`.
    fn device_of(&self, first: usize, last: usize) -> Option<(u64, u64)> {
        let (&host, &device) = self.by_host.range(..=first).next_back()?;
        let size = self.by_device.get(&device)?.base.len();
        (last.checked_sub(host)? < size).then_some((device, device + (first - host) as u64))
    }

    fn add(&mut self, context: Handle<Context>, host: usize, size: usize, device: u64) {
        let is_watched = size > MOST_COMPARED && dirty_pages::watch(host..host + size);
        let base = long_ranges::zeroed(size);
        self.by_device.insert(device, Region { context, host, base, is_watched, made: 0, views: None });
        self.by_host.insert(host, device);
        MIRRORED.any.store(true, Ordering::Relaxed);
    }

    fn remove(&mut self, host: usize) -> Option<(Handle<Context>, u64)> {
        let device = self.by_host.remove(&host)?;
        let region = self.by_device.remove(&device)?;
        if region.is_watched {
            dirty_pages::unwatch(host..host + region.base.len());
        }
        MIRRORED.any.store(!self.by_device.is_empty(), Ordering::Relaxed);
        Some((region.context, device))
    }

    /// Sends what the program has written to memory with a mirror on a server.
    fn send_changes(&mut self, server: usize) -> Result<(), CUresult> {
        let Self { by_device, changes, .. } = self;
        changes.clear();
        let mut outcome = Ok(());
        for (&device, region) in by_device.iter_mut().filter(|(_, region)| region.context.server() == server)
        {
            changes.separate();
            region.visit_written(|base, host, stretch| {
                // SAFETY: the memory has as many bytes as the diff base, and is mapped until the program
                // frees it, which takes the region out first.
                let find = |base: &mut [u8], start, end, changes: &mut Changes| unsafe {
                    find_changes(host as *const u8, base, start, end, |at, bytes| {
                        changes.add(device + at as u64, bytes);
                        changes.len() < MOST_CHANGES
                    })
                };
                long_ranges::visit_unequal(host, base, stretch, |base, stretch| {
                    let mut at = stretch.start;
                    while at < stretch.end {
                        at = find(base, at, stretch.end, changes);
                        if changes.len() >= MOST_CHANGES {
                            outcome = outcome.and(post(server, changes));
                        }
                    }
                });
            });
        }
        if !changes.is_empty() {
            outcome = outcome.and(post(server, changes));
        }
        outcome
    }

    /// Gets what kernels of a server have written.
    fn fetch_changes(&mut self, server: usize) -> Result<(), CUresult> {
        if !self.by_device.values().any(|region| region.context.server() == server) {
            return Ok(());
        }
        let mut scratch = core::mem::take(&mut self.scratch);
        let mut start = 0;
        let outcome = loop {
            let request = calls::mirror_changes { start };
            let found = session::call_reading(Handle::null_of(server), &request, |reply| {
                let next = reply.value::<u64>()?;
                let length = reply.count(1)?;
                read_changes(reply.take(length)?, |address, bytes| self.put(server, address, bytes))?;
                Ok((next, reply.value::<Vec<MemoryStretch>>()?))
            });
            let read = found.and_then(|(next, stretches)| {
                stretches.iter().for_each(|stretch| self.make_pages(stretch));
                scratch.read(server, &stretches, |address, bytes| self.put(server, address, bytes))?;
                Ok(next)
            });
            match read {
                Ok(0) => break Ok(()),
                Ok(next) => start = next,
                Err(status) => break Err(status),
            }
        };
        self.scratch = scratch;
        outcome
    }

    /// Makes the pages of a long stretch whose bytes are about to come. The system gives no huge pages to
    /// memory in which it notes written ones, and to make 1 MiB of small ones takes 2 ms where eight threads
    /// do so (a virtual machine with an H100, 2026-11-24).
    fn make_pages(&mut self, stretch: &MemoryStretch) {
        let Some((start, region)) = self.by_device.range_mut(..=stretch.address).next_back() else { return };
        let size = region.base.len();
        let at = (stretch.address - start) as usize;
        let first = region.host + at.max(region.made).min(size);
        let end = region.host + at.saturating_add(stretch.bytes as usize).min(size);
        let range = first.next_multiple_of(host_window::HUGE_PAGE)
            ..end / host_window::HUGE_PAGE * host_window::HUGE_PAGE;
        if !region.is_watched || range.is_empty() || region.views.is_some() {
            return;
        }
        // Afterwards all of these pages count as written, so that nothing which the program writes meanwhile
        // is lost.
        dirty_pages::unwatch(range.clone());
        pages::populate(range.start, range.len(), Access::Write);
        region.is_watched = dirty_pages::watch(range.clone());
        region.made = range.end - region.host;
    }

    fn put(&mut self, server: usize, address: u64, bytes: &[u8]) {
        let Some((start, region)) = self.by_device.range_mut(..=address).next_back() else { return };
        if region.context.server() != server {
            return;
        }
        let at = (address - start) as usize;
        let Some(base) = region.base.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) else {
            return;
        };
        // SAFETY: the memory has as many bytes as the diff base, which has these; it is the program's promise
        // that it is writable, and it stays mapped until the program frees it.
        unsafe { long_ranges::merge(region.host + at, base, bytes) };
    }
}

fn post(server: usize, changes: &mut Changes) -> Result<(), CUresult> {
    let sent =
        session::post_in(Handle::null_of(server), &calls::mirror_write { changes: changes.as_bytes() });
    changes.clear();
    sent
}

impl Region {
    /// Calls `each` with the diff base, the address of the memory and the places of its bytes that may have
    /// been written to.
    fn visit_written(&mut self, mut each: impl FnMut(&mut [u8], usize, ops::Range<usize>)) {
        let (host, base) = (self.host, &mut self.base);
        let (start, end) = (host, host + base.len());
        let mut places = |stretch: ops::Range<usize>| {
            if stretch.start < stretch.end {
                each(base, host, stretch.start - start..stretch.end - start);
            }
        };
        if let Some(views) = &mut self.views
            && self.is_watched
        {
            let mut seen = true;
            for view in &views.ranges {
                seen &= dirty_pages::visit(view.clone(), |stretch| {
                    places(stretch.start - view.start + start..stretch.end - view.start + start);
                });
            }
            self.is_watched = seen;
            if core::mem::take(&mut views.is_any_gone) || !seen {
                places(start..end);
            }
            return;
        }
        if self.is_watched {
            // Pages at the ends may be shared with another region, which takes the note of their being
            // written.
            let pages = dirty_pages::pages(start..end);
            let whole = if pages.start < start { pages.start + page_size() } else { start }.min(end)
                ..if pages.end > end { pages.end - page_size() } else { end }.max(start);
            if whole.start >= whole.end {
                return places(start..end);
            }
            if dirty_pages::visit(whole.clone(), &mut places) {
                places(start..whole.start);
                places(whole.end..end);
                return;
            }
            self.is_watched = false;
        }
        places(start..end);
    }
}

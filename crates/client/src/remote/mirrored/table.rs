//! Mirror table: mirrored memory, the ranges to compare, and the ranges being fetched.

use super::dirty_pages::{self, Unwatched};
use super::long_ranges::{PART, Ranges};
use super::other_writers::OtherWriters;
use super::reachability::{self, UNREACHABLE, has_unreachable};
use super::region::{Pages, Region};
use crate::locks::{Mutex, rank};
use crate::model::host_window::{self, Reserved};
use causeway_api::handle::{Context, Handle};
use causeway_api::types::MemoryRange;
use causeway_memory::mirror::Changes;
use causeway_memory::pages::page_size;
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

/// Small memory of up to this size in all is compared before each command; asking the system which of its
/// pages were written to takes longer (16 KiB are compared in about 0.3 us).
const MAX_COMPARED_PAGES: usize = 16 << 10;

/// Changes leave in commands of about this many bytes: enough to keep a network busy, little enough to be
/// held.
const MAX_CHANGES: usize = 256 << 10;

/// Memory that is not reached and lies within this many bytes of what is asked about is asked about, too: one
/// question takes as long as looking at some hundred pages.
const MAX_SCANNED_GAP: usize = 256 << 10;

/// So many addresses are remembered of which it is known that devices may have them. With more all count.
const MAX_KNOWN: usize = 4096;

/// Memory of which servers have mirrors.
struct Mirrored {
    /// Held for work in memory alone, never while something is sent or waited for.
    table: Mutex<rank::MirroredRegions, Option<Table>>,
    any: AtomicBool,
}

static MIRRORED: Mirrored = Mirrored { table: Mutex::new(None), any: AtomicBool::new(false) };

/// Whether any memory has a mirror.
#[inline]
pub fn is_any() -> bool {
    MIRRORED.any.load(Ordering::Relaxed)
}

/// Does something with the table, which must not wait for anybody.
pub fn with<T>(work: impl FnOnce(&mut Table) -> T) -> T {
    work(MIRRORED.table.lock().get_or_insert_default())
}

/// All memory with a mirror.
#[derive(Default)]
pub struct Table {
    /// By the address on the device.
    by_device: BTreeMap<u64, Region>,
    /// From the address in this process to the one on the device.
    by_host: BTreeMap<usize, u64>,
    /// By server and address on the device: where something is to be compared.
    to_compare: BTreeSet<(usize, u64)>,
    /// Bytes of small memory that is compared each time.
    small: BTreeMap<u64, usize>,
    /// Where the system is asked for written pages; nothing when that has to be found out again.
    spans: Option<Vec<Span>>,
    writers: OtherWriters,
    fetches: BTreeMap<usize, Fetching>,
    /// By server and address on the device: what has come into reach, which the server does not know yet.
    newly_reachable: BTreeSet<(usize, u64)>,
    /// Addresses that devices may have, although nothing lies there now.
    known: Ranges,
}

/// Addresses that are asked about at once.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    range: Range<usize>,
    unwatched: Unwatched,
}

/// What of a server's mirrors is being fetched.
#[derive(Default)]
struct Fetching {
    /// From which address on the server looks for changes, if it does.
    searching_from: Option<u64>,
    /// What it has found and this end does not have yet.
    reading: Vec<MemoryRange>,
    /// Grows with each change of the two.
    progress: u64,
}

/// A place that is to be compared.
pub struct PendingRange {
    device: u64,
    range: Range<usize>,
    /// Whether it is known to be short, or to differ.
    is_part: bool,
}

/// Places that differ, but must not be sent before a fetch is further.
#[derive(Default)]
pub struct Blocked {
    pending: Vec<PendingRange>,
    /// How far the server's fetch was when the first of them was found. It is read under the lock under which
    /// the place was found busy: the fetch that it waits for may have ended when somebody comes to wait.
    seen: u64,
}

impl Blocked {
    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.pending.clear();
    }
}

/// A word that alone has changed.
#[derive(PartialEq, Eq)]
pub struct LoneChange {
    /// Where its mirror begins.
    device: u64,
    /// Where it is there.
    at: usize,
    bytes: Vec<u8>,
}

/// Whether memory of this size is compared before each command without asking the system.
fn is_small(small: &BTreeMap<u64, usize>, size: usize) -> bool {
    size + small.values().sum::<usize>() <= MAX_COMPARED_PAGES
}

impl Table {
    /// Notes memory as mirrored at an address of the device, where the server does not look for changes unless a
    /// device may have its address already.
    pub fn add_unreachable(
        &mut self,
        context: Handle<Context>,
        host: usize,
        size: usize,
        device: u64,
        pages: Pages,
    ) {
        self.take_noted();
        let around = (device as usize).saturating_sub(page_size())..device as usize + size + page_size();
        if self.known.overlaps(&around) {
            self.add(context, host, size, device, pages);
            self.newly_reachable.insert((context.server(), device));
            return;
        }
        let mut region = Region::new(context, host, size, pages);
        region.is_reachable = false;
        self.insert(host, device, region);
        UNREACHABLE.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes memory as mirrored at an address of the device.
    pub fn add(&mut self, context: Handle<Context>, host: usize, size: usize, device: u64, pages: Pages) {
        let is_small = is_small(&self.small, size);
        if is_small {
            self.small.insert(device, size);
        }
        let region = Region::new(context, host, size, if is_small { Pages::Shared } else { pages });
        if region.is_to_be_compared() {
            self.to_compare.insert((context.server(), device));
        }
        self.insert(host, device, region);
    }

    fn insert(&mut self, host: usize, device: u64, region: Region) {
        self.by_device.insert(device, region);
        self.by_host.insert(host, device);
        self.spans = None;
        MIRRORED.any.store(true, Ordering::Relaxed);
    }

    /// Takes note of the addresses that have been found in what goes to servers.
    pub fn take_noted(&mut self) {
        let reachability::Noted { addresses, ranges } = reachability::take_noted();
        addresses.into_iter().for_each(|address| self.note_address(address));
        if !ranges.is_empty() {
            self.mark_all_reachable(&ranges);
        }
    }

    /// A device may have an address: the memory around it is reached.
    pub fn note_address(&mut self, address: u64) {
        let mut neighbours: Vec<u64> =
            self.by_device.range(..=address).rev().take(2).map(|(at, _)| *at).collect();
        neighbours.extend(self.by_device.range(address.saturating_add(1)..).next().map(|(at, _)| *at));
        neighbours.into_iter().for_each(|device| self.mark_reachable(device));
        if self.region(address).is_none() {
            self.know(address as usize..address as usize + 1);
        }
    }

    /// A device may have any address in these ranges: all memory is reached, and what lies there in future.
    pub fn mark_all_reachable(&mut self, ranges: &[Range<usize>]) {
        ranges.iter().for_each(|range| self.know(range.clone()));
        if has_unreachable() {
            let all: Vec<u64> = self.by_device.keys().copied().collect();
            all.into_iter().for_each(|device| self.mark_reachable(device));
        }
    }

    fn know(&mut self, range: Range<usize>) {
        self.known.add(range);
        if self.known.count() > MAX_KNOWN {
            self.known.add(0..usize::MAX);
        }
    }

    /// Memory whose mirror begins at an address is reached from now on.
    fn mark_reachable(&mut self, device: u64) {
        let Some(region) = self.by_device.get_mut(&device).filter(|region| !region.is_reachable) else {
            return;
        };
        region.is_reachable = true;
        let server = region.context.server();
        if is_small(&self.small, region.len()) {
            self.small.insert(device, region.len());
            region.unwatch();
        }
        if region.is_to_be_compared() {
            self.to_compare.insert((server, device));
        }
        self.newly_reachable.insert((server, device));
        // What was written there so far is asked for with the next command.
        self.spans = None;
        UNREACHABLE.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether mirrors of a server have come into reach.
    pub fn is_any_newly_reachable(&self, server: usize) -> bool {
        self.newly_reachable.range((server, 0)..(server + 1, 0)).next().is_some()
    }

    /// Takes the mirrors of a server that have come into reach.
    pub fn take_newly_reachable(&mut self, server: usize) -> Vec<u64> {
        let found: Vec<_> = self.newly_reachable.range((server, 0)..(server + 1, 0)).copied().collect();
        found
            .into_iter()
            .map(|each| {
                self.newly_reachable.remove(&each);
                each.1
            })
            .collect()
    }

    /// Has the kernel watch the memory anew, in a forked child, whose pages are its own. Nothing is being fetched.
    pub fn after_fork(&mut self) {
        for (device, region) in &mut self.by_device {
            region.after_fork();
            // What comes into reach later is compared then.
            if region.is_reachable {
                self.to_compare.insert((region.context.server(), *device));
            }
        }
        self.spans = None;
        self.writers = OtherWriters::default();
        self.fetches.clear();
    }

    /// Whether no mirror, on any server, has one of `size` addresses of a device.
    pub fn is_free(&self, device: u64, size: usize) -> bool {
        let before = self.by_device.range(..device.saturating_add(size as u64)).next_back();
        before.is_none_or(|(start, region)| start + region.len() as u64 <= device)
    }

    /// Keeps what reserves the addresses of a mirror for as long as that is in the table.
    pub fn keep_reserved(&mut self, device: u64, reserved: Option<Reserved>) {
        if let Some((_, region)) = self.region_mut(device) {
            region.reserved = reserved;
        }
    }

    /// Takes memory out that begins at an address of this process.
    pub fn remove(&mut self, host: usize) -> Option<(u64, Region)> {
        self.take_noted();
        let device = self.by_host.remove(&host)?;
        let region = self.by_device.remove(&device)?;
        self.to_compare.remove(&(region.context.server(), device));
        self.newly_reachable.remove(&(region.context.server(), device));
        if region.is_reachable {
            // Other memory may get the addresses, and the program may find that devices have them.
            self.know(device as usize..device as usize + region.len());
        } else {
            UNREACHABLE.fetch_sub(1, Ordering::Relaxed);
        }
        self.small.remove(&device);
        self.spans = None;
        MIRRORED.any.store(!self.by_device.is_empty(), Ordering::Relaxed);
        Some((device, region))
    }

    /// The mirror's address of memory that begins at an address of this process.
    pub fn mirror_at(&self, host: usize) -> Option<u64> {
        self.by_host.get(&host).copied()
    }

    /// Where the memory of a context begins in this process.
    pub fn of_context(&self, context: Handle<Context>) -> Vec<usize> {
        self.by_device.values().filter(|region| region.context == context).map(|region| region.host).collect()
    }

    /// Whether a server has a mirror of any.
    pub fn is_any_of(&self, server: usize) -> bool {
        self.by_device.values().any(|region| region.context.server() == server)
    }

    /// The region in which an address of the device lies, and where it begins.
    pub fn region(&self, device: u64) -> Option<(u64, &Region)> {
        let (&start, region) = self.by_device.range(..=device).next_back()?;
        (device - start < region.len() as u64).then_some((start, region))
    }

    fn region_mut(&mut self, device: u64) -> Option<(u64, &mut Region)> {
        let (&start, region) = self.by_device.range_mut(..=device).next_back()?;
        (device - start < region.len() as u64).then_some((start, region))
    }

    /// Where the memory from `first` to `last` is on the device, if all of it lies in one region.
    pub fn device_of(&self, first: usize, last: usize) -> Option<u64> {
        let (&host, &device) = self.by_host.range(..=first).next_back()?;
        let size = self.by_device.get(&device)?.len();
        (last.checked_sub(host)? < size).then(|| device + (first - host) as u64)
    }

    /// So many bytes from an address of the device on are compared before the next command.
    pub fn compare_next(&mut self, device: u64, bytes: usize) {
        if let Some((start, region)) = self.region_mut(device) {
            let at = (device - start) as usize;
            region.compare_next(at..at.saturating_add(bytes));
            let server = region.context.server();
            self.to_compare.insert((server, start));
        }
    }

    /// The places that are to be compared before a command for a server, for [`find`](Self::find).
    pub fn take_pending(&mut self, server: usize, pending: &mut Vec<PendingRange>) {
        self.scan();
        let concerned: Vec<u64> =
            self.to_compare.range((server, 0)..(server + 1, 0)).map(|(_, device)| *device).collect();
        let has_unclear =
            concerned.iter().any(|device| self.by_device.get(device).is_some_and(Region::has_unclear));
        // Asked after the pages that were written to have been looked for: who holds one of them is there now,
        // or has written to it and is found by comparing.
        let has_other_writers = has_unclear && !self.writers.are_none();
        for device in concerned {
            let Some(region) = self.by_device.get_mut(&device) else { continue };
            let ranges = region.take_pending(has_other_writers);
            pending.extend(ranges.iter().map(|range| PendingRange { device, range, is_part: false }));
            if !region.is_to_be_compared() {
                self.to_compare.remove(&(server, device));
            }
        }
    }

    /// Asks the system which pages have been written to.
    fn scan(&mut self) {
        let spans = self.spans.take().unwrap_or_else(|| self.find_spans());
        let mut are_watched = true;
        for Span { range, unwatched } in &spans {
            if !dirty_pages::visit(range.clone(), *unwatched, |written| self.note_written(&written)) {
                self.unwatch(range);
                are_watched = false;
            }
        }
        self.spans = are_watched.then_some(spans);
    }

    /// What lies in a window of addresses is asked about at once: all that is watched there is in the table.
    /// Elsewhere the program may watch pages for itself.
    fn find_spans(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        let mut unreachable_bytes = 0;
        for (host, device) in &self.by_host {
            let Some(region) = self.by_device.get(device) else { continue };
            let watched = region.watched();
            if !region.is_reachable {
                unreachable_bytes += region.len();
                continue;
            }
            if watched.is_empty() {
                continue;
            }
            let is_small_gap = unreachable_bytes <= MAX_SCANNED_GAP;
            unreachable_bytes = 0;
            let is_within = host_window::contains(*host) || host_window::managed().contains(*host);
            let is_next = |last: &Span| match last.unwatched {
                Unwatched::Skipped => {
                    is_small_gap
                        && is_within
                        && host_window::contains(*host) == host_window::contains(last.range.start)
                }
                Unwatched::Refused => !is_within && last.range.end == watched.start,
            };
            match spans.last_mut().filter(|last| is_next(last)) {
                Some(last) => last.range.end = watched.end,
                None => {
                    let unwatched = if is_within { Unwatched::Skipped } else { Unwatched::Refused };
                    spans.push(Span { range: watched, unwatched });
                }
            }
        }
        spans
    }

    fn note_written(&mut self, written: &Range<usize>) {
        for (_, device) in self.by_host.range(..written.end).rev() {
            let Some(region) = self.by_device.get_mut(device) else { continue };
            if region.host + region.len() <= written.start {
                break;
            }
            region.note_written(written);
            if region.is_reachable && region.is_to_be_compared() {
                self.to_compare.insert((region.context.server(), *device));
            }
        }
    }

    /// The system does not say what was written to in a span: it is compared from now on.
    fn unwatch(&mut self, span: &Range<usize>) {
        for (_, device) in self.by_host.range(..span.end).rev() {
            let Some(region) = self.by_device.get_mut(device) else { continue };
            if region.host + region.len() <= span.start {
                break;
            }
            region.unwatch();
            if region.is_reachable {
                self.to_compare.insert((region.context.server(), *device));
            }
        }
    }

    /// Compares places and takes those out that it has done, until there are enough changes for a command or
    /// no places left. What must not be sent now goes to `blocked`: it differs, but the server has changes
    /// for this region that are not here yet, and both were found against what was agreed on before.
    pub fn find(
        &mut self,
        server: usize,
        pending: &mut Vec<PendingRange>,
        changes: &mut Changes,
        blocked: &mut Blocked,
    ) {
        while changes.len() < MAX_CHANGES
            && let Some(PendingRange { device, range, is_part }) = pending.pop()
        {
            let is_busy = self.is_busy(server, device);
            let Some(region) = self.by_device.get_mut(&device) else { continue };
            let range = range.start..range.end.min(region.len());
            if range.is_empty() {
                continue;
            }
            if !is_part && range.len() > PART {
                let parts = region.unequal_parts(range);
                pending.extend(parts.into_iter().rev().map(|range| PendingRange {
                    device,
                    range,
                    is_part: true,
                }));
            } else if !is_busy {
                let has_unreachable = has_unreachable();
                let mut sent = Vec::new();
                let stopped = region.find(device, range.clone(), changes, MAX_CHANGES, |part| {
                    if has_unreachable {
                        sent.push(part);
                    }
                });
                let mut addresses = Vec::new();
                sent.iter()
                    .for_each(|part| reachability::addresses_in(region.agreed_around(part), &mut addresses));
                addresses.into_iter().for_each(|address| self.note_address(address));
                if stopped < range.end {
                    pending.push(PendingRange { device, range: stopped..range.end, is_part: true });
                }
            } else if region.differs(range.clone()) {
                if blocked.pending.is_empty() {
                    blocked.seen = self.progress(server);
                }
                blocked.pending.push(PendingRange { device, range, is_part });
            }
        }
    }

    /// The word that alone differs in all that a server has mirrors of; nothing where more does, or where the
    /// server may have changes that are not here yet. It is found again by the next command.
    pub fn lone_change(&mut self, server: usize, pending: &mut Vec<PendingRange>) -> Option<LoneChange> {
        pending.clear();
        self.take_pending(server, pending);
        let mut changes = pending.iter().filter_map(|PendingRange { device, range, .. }| {
            let region = self.by_device.get(device)?;
            region.changed(range.clone()).map(|part| (*device, part))
        });
        let change = changes.next().filter(|_| changes.next().is_none());
        self.compare_again(server, pending);
        let (device, part) = change?;
        let region = self.by_device.get(&device).filter(|region| !region.is_managed)?;
        let word = region.word_around(&part)?;
        let bytes = region.bytes(word.clone());
        // What it leads to would have to come first.
        if has_unreachable() && reachability::is_any_in(&region.bytes_around(&word)) {
            return None;
        }
        (!self.is_busy(server, device)).then_some(LoneChange { device, at: word.start, bytes })
    }

    /// Agrees on a lone change, which is added to `changes`.
    pub fn agree(&mut self, change: &LoneChange, changes: &mut Changes) {
        if let Some(region) = self.by_device.get_mut(&change.device) {
            region.agree(change.at, &change.bytes);
            changes.add(change.device + change.at as u64, &change.bytes);
        }
    }

    /// What could not be sent is compared again. Returns, if there is any, how far the server's fetch was that
    /// it has to wait for.
    pub fn put_back(&mut self, server: usize, blocked: &mut Blocked) -> Option<u64> {
        let is_any = !blocked.pending.is_empty();
        self.compare_again(server, &mut blocked.pending);
        is_any.then_some(blocked.seen)
    }

    /// Places are compared before the next command.
    fn compare_again(&mut self, server: usize, pending: &mut Vec<PendingRange>) {
        for PendingRange { device, range, .. } in pending.drain(..) {
            if let Some(region) = self.by_device.get_mut(&device) {
                region.compare_next(range);
                self.to_compare.insert((server, device));
            }
        }
    }

    /// Puts in what kernels of a server have written.
    pub fn put(&mut self, server: usize, address: u64, bytes: &[u8]) {
        if let Some((start, region)) = self.region_mut(address)
            && region.context.server() == server
        {
            region.put((address - start) as usize, bytes);
        }
    }

    /// Makes the pages for bytes that are put in next.
    pub fn make_pages(&mut self, server: usize, address: u64, bytes: usize) {
        if let Some((start, region)) = self.region_mut(address)
            && region.context.server() == server
        {
            region.make_pages((address - start) as usize, bytes);
            if region.is_to_be_compared() {
                self.to_compare.insert((server, start));
            }
        }
    }

    /// Whether a server has changes for a region that are not here yet, or may find some.
    pub fn is_busy(&self, server: usize, device: u64) -> bool {
        let Some(fetching) = self.fetches.get(&server) else { return false };
        let end = device + self.by_device.get(&device).map_or(0, Region::len) as u64;
        let overlaps =
            |part: &MemoryRange| part.address < end && device < part.address.saturating_add(part.bytes);
        fetching.searching_from.is_some_and(|from| from < end) || fetching.reading.iter().any(overlaps)
    }

    /// How far fetches from a server are.
    pub fn progress(&self, server: usize) -> u64 {
        self.fetches.get(&server).map_or(0, |fetching| fetching.progress)
    }

    /// The server looks for changes from this address on.
    pub fn begin_search(&mut self, server: usize, from: u64) {
        let fetching = self.fetches.entry(server).or_default();
        fetching.searching_from = Some(from);
        fetching.reading.clear();
    }

    /// The server has looked. Returns what of the long stretches that it has found is to be read: memory
    /// that has been forgotten meanwhile is not.
    pub fn end_search(&mut self, server: usize, found: Vec<MemoryRange>) -> Vec<MemoryRange> {
        let is_here = |found: &MemoryRange| {
            self.region(found.address).is_some_and(|(_, region)| region.context.server() == server)
        };
        let found: Vec<_> = found.into_iter().filter(is_here).collect();
        let fetching = self.fetches.entry(server).or_default();
        fetching.searching_from = None;
        fetching.reading.clone_from(&found);
        fetching.progress += 1;
        found
    }

    /// Nothing is being fetched from a server any more. Returns how far its fetches are.
    pub fn end_fetch(&mut self, server: usize) -> u64 {
        let fetching = self.fetches.entry(server).or_default();
        (fetching.searching_from, fetching.progress) = (None, fetching.progress + 1);
        fetching.reading.clear();
        fetching.progress
    }
}

#[cfg(test)]
mod tests;

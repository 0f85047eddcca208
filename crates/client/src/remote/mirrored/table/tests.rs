//! Tests of the mirror table, with memory of this process.

use super::*;
use causeway_memory::pages::page_size;

/// So many regions of a page fill what is compared each time.
fn small() -> usize {
    MAX_COMPARED_PAGES / page_size()
}

/// Memory of the process's own.
struct Memory(Range<usize>);

impl Memory {
    /// Pages that are there.
    fn new(pages: usize) -> Self {
        let length = pages * page_size();
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the system's choice.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), length, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let memory = Self(start as usize..start as usize + length);
        (0..pages).for_each(|page| memory.write(page * page_size(), 0));
        memory
    }

    fn write(&self, at: usize, value: u8) {
        // SAFETY: inside the mapping.
        unsafe { (self.0.start as *mut u8).add(at).write_volatile(value) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and not used any more.
        unsafe { libc::munmap(self.0.start as *mut libc::c_void, self.0.len()) };
    }
}

/// A table in which each page of memory is a region, or nothing where the system notes no written pages.
fn table(memory: &Memory, ask: fn() -> bool) -> Option<Table> {
    let mut table = Table { writers: OtherWriters::with_check(ask), ..Table::default() };
    for host in memory.0.clone().step_by(page_size()) {
        table.add(Handle::NULL, host, page_size(), host as u64, Pages::OfProgram);
    }
    let is_watched = table.by_device.values().skip(small()).all(|region| !region.watched().is_empty());
    is_watched.then_some(table)
}

/// The pages that are to be compared.
fn to_compare(table: &mut Table, memory: &Memory) -> Vec<usize> {
    let mut pending = Vec::new();
    table.writers.check_again();
    table.take_pending(0, &mut pending);
    let mut pages: Vec<_> =
        pending.iter().map(|pending| (pending.device as usize - memory.0.start) / page_size()).collect();
    pages.sort_unstable();
    pages
}

#[test]
fn memory_that_nobody_writes_costs_nothing() {
    let memory = Memory::new(300);
    let Some(mut table) = table(&memory, || false) else { return };
    let small: Vec<usize> = (0..small()).collect();
    assert_eq!(to_compare(&mut table, &memory), (0..300).collect::<Vec<_>>());
    assert_eq!(table.spans.as_ref().map(Vec::len), Some(1), "one system call for all of it");
    assert_eq!(to_compare(&mut table, &memory), small);
    memory.write(77 * page_size() + 5, 1);
    assert_eq!(to_compare(&mut table, &memory), [small.clone(), vec![77]].concat());
    assert_eq!(to_compare(&mut table, &memory), small);
    // A copy reads what has not been written to, as far as is known.
    table.compare_next((memory.0.start + 100 * page_size()) as u64, 10);
    assert_eq!(to_compare(&mut table, &memory), [small.clone(), vec![100]].concat());
    assert!(table.remove(memory.0.start + 77 * page_size()).is_some());
    assert_eq!(to_compare(&mut table, &memory), small);
}

#[test]
fn written_pages_that_may_be_held_are_compared_each_time() {
    let memory = Memory::new(20);
    let Some(mut table) = table(&memory, || true) else { return };
    for _ in 0..3 {
        assert_eq!(to_compare(&mut table, &memory), (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn write_waits_only_for_fetches_of_its_region() {
    let memory = Memory::new(3);
    let mut table = Table::default();
    let device = |page: usize| (memory.0.start + page * page_size()) as u64;
    for page in 0..3 {
        table.add(Handle::NULL, device(page) as usize, page_size(), device(page), Pages::Shared);
    }
    let find = |table: &mut Table| {
        let (mut pending, mut changes, mut blocked) = (Vec::new(), Changes::default(), Blocked::default());
        table.take_pending(0, &mut pending);
        table.find(0, &mut pending, &mut changes, &mut blocked);
        let devices: Vec<u64> = blocked.pending.iter().map(|pending| pending.device).collect();
        (!changes.is_empty(), devices, table.put_back(0, &mut blocked))
    };
    // While the server looks, it may find something anywhere behind where it began.
    table.begin_search(0, device(1));
    assert_eq!(find(&mut table), (false, vec![], None));
    (0..2).for_each(|page| memory.write(page * page_size(), 1));
    let (is_sent, blocked, seen) = find(&mut table);
    assert_eq!((is_sent, blocked), (true, vec![device(1)]));
    // It has found something in the last one, and in memory that is not there any more.
    let found = |page| MemoryRange { address: device(page), bytes: page_size() as u64 };
    assert_eq!(table.end_search(0, vec![found(2), found(7)]).len(), 1);
    assert!(table.progress(0) > seen.unwrap());
    memory.write(2 * page_size(), 1);
    let (is_sent, blocked, seen) = find(&mut table);
    assert_eq!((is_sent, blocked), (true, vec![device(2)]));
    assert!(table.is_busy(0, device(2)) && !table.is_busy(0, device(1)));
    // Bytes that come and what the program writes beside them do not meet.
    table.put(0, device(2) + 1, &[9]);
    assert!(table.end_fetch(0) > seen.unwrap());
    assert!(find(&mut table).1.is_empty());
    // SAFETY: inside the mapping.
    assert_eq!(unsafe { *(device(2) as *const [u8; 2]) }, [1, 9]);
}

#[test]
fn finished_fetch_releases_a_blocked_range() {
    let memory = Memory::new(1);
    let mut table = Table::default();
    let device = memory.0.start as u64;
    table.add(Handle::NULL, memory.0.start, page_size(), device, Pages::Shared);
    let (mut pending, mut changes, mut blocked) = (Vec::new(), Changes::default(), Blocked::default());
    table.begin_search(0, device);
    memory.write(0, 1);
    table.take_pending(0, &mut pending);
    table.find(0, &mut pending, &mut changes, &mut blocked);
    // Other changes are on their way meanwhile, without the lock of the table.
    let ended = table.end_fetch(0);
    assert!(table.put_back(0, &mut blocked).is_some_and(|seen| seen < ended));
}

#[test]
fn a_word_that_alone_has_changed_is_agreed_on_and_no_other() {
    // What is compared each time, and one page more.
    let managed = small();
    let memory = Memory::new(managed + 1);
    let mut table = Table::default();
    let device = |page: usize| (memory.0.start + page * page_size()) as u64;
    for page in 0..=managed {
        let pages = if page == managed { Pages::Managed } else { Pages::Shared };
        table.add(Handle::NULL, device(page) as usize, page_size(), device(page), pages);
    }
    let find = |table: &mut Table| table.lone_change(0, &mut Vec::new());
    assert!(find(&mut table).is_none());
    memory.write(page_size() + 13, 1);
    let lone = find(&mut table).unwrap();
    assert_eq!((lone.device, lone.at, lone.bytes[5]), (device(1), 8, 1));
    // What has company, and what the server may have changed, stays for the next command.
    memory.write(page_size() + 16, 1);
    assert!(find(&mut table).is_none());
    memory.write(page_size() + 16, 0);
    memory.write(0, 1);
    assert!(find(&mut table).is_none());
    memory.write(0, 0);
    table.begin_search(0, device(1));
    assert!(find(&mut table).is_none());
    table.end_fetch(0);
    assert!(find(&mut table) == Some(lone));
    let (lone, mut changes) = (find(&mut table).unwrap(), Changes::default());
    memory.write(page_size() + 13, 2);
    table.agree(&lone, &mut changes);
    assert!(!changes.is_empty());
    assert_eq!(find(&mut table).unwrap().bytes[5], 2, "what was written since is another change");
    memory.write(page_size() + 13, 1);
    memory.write(managed * page_size(), 1);
    assert!(find(&mut table).is_none(), "managed memory is sent with commands alone");
}

#[test]
fn memory_that_no_device_can_reach_is_not_compared() {
    let memory = Memory::new(9);
    let at = |page: usize| memory.0.start + page * page_size();
    let mut table = Table { writers: OtherWriters::with_check(|| false), ..Table::default() };
    let add = |table: &mut Table, page| {
        table.add_unreachable(Handle::NULL, at(page), page_size(), at(page) as u64, Pages::OfProgram);
    };
    (0..9).for_each(|page| add(&mut table, page));
    assert!(to_compare(&mut table, &memory).is_empty());
    assert!(has_unreachable() && !table.is_any_newly_reachable(0));
    // What was written before counts; an address may mean what begins or ends beside its place.
    memory.write(at(4) - memory.0.start + 8, 1);
    table.note_address(at(4) as u64 + 9);
    assert_eq!(to_compare(&mut table, &memory), [3, 4, 5]);
    assert!(table.is_any_newly_reachable(0) && !table.is_any_newly_reachable(1));
    assert_eq!(table.take_newly_reachable(0), [3, 4, 5].map(|page| at(page) as u64));
    assert!(table.take_newly_reachable(0).is_empty());
    table.note_address(at(4) as u64);
    assert!(table.take_newly_reachable(0).is_empty());

    // Addresses that devices may have are remembered when their memory is gone, others are not.
    for page in [5, 8] {
        table.remove(at(page)).unwrap();
        add(&mut table, page);
    }
    assert_eq!(table.take_newly_reachable(0), [at(5) as u64]);
    table.remove(at(7)).unwrap();
    table.note_address(at(7) as u64 + 1);
    assert_eq!(table.take_newly_reachable(0), [6, 8].map(|page| at(page) as u64));
    add(&mut table, 7);
    assert_eq!(table.take_newly_reachable(0), [at(7) as u64]);

    table.mark_all_reachable(&[at(0)..at(3)]);
    assert_eq!(table.take_newly_reachable(0), [0, 1, 2].map(|page| at(page) as u64));
    table.remove(at(1)).unwrap();
    add(&mut table, 1);
    assert_eq!(table.take_newly_reachable(0), [at(1) as u64]);
}

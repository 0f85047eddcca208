//! One piece of memory with a mirror: what both ends agree on, and which places are to be compared.

use super::{dirty_pages, long_ranges};
use crate::model::host_window::{HUGE_PAGE, Reserved};
use crate::remote::mirrored::long_ranges::Ranges;
use causeway_api::handle::{Context, Handle};
use causeway_memory::mirror::{Changes, find_changes};
use causeway_memory::pages::{self, Access, page_size};
use core::ops::Range;

/// Bytes of a word that a device reads at once.
const WORD: usize = 8;

/// Whose the pages of memory are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// This library's own, private to the process, and nothing else lies in them.
    Own,
    /// The same, of managed memory: drivers refuse its pages to all devices but the GPU.
    Managed,
    /// The program's: perhaps others have them, too, or other things lie in the first and the last.
    OfProgram,
    /// Others have them, or the program has them at other addresses, too.
    Shared,
}

/// Memory with a mirror. Places are counted from its first byte.
pub struct Region {
    /// Where commands about the mirror go.
    pub context: Handle<Context>,
    /// Where it is in this process.
    pub host: usize,
    /// The addresses of the mirror, where those are not the memory's own and this process has chosen them.
    pub reserved: Option<Reserved>,
    /// Whether it is managed memory.
    pub is_managed: bool,
    /// Whether kernels may use it: see `reachability`.
    pub is_reachable: bool,
    /// Whose its pages are.
    pages: Pages,
    /// What both ends last agreed on.
    base: Vec<u8>,
    /// Where the system notes the pages that are written to. All else is compared each time.
    watched: Range<usize>,
    /// Where it has found written pages that have not been compared since.
    written: Ranges,
    /// Where a writer may bypass the page table, so that it is compared each time.
    suspect: Ranges,
    /// The bytes from the first on whose pages have been made for what kernels wrote.
    made: usize,
}

impl Region {
    /// Memory at `host`, as long as the mirror is all zeros.
    pub fn new(context: Handle<Context>, host: usize, size: usize, pages: Pages) -> Self {
        let base = long_ranges::zeroed(size);
        let (written, suspect, made) = (Ranges::default(), Ranges::default(), 0);
        let watched = watch(host, size, pages);
        let is_managed = pages == Pages::Managed;
        let (reserved, is_reachable) = (None, true);
        Self {
            context,
            host,
            reserved,
            is_managed,
            is_reachable,
            pages,
            base,
            watched,
            written,
            suspect,
            made,
        }
    }

    /// Watches the pages of this process, in a forked child: the kernel has forgotten which it watched of the
    /// parent's. All is compared once.
    pub fn after_fork(&mut self) {
        self.watched = watch(self.host, self.len(), self.pages);
        self.compare_next(0..self.len());
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.base.len()
    }

    /// Its addresses of which the system notes written pages.
    pub fn watched(&self) -> Range<usize> {
        self.host + self.watched.start..self.host + self.watched.end
    }

    /// Nothing is noted any more: all of it is compared each time.
    pub fn unwatch(&mut self) {
        if !self.watched.is_empty() {
            dirty_pages::unwatch(self.watched());
        }
        self.watched = 0..0;
    }

    /// The system has found pages written to at these addresses, as far as they are watched.
    pub fn note_written(&mut self, addresses: &Range<usize>) {
        let watched = self.watched();
        let (start, end) = (addresses.start.max(watched.start), addresses.end.min(watched.end));
        if start < end {
            self.written.add(start - self.host..end - self.host);
        }
    }

    /// A place is to be compared next time, whatever is known of it.
    pub fn compare_next(&mut self, span: Range<usize>) {
        self.written.add(span.start..span.end.min(self.len()));
    }

    /// Whether there is something to compare.
    pub fn is_to_be_compared(&self) -> bool {
        self.watched != (0..self.len()) || !self.written.is_empty() || !self.suspect.is_empty()
    }

    /// The places that are to be compared now. Those that were found written are suspect from now on,
    /// unless nobody is there who could write to them past the page table.
    pub fn take_pending(&mut self, has_other_writers: bool) -> Ranges {
        let mut ranges = core::mem::take(&mut self.written);
        ranges.add_all(&self.suspect);
        if has_other_writers {
            self.suspect.clone_from(&ranges);
        } else {
            self.suspect.clear();
        }
        ranges.add(0..self.watched.start);
        ranges.add(self.watched.end..self.len());
        ranges
    }

    /// Whether somebody may write past the page table to what was found written, as far as is known.
    pub fn has_unclear(&self) -> bool {
        !self.written.is_empty() || !self.suspect.is_empty()
    }

    /// The parts of a place in which the memory may differ from what both ends agreed on.
    pub fn unequal_parts(&self, span: Range<usize>) -> Vec<Range<usize>> {
        long_ranges::unequal_parts(self.host, &self.base, span.start..span.end.min(self.len()))
    }

    /// Whether the memory differs in a place from what both ends agreed on.
    pub fn differs(&self, span: Range<usize>) -> bool {
        long_ranges::differs(self.host, &self.base, span.start..span.end.min(self.len()))
    }

    /// From the first to the last byte in a place that differs from what both ends agreed on.
    pub fn changed(&self, span: Range<usize>) -> Option<Range<usize>> {
        long_ranges::changed(self.host, &self.base, span.start..span.end.min(self.len()))
    }

    /// The aligned word around a changed part, as far as it is the region's, if the part lies in one.
    pub fn word_around(&self, part: &Range<usize>) -> Option<Range<usize>> {
        let first = (self.host + part.start) / WORD * WORD;
        let word = first.saturating_sub(self.host)..(first + WORD - self.host).min(self.len());
        (part.end <= word.end).then_some(word)
    }

    /// Its bytes in a place.
    pub fn bytes(&self, span: Range<usize>) -> Vec<u8> {
        // SAFETY: the memory has as many bytes as the diff base, and is mapped until the program frees it,
        // which takes the region out first. What another thread writes at this moment is read as it comes.
        unsafe { core::slice::from_raw_parts((self.host + span.start) as *const u8, span.len()) }.to_vec()
    }

    /// Its bytes in a part, with the words that begin before it or end behind it.
    pub fn bytes_around(&self, part: &Range<usize>) -> Vec<u8> {
        self.bytes(part.start.saturating_sub(WORD - 1)..(part.end + WORD - 1).min(self.len()))
    }

    /// Agrees on bytes from `at` on, whatever its state since.
    pub fn agree(&mut self, at: usize, bytes: &[u8]) {
        self.base[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Adds what has changed in a place to `changes`, until those have `max_bytes` bytes, and agrees on it.
    /// Returns where it stopped. The mirror begins at `device`. `sent` gets the parts that have changed.
    pub fn find(
        &mut self,
        device: u64,
        span: Range<usize>,
        changes: &mut Changes,
        max_bytes: usize,
        mut sent: impl FnMut(Range<usize>),
    ) -> usize {
        changes.separate();
        // SAFETY: the memory has as many bytes as the diff base, and is mapped until the program frees it,
        // which takes the region out first.
        unsafe {
            find_changes(self.host as *const u8, &mut self.base, span.start, span.end, |at, bytes| {
                changes.add(device + at as u64, bytes);
                sent(at..at + bytes.len());
                changes.len() < max_bytes
            })
        }
    }

    /// What both ends agree on in a part, with the words that begin before it or end behind it.
    pub fn agreed_around(&self, part: &Range<usize>) -> &[u8] {
        &self.base[part.start.saturating_sub(WORD - 1)..(part.end + WORD - 1).min(self.base.len())]
    }

    /// Puts in what kernels have written from the byte `at` on. What is not in the region is left out.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        let Some(base) = self.base.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) else {
            return;
        };
        // SAFETY: the memory has as many bytes as the diff base, which has these; it is the program's promise
        // that it is writable, and it stays mapped until the program frees it.
        unsafe { long_ranges::merge(self.host + at, base, bytes) };
    }

    /// Makes the pages of long stretches before their bytes are put in. The system gives no huge pages to
    /// memory in which it notes written ones, and to make 1 MiB of small ones takes 2 ms where eight threads
    /// do so (a virtual machine with an H100, 2026-11-24).
    pub fn make_pages(&mut self, at: usize, bytes: usize) {
        let whole = self.host.next_multiple_of(HUGE_PAGE)..(self.host + self.len()) / HUGE_PAGE * HUGE_PAGE;
        let start = (self.host + at.max(self.made)) / HUGE_PAGE * HUGE_PAGE;
        let end = (self.host + at.saturating_add(bytes).min(self.len())).next_multiple_of(HUGE_PAGE);
        let range = start.max(whole.start)..end.min(whole.end);
        if self.watched != (0..self.len()) || range.is_empty() {
            return;
        }
        // Afterwards all of these pages count as written, so that nothing which the program writes meanwhile
        // is lost.
        dirty_pages::unwatch(range.clone());
        pages::populate(range.start, range.len(), Access::Write);
        if !dirty_pages::watch(range.clone()) {
            self.unwatch();
        }
        self.made = range.end - self.host;
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.unwatch();
    }
}

/// Has the system note written pages, as far as what it notes is all that is written there, and returns
/// where.
fn watch(host: usize, size: usize, pages: Pages) -> Range<usize> {
    let end = host + size;
    let range = match pages {
        Pages::Own | Pages::Managed => host..end,
        Pages::OfProgram => host.next_multiple_of(page_size())..end / page_size() * page_size(),
        Pages::Shared => return 0..0,
    };
    let is_private = || pages != Pages::OfProgram || dirty_pages::is_private(range.clone());
    if range.is_empty() || !is_private() || !dirty_pages::watch(range.clone()) {
        return 0..0;
    }
    range.start - host..range.end - host
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 3 * 4096;

    fn region(memory: &[u8]) -> Region {
        Region::new(Handle::NULL, memory.as_ptr() as usize, memory.len(), Pages::Shared)
    }

    fn all(ranges: &Ranges) -> Vec<Range<usize>> {
        ranges.iter().collect()
    }

    #[test]
    fn memory_that_others_have_is_compared_whole_each_time() {
        let memory = vec![0; SIZE];
        let mut region = region(&memory);
        for _ in 0..2 {
            assert!(region.is_to_be_compared());
            assert_eq!(all(&region.take_pending(false)), [0..SIZE]);
        }
    }

    #[test]
    fn dirty_pages_are_compared_while_they_may_be_pinned() {
        let memory = vec![0; SIZE];
        let mut region = region(&memory);
        region.watched = 0..SIZE;
        assert!(!region.is_to_be_compared() && !region.has_unclear());
        let start = region.host;
        region.note_written(&(start + 4096..start + 8192));
        for _ in 0..3 {
            assert!(region.is_to_be_compared());
            assert_eq!(all(&region.take_pending(true)), [4096..8192]);
        }
        region.compare_next(0..5);
        assert_eq!(all(&region.take_pending(false)), [0..5, 4096..8192]);
        assert!(!region.is_to_be_compared());
        region.watched = 0..0;
    }

    #[test]
    fn edges_that_share_their_pages_are_compared_each_time() {
        let memory = vec![0; SIZE];
        let mut region = region(&memory);
        region.watched = 100..SIZE - 50;
        let start = region.host;
        region.note_written(&(start..start + 200));
        assert_eq!(all(&region.take_pending(false)), [0..200, SIZE - 50..SIZE]);
        assert_eq!(all(&region.take_pending(false)), [0..100, SIZE - 50..SIZE]);
        region.watched = 0..0;
    }

    #[test]
    fn a_change_within_one_aligned_word_is_told_from_others() {
        let mut memory = vec![0_u64; SIZE / 8];
        let bytes = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: inside the memory.
        let mut region = region(unsafe { core::slice::from_raw_parts(bytes, SIZE) });
        assert_eq!(region.changed(0..SIZE), None);
        // SAFETY: inside the memory.
        unsafe { bytes.add(4099).write(1) };
        assert_eq!(region.changed(0..SIZE), Some(4099..4100));
        assert_eq!(region.word_around(&(4099..4100)), Some(4096..4104));
        // SAFETY: inside the memory.
        unsafe { bytes.add(4104).write(1) };
        assert_eq!(region.changed(0..SIZE), Some(4099..4105));
        assert_eq!(region.word_around(&(4099..4105)), None);
        region.agree(4096, &region.bytes(4096..4104));
        assert_eq!(region.changed(0..SIZE), Some(4104..4105));
    }

    #[test]
    fn changes_are_found_and_put() {
        let mut memory = vec![0_u8; SIZE];
        let mut region = region(&memory);
        region.put(SIZE - 3, &[1, 2, 3]);
        region.put(SIZE - 2, &[9, 9, 9]);
        assert_eq!(memory[SIZE - 3..], [1, 2, 3]);
        assert!(!region.differs(0..SIZE));
        memory[4100] = 5;
        assert!(region.differs(4096..4200) && !region.differs(0..4096));
        let mut changes = Changes::default();
        let mut sent = Vec::new();
        assert_eq!(region.find(0, 0..SIZE, &mut changes, usize::MAX, |part| sent.push(part)), SIZE);
        assert_eq!(sent, [4096..4160]);
        assert_eq!(region.agreed_around(&sent[0])[7 + 4], 5);
        assert_eq!(region.agreed_around(&(SIZE - 64..SIZE)).len(), 64 + 7);
        assert!(!changes.is_empty() && !region.differs(0..SIZE));
    }
}
